"""The names of the language, with their types.

Made by `scripts/language_stubs.py`: change the tables of `cubepy.lang`, not this file.
"""

from collections.abc import Iterable
from typing import Any, TypeVar, overload

from cubepy.lang.annotations import Array, TensorMap
from cubepy.lang.dtypes import DType, DTypeLike
from cubepy.lang.scalars import bool_ as bool_
from cubepy.lang.scalars import i8 as i8
from cubepy.lang.scalars import i16 as i16
from cubepy.lang.scalars import i32 as i32
from cubepy.lang.scalars import i64 as i64
from cubepy.lang.scalars import u8 as u8
from cubepy.lang.scalars import u16 as u16
from cubepy.lang.scalars import u32 as u32
from cubepy.lang.scalars import u64 as u64
from cubepy.lang.scalars import f16 as f16
from cubepy.lang.scalars import bf16 as bf16
from cubepy.lang.scalars import f32 as f32
from cubepy.lang.scalars import f64 as f64
from cubepy.lang.scalars import fp8_e4m3 as fp8_e4m3
from cubepy.lang.scalars import fp8_e5m2 as fp8_e5m2
from cubepy.lang.scalars import int4 as int4
from cubepy.lang.scalars import uint4 as uint4
from cubepy.runtime.device import DeviceProperties

T = TypeVar("T")

__all__ = [
    "ABSOLUTE_POS",
    "ABSOLUTE_POS_X",
    "ABSOLUTE_POS_Y",
    "ABSOLUTE_POS_Z",
    "CLUSTER_POS",
    "CUBE_COUNT",
    "CUBE_COUNT_X",
    "CUBE_COUNT_Y",
    "CUBE_COUNT_Z",
    "CUBE_DIM",
    "CUBE_DIM_X",
    "CUBE_DIM_Y",
    "CUBE_DIM_Z",
    "CUBE_POS",
    "CUBE_POS_X",
    "CUBE_POS_Y",
    "CUBE_POS_Z",
    "PLANE_DIM",
    "PLANE_POS",
    "UNIT_POS",
    "UNIT_POS_PLANE",
    "UNIT_POS_X",
    "UNIT_POS_Y",
    "UNIT_POS_Z",
    "abs",
    "acos",
    "acosh",
    "add_line",
    "arrive_group",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "atomic_add",
    "atomic_and",
    "atomic_compare_exchange",
    "atomic_exchange",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "barrier",
    "barrier_arrive",
    "barrier_arrive_cluster",
    "barrier_expect",
    "barrier_wait",
    "bf16",
    "bitcast",
    "bool_",
    "cast",
    "cbrt",
    "ceil",
    "clamp",
    "cluster",
    "clz",
    "comptime",
    "concat",
    "copy_async",
    "copy_async_commit",
    "copy_async_wait",
    "copysign",
    "cos",
    "cosh",
    "ctz",
    "debug_assert",
    "debug_print",
    "device_properties",
    "dot_bf16",
    "dot_i8",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "f16",
    "f32",
    "f64",
    "fence_async",
    "floor",
    "fma",
    "fmod",
    "fp8_e4m3",
    "fp8_e5m2",
    "hypot",
    "i16",
    "i32",
    "i64",
    "i8",
    "int4",
    "interleave",
    "iota",
    "isfinite",
    "isinf",
    "isnan",
    "keep_first",
    "ldexp",
    "lgamma",
    "line",
    "lines",
    "load_cluster",
    "load_matrix",
    "local",
    "log",
    "log10",
    "log1p",
    "log2",
    "max",
    "min",
    "mma",
    "mulhi",
    "nan_max",
    "nan_min",
    "pack",
    "packed_fma",
    "packed_max",
    "partition",
    "plane_all",
    "plane_any",
    "plane_broadcast",
    "plane_exclusive_sum",
    "plane_inclusive_sum",
    "plane_max",
    "plane_min",
    "plane_prod",
    "plane_shuffle",
    "plane_shuffle_down",
    "plane_shuffle_up",
    "plane_shuffle_xor",
    "plane_sum",
    "popcount",
    "pow",
    "range",
    "resident",
    "reverse_bits",
    "round",
    "rsqrt",
    "select",
    "set_registers",
    "shared",
    "shuffle",
    "sign",
    "sin",
    "sinh",
    "slice_line",
    "splat",
    "sqrt",
    "start_next",
    "store_cluster",
    "store_matrix",
    "sync_cluster",
    "sync_cube",
    "sync_group",
    "sync_plane",
    "tan",
    "tanh",
    "tile_dot",
    "tma_commit",
    "tma_load",
    "tma_prefetch",
    "tma_store",
    "tma_wait",
    "trunc",
    "u16",
    "u32",
    "u64",
    "u8",
    "uint4",
    "unpack",
    "unravel",
    "unroll",
    "wait_previous",
    "wgmma",
    "wgmma_commit",
    "wgmma_fence",
    "wgmma_wait",
]

