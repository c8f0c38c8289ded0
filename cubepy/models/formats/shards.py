"""safetensors: one file, or shards that an index names (`model.safetensors.index.json`)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from cubepy.models.formats.stored import Refusal, Stored
from cubepy.nn import load_safetensors

MOST_JSON = 100_000_000


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Stored]:
    """The tensors of one file, in their own dtypes; nothing of them is read yet.

    Raises:
        FileFormatError: as for `nn.load_safetensors`.
    """
    found = {}
    for name, tensor in load_safetensors(path).items():
        array: np.ndarray = tensor.storage.dense()
        found[name] = Stored(name, tensor.dtype.name, tensor.shape, array)
    return found


def read_index(path: str | os.PathLike[str]) -> dict[str, Stored]:
    """The tensors of all shards that an index names; a shard lies beside its index.

    Raises:
        FileFormatError: an index that is none, shards that are missing (all are named), or that
            lack a tensor.
    """
    refuse, folder = Refusal(path), Path(path).parent
    index = read_json(path)
    names = index.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
        refuse("an index needs weight_map, the file of each tensor by its name")
    files = sorted(set(names.values()))
    if outside := [f for f in files if Path(f).name != f or f in ("", ".", "..")]:
        refuse(f"shards lie beside the index, not at {outside[0]!r}")
    if missing := [f for f in files if not _is_file(folder / f)]:
        named = ", ".join(f if len(f) < 80 else f"{f[:80]}..." for f in missing[:8])
        refuse(
            f"{len(missing)} of {len(files)} shards are missing: {named}",
            "fetch them into the folder of the index",
        )
    shards = {f: read_safetensors(folder / f) for f in files}
    if lost := [name for name, f in names.items() if name not in shards[f]]:
        refuse(f"tensors that are not in the shard that the index names: {', '.join(lost[:8])}")
    return {name: shards[f][name] for name, f in names.items()}


def _is_file(path: Path) -> bool:
    """Whether there is a file; a name that no file can have names none."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A file with one JSON object.

    Raises:
        FileFormatError: it is none.
    """
    refuse = Refusal(path)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        raw = file.read(min(size, MOST_JSON) + 1)  # which are taken before anything is read
    if len(raw) > MOST_JSON:
        refuse(f"a JSON text of more than {MOST_JSON} bytes")
    try:
        found = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        refuse(f"no JSON text: {error}")
    if not isinstance(found, dict):
        refuse(f"expected a JSON object, got {type(found).__name__}")
    return found
