"""PyTorch's names of what is done to integers and bits; histograms; whether tensors are equal."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from cubepy.errors import ArgumentError
from cubepy.tensor.methods.applied import Applied

T = TypeVar("T")


class TorchBits(Applied[T]):
    """What `Tensor` inherits: divisors, shifts, histograms, equality as one boolean.

    Args:
        T: what the methods give, `Tensor`.
    """

    __slots__ = ()

    def equal(self, other: Any) -> bool:
        """Whether shapes and all elements are the same, NaN least of all; one boolean, as in
        PyTorch. `cubepy.tensor.equal` is the array API's, element by element.

        Example:
            >>> import cubepy as cb
            >>> x = cb.tensor([1, 2])
            >>> x.equal(cb.tensor([1.0, 2.0])), x.equal(cb.tensor([[1, 2]]))
            (True, False)
        """
        y: Any = self._like(other)
        found: Any = self == y if self.shape == y.shape else None
        return found is not None and bool(found.all())

    def gcd(self, other: Any) -> T:
        """The greatest common divisor of integers, not below 0; of 0 and 0 it is 0.

        Example:
            >>> import cubepy as cb
            >>> cb.tensor([12, -7, 0]).gcd(cb.tensor([18, 21, 5]))
            tensor([6, 7, 5])
        """
        return self._binary("gcd", other)

    def lcm(self, other: Any) -> T:
        """The least common multiple of integers, not below 0; 0 where one is 0.

        Example:
            >>> import cubepy as cb
            >>> cb.tensor([4, -3, 0]).lcm(6)
            tensor([12,  6,  0])
        """
        return self._binary("lcm", other)

    def bitwise_left_shift(self, other: Any) -> T:
        """`self << other`"""
        return self._binary("lshift", other)

    def bitwise_right_shift(self, other: Any) -> T:
        """`self >> other`"""
        return self._binary("rshift", other)

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> T:
        """How many elements lie in each of `bins` equal parts of [min, max], in the tensor's dtype;
        from the smallest to the largest element where both are 0. What lies outside, and NaN, is
        not counted; what lies on a border belongs to the part above, the last one has both.

        Example:
            >>> import cubepy as cb
            >>> cb.tensor([1.0, 2.0, 1.0, 5.0]).histc(3, min=0, max=3)
            tensor([0., 2., 1.])
        """
        if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
            raise ArgumentError(f"histc: bins is a number of parts from 1 on, not {bins!r}")
        if not (math.isfinite(min) and math.isfinite(max) and min <= max):
            raise ArgumentError(f"histc: no parts of [{min}, {max}]", hint="min must be below max")
        x: Any = self.reshape(-1)  # type: ignore[attr-defined]
        none = x.new_zeros(bins)
        if not x.size:
            return none  # type: ignore[no-any-return]
        wide: Any = x._of_floats()
        wide = wide.astype("f32") if wide.dtype.bits < 32 else wide
        low, high = (wide.amin(), wide.amax()) if min == max == 0 else (min, max)
        if min == max:
            low, high = (wide._operand(end) for end in (low, high))
            same = low == high
            low = self._apply("where", same, low - 1, low)
            high = self._apply("where", same, high + 1, high)
        inside = (wide >= low) & (wide <= high)
        at = (wide - low) * bins / (high - low)
        at = at.masked_fill(~inside, 0).astype("i64").clip(max=bins - 1)
        return none.index_add(0, at, inside.astype(x.dtype))  # type: ignore[no-any-return]
