"""Memory with a type: arrays, shared memory and stacks, with the bounds of every access checked."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[str, np.dtype] = {
    "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16), "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64), "i8": np.dtype(np.int8), "u8": np.dtype(np.uint8), "i16": np.dtype(np.int16),
    "u16": np.dtype(np.uint16), "i32": np.dtype(np.int32), "u32": np.dtype(np.uint32), "i64": np.dtype(np.int64),
    "u64": np.dtype(np.uint64), "bool_": np.dtype(np.bool_), "bool": np.dtype(np.bool_),
}  # fmt: skip
NARROW = (DTYPES["bf16"], DTYPES["f16"])


OWN = frozenset([np.int8, np.int16, np.int32, np.int64, np.bool_])


def plain(value: Any) -> Any:
    """A signed number or a flag as Python's own: quicker, and right as an index; other numbers as
    they are.
    """
    return value.item() if type(value) in OWN else value


class Place:
    """Elements in memory, from some byte of a cube's shared memory (or of nowhere, for an array)
    on.

    `first` of them lie before the one that has index 0.
    """

    __slots__ = ("dtype", "first", "items", "narrow", "start")

    def __init__(self, items: np.ndarray, start: int = -1, first: int = 0) -> None:
        self.items, self.dtype, self.start, self.first = items, items.dtype, start, first
        self.narrow = items.dtype in NARROW

    def part(self, i: Any, count: int) -> np.ndarray:
        """Some neighbours, as they lie."""
        at = int(i) + self.first
        assert 0 <= at and at + count <= len(self.items), (
            f"elements {at} to {at + count} of {len(self.items)}"
        )
        return self.items[at : at + count]

    def byte(self, i: Any) -> int:
        """Where an element lies in shared memory."""
        assert self.start >= 0, "an array lies not in shared memory"
        return self.start + int(i) * self.dtype.itemsize


def array_words(array: np.ndarray) -> list[Any]:
    """An array as the generated code gets it: elements, lengths and strides, which are not
    negative.
    """
    strides = [step // array.itemsize for step in array.strides]
    assert all(step >= 0 for step in array.strides), "axes that run backwards are not emulated"
    reach = 1 + sum((n - 1) * step for n, step in zip(array.shape, strides, strict=True))
    flat = np.lib.stride_tricks.as_strided(array, (reach,), (array.itemsize,))
    return [Place(flat), *array.shape, *strides]


def load(p: Any, i: Any) -> Any:
    if isinstance(
        p, np.ndarray
    ):  # a stack: of numbers, or of lines, which later stores must not change
        return p[int(i)].copy() if p.ndim > 1 else plain(p[int(i)])
    value = p.part(i, 1)[0]
    return np.float32(value) if p.narrow else plain(value)


def store(p: Any, i: Any, value: Any) -> None:
    if isinstance(p, np.ndarray):
        p[int(i)] = value
    else:
        p.part(i, 1)[0] = value


def load_line(p: Any, i: Any, lanes: int, *_: Any) -> np.ndarray:
    if isinstance(p, np.ndarray):
        return p[int(i) : int(i) + lanes].copy()
    part = p.part(i, lanes)
    return part.astype(np.float32) if p.narrow else part.copy()


def load_if(p: Any, i: Any, ok: Any) -> Any:
    return load(p, i) if ok else np.float32(0) if p.narrow else plain(p.dtype.type(0))


def store_if(p: Any, i: Any, value: Any, ok: Any) -> None:
    if ok:
        store(p, i, value)


def gather_line(p: Place, index: np.ndarray, mask: np.ndarray) -> np.ndarray:
    out = np.zeros(len(index), np.float32 if p.narrow else p.dtype)
    for lane in np.flatnonzero(mask):
        out[lane] = p.part(index[lane], 1)[0]
    return out


def scatter_line(p: Place, index: np.ndarray, line: np.ndarray, mask: np.ndarray) -> None:
    for lane in np.flatnonzero(mask):
        p.part(index[lane], 1)[0] = line[lane]


def load_line_part(p: Place, i: Any, lanes: int, valid: Any, *_: Any) -> np.ndarray:
    out = np.zeros(lanes, np.float32 if p.narrow else p.dtype)
    n = max(0, min(lanes, int(valid)))
    if n:
        out[:n] = p.part(i, n)
    return out


def load_line_or(
    p: Place, i: Any, lanes: int, valid: Any, other: np.ndarray, *_: Any
) -> np.ndarray:
    out, n = load_line_part(p, i, lanes, valid), max(0, min(lanes, int(valid)))
    out[n:] = other[n:]
    return out


def store_line(p: Any, i: Any, line: np.ndarray, *_: Any) -> None:
    if isinstance(p, np.ndarray):
        p[int(i) : int(i) + len(line)] = line
    else:
        p.part(i, len(line))[:] = line.astype(p.dtype)


def store_line_part(p: Place, i: Any, line: np.ndarray, valid: Any, *_: Any) -> None:
    n = max(0, min(len(line), int(valid)))
    if n:
        p.part(i, n)[:] = line[:n].astype(p.dtype)


def add_line(p: Place, line: np.ndarray, i: Any) -> None:
    p.part(i, len(line))[:] += line


def atomic_rmw(p: Place, i: Any, value: Any, name: str) -> Any:
    """An atomic update; the old value. (Whoever runs is alone.)"""
    old = load(p, i)
    store(p, i, np.asarray(COMBINED[name](p.part(i, 1)[0], p.dtype.type(value)), p.dtype))
    return old


def stack(dtype: str, lanes: int, n: int) -> np.ndarray:
    """Registers, with numbers that show where they are read before they are written."""
    kind = np.dtype(np.float32) if DTYPES[dtype] in NARROW else DTYPES[dtype]
    unknown: Any = np.nan if kind.kind == "f" else np.iinfo(kind).max if kind.kind in "iu" else True
    return np.full((n, lanes) if lanes else n, unknown, kind)


COMBINED: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "max": max, "min": min, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "xchg": lambda a, b: b,
}  # fmt: skip
MEMORY_OPS: dict[str, Any] = {
    "load": load, "store": store, "load_line": load_line, "load_line_part": load_line_part,
    "load_line_or": load_line_or, "store_line": store_line,
    "store_line_part": store_line_part, "add_line": add_line, "stack": stack,
    "atomic_rmw": atomic_rmw, "load_if": load_if, "store_if": store_if, "gather_line": gather_line,
    "scatter_line": scatter_line, "store_line_stream": store_line,
}  # fmt: skip