class Line:
    """1 to 64 neighbours of one dtype in one value; operators work lane by lane."""

    lanes: int
    dtype: DType
    def __getitem__(self, lane: int, /) -> Any: ...
    def __len__(self) -> int: ...
    def __add__(self, other: Any, /) -> Line: ...
    def __sub__(self, other: Any, /) -> Line: ...
    def __mul__(self, other: Any, /) -> Line: ...
    def __truediv__(self, other: Any, /) -> Line: ...
    def __floordiv__(self, other: Any, /) -> Line: ...
    def __mod__(self, other: Any, /) -> Line: ...
    def __pow__(self, other: Any, /) -> Line: ...
    def __and__(self, other: Any, /) -> Line: ...
    def __or__(self, other: Any, /) -> Line: ...
    def __xor__(self, other: Any, /) -> Line: ...
    def __lshift__(self, other: Any, /) -> Line: ...
    def __rshift__(self, other: Any, /) -> Line: ...
    def __radd__(self, other: Any, /) -> Line: ...
    def __rsub__(self, other: Any, /) -> Line: ...
    def __rmul__(self, other: Any, /) -> Line: ...
    def __rtruediv__(self, other: Any, /) -> Line: ...
    def __rfloordiv__(self, other: Any, /) -> Line: ...
    def __rmod__(self, other: Any, /) -> Line: ...
    def __rpow__(self, other: Any, /) -> Line: ...
    def __rand__(self, other: Any, /) -> Line: ...
    def __ror__(self, other: Any, /) -> Line: ...
    def __rxor__(self, other: Any, /) -> Line: ...
    def __rlshift__(self, other: Any, /) -> Line: ...
    def __rrshift__(self, other: Any, /) -> Line: ...
    def __lt__(self, other: Any, /) -> Line: ...
    def __le__(self, other: Any, /) -> Line: ...
    def __gt__(self, other: Any, /) -> Line: ...
    def __ge__(self, other: Any, /) -> Line: ...
    def __eq__(self, other: Any, /) -> Line: ...  # type: ignore[override]
    def __ne__(self, other: Any, /) -> Line: ...  # type: ignore[override]
    def __neg__(self) -> Line: ...
    def __pos__(self) -> Line: ...
    def __invert__(self) -> Line: ...
    def sum(self) -> Any:
        """The sum of the lanes; of a mask, how many hold."""
    def prod(self) -> Any:
        """The product of the lanes."""
    def max(self) -> Any:
        """The largest lane."""
    def min(self) -> Any:
        """The smallest lane."""
    def any(self) -> Any:
        """Whether some lane of a mask holds."""
    def all(self) -> Any:
        """Whether every lane of a mask holds."""

ABSOLUTE_POS: int
"""Index of this unit in the whole launch."""
ABSOLUTE_POS_X: int
"""Index of this unit in the whole launch, axis x."""
ABSOLUTE_POS_Y: int
"""Index of this unit in the whole launch, axis y."""
ABSOLUTE_POS_Z: int
"""Index of this unit in the whole launch, axis z."""
CUBE_POS: int
"""Index of this unit's cube."""
CUBE_POS_X: int
"""Index of this unit's cube, axis x."""
CUBE_POS_Y: int
"""Index of this unit's cube, axis y."""
CUBE_POS_Z: int
"""Index of this unit's cube, axis z."""
CUBE_DIM: int
"""Units in a cube (comptime)."""
CUBE_DIM_X: int
"""Units in a cube (comptime), axis x."""
CUBE_DIM_Y: int
"""Units in a cube (comptime), axis y."""
CUBE_DIM_Z: int
"""Units in a cube (comptime), axis z."""
CUBE_COUNT: int
"""Cubes in the launch."""
CUBE_COUNT_X: int
"""Cubes in the launch, axis x."""
CUBE_COUNT_Y: int
"""Cubes in the launch, axis y."""
CUBE_COUNT_Z: int
"""Cubes in the launch, axis z."""
UNIT_POS: int
"""Index of this unit in its cube."""
UNIT_POS_X: int
"""Index of this unit in its cube, axis x."""
UNIT_POS_Y: int
"""Index of this unit in its cube, axis y."""
UNIT_POS_Z: int
"""Index of this unit in its cube, axis z."""
PLANE_DIM: int
"""Units in a plane (comptime; 1 on the CPU)."""
PLANE_POS: int
"""Index of this unit's plane in its cube."""
CLUSTER_POS: int
"""Index of this cube in its cluster."""
UNIT_POS_PLANE: int
"""Index of this unit in its plane."""
@overload
def exp(x: Line) -> Line:
    """e ** x."""
@overload
def exp(x: Any) -> Any:
    """e ** x."""
@overload
def exp2(x: Line) -> Line:
    """2 ** x."""
@overload
def exp2(x: Any) -> Any:
    """2 ** x."""
@overload
def log(x: Line) -> Line:
    """Natural logarithm."""
@overload
def log(x: Any) -> Any:
    """Natural logarithm."""
