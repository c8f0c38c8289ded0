"""Typed values of the reference: a number (or a line of them) with its dtype, and the language's
arithmetic.

Plain Python numbers are weak. f16 and bf16 are computed in f32 and rounded after every operation.
NumPy's warnings are off for a whole run (see `run`), not for each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cubepy.backends.python.missing import Missing, kept
from cubepy.backends.python.structs import left_to_structs
from cubepy.errors import DTypeError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType

NARROW = frozenset({"f16", "bf16"})


class Value:
    """A number or a line: `data` is a 0-d or 1-d NumPy array of the dtype's own NumPy type."""

    __slots__ = ("data", "dtype", "missing")
    __array_ufunc__ = None  # NumPy scalars leave mixed arithmetic to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, data: Any, dtype: DType) -> None:
        self.data, self.dtype = np.asarray(data, dtype.numpy), dtype
        self.missing: Missing | None = None

    @property
    def lanes(self) -> int:
        """Lanes of a line; 0 for a number."""
        return self.data.shape[0] if self.data.ndim else 0

    @property
    def wide(self) -> np.ndarray:
        """The data in the dtype that arithmetic uses."""
        return self.data.astype(np.float32) if self.dtype.name in NARROW else self.data

    def __repr__(self) -> str:
        return f"{self.data.tolist()}"

    def __bool__(self) -> bool:
        if self.lanes:
            raise KernelTypeError(
                "a mask cannot be a condition: its lanes may differ", hint="use cb.select"
            )
        return bool(self.data)

    def __index__(self) -> int:
        if not self.dtype.is_int or self.lanes:
            raise KernelTypeError(f"an index must be an integer, not {self.dtype.name}")
        return int(self.data)

    def __int__(self) -> int:
        return int(self.data)

    def __float__(self) -> float:
        return float(self.data)

    def __len__(self) -> int:
        return self.lanes

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.data, dtype)

    def __getitem__(self, k: Any) -> Value:
        if not 0 <= int(k) < self.lanes:
            raise KernelTypeError(f"lane {int(k)} is out of range: the line has {self.lanes} lanes")
        return Value(self.data[int(k)], self.dtype)

    def sum(self) -> Value:
        """Sum of the lanes, pairwise."""
        return self._folded(lambda a, b: binary("add", a, b))

    def prod(self) -> Value:
        """Product of the lanes, pairwise."""
        return self._folded(lambda a, b: binary("mul", a, b))

    def max(self) -> Value:
        """Largest lane, NaN ignored."""
        if self.missing is not None:
            self.missing.check("max")
        return self._folded(lambda a, b: extreme("max", a, b))

    def min(self) -> Value:
        """Smallest lane, NaN ignored."""
        if self.missing is not None:
            self.missing.check("min")
        return self._folded(lambda a, b: extreme("min", a, b))

    def any(self) -> Value:
        """Whether some lane is not zero."""
        return Value(bool((self.data != 0).any()), dt.bool_)

    def all(self) -> Value:
        """Whether every lane is not zero."""
        return Value(bool((self.data != 0).all()), dt.bool_)

    def _folded(self, step: Callable[[Value, Value], Value]) -> Value:
        base = convert(self, dt.i32) if self.dtype.kind == "b" else self
        parts = [Value(x, base.dtype) for x in base.data]
        while len(parts) > 1:
            odd = parts[-1:] if len(parts) % 2 else []
            parts = [step(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)] + odd
        return parts[0]

    @kept
    def __neg__(self) -> Value:
        v = convert(self, dt.i32) if self.dtype.kind == "b" else self
        return Value(np.negative(v.data), v.dtype)

    @kept
    def __pos__(self) -> Value:
        return convert(self, dt.i32) if self.dtype.kind == "b" else self

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return binary("floordiv", self, other), binary("mod", self, other)

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return binary("floordiv", other, self), binary("mod", other, self)

    def __invert__(self) -> Value:
        if self.dtype.is_float:
            raise DTypeError(f"the operator ~ needs integers or bools, not {self.dtype.name}")
        return Value(np.invert(self.data), self.dtype)


