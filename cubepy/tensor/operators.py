"""The operators and elementwise methods of tensors: one line each, all of them ops of the IR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cubepy.runtime.notebook import preformatted
from cubepy.tensor import ufuncs

if TYPE_CHECKING:
    from cubepy.tensor.array import Tensor


class Operators:
    """What `Tensor` inherits: arithmetic, comparisons and elementwise math."""

    __slots__ = ()

    def _unary(self, op: str) -> Tensor:
        """`op(self)`."""
        raise NotImplementedError

    def _binary(self, op: str, other: Any) -> Tensor:
        """`op(self, other)`; a Python number takes the tensor's dtype."""
        raise NotImplementedError

    def _reflected(self, op: str, other: Any) -> Tensor:
        """`op(other, self)`."""
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return ufuncs.call(ufunc, method, inputs, options)

    def _repr_html_(self) -> str:
        title = f"tensor {self.dtype.name} {self.shape} on {self.device}"  # type: ignore[attr-defined]
        return preformatted(title, repr(self))

    def __neg__(self) -> Tensor:
        return self._unary("neg")

    def __invert__(self) -> Tensor:
        return self._unary("not")

    def __abs__(self) -> Tensor:
        return self._unary("abs")

    def __pow__(self, other: Any) -> Tensor:
        if isinstance(other, int) and other == 2:
            return self._binary("mul", self)
        return self._binary("pow", other)

    def __rpow__(self, other: Any) -> Tensor:
        return self._reflected("pow", other)

    def __add__(self, other: Any) -> Tensor:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Tensor:
        return self._reflected("add", other)

    def __sub__(self, other: Any) -> Tensor:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Tensor:
        return self._reflected("sub", other)

    def __mul__(self, other: Any) -> Tensor:
        return self._binary("mul", other)

    def __rmul__(self, other: Any) -> Tensor:
        return self._reflected("mul", other)

    def __truediv__(self, other: Any) -> Tensor:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self._reflected("div", other)

    def __floordiv__(self, other: Any) -> Tensor:
        return self._binary("floordiv", other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return self._reflected("floordiv", other)

    def __mod__(self, other: Any) -> Tensor:
        return self._binary("mod", other)

    def __rmod__(self, other: Any) -> Tensor:
        return self._reflected("mod", other)

    def __and__(self, other: Any) -> Tensor:
        return self._binary("and", other)

    def __rand__(self, other: Any) -> Tensor:
        return self._reflected("and", other)

    def __or__(self, other: Any) -> Tensor:
        return self._binary("or", other)

    def __ror__(self, other: Any) -> Tensor:
        return self._reflected("or", other)

    def __xor__(self, other: Any) -> Tensor:
        return self._binary("xor", other)

    def __rxor__(self, other: Any) -> Tensor:
        return self._reflected("xor", other)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return self._binary("eq", other)

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return self._binary("ne", other)

    def __lt__(self, other: Any) -> Tensor:
        return self._binary("lt", other)

    def __le__(self, other: Any) -> Tensor:
        return self._binary("le", other)

    def __gt__(self, other: Any) -> Tensor:
        return self._binary("gt", other)

    def __ge__(self, other: Any) -> Tensor:
        return self._binary("ge", other)

    __hash__ = object.__hash__

    def abs(self) -> Tensor:
        """Absolute value."""
        return self._unary("abs")

    def exp(self) -> Tensor:
        """e ** x."""
        return self._unary("exp")

    def log(self) -> Tensor:
        """Natural logarithm."""
        return self._unary("log")

    def log1p(self) -> Tensor:
        """log(1 + x), exact near zero."""
        return self._unary("log1p")

    def expm1(self) -> Tensor:
        """exp(x) - 1, exact near zero."""
        return self._unary("expm1")

    def sqrt(self) -> Tensor:
        """Square root."""
        return self._unary("sqrt")

    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""
        return self._unary("rsqrt")

    def sin(self) -> Tensor:
        """Sine of an angle in radians."""
        return self._unary("sin")

    def cos(self) -> Tensor:
        """Cosine of an angle in radians."""
        return self._unary("cos")

    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""
        return self._unary("tanh")

    def erf(self) -> Tensor:
        """Error function."""
        return self._unary("erf")

    def tan(self) -> Tensor:
        """Tangent of an angle in radians."""
        return self._unary("tan")

    def asin(self) -> Tensor:
        """The angle from -pi/2 to pi/2 whose sine is x; NaN beyond 1."""
        return self._unary("asin")

    def acos(self) -> Tensor:
        """The angle from 0 to pi whose cosine is x; NaN beyond 1."""
        return self._unary("acos")

    def atan(self) -> Tensor:
        """The angle from -pi/2 to pi/2 whose tangent is x."""
        return self._unary("atan")

    def sinh(self) -> Tensor:
        """Hyperbolic sine."""
        return self._unary("sinh")

    def cosh(self) -> Tensor:
        """Hyperbolic cosine."""
        return self._unary("cosh")

    def asinh(self) -> Tensor:
        """Inverse hyperbolic sine."""
        return self._unary("asinh")

    def acosh(self) -> Tensor:
        """Inverse hyperbolic cosine; NaN below 1."""
        return self._unary("acosh")

    def atanh(self) -> Tensor:
        """Inverse hyperbolic tangent; NaN beyond 1."""
        return self._unary("atanh")

    def log10(self) -> Tensor:
        """Logarithm to base 10."""
        return self._unary("log10")

    def cbrt(self) -> Tensor:
        """Cube root, of negative numbers too."""
        return self._unary("cbrt")

    def erfc(self) -> Tensor:
        """1 - erf(x), exact where that is small."""
        return self._unary("erfc")

    def lgamma(self) -> Tensor:
        """log(|Gamma(x)|)."""
        return self._unary("lgamma")

    def sign(self) -> Tensor:
        """-1, 0 or 1; NaN of NaN."""
        return self._unary("sign")

    def atan2(self, other: Any) -> Tensor:
        """The angle of the point (other, x), from -pi to pi."""
        return self._binary("atan2", other)

    def hypot(self, other: Any) -> Tensor:
        """sqrt(x*x + other*other), without overflow on the way."""
        return self._binary("hypot", other)

    def fmod(self, other: Any) -> Tensor:
        """The exact rest of x / other, with the sign of x."""
        return self._binary("fmod", other)

    def copysign(self, other: Any) -> Tensor:
        """The size of x with the sign of `other`."""
        return self._binary("copysign", other)

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x))."""
        return self._unary("sigmoid")

    def silu(self) -> Tensor:
        """x / (1 + exp(-x))."""
        return self._unary("silu")

    def relu(self) -> Tensor:
        """max(x, 0)."""
        return self._unary("relu")

    def floor(self) -> Tensor:
        """Largest integral value not above x."""
        return self._unary("floor")

    def ceil(self) -> Tensor:
        """Smallest integral value not below x."""
        return self._unary("ceil")

    def round(self) -> Tensor:
        """Nearest integral value, ties to even."""
        return self._unary("round")