@overload
def log2(x: Line) -> Line:
    """Logarithm to base 2."""
@overload
def log2(x: Any) -> Any:
    """Logarithm to base 2."""
@overload
def log1p(x: Line) -> Line:
    """log(1 + x), exact near zero."""
@overload
def log1p(x: Any) -> Any:
    """log(1 + x), exact near zero."""
@overload
def expm1(x: Line) -> Line:
    """exp(x) - 1, exact near zero."""
@overload
def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near zero."""
@overload
def sqrt(x: Line) -> Line:
    """Square root, correctly rounded."""
@overload
def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""
@overload
def rsqrt(x: Line) -> Line:
    """1 / sqrt(x)."""
@overload
def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
@overload
def sin(x: Line) -> Line:
    """Sine of an angle in radians."""
@overload
def sin(x: Any) -> Any:
    """Sine of an angle in radians."""
@overload
def cos(x: Line) -> Line:
    """Cosine of an angle in radians."""
@overload
def cos(x: Any) -> Any:
    """Cosine of an angle in radians."""
@overload
def tanh(x: Line) -> Line:
    """Hyperbolic tangent."""
@overload
def tanh(x: Any) -> Any:
    """Hyperbolic tangent."""
@overload
def erf(x: Line) -> Line:
    """Error function."""
@overload
def erf(x: Any) -> Any:
    """Error function."""
@overload
def floor(x: Line) -> Line:
    """Largest integral value not above x, as a float."""
@overload
def floor(x: Any) -> Any:
    """Largest integral value not above x, as a float."""
@overload
def ceil(x: Line) -> Line:
    """Smallest integral value not below x, as a float."""
@overload
def ceil(x: Any) -> Any:
    """Smallest integral value not below x, as a float."""
@overload
def trunc(x: Line) -> Line:
    """x without its fraction, as a float."""
@overload
def trunc(x: Any) -> Any:
    """x without its fraction, as a float."""
@overload
def isnan(x: Line) -> Line:
    """Whether x is NaN (a bool, or a mask of a line)."""
@overload
def isnan(x: Any) -> Any:
    """Whether x is NaN (a bool, or a mask of a line)."""
@overload
def isinf(x: Line) -> Line:
    """Whether x is infinite (a bool, or a mask of a line)."""
@overload
def isinf(x: Any) -> Any:
    """Whether x is infinite (a bool, or a mask of a line)."""
@overload
def tan(x: Line) -> Line:
    """Tangent of an angle in radians."""
@overload
def tan(x: Any) -> Any:
    """Tangent of an angle in radians."""
@overload
def asin(x: Line) -> Line:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN beyond 1."""
@overload
def asin(x: Any) -> Any:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN beyond 1."""
@overload
def acos(x: Line) -> Line:
    """The angle from 0 to pi whose cosine is x; NaN beyond 1."""
@overload
def acos(x: Any) -> Any:
    """The angle from 0 to pi whose cosine is x; NaN beyond 1."""
@overload
def atan(x: Line) -> Line:
    """The angle from -pi/2 to pi/2 whose tangent is x."""
@overload
def atan(x: Any) -> Any:
    """The angle from -pi/2 to pi/2 whose tangent is x."""
@overload
def sinh(x: Line) -> Line:
    """Hyperbolic sine."""
@overload
def sinh(x: Any) -> Any:
    """Hyperbolic sine."""
@overload
def cosh(x: Line) -> Line:
    """Hyperbolic cosine."""
@overload
def cosh(x: Any) -> Any:
    """Hyperbolic cosine."""
@overload
def asinh(x: Line) -> Line:
    """Inverse hyperbolic sine."""
@overload
def asinh(x: Any) -> Any:
    """Inverse hyperbolic sine."""
@overload
def acosh(x: Line) -> Line:
    """Inverse hyperbolic cosine; NaN below 1."""
@overload
def acosh(x: Any) -> Any:
    """Inverse hyperbolic cosine; NaN below 1."""
@overload
def atanh(x: Line) -> Line:
    """Inverse hyperbolic tangent; NaN beyond 1."""
@overload
def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent; NaN beyond 1."""
@overload
def log10(x: Line) -> Line:
    """Logarithm to base 10."""
@overload
def log10(x: Any) -> Any:
    """Logarithm to base 10."""
@overload
def cbrt(x: Line) -> Line:
    """Cube root, of negative numbers too."""
@overload
def cbrt(x: Any) -> Any:
    """Cube root, of negative numbers too."""
@overload
def erfc(x: Line) -> Line:
    """1 - erf(x), exact where that is small."""
@overload
def erfc(x: Any) -> Any:
    """1 - erf(x), exact where that is small."""
@overload
def lgamma(x: Line) -> Line:
    """log(|Gamma(x)|); infinite at 0, -1, -2, ..."""
@overload
def lgamma(x: Any) -> Any:
    """log(|Gamma(x)|); infinite at 0, -1, -2, ..."""