class WeakNumber(Value):
    """What a variable holds that no number with a dtype has met: it yields, as a literal does."""

    __slots__ = ()

    def __neg__(self) -> WeakNumber:
        return WeakNumber(np.negative(self.data), self.dtype)

    def __invert__(self) -> WeakNumber:
        return WeakNumber(super().__invert__().data, self.dtype)


def yields(v: Any) -> bool:
    """Whether a value takes the dtype of what it meets."""
    return type(v) is WeakNumber or is_weak(v)


def still_weak(result: Any, *values: Any) -> Any:
    """A number that was made of such values alone, as one of them."""
    if type(result) is not Value or result.lanes or result.dtype.kind == "b":
        return result
    weak = any(type(v) is WeakNumber for v in values) and all(map(yields, values))
    return WeakNumber(result.data, result.dtype) if weak else result


def _operators() -> None:
    for name, op in (
        ("add", "add"),
        ("sub", "sub"),
        ("mul", "mul"),
        ("truediv", "truediv"),
        ("floordiv", "floordiv"),
        ("mod", "mod"),
        ("pow", "pow"),
        ("and", "and_"),
        ("or", "or_"),
        ("xor", "xor"),
        ("lshift", "shl"),
        ("rshift", "shr"),
    ):
        setattr(Value, f"__{name}__", left_to_structs(binary, op))
        setattr(Value, f"__r{name}__", lambda a, b, op=op: binary(op, b, a))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Value, f"__{name}__", left_to_structs(compare, name))


def is_weak(v: Any) -> bool:
    """Whether a value is a number of Python's, which yields to the other operand's dtype."""
    return type(v) in (int, float) or (
        isinstance(v, (int, float)) and not isinstance(v, np.generic)
    )


def strong(v: Any) -> Value:
    """A value as a typed one; weak numbers take their default dtype."""
    if isinstance(v, Value):
        return v
    if isinstance(v, np.generic):
        return Value(v, dt.as_dtype(v.dtype))
    if is_weak(v):
        return Value(v, dt.f32 if isinstance(v, float) else dt.scalar_dtype(v))
    raise KernelTypeError(f"{v!r} cannot be used as a number")


def meeting(a: Any, b: Any) -> DType:
    """The dtype in which two operands meet."""
    if yields(a) and yields(b):
        x, y = strong(a).dtype, strong(b).dtype
        if x.is_float != y.is_float:
            return x if x.is_float else y
        return x if x.bits >= y.bits else y
    if yields(b):
        return _yielding(strong(a).dtype, b)
    if yields(a):
        return _yielding(strong(b).dtype, a)
    return dt.promote(strong(a).dtype, strong(b).dtype)


def _yielding(other: DType, weak: Any) -> DType:
    if isinstance(weak, float) or (type(weak) is WeakNumber and weak.dtype.is_float):
        return dt.f32 if other.kind == "b" else dt.float_for(other)
    if other.kind == "b" and not isinstance(weak, bool):
        return dt.i32
    return other


def convert(v: Any, dtype: DType) -> Value:
    """Convert: integers wrap, floats truncate and saturate into integers (NaN gives 0) and round to
    nearest even.
    """
    return v if type(v) is Value and v.dtype is dtype else _converted(v, dtype)


_small: dict[tuple[str, int], Value] = {}


def _typed(v: int, dtype: DType) -> Value:
    """A plain integer that meets one of a dtype; nobody writes to its data."""
    found = _small.get((dtype.name, v))
    if found is None:
        found = convert(v, dtype)
        if len(_small) < 1024:
            _small[dtype.name, v] = found
    return found


