"""Which format a file or folder has: by what is in it, not by how it is called."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from cubepy.errors import FileFormatError
from cubepy.models.exported.archive import is_exported
from cubepy.models.formats.gguf import MAGIC
from cubepy.nn import arguments

FORMATS = ("gguf", "safetensors", "index", "pickle", "exported", "folder", "onnx")
INDEX = "model.safetensors.index.json"
ENDINGS = r"\.(gguf|safetensors|json|pt2?|pth|bin|onnx)$"


def format_of(source: str | os.PathLike[str]) -> str:
    """One of `FORMATS`.

    Raises:
        FileNotFoundError: there is no such file or folder.
        FileFormatError: it has none of the formats.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "notes.txt"
        >>> _ = path.write_text("a text")
        >>> format_of(path)
        Traceback (most recent call last):
            ...
        cubepy.errors.FileFormatError: ...notes.txt: no model in a format that can be read
          Hint: GGUF, safetensors (or its index), PyTorch's .pt, ONNX, or a folder with config.json
    """
    path = Path(arguments.path("source", source))
    if path.is_dir():
        return "folder"
    if not path.exists():
        raise _missing(os.fspath(source), path.parent.exists())
    with open(path, "rb") as file:
        head = file.read(64)
    if head[:4] == MAGIC:
        return "gguf"
    if head[:4] == b"PK\x03\x04":
        return "exported" if is_exported(path) else "pickle"
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        return "pickle"
    whole = int.from_bytes(head[:8], "little") <= path.stat().st_size
    if head[8:9] == b"{" and (whole or path.suffix == ".safetensors"):
        return "safetensors"
    if head.lstrip()[:1] == b"{" and path.name.endswith(".json"):
        return "index"
    if _is_protobuf(head) or path.suffix == ".onnx":
        return "onnx"
    named = {".safetensors": "safetensors", ".gguf": "gguf", ".pt": "pickle", ".pth": "pickle"}
    if path.suffix in named:
        return named[path.suffix]
    raise FileFormatError(
        f"{path}: no model in a format that can be read",
        hint="GGUF, safetensors (or its index), PyTorch's .pt, ONNX, or a folder with config.json",
    )


def _missing(source: str, near: bool) -> FileNotFoundError:
    """The error for what is not there; a model's address, or name on a hub where there is no folder
    of that name, is said to be one.
    """
    said = os.strerror(errno.ENOENT)
    named = re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", source)
    if "://" in source or (named and not near and not re.search(ENDINGS, source)):
        name = source.partition("huggingface.co/")[2] or source
        said += (
            "; files are read from this machine: "
            f'cb.load(huggingface_hub.snapshot_download("{name}")) fetches a model first'
        )
    return FileNotFoundError(errno.ENOENT, said, source)


def _is_protobuf(head: bytes) -> bool:
    """Whether a file begins as an ONNX model does: the field ir_version (1), a small number."""
    return len(head) > 2 and head[0] == 0x08 and 0 < head[1] < 64 and head[2] & 7 in (0, 2)
