"""Files of `torch.export.save`: what is in them is looked at before torch gets them.

Torch runs pickles out of such files, and evaluates the texts of lengths. So torch gets a copy
without sample arguments and guards, and only where everything else is plain.
"""

from __future__ import annotations

import io
import json
import os
import re
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

from cubepy.errors import FileFormatError
from cubepy.models.formats.stored import Refusal

FUNCTIONS = (
    "Max Min Mod PythonMod FloorDiv CleanDiv CeilDiv CeilToInt FloorToInt TruncToInt ToFloat "
    "IntTrueDiv FloatTrueDiv Abs floor ceiling Eq Ne Lt Le Gt Ge And Or Not Piecewise True False "
    "Symbol Integer Rational Add Mul positive nonnegative integer int_oo oo Pow PowByNatural "
    "RoundToInt Identity"
).split()
WORD = re.compile(r"[A-Za-z_]\w*")
LENGTH = re.compile(r"[A-Za-z_]*\d+")
NAMED = re.compile(r"Symbol\('([a-z]{1,4}\d+)'")
PLAIN = re.compile(r"[\w\s+\-*/(),<>=]*")
DAMAGED = (zipfile.BadZipFile, OSError, ValueError, RuntimeError, struct.error, EOFError)
"""What zipfile raises."""
MODEL = "models/model.json"


def is_exported(path: str | os.PathLike[str]) -> bool:
    """Whether a zip file is one of `torch.export.save`."""
    try:
        with zipfile.ZipFile(path) as file:
            return any(name.endswith(f"/{MODEL}") for name in file.namelist())
    except DAMAGED:
        return False


def operators(path: str | os.PathLike[str]) -> Counter[str]:
    """How often each operator comes in an exported program, by its name.

    Raises:
        FileFormatError: a damaged file.
    """
    with _opened(path) as file:
        graph = _json(file, _root(file) + MODEL, path)
    nodes = [one for one in _inside(graph) if isinstance(one.get("target"), str)]
    return Counter(one["target"].removeprefix("torch.ops.") for one in nodes)


def harmless(path: str | os.PathLike[str]) -> io.BytesIO:
    """A copy of an exported program that runs nothing when torch reads it.

    Raises:
        FileFormatError: a damaged file, or one with pickles or texts that would run.
    """
    refuse = Refusal(os.fspath(path))
    out = io.BytesIO()
    with _opened(path) as file, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as copy:
        root = _root(file)
        for info in file.infolist():
            name = info.filename.removeprefix(root)
            if info.file_size > info.compress_size:
                refuse(f"{name!r} is compressed, which torch does not do")
            try:
                data = file.read(info)
            except DAMAGED as error:
                refuse(f"{name!r} is damaged: {str(error)[:100]}")
            if name.startswith("data/sample_inputs/"):
                data = b""
            elif name.endswith("_config.json"):
                for one in _inside(_json(file, info.filename, path)):
                    if one.get("use_pickle"):
                        refuse(
                            f"{name!r} names pickles, which could run anything",
                            "save a module of plain tensors again",
                        )
            elif name.startswith("models/"):
                graph = _json(file, info.filename, path)
                for one in _inside(graph):
                    _check_lengths(one, refuse)
                if isinstance(graph, dict) and "guards_code" in graph:
                    graph["guards_code"] = []
                data = json.dumps(graph).encode()
            elif name.startswith(("data/aotinductor/", "extra/")):
                refuse(f"{name!r} is a program")
            copy.writestr(info.filename, data)
    out.seek(0)
    return out


def _check_lengths(one: dict[str, Any], refuse: Refusal) -> None:
    """Lengths are sums and the like of named lengths."""
    text = one.get("expr_str")
    if not isinstance(text, str):
        return
    text = NAMED.sub(r"\1", text)
    words = WORD.findall(text)
    fine = PLAIN.fullmatch(text) and len(text) < 2000 and "__" not in text and "**" not in text
    if not fine or any(w not in FUNCTIONS and not LENGTH.fullmatch(w) for w in words):
        refuse(f"the length {text[:80]!r} is more than arithmetic")


def _inside(value: Any) -> Iterator[dict[str, Any]]:
    """All dicts in a value of JSON."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield one
            stack.extend(one.values())
        elif isinstance(one, list):
            stack.extend(one)


def _opened(path: str | os.PathLike[str]) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except DAMAGED as error:
        Refusal(os.fspath(path))(f"it is no zip file: {str(error)[:100]}")


def _root(file: zipfile.ZipFile) -> str:
    """The folder that the archive has everything in."""
    found = [n for n in file.namelist() if n.endswith(f"/{MODEL}")]
    if not found:
        Refusal(str(file.filename))(f"there is no {MODEL} in it")
    return found[0].removesuffix(MODEL)


def _json(file: zipfile.ZipFile, name: str, path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(file.read(name))
    except (*DAMAGED, RecursionError, KeyError) as error:
        raise FileFormatError(
            f"{os.fspath(path)}: {name!r} is damaged: {str(error)[:100]}",
            hint="write it again with torch.export.save",
        ) from None