@overload
def atan2(y: Line, x: Any) -> Line:
    """`atan2(y, x)`: the angle of the point (x, y), from -pi to pi."""
@overload
def atan2(y: Any, x: Any) -> Any:
    """`atan2(y, x)`: the angle of the point (x, y), from -pi to pi."""
@overload
def hypot(x: Line, y: Any) -> Line:
    """`hypot(x, y)`: sqrt(x*x + y*y), without overflow on the way."""
@overload
def hypot(x: Any, y: Any) -> Any:
    """`hypot(x, y)`: sqrt(x*x + y*y), without overflow on the way."""
@overload
def fmod(x: Line, y: Any) -> Line:
    """`fmod(x, y)`: the exact rest of x / y, with the sign of x (that of `%` is y's)."""
@overload
def fmod(x: Any, y: Any) -> Any:
    """`fmod(x, y)`: the exact rest of x / y, with the sign of x (that of `%` is y's)."""
@overload
def copysign(x: Line, y: Any) -> Line:
    """`copysign(x, y)`: the size of x with the sign of y."""
@overload
def copysign(x: Any, y: Any) -> Any:
    """`copysign(x, y)`: the size of x with the sign of y."""
@overload
def sign(x: Line) -> Line:
    """-1, 0 or 1 with the dtype of x; NaN of NaN."""
@overload
def sign(x: Any) -> Any:
    """-1, 0 or 1 with the dtype of x; NaN of NaN."""
@overload
def isfinite(x: Line) -> Line:
    """Whether x is neither infinite nor NaN (a bool, or a mask of a line)."""
@overload
def isfinite(x: Any) -> Any:
    """Whether x is neither infinite nor NaN (a bool, or a mask of a line)."""
@overload
def ldexp(x: Line, n: int) -> Line:
    """`ldexp(x, n)`: x * 2**n of a float and an integer, rounded once."""
@overload
def ldexp(x: Any, n: int) -> Any:
    """`ldexp(x, n)`: x * 2**n of a float and an integer, rounded once."""
@overload
def mulhi(x: Line, y: Any) -> Line:
    """`mulhi(x, y)`: the upper half of the bits of the product of two integers."""
@overload
def mulhi(x: Any, y: Any) -> Any:
    """`mulhi(x, y)`: the upper half of the bits of the product of two integers."""
@overload
def reverse_bits(x: Line) -> Line:
    """The bits of an integer, the lowest one first."""
@overload
def reverse_bits(x: Any) -> Any:
    """The bits of an integer, the lowest one first."""
@overload
def plane_sum(v: Line) -> Line:
    """Sum of `v` over the plane."""
@overload
def plane_sum(v: Any) -> Any:
    """Sum of `v` over the plane."""
@overload
def plane_prod(v: Line) -> Line:
    """Product of `v` over the plane."""
@overload
def plane_prod(v: Any) -> Any:
    """Product of `v` over the plane."""
@overload
def plane_max(v: Line) -> Line:
    """Largest `v` of the plane."""
@overload
def plane_max(v: Any) -> Any:
    """Largest `v` of the plane."""
@overload
def plane_min(v: Line) -> Line:
    """Smallest `v` of the plane."""
@overload
def plane_min(v: Any) -> Any:
    """Smallest `v` of the plane."""
@overload
def plane_all(v: Line) -> Line:
    """Whether `v` holds in every unit of the plane."""
@overload
def plane_all(v: Any) -> Any:
    """Whether `v` holds in every unit of the plane."""
@overload
def plane_any(v: Line) -> Line:
    """Whether `v` holds in some unit of the plane."""
@overload
def plane_any(v: Any) -> Any:
    """Whether `v` holds in some unit of the plane."""
@overload
def plane_broadcast(v: Line, unit: Any, /) -> Line:
    """`plane_broadcast(v, unit)`: the `v` of the given unit (comptime)."""
@overload
def plane_broadcast(v: Any, unit: Any, /) -> Any:
    """`plane_broadcast(v, unit)`: the `v` of the given unit (comptime)."""
@overload
def plane_shuffle(v: Line, unit: Any, /) -> Line:
    """`plane_shuffle(v, unit)`: the `v` of the given unit."""
@overload
def plane_shuffle(v: Any, unit: Any, /) -> Any:
    """`plane_shuffle(v, unit)`: the `v` of the given unit."""
@overload
def plane_shuffle_xor(v: Line, mask: Any, /) -> Line:
    """`plane_shuffle_xor(v, mask)`: the `v` of unit `UNIT_POS_PLANE ^ mask`."""
@overload
def plane_shuffle_xor(v: Any, mask: Any, /) -> Any:
    """`plane_shuffle_xor(v, mask)`: the `v` of unit `UNIT_POS_PLANE ^ mask`."""
@overload
def plane_shuffle_up(v: Line, n: int, /) -> Line:
    """`plane_shuffle_up(v, n)`: the `v` of the unit n below; own value at the edge."""
@overload
def plane_shuffle_up(v: Any, n: int, /) -> Any:
    """`plane_shuffle_up(v, n)`: the `v` of the unit n below; own value at the edge."""
