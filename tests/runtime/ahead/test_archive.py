"""The cache as a file: what goes out comes in, and nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from cubepy.config import config
from cubepy.errors import CacheFileError
from cubepy.runtime import cache
from cubepy.runtime.ahead.archive import FORMAT, LIST, export_cache, import_cache

KEYS = [hashlib.sha256(bytes([n])).hexdigest() for n in range(3)]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An archive of three kernels."""
    archive = tmp_path / "kernels.tar"
    with config.override(cache_dir=str(tmp_path / "there"), cache=True):
        for n, key in enumerate(KEYS):
            cache.write(key, bytes(range(n + 1, 200)))
            cache.write_source(key, f"# {n}\n")
        assert export_cache(archive) == 3
    return archive


def test_what_was_exported_is_imported_elsewhere(exported: Path, tmp_path: Path) -> None:
    with config.override(cache_dir=str(tmp_path / "here"), cache=True):
        assert import_cache(exported) == 3
        assert [cache.read(key) for key in KEYS] == [bytes(range(n + 1, 200)) for n in range(3)]
        assert cache.path_of(KEYS[1], ".py").read_text() == "# 1\n"
        assert import_cache(exported) == 0, "known already"


def test_a_damaged_archive_is_refused_and_leaves_nothing(exported: Path, tmp_path: Path) -> None:
    """Any byte that is another one, and any end that is missing, is either seen or does not matter."""
    whole = exported.read_bytes()
    random = np.random.default_rng(17)
    for n in range(40):
        data = bytearray(whole)
        if n % 2:
            data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        else:
            del data[int(random.integers(len(data))) :]
        exported.write_bytes(data)
        here = tmp_path / f"here{n}"
        with config.override(cache_dir=str(here), cache=True):
            try:
                import_cache(exported)
            except CacheFileError:
                assert not here.exists()
            else:
                assert [cache.read(key) for key in KEYS] == [
                    bytes(range(k + 1, 200)) for k in range(3)
                ]


def archive_of(path: Path, members: dict[str, bytes], sums: dict[str, str] | None = None) -> Path:
    """An archive as somebody else might make it."""
    head = {
        "format": FORMAT,
        "entries": sums or {n: hashlib.sha256(d).hexdigest() for n, d in members.items()},
    }
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {LIST: json.dumps(head).encode(), **members}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    "name", ["../evil.py", "/tmp/evil.py", f"../{KEYS[0]}.py", f"{KEYS[0]}.sh", f"x{KEYS[0]}.py"]
)
def test_names_that_are_no_hashes_are_refused(tmp_path: Path, name: str) -> None:
    path = archive_of(tmp_path / "a.tar", {name: b"evil"})
    with (
        config.override(cache_dir=str(tmp_path / "here"), cache=True),
        pytest.raises(CacheFileError, match="no entry"),
    ):
        import_cache(path)
    assert sorted(os.listdir(tmp_path)) == ["a.tar"]


def test_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"{KEYS[0]}.py")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(member)
    with pytest.raises(CacheFileError, match="no entry"):
        import_cache(path)


def test_machine_code_without_its_checksum_is_refused(tmp_path: Path) -> None:
    path = archive_of(tmp_path / "a.tar", {f"{KEYS[0]}.bin": b"not made by cubepy"})
    with pytest.raises(CacheFileError, match="no machine code"):
        import_cache(path)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"hello" * 100)
    with pytest.raises(CacheFileError, match=r"a\.tar"):
        import_cache(path)
    with pytest.raises(FileNotFoundError):
        import_cache(tmp_path / "missing.tar")
