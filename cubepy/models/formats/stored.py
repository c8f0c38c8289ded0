"""A tensor in a file: its name, what its elements are, and the bytes, which nobody has read yet."""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from cubepy.errors import FileFormatError
from cubepy.lang.dtypes import dtype_named
from cubepy.nn import arguments

DAMAGED = "the file is damaged or not of this format; fetch or write it again"
MOST_AXES = 32


@dataclass(frozen=True)
class Stored:
    """A tensor of a file.

    Attributes:
        name: as the file has it.
        kind: the name of its dtype ("f32", "bf16"), or of its blocks ("Q4_0").
        shape: of the logical tensor.
        data: plain dtypes: the array. Blocks: bytes, (..., bytes of a row).

    Example:
        >>> Stored("w", "f32", (2,), np.zeros(2, np.float32)).nbytes
        8
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    data: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return int(self.data.nbytes)

    @property
    def size(self) -> int:
        """Elements of the logical tensor."""
        return math.prod(self.shape)


class Refusal:
    """How errors of one file begin.

    Example:
        >>> Refusal("x.bin")("it has 3 bytes")
        Traceback (most recent call last):
            ...
        cubepy.errors.FileFormatError: x.bin: it has 3 bytes
          Hint: the file is damaged or not of this format; fetch or write it again
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __call__(self, rule: str, hint: str = DAMAGED) -> NoReturn:
        raise FileFormatError(f"{self.path}: {rule}", hint=hint)


def mapped(path: str | os.PathLike[str]) -> np.ndarray:
    """The bytes of a file, mapped read-only; the map lives as long as a view of it.

    Raises:
        FileNotFoundError, IsADirectoryError: there is no such file.
        FileFormatError: it is empty.
    """
    with open(arguments.path("path", path), "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            Refusal(path)("the file is empty")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def view_of(data: np.ndarray, offset: int, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Elements of a plain dtype from a byte on: a view, or a copy where they are not aligned."""
    dtype = dtype_named(kind).numpy
    raw = data[offset : offset + math.prod(shape) * dtype.itemsize]
    if raw.size and raw.ctypes.data % dtype.itemsize:
        raw = raw.copy()
    return raw.view(dtype).reshape(shape)


def checked_shape(name: str, shape: Any, refuse: Refusal) -> tuple[int, ...]:
    """Lengths that an array can have.

    Raises:
        FileFormatError: more axes, or more elements, than there can be.
    """
    if len(shape) > MOST_AXES:
        refuse(f"tensor {name!r} has {len(shape)} axes; at most {MOST_AXES} are possible")
    if any(n < 0 for n in shape) or math.prod(max(n, 1) for n in shape) >= 2**62:
        refuse(f"tensor {name!r} has the shape {tuple(shape)}, which no array can have")
    return tuple(int(n) for n in shape)