@overload
def plane_shuffle_down(v: Line, n: int, /) -> Line:
    """`plane_shuffle_down(v, n)`: the `v` of the unit n above; own value at the edge."""
@overload
def plane_shuffle_down(v: Any, n: int, /) -> Any:
    """`plane_shuffle_down(v, n)`: the `v` of the unit n above; own value at the edge."""
@overload
def plane_inclusive_sum(v: Line) -> Line:
    """Sum of `v` over this unit and those below it in the plane."""
@overload
def plane_inclusive_sum(v: Any) -> Any:
    """Sum of `v` over this unit and those below it in the plane."""
@overload
def plane_exclusive_sum(v: Line) -> Line:
    """Sum of `v` over the units below this one in the plane."""
@overload
def plane_exclusive_sum(v: Any) -> Any:
    """Sum of `v` over the units below this one in the plane."""
def atomic_add(array: Array, index: Any, value: Any) -> Any:
    """`atomic_add(array, index, value)`: add, return the old value."""
def atomic_sub(array: Array, index: Any, value: Any) -> Any:
    """`atomic_sub(array, index, value)`: subtract, return the old value."""
def atomic_max(array: Array, index: Any, value: Any) -> Any:
    """`atomic_max(array, index, value)`: keep the larger, return the old value."""
def atomic_min(array: Array, index: Any, value: Any) -> Any:
    """`atomic_min(array, index, value)`: keep the smaller, return the old value."""
def atomic_and(array: Array, index: Any, value: Any) -> Any:
    """`atomic_and(array, index, value)`: bitwise and, return the old value."""
def atomic_or(array: Array, index: Any, value: Any) -> Any:
    """`atomic_or(array, index, value)`: bitwise or, return the old value."""
def atomic_xor(array: Array, index: Any, value: Any) -> Any:
    """`atomic_xor(array, index, value)`: bitwise exclusive or, return the old value."""
def atomic_exchange(array: Array, index: Any, value: Any) -> Any:
    """`atomic_exchange(array, index, value)`: store, return the old value."""
def atomic_compare_exchange(array: Array, index: Any, expected: Any, desired: Any) -> Any:
    """`atomic_compare_exchange(array, index, expected, desired)`: store `desired` if the place
    holds `expected`; return the old value.
    """
def splat(v: Any, lanes: int) -> Line:
    """`splat(v, lanes)`: a line with `v` in every lane; a line of so many lanes as it is."""
@overload
def select(mask: Line, a: Any, b: Any) -> Line:
    """`select(mask, a, b)`: a where mask holds, else b; both are evaluated."""
@overload
def select(mask: Any, a: Any, b: Any) -> Any:
    """`select(mask, a, b)`: a where mask holds, else b; both are evaluated."""
@overload
def fma(a: Line, b: Any, c: Any) -> Line:
    """`fma(a, b, c)`: a * b + c, rounded once."""
@overload
def fma(a: Any, b: Any, c: Any) -> Any:
    """`fma(a, b, c)`: a * b + c, rounded once."""
@overload
def pow(x: Line, y: Any) -> Line:
    """`pow(x, y)`: x to the power y."""
@overload
def pow(x: Any, y: Any) -> Any:
    """`pow(x, y)`: x to the power y."""
@overload
def abs(x: Line) -> Line:
    """Absolute value (the most negative integer stays itself)."""
@overload
def abs(x: Any) -> Any:
    """Absolute value (the most negative integer stays itself)."""
@overload
def round(x: Line) -> Line:
    """Nearest integral value, ties to even, as a float."""
@overload
def round(x: Any) -> Any:
    """Nearest integral value, ties to even, as a float."""
@overload
def min(x: Line, y: Any, *more: Any) -> Line:
    """Smaller of two values; a NaN operand is ignored, as fmin does."""
@overload
def min(x: Any, y: Any, *more: Any) -> Any:
    """Smaller of two values; a NaN operand is ignored, as fmin does."""
@overload
def max(x: Line, y: Any, *more: Any) -> Line:
    """Larger of two values; a NaN operand is ignored, as fmax does."""
@overload
def max(x: Any, y: Any, *more: Any) -> Any:
    """Larger of two values; a NaN operand is ignored, as fmax does."""
@overload
def nan_min(x: Line, y: Any, *more: Any) -> Line:
    """Smaller of two values; NaN if either is NaN, as numpy.minimum does."""
@overload
def nan_min(x: Any, y: Any, *more: Any) -> Any:
    """Smaller of two values; NaN if either is NaN, as numpy.minimum does."""
@overload
def nan_max(x: Line, y: Any, *more: Any) -> Line:
    """Larger of two values; NaN if either is NaN, as numpy.maximum does."""
@overload
def nan_max(x: Any, y: Any, *more: Any) -> Any:
    """Larger of two values; NaN if either is NaN, as numpy.maximum does."""
