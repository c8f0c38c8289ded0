"""Reads what `scripts/make_op_fixture.py` wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.runtime.device import current

FOLDER = Path(__file__).parent.parent / "fixtures"
FILES = FOLDER / "torch_ops.npz", FOLDER / "newer_torch_ops.npz"
DTYPES = {"bool": "bool_", "float64": "f64", "float32": "f32", "int64": "i64", "uint8": "u8"}


class Call(NamedTuple):
    """A call of an op of torch, with tensors of cubepy as arguments; what it gave; gradients by the
    tensors that need some, in their order, None where there is none.
    """

    args: list[Any]
    kwargs: dict[str, Any]
    results: list[np.ndarray]
    first: list[np.ndarray | None]
    second: list[np.ndarray | None]


def weights(seed: int, shape: Any) -> np.ndarray:
    """As in the script."""
    return np.asarray(np.random.default_rng(seed).integers(1, 64, tuple(shape)) / 32)


class Reader:
    """The calls of a file, in its order: numbers stand in the order of the tensors."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.index = json.loads(file["index"].tobytes())
            self.floats = np.ascontiguousarray(file["floats"].T).view(np.float64).reshape(-1)
        self.taken = 0

    def array(self, said: dict[str, Any]) -> np.ndarray:
        count = int(np.prod(said["tensor"], dtype=int))
        part = self.floats[self.taken : self.taken + count]
        self.taken += count
        return part.astype(said["dtype"]).reshape(said["tensor"])

    def form(self, said: Any) -> Any:
        if isinstance(said, list):
            return [self.form(v) for v in said]
        if not isinstance(said, dict):
            return said
        if "tensor" in said:
            return cb.tensor(self.array(said), requires_grad=said["grad"])
        if "slice" in said:
            return slice(*said["slice"])
        if "ellipsis" in said:
            return Ellipsis
        if isinstance(said.get("dtype"), str):
            return DTYPES[said["dtype"]]
        for name in ("list", "tuple", "size"):
            if name in said and isinstance(said[name], list):
                return (list if name == "list" else tuple)(self.form(v) for v in said[name])
        return {name: self.form(v) for name, v in said.items()}

    def calls(self) -> Iterator[tuple[str, Call]]:
        for name, calls in self.index["calls"].items():
            for said in calls:
                args = [self.form(v) for v in said["args"]["list"]]
                kwargs = {k: self.form(v) for k, v in said["kwargs"].items()}
                results = [self.array(v) for v in said["results"]]
                first, second = (
                    [None if v is None else self.array(v) for v in said.get(which, [])]
                    for which in ("first", "second")
                )
                yield name, Call(args, kwargs, results, first, second)
        assert self.taken == len(self.floats)


def calls() -> dict[str, list[Call]]:
    """All calls by the name of the op, with tensors on the current device."""
    return _calls(current())


@cache
def _calls(device: cb.Device) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for file in FILES:
        for name, one in Reader(file).calls():
            found.setdefault(name, []).append(one)
    return found


@cache
def names() -> list[str]:
    """The names of op_db, with their variants."""
    return list(Reader(FILES[-1]).index["names"])
