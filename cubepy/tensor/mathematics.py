"""The elementwise functions of tensors besides the usual ones, named as in PyTorch: one op of the IR each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cubepy.tensor.array import Tensor


class Mathematics:
    """What `Operators` inherits."""

    __slots__ = ()

    def _unary(self, op: str) -> Tensor:
        """`op(self)`."""
        raise NotImplementedError

    def _binary(self, op: str, other: Any) -> Tensor:
        """`op(self, other)`; a Python number takes the tensor's dtype."""
        raise NotImplementedError

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