@overload
def clamp(x: Line, low: Any, high: Any) -> Line:
    """`clamp(x, low, high)`: min(max(x, low), high)."""
@overload
def clamp(x: Any, low: Any, high: Any) -> Any:
    """`clamp(x, low, high)`: min(max(x, low), high)."""
@overload
def cast(v: Line, dtype: DTypeLike) -> Line:
    """`cast(v, dtype)`: convert; float to int truncates and saturates, NaN gives 0."""
@overload
def cast(v: Any, dtype: DTypeLike) -> Any:
    """`cast(v, dtype)`: convert; float to int truncates and saturates, NaN gives 0."""
@overload
def bitcast(v: Line, dtype: DTypeLike) -> Line:
    """`bitcast(v, dtype)`: the same bits as another dtype of the same width."""
@overload
def bitcast(v: Any, dtype: DTypeLike) -> Any:
    """`bitcast(v, dtype)`: the same bits as another dtype of the same width."""
@overload
def popcount(x: Line) -> Line:
    """Number of set bits of an integer."""
@overload
def popcount(x: Any) -> Any:
    """Number of set bits of an integer."""
@overload
def clz(x: Line) -> Line:
    """Number of leading zero bits of an integer (its width for 0)."""
@overload
def clz(x: Any) -> Any:
    """Number of leading zero bits of an integer (its width for 0)."""
@overload
def ctz(x: Line) -> Line:
    """Number of trailing zero bits of an integer (its width for 0)."""
@overload
def ctz(x: Any) -> Any:
    """Number of trailing zero bits of an integer (its width for 0)."""
def dot_i8(acc: Any, a: Any, b: Any, most: Any = 255) -> Line:
    """`dot_i8(acc, a, b, most=255)`: acc (i32, L lanes) plus the products of four neighbours of a
    (u8, 4L lanes) with those of b (i8, 4L lanes); exact where no a is larger than the comptime
    `most`. Up to 128, x86 without VNNI takes half the steps.
    """
def dot_bf16(acc: Any, a: Any, b: Any) -> Line:
    """`dot_bf16(acc, a, b)`: acc (f32, L lanes) plus the two products of each lane's pair of bf16
    in a with that in b (u32, L lanes); the upper halves first, each sum rounded; subnormal
    numbers may count as zero.
    """