@kept
def _converted(v: Any, dtype: DType) -> Value:
    if is_weak(v):
        if dtype.is_int and isinstance(v, int):
            if not dt.fits(v, dtype):
                raise DTypeError(f"the number {v} does not fit in {dtype.name}")
            return Value(v, dtype)
        if dtype.is_float and isinstance(v, int) and not dt.fits(v, dt.i64):
            v = float(v)
        v = (
            Value(v, dt.f64)
            if isinstance(v, float)
            else Value(v, dt.i64 if dt.fits(v, dt.i64) else dt.u64)
        )
    v = strong(v)
    if v.dtype is dtype:
        return v
    data = v.data
    if dtype.kind == "b":
        return Value(data != 0, dtype)
    if v.dtype.is_float and dtype.is_int:
        low, high = (
            (0, (1 << dtype.bits) - 1)
            if dtype.kind == "u"
            else (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
        )
        flat = [_saturated(float(x), low, high) for x in np.atleast_1d(data).astype(np.float64)]
        return Value(np.array(flat, dtype.numpy).reshape(data.shape), dtype)
    return Value(data.astype(dtype.numpy), dtype)


def _saturated(x: float, low: int, high: int) -> int:
    if x != x:
        return 0
    if x <= low:
        return low
    return high if x >= high else int(x)


def pair(a: Any, b: Any) -> tuple[Value, Value]:
    """Two operands as values of one dtype whose lanes go together."""
    if type(a) is Value and type(b) is Value and a.dtype is b.dtype:
        x, y = a, b
    else:
        dtype = meeting(a, b)
        x, y = convert(a, dtype), convert(b, dtype)
    if x.lanes and y.lanes and x.lanes != y.lanes:
        raise KernelTypeError(f"lines of {x.lanes} and {y.lanes} lanes do not go together")
    return x, y


_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "and_": np.bitwise_and,
    "or_": np.bitwise_or,
    "xor": np.bitwise_xor,
}


_DIRECT = frozenset({"add", "sub", "mul", "floordiv", "mod"})
"""Operators that are NumPy's for all numbers but NARROW ones and bools."""


def _alike(a: Any, b: Any) -> bool:
    """Whether two operands are values whose NumPy arrays meet as they are."""
    if type(a) is not Value or type(b) is not Value or a.dtype is not b.dtype:
        return False
    x, y = a.data, b.data
    if x.ndim and y.ndim and x.shape != y.shape:
        return False
    return a.missing is None and b.missing is None and a.dtype.name not in NARROW


def binary(op: str, a: Any, b: Any) -> Any:
    """`a op b` for an arithmetic or bit operator."""
    if op == "truediv":
        a, b = _divided(a, b), _divided(b, a)
    if op == "pow" and type(b) is int and 1 <= b <= 3 and not is_weak(a):
        square = a if b == 1 else binary("mul", a, a)
        return square if b < 3 else binary("mul", square, a)
    if type(b) is int and type(a) is Value and a.dtype.is_int and op != "pow":
        b = _typed(b, a.dtype)
    if op in _DIRECT and _alike(a, b) and a.dtype.kind != "b":
        return Value(_UFUNCS[op](a.data, b.data), a.dtype)
    result = still_weak(_binary(op, a, b), a, b)
    if op == "mul" and a is b and isinstance(a, Value) and a.missing is not None:
        result.missing = a.missing.but_for("max")
    return result


def _divided(a: Any, b: Any) -> Any:
    """An operand of `/`, a float where the other's dtype of integers cannot hold it."""
    if type(a) is int and type(b) is Value and b.dtype.is_int and not dt.fits(a, b.dtype):
        return float(a)
    return a


