"""The operators, elementwise methods and reductions of tensors: one line each, all of them ops of
the IR.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from cubepy.errors import ArgumentError
from cubepy.runtime.notebook import preformatted
from cubepy.tensor import ufuncs
from cubepy.tensor.value import Handle

T = TypeVar("T")


class Operators(Handle, Generic[T]):
    """What `Tensor` inherits: arithmetic, comparisons, elementwise math and reductions.

    Args:
        T: what they give, `Tensor`.
    """

    __slots__ = ()

    def _unary(self, op: str, **attrs: Any) -> T:
        """`op(self)`."""
        raise NotImplementedError

    def _binary(self, op: str, other: Any) -> T:
        """`op(self, other)`; a Python number takes the tensor's dtype."""
        raise NotImplementedError

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

    def __invert__(self) -> T:
        return self._unary("not")

    def __abs__(self) -> T:
        return self._unary("abs")

    def __pow__(self, other: Any) -> T:
        if isinstance(other, int) and other == 2:
            return self._binary("mul", self)
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

    def __eq__(self, other: Any) -> T:  # type: ignore[override]
        return self._binary("eq", other)

    def __ne__(self, other: Any) -> T:  # type: ignore[override]
        return self._binary("ne", other)

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

    def acos(self) -> T:
        """The angle from 0 to pi whose cosine is x; NaN beyond 1."""
        return self._unary("acos")

    def atan(self) -> T:
        """The angle from -pi/2 to pi/2 whose tangent is x."""
        return self._unary("atan")

    def sinh(self) -> T:
        """Hyperbolic sine."""
        return self._unary("sinh")

    def cosh(self) -> T:
        """Hyperbolic cosine."""
        return self._unary("cosh")

    def asinh(self) -> T:
        """Inverse hyperbolic sine."""
        return self._unary("asinh")

    def acosh(self) -> T:
        """Inverse hyperbolic cosine; NaN below 1."""
        return self._unary("acosh")

    def atanh(self) -> T:
        """Inverse hyperbolic tangent; NaN beyond 1."""
        return self._unary("atanh")

    def log10(self) -> T:
        """Logarithm to base 10."""
        return self._unary("log10")

    def cbrt(self) -> T:
        """Cube root, of negative numbers too."""
        return self._unary("cbrt")

    def erfc(self) -> T:
        """1 - erf(x), exact where that is small."""
        return self._unary("erfc")

    def lgamma(self) -> T:
        """log(|Gamma(x)|)."""
        return self._unary("lgamma")

    def sign(self) -> T:
        """-1, 0 or 1; NaN of NaN."""
        return self._unary("sign")

    def atan2(self, other: Any) -> T:
        """The angle of the point (other, x), from -pi to pi."""
        return self._binary("atan2", other)

    def hypot(self, other: Any) -> T:
        """sqrt(x*x + other*other), without overflow on the way."""
        return self._binary("hypot", other)

    def fmod(self, other: Any) -> T:
        """The exact rest of x / other, with the sign of x."""
        return self._binary("fmod", other)

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

    def round(self) -> T:
        """Nearest integral value, ties to even."""
        return self._unary("round")

    def sum(
        self, axis: Any = None, keepdims: bool = False, *, dtype: None = None, out: None = None
    ) -> T:
        """Sum over axes (all by default); integers sum in 64 bits."""
        return self._unary("sum", axis=_axis(axis, dtype, out), keepdims=keepdims)

    def prod(
        self, axis: Any = None, keepdims: bool = False, *, dtype: None = None, out: None = None
    ) -> T:
        """Product over axes."""
        return self._unary("prod", axis=_axis(axis, dtype, out), keepdims=keepdims)

    def mean(
        self, axis: Any = None, keepdims: bool = False, *, dtype: None = None, out: None = None
    ) -> T:
        """Arithmetic mean over axes; integers give floats."""
        return self._unary("mean", axis=_axis(axis, dtype, out), keepdims=keepdims)

    def max(
        self, axis: Any = None, keepdims: bool = False, *, dtype: None = None, out: None = None
    ) -> T:
        """Largest element over axes."""
        return self._unary("max", axis=_axis(axis, dtype, out), keepdims=keepdims)

    def min(
        self, axis: Any = None, keepdims: bool = False, *, dtype: None = None, out: None = None
    ) -> T:
        """Smallest element over axes."""
        return self._unary("min", axis=_axis(axis, dtype, out), keepdims=keepdims)

    def argmax(
        self,
        axis: int | None = None,
        keepdims: bool = False,
        *,
        dtype: None = None,
        out: None = None,
    ) -> T:
        """Index of the first largest element (i64)."""
        return self._unary("argmax", axis=_axis(axis, dtype, out), keepdims=keepdims)

    def argmin(
        self,
        axis: int | None = None,
        keepdims: bool = False,
        *,
        dtype: None = None,
        out: None = None,
    ) -> T:
        """Index of the first smallest element (i64)."""
        return self._unary("argmin", axis=_axis(axis, dtype, out), keepdims=keepdims)

    def softmax(self, axis: int = -1) -> T:
        """exp(x) / sum(exp(x)) along an axis."""
        return self._unary("softmax", axis=axis)

    def gelu(self, approximate: str = "none") -> T:
        """Gaussian error linear unit."""
        return self._unary("gelu", approximate=approximate)


def _axis(axis: Any, dtype: None = None, out: None = None) -> Any:
    """An axis as ops take it. `np.sum(t)` and the like ask the tensor, and pass a dtype and an
    output, too.
    """
    if dtype is not None or out is not None:
        raise ArgumentError(
            "a tensor is reduced without dtype= and out=",
            hint="convert it with x.to(dtype), or use x.numpy()",
        )
    return tuple(axis) if isinstance(axis, list) else axis