def shared(shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
    """`shared(shape, dtype)`: memory of the cube, uninitialised; shape is comptime."""
def local(shape: int | tuple[int, ...], dtype: DTypeLike, lanes: int = 0) -> Array:
    """`local(shape, dtype, lanes=0)`: registers of the unit, uninitialised; shape is comptime.
    With lanes > 0 each element is a line.
    """
def sync_cube() -> None:
    """Barrier: every unit of the cube arrives before any goes on; memory is visible after it."""
def sync_plane() -> None:
    """Barrier of the plane."""
def comptime(expr: T) -> T:
    """`comptime(expr)`: insists that the expression is comptime."""
def unroll(over: Iterable[T]) -> Iterable[T]:
    """`unroll(range(...))`, or of a comptime tuple: the loop is written out; its variable is
    comptime.
    """
def device_properties() -> DeviceProperties:
    """The `DeviceProperties` of the device that the kernel is compiled for (comptime)."""
def debug_print(*values: Any) -> None:
    """`debug_print(*values)`: print from a unit; removed unless debugging."""
def debug_assert(condition: Any, message: str = 'assertion failed') -> None:
    """`debug_assert(condition, message)`: fail the launch; removed unless debugging."""
def concat(a: Any, b: Any) -> Line:
    """`concat(a, b)`: a line with the lanes of a and then those of b."""
def slice_line(v: Any, start: int, lanes: int) -> Line:
    """`slice_line(v, start, lanes)`: `lanes` lanes of v from comptime lane `start` on."""
def interleave(a: Any, b: Any) -> Line:
    """`interleave(a, b)`: a line of lanes a[0], b[0], a[1], b[1], ..."""
def partition(v: Any, mask: Any) -> Line:
    """`partition(v, mask)`: a line of the lanes of v where the mask holds, then of the others,
    both in order; `mask.sum()` says how many they are.
    """
def shuffle(a: Any, b: Any, lanes: tuple[int, ...]) -> Line:
    """`shuffle(a, b, lanes)`: a line of lanes picked by a comptime tuple from a, then b."""
def lines(start: int, stop: Any, lanes: int) -> Iterable[tuple[int, int]]:
    """`for k, valid in lines(start, stop, lanes)`: k goes from start to stop by comptime `lanes`,
    and `valid` is how many of the lanes from k on lie before stop: comptime `lanes` in a loop
    over whole lines, a runtime number in the tail, for which the body is written again.
    """
def iota(lanes: int, dtype: DTypeLike = i32) -> Line:
    """`iota(lanes, dtype=i32)`: the line 0, 1, 2, ...; both are comptime."""
def line(a: Any, *more: Any) -> Line:
    """`line(a, b, c, ...)`: a line of 1 to 64 numbers, in the dtype in which they meet."""
def keep_first(line: Any, n: int, other: Any) -> Line:
    """`keep_first(line, n, other)`: the first n lanes of a line, and `other` in those behind;
    `other` is a number or a line and takes the line's dtype.
    """
def unravel(position: Any, shape: Any) -> tuple[int, ...]:
    """`unravel(position, shape)`: the coordinates (a tuple) of a position in the C order of a
    shape.
    """
def range(start: Any, stop: Any = None, step: Any = None, unroll: bool = True) -> Iterable[int]:
    """`range(start, stop, step, unroll=True)`: Python's; with `unroll=False` compilers keep it a
    loop.
    """
def mma(a: Any, b: Any, c: Any, dtype: DTypeLike, other: Any = None) -> Line:
    """`mma(a, b, c, dtype, other=None)`: c plus the matrix product of the plane's fragments a (4
    words) and b (2 words): 16x8x16 for f16 and bf16, 16x8x8 for f32 (as tf32), 16x8x32 for i8,
    u8 and fp8; `other` is the dtype of b, where that is i8 and a's u8 or the other way round.
    On other devices the lengths are those of `device_properties().matrix_instruction(dtype)`.
    """
def load_matrix(shared: Array, i: Any, count: int = 4, transpose: bool = False) -> Line:
    """`load_matrix(shared, i, count=4, transpose=False)`: fragments of `count` 8x8 tiles of 16-bit
    elements; unit k of the plane gives the element where row k % 8 of tile k // 8 starts.
    """
def pack(v: Any, dtype: DTypeLike) -> Line:
    """`pack(v, dtype)`: a line of floats as the words of a fragment (f16, bf16, fp8; f32 is
    rounded to tf32), to nearest; the first lane lies lowest.
    """
@overload
def packed_fma(a: Line, b: Any, c: Any, dtype: DTypeLike) -> Line:
    """`packed_fma(a, b, c, dtype)`: a * b + c of lines of words that hold pairs of f16 or bf16,
    rounded once.
    """
@overload
def packed_fma(a: Any, b: Any, c: Any, dtype: DTypeLike) -> Any:
    """`packed_fma(a, b, c, dtype)`: a * b + c of lines of words that hold pairs of f16 or bf16,
    rounded once.
    """
@overload
def packed_max(a: Line, b: Any, dtype: DTypeLike) -> Line:
    """`packed_max(a, b, dtype)`: the larger of words, or lines of them, that hold pairs of f16 or
    bf16; NaN if either is NaN.
    """
@overload
def packed_max(a: Any, b: Any, dtype: DTypeLike) -> Any:
    """`packed_max(a, b, dtype)`: the larger of words, or lines of them, that hold pairs of f16 or
    bf16; NaN if either is NaN.
    """
def unpack(words: Any, dtype: DTypeLike) -> Line:
    """`unpack(words, dtype)`: the floats that a line of words holds (f16, bf16, f32)."""
def copy_async(shared: Array, i: Any, array: Array, j: Any, nbytes: int, valid: Any = True) -> None:
    """`copy_async(shared, i, array, j, nbytes, valid=True)`: start copying 4, 8 or 16 bytes of
    `array` from j on; where not valid, zeros are written and nothing is read.
    """
def copy_async_commit() -> None:
    """`copy_async_commit()`: the copies since the last commit become one group."""
def copy_async_wait(n: int) -> None:
    """`copy_async_wait(n)`: wait until at most n of this unit's groups are under way."""
def barrier(count: int, arrivals: int) -> Array:
    """`barrier(count, arrivals)`: `count` barriers in shared memory, each for so many arrivals a
    phase (comptime); ready before the kernel's first statement.
    """
def barrier_arrive(bar: Array, i: Any) -> None:
    """`barrier_arrive(bar, i)`: one arrival at bar[i]."""
def barrier_expect(bar: Array, i: Any, nbytes: int) -> None:
    """`barrier_expect(bar, i, nbytes)`: one arrival, and so many bytes of copies to wait for."""
def barrier_wait(bar: Array, i: Any, parity: Any) -> None:
    """`barrier_wait(bar, i, parity)`: wait for the end of the phase of this parity; the first
    phase has parity 0, and waiting for parity 1 of a new barrier returns at once.
    """
def store_matrix(shared: Array, i: Any, words: Any, transpose: bool = False) -> None:
    """`store_matrix(shared, i, words, transpose=False)`: the inverse of `load_matrix`."""
def tma_load(
    shared: Array,
    i: Any,
    map: TensorMap,
    coords: Any,
    bar: Array,
    b: Any,
    multicast: Any = None,
) -> None:
    """`tma_load(shared, i, map, coords, bar, b, multicast=None)`: one unit starts copying the
    map's box at coords (the innermost last) to shared[i]; its bytes arrive at bar[b]. Beyond
    the array zeros are written. The innermost coordinate is a multiple of 16 bytes. With a
    mask, to the same place of each of these cubes of the cluster.
    """
def tma_store(map: TensorMap, coords: Any, shared: Array, i: Any) -> None:
    """`tma_store(map, coords, shared, i)`: one unit starts copying a box to the array; what lies
    beyond the array's end is left out. The coordinates are not negative, the innermost one is a
    multiple of 16 bytes.
    """
def tma_commit() -> None:
    """`tma_commit()`: the stores since the last commit become one group."""
def tma_wait(n: int, read: bool = True) -> None:
    """`tma_wait(n, read=True)`: wait until at most n groups of stores are under way; with `read`,
    only until they have read shared memory.
    """
def add_line(array: Array, i: Any, line: Any) -> None:
    """`add_line(array, i, line)`: add a line of 2 or 4 f32 to array[i], array[i + 1]... in the
    device's second-level cache; atomic for each element, nothing comes back. The place is a
    multiple of the line.
    """
def tma_prefetch(map: TensorMap) -> None:
    """`tma_prefetch(map)`: bring the description of the map's array near."""
def fence_async() -> None:
    """`fence_async()`: what this unit wrote to shared memory is seen by copies and matrix units."""
def wgmma(
    acc: Any,
    a: Any,
    ai: Any,
    b: Any,
    bi: Any,
    n: int,
    dtype: DTypeLike,
    accumulate: bool = True,
    transpose_a: Any = False,
    transpose_b: Any = False,
    swizzle: Any = 128,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    start: Any = 0,
    a_lead: Any = 0,
    a_stride: Any = 0,
    b_lead: Any = 0,
    b_stride: Any = 0,
) -> None:
    """`wgmma(acc, a, ai, b, bi, n, dtype, accumulate=True, ...)`: start acc += a * b for four
    planes: a has 64 rows and is shared memory from element ai on, or a line of 4 words; b has n
    columns, stored as rows of neighbours along the depth; acc is local memory of n // 2
    elements.
    """
def wgmma_fence(*accs: Any) -> None:
    """`wgmma_fence(*accs)`: before the first product, and after accumulators were written."""
def wgmma_commit() -> None:
    """`wgmma_commit()`: the products since the last commit become one group."""
def wgmma_wait(n: int, *accs: Any) -> None:
    """`wgmma_wait(n, *accs)`: wait until at most n groups are under way; name the accumulators
    that are read next.
    """
def set_registers(n: int, grow: bool) -> None:
    """`set_registers(n, grow)`: these four planes take more registers (`grow`) or give some back,
    to n a unit.
    """
def sync_group(id: int, units: int) -> None:
    """`sync_group(id, units)`: barrier number id (1 to 15) of so many units, in whole planes."""
def arrive_group(id: int, units: int) -> None:
    """`arrive_group(id, units)`: count as arrived at barrier number id without waiting there."""
def cluster(x: Any, y: Any = 1, z: Any = 1) -> None:
    """`cluster(x, y=1, z=1)`: the cubes of a launch are grouped into clusters of this size
    (comptime).
    """
def sync_cluster() -> None:
    """`sync_cluster()`: every unit of every cube of the cluster arrives before any goes on."""
def barrier_arrive_cluster(bar: Array, i: Any, rank: Any) -> None:
    """`barrier_arrive_cluster(bar, i, rank)`: one arrival at bar[i] of another cube of the
    cluster.
    """
def load_cluster(shared: Array, i: Any, rank: Any) -> Any:
    """`load_cluster(shared, i, rank)`: element i of the same shared memory of another cube of the
    cluster; between `sync_cluster()` after it was written and before that cube ends.
    """
def store_cluster(shared: Array, i: Any, value: Any, rank: Any) -> None:
    """`store_cluster(shared, i, value, rank)`: set element i of the same shared memory of another
    cube of the cluster; between a `sync_cluster()`, so that it has begun, and one before it is
    read there.
    """
def tile_dot(
    sums: Array,
    rows: Any,
    a: Any,
    i: Any,
    b: Any,
    j: Any,
    words: Any,
    dtype: DTypeLike,
) -> None:
    """`tile_dot(sums, rows, a, i, b, j, words, dtype)`: sums = `rows` rows of a from a[i] on times
    32 columns of b from b[j] on. Words (u32) hold two bf16 or four bytes that are neighbours
    along the depth: a has rows of `words` of them, b has `words` rows of 32. dtype is that of a
    (bf16, i8, u8); bytes of b have the other sign. sums is local memory, rows of 32 f32 or i32,
    zeros where words is 0. For cubes of one unit.
    """
def resident(cubes: int) -> None:
    """`resident(cubes)`: registers are given out so that so many cubes of this kernel fit on a
    core at once (comptime).
    """
def wait_previous() -> None:
    """`wait_previous()`: wait for the launches before this one on its stream, and see what they
    wrote. A kernel that has it may begin before they end, and touches nothing of theirs until
    then.
    """
def start_next() -> None:
    """`start_next()`: as far as this cube is concerned the next launch, if it has `wait_previous`,
    may begin.
    """