@kept
def _binary(op: str, a: Any, b: Any) -> Any:
    x, y = pair(a, b)
    if op in ("and_", "or_", "xor", "shl", "shr"):
        if x.dtype.is_float:
            raise DTypeError(f"bit operators need integers or bools, not {x.dtype.name}")
        if op in ("shl", "shr"):
            return _shifted(op, x, y)
    elif op == "truediv" and not x.dtype.is_float:
        own = [strong(v).dtype.bits for v in (a, b) if not yields(v)]  # not what they promote to
        dtype = dt.f64 if 64 in own else dt.f32
        x, y = convert(x, dtype), convert(y, dtype)
    elif x.dtype.kind == "b":
        x, y = convert(x, dt.i32), convert(y, dt.i32)
    if op == "pow":
        return _power(x, y) if x.dtype.is_int else _float_power(x, y)
    return Value(_UFUNCS[op](x.wide, y.wide), x.dtype)


def _shifted(op: str, x: Value, y: Value) -> Value:
    if x.dtype.kind == "b":
        x, y = convert(x, dt.i32), convert(y, dt.i32)
    bits, mask = x.dtype.bits, (1 << x.dtype.bits) - 1
    out = []
    for v, n in zip(
        *(np.broadcast_arrays(np.atleast_1d(x.data), np.atleast_1d(y.data))), strict=True
    ):
        value, count = int(v), int(n)
        if not 0 <= count < bits:
            out.append(-1 if op == "shr" and value < 0 else 0)
        else:
            out.append(value << count if op == "shl" else value >> count)
    shape = np.broadcast_shapes(x.data.shape, y.data.shape)
    return Value(_wrapped([v & mask for v in out], x.dtype).reshape(shape), x.dtype)


def _wrapped(values: list[int], dtype: DType) -> np.ndarray:
    return np.array(values, np.uint64).astype(f"u{dtype.numpy.itemsize}").view(dtype.numpy)


def _power(x: Value, y: Value) -> Value:
    out = []
    for b, e in zip(
        *(np.broadcast_arrays(np.atleast_1d(x.data), np.atleast_1d(y.data))), strict=True
    ):
        base, n = int(b), int(e)
        if n < 0:
            out.append((base if n % 2 else 1) if base in (1, -1) else 0)
        else:
            out.append(pow(base, n, 1 << x.dtype.bits))
    shape = np.broadcast_shapes(x.data.shape, y.data.shape)
    mask = (1 << x.dtype.bits) - 1
    return Value(_wrapped([v & mask for v in out], x.dtype).reshape(shape), x.dtype)


def _float_power(x: Value, y: Value) -> Value:
    """NumPy makes a square root of a power with a scalar exponent 1/2, which differs for -inf and
    -0.0.
    """
    base, exponent = np.broadcast_arrays(np.atleast_1d(x.wide), np.atleast_1d(y.wide))
    powers = np.power(np.array(base), np.array(exponent))
    return Value(
        powers.reshape(np.broadcast_shapes(x.data.shape, y.data.shape)).astype(x.dtype.numpy),
        x.dtype,
    )


_COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


def compare(op: str, a: Any, b: Any) -> Any:
    """`a op b` for a comparison: a bool or a mask."""
    if not (isinstance(b, (Value, np.generic)) or is_weak(b)) or not (
        isinstance(a, (Value, np.generic)) or is_weak(a)
    ):
        return op == "ne"
    if type(b) is int and type(a) is Value and a.dtype.is_int:
        b = _typed(b, a.dtype)
    if _alike(a, b):
        return Value(_COMPARE[op](a.data, b.data), dt.bool_)
    x, y = pair(a, b)
    return Value(_COMPARE[op](x.wide, y.wide), dt.bool_)


@kept
def extreme(op: str, a: Any, b: Any, nan: bool = False) -> Value:
    """The smaller or larger of two; NaN is ignored, or propagated with `nan`."""
    x, y = pair(a, b)
    table = {
        ("min", False): np.fmin,
        ("max", False): np.fmax,
        ("min", True): np.minimum,
        ("max", True): np.maximum,
    }
    return Value(np.asarray(table[op, nan](x.wide, y.wide)).astype(x.dtype.numpy), x.dtype)


_operators()
