"""The operators and elementwise methods of tensors: one line each, all of them ops of the IR."""

from __future__ import annotations

from typing import Any, TypeVar

from cubepy.lang.dtypes import bool_, float_for
from cubepy.runtime.notebook import preformatted
from cubepy.tensor import ufuncs
from cubepy.tensor.methods.applied import Applied

T = TypeVar("T")
_ROOTS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}
"""What some powers are, as in torch: also of -0.0 and of what is below 0."""


class Operators(Applied[T]):
    """What `Tensor` inherits: arithmetic, comparisons and elementwise mathematics.

    Args:
        T: what they give, `Tensor`.
    """

    __slots__ = ()

    def _reflected(self, op: str, other: Any) -> T:
        """`op(other, self)`."""
        raise NotImplementedError

    def _in_place(self, op: str, other: Any) -> T:
        """`self = op(self, other)`; gives self."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return ufuncs.call(ufunc, method, inputs, options)

    def _repr_html_(self) -> str:
        title = f"tensor {self.dtype.name} {self.shape} on {self.device}"
        return preformatted(title, repr(self))

    def __neg__(self) -> T:
        return self._unary("neg")

    def __pos__(self) -> T:
        return self.contiguous()  # type: ignore[attr-defined, no-any-return]

    def __invert__(self) -> T:
        return self._unary("not" if self.dtype is bool_ else "invert")

    def __abs__(self) -> T:
        return self._unary("abs")

    def __pow__(self, other: Any) -> T:
        if isinstance(other, int) and other == 2 and self.dtype is not bool_:
            return self._binary("mul", self)
        whole = type(other) is int and self.dtype is not bool_
        if type(other) in (int, float) and other == 3 and (whole or self.dtype.is_float):
            return self._unary("cube")  # a power takes ten times that
        if type(other) is float and other in _ROOTS and self.dtype.is_float:
            return self._unary(_ROOTS[other])
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> T:
        return self._reflected("pow", other)

    def __add__(self, other: Any) -> T:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> T:
        return self._reflected("add", other)

    def __sub__(self, other: Any) -> T:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> T:
        return self._reflected("sub", other)

    def __mul__(self, other: Any) -> T:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> T:
        return self._reflected("mul", other)

    def __truediv__(self, other: Any) -> T:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> T:
        return self._reflected("div", other)

    def __floordiv__(self, other: Any) -> T:
        return self._binary("floordiv", other)

    def __rfloordiv__(self, other: Any) -> T:
        return self._reflected("floordiv", other)

    def __mod__(self, other: Any) -> T:
        return self._binary("mod", other)

    def __rmod__(self, other: Any) -> T:
        return self._reflected("mod", other)

    def __and__(self, other: Any) -> T:
        return self._binary("and", other)

    def __rand__(self, other: Any) -> T:
        return self._reflected("and", other)

    def __or__(self, other: Any) -> T:
        return self._binary("or", other)

    def __ror__(self, other: Any) -> T:
        return self._reflected("or", other)

    def __xor__(self, other: Any) -> T:
        return self._binary("xor", other)

    def __rxor__(self, other: Any) -> T:
        return self._reflected("xor", other)

    def __lshift__(self, other: Any) -> T:
        return self._binary("lshift", other)

    def __rlshift__(self, other: Any) -> T:
        return self._reflected("lshift", other)

    def __rshift__(self, other: Any) -> T:
        return self._binary("rshift", other)

    def __rrshift__(self, other: Any) -> T:
        return self._reflected("rshift", other)

    def __iadd__(self, other: Any) -> T:
        return self._in_place("add", other)

    def __isub__(self, other: Any) -> T:
        return self._in_place("sub", other)

    def __imul__(self, other: Any) -> T:
        return self._in_place("mul", other)

    def __itruediv__(self, other: Any) -> T:
        return self._in_place("div", other)

    def __ifloordiv__(self, other: Any) -> T:
        return self._in_place("floordiv", other)

    def __imod__(self, other: Any) -> T:
        return self._in_place("mod", other)

    def __ipow__(self, other: Any) -> T:
        return self._in_place("pow", other)

    def __iand__(self, other: Any) -> T:
        return self._in_place("and", other)

    def __ior__(self, other: Any) -> T:
        return self._in_place("or", other)

    def __ixor__(self, other: Any) -> T:
        return self._in_place("xor", other)

    def __ilshift__(self, other: Any) -> T:
        return self._in_place("lshift", other)

    def __irshift__(self, other: Any) -> T:
        return self._in_place("rshift", other)

    def __eq__(self, other: Any) -> T:  # type: ignore[override]
        return NotImplemented if other is None else self._binary("eq", other)

    def __ne__(self, other: Any) -> T:  # type: ignore[override]
        return NotImplemented if other is None else self._binary("ne", other)

    def __lt__(self, other: Any) -> T:
        return self._binary("lt", other)

    def __le__(self, other: Any) -> T:
        return self._binary("le", other)

    def __gt__(self, other: Any) -> T:
        return self._binary("gt", other)

    def __ge__(self, other: Any) -> T:
        return self._binary("ge", other)

    __hash__ = object.__hash__

    def abs(self) -> T:
        """Absolute value."""
        return self._unary("abs")

    def exp(self) -> T:
        """e ** x."""
        return self._unary("exp")

    def log(self) -> T:
        """Natural logarithm."""
        return self._unary("log")

    def log1p(self) -> T:
        """log(1 + x), exact near zero."""
        return self._unary("log1p")

    def expm1(self) -> T:
        """exp(x) - 1, exact near zero."""
        return self._unary("expm1")

    def sqrt(self) -> T:
        """Square root."""
        return self._unary("sqrt")

    def rsqrt(self) -> T:
        """1 / sqrt(x)."""
        return self._unary("rsqrt")

    def sin(self) -> T:
        """Sine of an angle in radians."""
        return self._unary("sin")

    def cos(self) -> T:
        """Cosine of an angle in radians."""
        return self._unary("cos")

    def tanh(self) -> T:
        """Hyperbolic tangent."""
        return self._unary("tanh")

    def erf(self) -> T:
        """Error function."""
        return self._unary("erf")

    def tan(self) -> T:
        """Tangent of an angle in radians."""
        return self._unary("tan")

    def asin(self) -> T:
        """The angle from -pi/2 to pi/2 whose sine is x; NaN beyond 1."""
        return self._unary("asin")

    arcsin = asin

    def acos(self) -> T:
        """The angle from 0 to pi whose cosine is x; NaN beyond 1."""
        return self._unary("acos")

    arccos = acos

    def atan(self) -> T:
        """The angle from -pi/2 to pi/2 whose tangent is x."""
        return self._unary("atan")

    arctan = atan

    def sinh(self) -> T:
        """Hyperbolic sine."""
        return self._unary("sinh")

    def cosh(self) -> T:
        """Hyperbolic cosine."""
        return self._unary("cosh")

    def asinh(self) -> T:
        """Inverse hyperbolic sine."""
        return self._unary("asinh")

    arcsinh = asinh

    def acosh(self) -> T:
        """Inverse hyperbolic cosine; NaN below 1."""
        return self._unary("acosh")

    arccosh = acosh

    def atanh(self) -> T:
        """Inverse hyperbolic tangent; NaN beyond 1."""
        return self._unary("atanh")

    arctanh = atanh

    def log10(self) -> T:
        """Logarithm to base 10."""
        return self._unary("log10")

    def cbrt(self) -> T:
        """Cube root, of negative numbers too."""
        return self._unary("cbrt")

    def erfc(self) -> T:
        """1 - erf(x), exact where that is small."""
        return self._unary("erfc")

    def erfinv(self) -> T:
        """The y with erf(y) = x: infinite at -1 and 1, NaN beyond; in f32 to 2.3 units of the last
        place, in f64 to 1e-15 of it.
        """
        return self._unary("erfinv")

    def lgamma(self) -> T:
        """log(|Gamma(x)|)."""
        return self._unary("lgamma")

    def digamma(self) -> T:
        """The derivative of `lgamma`."""
        return self._unary("digamma")

    def sign(self) -> T:
        """-1, 0 or 1; NaN of NaN."""
        return self._unary("sign")

    def atan2(self, other: Any) -> T:
        """The angle of the point (other, x), from -pi to pi."""
        return self._binary("atan2", other)

    arctan2 = atan2

    def hypot(self, other: Any) -> T:
        """sqrt(x*x + other*other), without overflow on the way."""
        return self._binary("hypot", other)

    def fmod(self, other: Any) -> T:
        """The exact rest of x / other, with the sign of x; integers stay integers."""
        x: Any = self
        y: Any = self._operand(other)
        if x.dtype.is_float or y.dtype.is_float:
            return self._binary("fmod", other)
        rest: Any = x % y  # of the sign of y, which is one y away from that of the sign of x
        away: Any = (rest != 0) & ((x < 0) ^ (rest < 0))
        return rest - away.astype(rest.dtype) * y  # type: ignore[no-any-return]

    def copysign(self, other: Any) -> T:
        """The size of x with the sign of `other`."""
        return self._binary("copysign", other)

    def sigmoid(self) -> T:
        """1 / (1 + exp(-x))."""
        return self._unary("sigmoid")

    def silu(self) -> T:
        """x / (1 + exp(-x))."""
        return self._unary("silu")

    def relu(self) -> T:
        """max(x, 0)."""
        return self._unary("relu")

    def floor(self) -> T:
        """Largest integral value not above x."""
        return self._unary("floor")

    def ceil(self) -> T:
        """Smallest integral value not below x."""
        return self._unary("ceil")

    def round(self, decimals: int = 0) -> T:
        """Nearest integral value, ties to even; or that many digits behind the point."""
        if decimals == 0 or not self.dtype.is_float:
            return self._unary("round")
        ten = 10.0 ** abs(decimals)
        scaled: Any = self * ten if decimals > 0 else self / ten
        whole = scaled._unary("round")
        return whole / ten if decimals > 0 else whole * ten  # type: ignore[no-any-return]

    def trunc(self) -> T:
        """The integral part."""
        return self._unary("trunc")

    fix = trunc

    def square(self) -> T:
        """x * x."""
        return self._unary("square")

    def reciprocal(self) -> T:
        """1 / x."""
        return self._unary("reciprocal")

    def log2(self) -> T:
        """Logarithm to base 2."""
        return self._unary("log2")

    def exp2(self) -> T:
        """2 ** x."""
        return self._unary("exp2")

    def isnan(self) -> T:
        """Whether elements are NaN."""
        return self._unary("isnan") if self.dtype.is_float else self != self

    def isinf(self) -> T:
        """Whether elements are infinite."""
        return self._unary("isinf") if self.dtype.is_float else self != self

    def isfinite(self) -> T:
        """Whether elements are neither infinite nor NaN."""
        return self._unary("isfinite") if self.dtype.is_float else self == self

    def signbit(self) -> T:
        """Whether elements have a minus, that of -0 too."""
        return self._unary("signbit")

    def logaddexp(self, other: Any) -> T:
        """log(exp(x) + exp(other)), without overflow on the way."""
        return self._binary("logaddexp", other)

    def maximum(self, other: Any) -> T:
        """The larger; NaN if either is."""
        return self._binary("maximum", other)

    def minimum(self, other: Any) -> T:
        """The smaller; NaN if either is."""
        return self._binary("minimum", other)

    def clip(self, min: Any = None, max: Any = None) -> T:
        """Limited to [min, max]; None leaves a side open."""
        if min is None and max is None:
            return self._unary("contiguous")
        low, high = (None if end is None else self._operand(end) for end in (min, max))
        return self._apply("clip", self, low, high)  # type: ignore[no-any-return]

    clamp = clip

    def gelu(self, approximate: str = "none") -> T:
        """Gaussian error linear unit."""
        x: Any = self if self.dtype.is_float else self.astype(float_for(self.dtype))
        return x._unary("gelu", approximate=approximate)  # type: ignore[no-any-return]
