"""Random arguments: one number decides a call, and arrays may lie anywhere, in frames of guard
values.

What decides machine code (dtypes, kinds of layout) is drawn from few values, what does not (sizes)
from many, so that hundreds of thousands of calls share some thousand kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

F16, BF16, F32, F64 = (
    np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
)
FLOATS = (F32, F32, F32, F32, BF16, F16, F64)
INTS = tuple(np.dtype(t) for t in ("i4", "i4", "i8", "i8", "u1", "i2", "u4", "i1", "u8", "u2"))
WIDTHS = {F16: 11, BF16: 8, F32: 24, F64: 53}
"""Bits of the fraction, the hidden one among them."""


def is_float(dtype: np.dtype) -> bool:
    """Whether it is one of the floats that kernels compute with."""
    return dtype in WIDTHS


def unit(dtype: np.dtype) -> float:
    """Half the distance from 1 to the next float: the most that rounding changes, relative to the
    result.
    """
    return 2.0 ** -WIDTHS[dtype] if is_float(dtype) else 0.0


def sums(dtype: np.dtype) -> float:
    """The rounding unit of what a library function sums in: f32, or f64 for f64."""
    return unit(F64 if dtype == F64 else F32)


@dataclass
class Framed:
    """An array inside memory of which the rest must stay as it is."""

    array: np.ndarray
    memory: np.ndarray
    before: np.ndarray | None = None


@dataclass
class Call:
    """One call of the library, and what it has to give.

    Attributes:
        function, args, kwargs: the call.
        want: computes a `Want` (tests/fuzz/check.py), or a list of them, of arguments as they are
            before the call.
        out: whether the function takes `out=`.
        in_place: the argument that `out` may be.
        changed: arrays that the call may write besides its result.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    want: Callable[[], Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    out: bool = True
    in_place: int | None = None
    changed: tuple[np.ndarray, ...] = ()


BLOCK, PALETTES = 100_000, 3
"""Calls with numbers of one block choose what decides code (dtypes, layouts, ranks, options) from
so many palettes for each function, so that hundreds of calls share a kernel; lengths and elements
are every call's own.
"""


class Draw:
    """Random choices from one number.

    Attributes:
        ordered: whether writes happen in the order of the arguments, as on a CPU.
    """

    def __init__(self, number: int, name: str, frames: float = 0.1, device: str = "cpu") -> None:
        self.random, self.ordered = Random(number), device == "cpu"
        self.palette = f"{name} {number // BLOCK} {self.random.randrange(PALETTES)}"
        self.code = Random(self.palette)
        self.numbers = np.random.Generator(np.random.SFC64(number))
        self.framed = self.random.random() < frames
        self.frames: list[Framed] = []
        self.rooms = 0

    def one(self, options: Sequence[Any]) -> Any:
        """One of some options, the same for all calls of a palette."""
        return options[int(self.code.random() * len(options))]

    def maybe(self, chance: float = 0.5) -> bool:
        """Whether an option is taken, the same for all calls of a palette."""
        return self.code.random() < chance

    def vary(self, palettes: int) -> None:
        """From here on choose from one of so many more palettes."""
        self.palette += f" {self.random.randrange(palettes)}"
        self.code = Random(self.palette)

    def axis(self, rank: int) -> int:
        """An axis, the same for all calls of a palette."""
        return self.one(range(-rank, rank))

    def any(self, options: Sequence[Any]) -> Any:
        """One of some options that do not decide code."""
        return options[int(self.random.random() * len(options))]

    def sometimes(self, chance: float) -> bool:
        """Whether something is so that does not decide code."""
        return self.random.random() < chance

    def between(self, low: int, high: int) -> int:
        """An int of [low, high], which decides no code."""
        return low + int(self.random.random() * (high - low + 1))

    def size(self, low: int = 0, high: int = 300) -> int:
        """A length: often short, often a multiple of 16 or one more, sometimes any."""
        how = self.random.random()
        if how < 0.1:
            n = self.between(0, 3)
        elif how < 0.55:
            n = self.between(1, 20)
        elif how < 0.75:
            n = 16 * self.between(1, 8) + self.any((-1, 0, 0, 1, 1))
        else:
            n = self.between(1, 300)
        return min(max(n, low), high)

    def shape(
        self, least: int = 1, most: int = 4, low: int = 0, elements: int = 12_000
    ) -> tuple[int, ...]:
        """A shape with few enough elements; one in twenty has none, if `low` is 0."""
        rank = self.one(range(least, most + 1))
        shape = [self.size(low) for _ in range(rank)]
        if low == 0 and not self.sometimes(0.05):
            shape = [max(n, 1) for n in shape]
        while math.prod(shape) > elements:
            k = max(range(rank), key=shape.__getitem__)
            shape[k] = self.between(max(low, 1), max(shape[k] // 2, max(low, 1)))
        return tuple(shape)

    def floats(self, shape: tuple[int, ...], dtype: np.dtype, kind: str) -> np.ndarray:
        """float64 numbers that `dtype` can hold."""
        x = self.numbers.standard_normal(shape)
        if kind == "ties":
            x = np.round(x * 2) / 2 + 0.0
        elif kind == "wide":
            x *= 10.0 ** self.numbers.integers(-3, 4, shape)
        elif kind == "near":  # products stay in range
            x = np.exp(x * 0.05) * np.where(self.numbers.random(shape) < 0.5, -1.0, 1.0)
        elif kind == "positive":
            x = np.abs(x) + 0.01
        elif kind == "zeros":
            x *= self.numbers.random(shape) < 0.3
        if kind in ("nan", "special") and x.size:
            x.reshape(-1)[self.numbers.integers(0, x.size, 1 + x.size // 100)] = np.nan
        if kind in ("inf", "special") and x.size:
            places = self.numbers.integers(0, x.size, 1 + x.size // 100)
            x.reshape(-1)[places] = self.numbers.choice((np.inf, -np.inf), len(places))
        return x

    def kind(self, *kinds: str) -> str:
        """What numbers are like: normal in two of three cases."""
        return (
            "normal"
            if self.sometimes(0.65)
            else self.any(kinds or ("ties", "wide", "zeros", "nan", "inf", "special"))
        )

    def values(self, shape: tuple[int, ...], dtype: Any, kind: str = "") -> np.ndarray:
        """A contiguous array of random numbers; of ints small ones, or any of the dtype."""
        dtype = np.dtype(dtype)
        if is_float(dtype):
            with np.errstate(all="ignore"):
                return self.floats(shape, dtype, kind or self.kind()).astype(dtype)
        if dtype == np.bool_:
            return self.numbers.random(shape) < self.any((0.02, 0.5, 0.98))
        info = np.iinfo(dtype)
        low, high = (
            (max(info.min, -9), min(info.max, 9))
            if kind == "small" or self.sometimes(0.7)
            else (info.min, info.max)
        )
        return self.numbers.integers(low, high, shape, dtype, endpoint=True)

    def array(
        self, shape: tuple[int, ...], dtype: Any, kind: str = "", plain: bool = False
    ) -> np.ndarray:
        """Random numbers in memory of any layout."""
        return self.placed(self.values(shape, dtype, kind), plain)

    def placed(self, values: np.ndarray, plain: bool = False) -> np.ndarray:
        """The values in memory of a layout that is drawn; `plain`: contiguous memory."""
        home = self.room(values.shape, values.dtype, plain)
        home[...] = values
        self.seal(home)
        return home

    def room(self, shape: tuple[int, ...], dtype: Any, plain: bool = False) -> np.ndarray:
        """Memory for an array: contiguous, permuted, stepped, reversed, a part of more, at any
        alignment.
        """
        dtype = np.dtype(dtype)
        rank = len(shape)
        self.rooms += 1
        code = Random(
            f"{self.palette} {self.rooms}"
        )  # whatever was drawn before, this array lies as its fellows
        how = "plain" if plain or not rank else LAYOUTS[int(code.random() * len(LAYOUTS))]
        order = list(range(rank))
        if how == "permuted":
            code.shuffle(order)
        whole = [shape[k] for k in order]
        cut: list[slice] = [slice(None)] * rank
        if rank and how in ("stepped", "reversed", "part"):
            k = code.randrange(rank)
            n = whole[k]
            if how == "stepped":
                whole[k], cut[k] = 2 * n + 1, slice(0, 2 * n, 2)
            elif how == "reversed":
                cut[k] = slice(None, None, -1)
            else:
                before, after = self.between(0, 3), self.between(0, 3)
                whole[k], cut[k] = n + before + after, slice(before, before + n)
        lead = self.between(0, 17) * dtype.itemsize if how == "shifted" else self.any((0, 16, 64))
        size = math.prod(whole) * dtype.itemsize
        margin = 192 if self.framed else 0
        memory = np.full(lead + size + 2 * margin + 64, self.any((0xFF, 0x5A)), np.uint8)
        start = margin + lead + (-memory.ctypes.data % 64)
        if how == "odd":  # an address that is no multiple of the element
            start += 1 if start + 1 + size <= memory.size else 0
        base = memory[start : start + size].view(dtype).reshape(whole)[(*cut, ...)]
        array = base.transpose([order.index(k) for k in range(rank)]) if rank else base
        assert array.shape == tuple(shape)
        if self.framed:
            self.frames.append(Framed(array, memory))
        return array

    def seal(self, array: np.ndarray) -> None:
        """Remember what the memory around an array, and in it, holds."""
        for frame in self.frames:
            if frame.array is array:
                frame.before = frame.memory.copy()

    def broadcastable(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        part = tuple(1 if self.maybe(0.25) else n for n in shape)
        return part[self.one(range(len(part) + 1)) :] if self.maybe(0.3) else part


LAYOUTS = ("plain",) * 10 + ("permuted",) * 4 + ("stepped", "stepped", "reversed", "reversed", "part", "part",
                                               "shifted", "shifted", "shifted", "odd")  # fmt: skip

DRAWS: dict[str, Callable[[Draw], Call]] = {}
"""Every function that calls are drawn of: its name in `cubepy.kernels`, or `F.` and its name in
`nn.functional`.
"""

COVERED: set[str] = set()
"""Names that are called on the way to others, such as `prepack`."""


def draws(*names: str, also: Sequence[str] = ()) -> Callable[[Callable[[Draw, str], Call]], Any]:
    """Register how calls of functions are drawn; `also`: public names that these calls use."""

    def register(function: Callable[[Draw, str], Call]) -> Any:
        for name in names:
            DRAWS[name] = lambda d, name=name: function(d, name)  # type: ignore[misc]
        COVERED.update(also)
        return function

    return register
