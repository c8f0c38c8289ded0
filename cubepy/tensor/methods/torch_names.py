"""What PyTorch's tensors are asked besides: other names of operators, products of one rank, dtypes
and devices by name.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, TypeVar

from cubepy.errors import ArgumentError, ShapeError
from cubepy.tensor.methods.applied import formulas, ints
from cubepy.tensor.methods.torch_bits import TorchBits
from cubepy.tensor.methods.torch_in_place import TorchInPlace
from cubepy.tensor.methods.torch_more import TorchMore
from cubepy.tensor.methods.torch_order import TorchOrder
from cubepy.tensor.methods.torch_shapes import TorchShapes
from cubepy.tensor.methods.torch_values import TorchValues

T = TypeVar("T")


class TorchNames(
    TorchInPlace[T], TorchBits[T], TorchMore[T], TorchOrder[T], TorchValues[T], TorchShapes[T]
):
    """What `Tensor` inherits: the other families, and what else code that was written for PyTorch
    asks.

    Args:
        T: what the methods give, `Tensor`.
    """

    __slots__ = ()

    # What it is

    def numel(self) -> builtins.int:
        """How many elements there are."""
        return math.prod(self.shape)

    nelement = numel

    def dim(self) -> builtins.int:
        """How many axes there are."""
        return self.ndim

    def element_size(self) -> builtins.int:
        """Bytes of an element."""
        return builtins.int(self.dtype.numpy.itemsize)

    def is_floating_point(self) -> builtins.bool:
        """Whether the elements are floats."""
        return builtins.bool(self.dtype.is_float)

    # Operators

    def pow(self, exponent: Any) -> T:
        """`self ** exponent`"""
        return self**exponent

    def neg(self) -> T:
        """`-self`"""
        return -self

    def remainder(self, other: Any) -> T:
        """`self % other`, with the sign of `other`."""
        return self % other

    def eq(self, other: Any) -> T:
        """`self == other`"""
        return self == other

    def ne(self, other: Any) -> T:
        """`self != other`"""
        return self != other

    def lt(self, other: Any) -> T:
        """`self < other`"""
        return self < other

    def le(self, other: Any) -> T:
        """`self <= other`"""
        return self <= other

    def gt(self, other: Any) -> T:
        """`self > other`"""
        return self > other

    def ge(self, other: Any) -> T:
        """`self >= other`"""
        return self >= other

    def logical_not(self) -> T:
        """Whether elements are zero."""
        return self == 0

    def logical_and(self, other: Any) -> T:
        """Whether both are not zero."""
        mine: Any = self != 0
        return mine & (self._like(other) != 0)

    def logical_or(self, other: Any) -> T:
        """Whether one is not zero."""
        mine: Any = self != 0
        return mine | (self._like(other) != 0)

    def lerp(self, end: Any, weight: Any) -> T:
        """`self + weight * (end - self)`"""
        return formulas().lerp(self, end, weight)  # type: ignore[no-any-return]

    def addcmul(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> T:
        """`self + value * tensor1 * tensor2`"""
        return formulas().addcmul(self, tensor1, tensor2, value)  # type: ignore[no-any-return]

    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> T:
        """`self + value * tensor1 / tensor2`"""
        return formulas().addcdiv(self, tensor1, tensor2, value)  # type: ignore[no-any-return]

    def negative(self) -> T:
        """`-self`"""
        return -self

    def absolute(self) -> T:
        """Sizes of the elements."""
        return abs(self)

    def ndimension(self) -> builtins.int:
        """Number of axes."""
        return self.ndim

    def bitwise_and(self, other: Any) -> T:
        """`self & other`"""
        return self & other

    def bitwise_or(self, other: Any) -> T:
        """`self | other`"""
        return self | other

    def bitwise_xor(self, other: Any) -> T:
        """`self ^ other`"""
        return self ^ other

    def bitwise_not(self) -> T:
        """`~self`"""
        return ~self

    # Reductions

    def std_mean(
        self,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: builtins.bool = False,
        *,
        correction: Any = None,
    ) -> tuple[T, T]:
        """Deviations and means over axes; arguments as of `var_mean`."""
        axis, how = _spread(dim, unbiased, keepdim, correction)
        return self.std(axis=axis, **how), self.mean(axis=axis, keepdims=how["keepdims"])

    def var_mean(
        self,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: builtins.bool = False,
        *,
        correction: Any = None,
    ) -> tuple[T, T]:
        """Variances and means over axes.

        Args:
            dim: axes; None or () for all. A bool there is `unbiased` of all axes, as in PyTorch.
            unbiased: whether the variance is of one less than the elements, as by default.
            keepdim: whether the axes stay, of length 1.
            correction: of how many less, in place of `unbiased`.
        """
        axis, how = _spread(dim, unbiased, keepdim, correction)
        return self.var(axis=axis, **how), self.mean(axis=axis, keepdims=how["keepdims"])

    def amax(self, dim: Any = None, keepdim: builtins.bool = False, **said: Any) -> T:
        """Largest elements over axes, all by default; NumPy's `axis` and `keepdims` may be said."""
        return self._reduced("max", dim, keepdim, said)

    def amin(self, dim: Any = None, keepdim: builtins.bool = False, **said: Any) -> T:
        """Smallest elements over axes, all by default; `axis` and `keepdims` may be said."""
        return self._reduced("min", dim, keepdim, said)

    def count_nonzero(self, dim: Any = None) -> T:
        """How many elements are not zero."""
        found: Any = self != 0
        return found.sum(axis=dim)

    def log_softmax(self, dim: builtins.int = -1, dtype: Any = None) -> T:
        """The logarithm of `softmax`, from the maximum down."""
        x: Any = self if dtype is None else self.astype(dtype)
        return x._unary("log_softmax", axis=dim)  # type: ignore[no-any-return]

    # Products

    def matmul(self, other: Any) -> T:
        """Matrix product with broadcast batch axes."""
        return self @ other

    def mm(self, mat2: Any) -> T:
        """The product of two matrices."""
        return self._product("mm", mat2, 2, 2)

    def bmm(self, mat2: Any) -> T:
        """The products of two stacks of matrices."""
        return self._product("bmm", mat2, 3, 3)

    def mv(self, vec: Any) -> T:
        """A matrix times a vector."""
        return self._product("mv", vec, 2, 1)

    def dot(self, tensor: Any) -> T:
        """The sum of products of two vectors."""
        return self._product("dot", tensor, 1, 1)

    def outer(self, vec2: Any) -> T:
        """All products of two vectors' elements."""
        if self.ndim != 1 or vec2.ndim != 1:
            raise ShapeError(f"outer takes two vectors, not shapes {self.shape} and {vec2.shape}")
        return self.unsqueeze(1) * vec2.unsqueeze(0)

    def addmm(self, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> T:
        """`beta * self + alpha * (mat1 @ mat2)`"""
        product = mat1.mm(mat2)
        product = product if alpha == 1 else product * alpha
        return product + (self if beta == 1 else self * beta)

    # Shapes

    def t(self) -> T:
        """A matrix transposed; a vector and a number as they are."""
        if self.ndim > 2:
            raise ShapeError(f"t takes a matrix, not the shape {self.shape}", hint="use mT")
        return self.T

    def view_as(self, other: Any) -> T:
        """The elements in the shape of another tensor."""
        return self.reshape(other.shape)

    def expand_as(self, other: Any) -> T:
        """Axes of length 1 stretched to the shape of another tensor."""
        return self.expand(other.shape)

    def unflatten(self, dim: builtins.int, sizes: Any) -> T:
        """An axis as several; one length may be -1."""
        at, lengths = self._dim(dim, "unflatten"), list(ints((sizes,)))
        if -1 in lengths:
            known = math.prod(n for n in lengths if n != -1)
            lengths[lengths.index(-1)] = self.shape[at] // max(1, known)
        if math.prod(lengths) != self.shape[at]:
            raise ShapeError(f"unflatten: an axis of {self.shape[at]} is not {tuple(sizes)}")
        return self.reshape(*self.shape[:at], *lengths, *self.shape[at + 1 :])

    def narrow(self, dim: builtins.int, start: builtins.int, length: builtins.int) -> T:
        """`length` positions of an axis, from `start` on; no copy."""
        at = self._dim(dim, "narrow")
        begin = start + self.shape[at] if start < 0 else start
        if not 0 <= begin <= begin + length <= self.shape[at]:
            raise ShapeError(
                f"narrow: {length} positions from {start} on do not lie in an axis of "
                f"{self.shape[at]}"
            )
        return self[(slice(None),) * at + (slice(begin, begin + length),)]

    # Dtypes and devices

    def type_as(self, other: Any) -> T:
        """The tensor in the dtype of another one."""
        return self.astype(other.dtype)

    def cpu(self) -> T:
        """The tensor on the host."""
        return self.to(device="cpu")

    def cuda(self, device: Any = "cuda") -> T:
        """The tensor on an NVIDIA GPU: a number, or a name."""
        where = f"cuda:{device}" if isinstance(device, builtins.int) else device
        return self.to(device=where)

    def to_device(self, device: Any, /, *, stream: Any = None) -> T:
        """The tensor on another device; itself where it is there."""
        return self.to(device=device)

    def double(self) -> T:
        """The tensor in f64."""
        return self.astype("f64")

    def half(self) -> T:
        """The tensor in f16."""
        return self.astype("f16")

    def bfloat16(self) -> T:
        """The tensor in bf16."""
        return self.astype("bf16")

    def long(self) -> T:
        """The tensor in i64."""
        return self.astype("i64")

    def float(self) -> T:
        """The tensor in f32."""
        return self.astype("f32")

    def int(self) -> T:
        """The tensor in i32."""
        return self.astype("i32")

    def bool(self) -> T:
        """Whether elements are not zero."""
        return self != 0

    def _product(self, name: str, other: Any, mine: builtins.int, theirs: builtins.int) -> T:
        if (self.ndim, other.ndim) != (mine, theirs):
            raise ShapeError(
                f"{name} takes ranks {mine} and {theirs}, not {self.shape} and {other.shape}",
                hint="matmul and @ take any",
            )
        if name == "bmm" and self.shape[0] != other.shape[0]:
            raise ShapeError(f"bmm of {self.shape[0]} and {other.shape[0]} matrices")
        return self @ other


def _spread(
    dim: Any, unbiased: Any, keepdim: builtins.bool, correction: Any
) -> tuple[Any, dict[str, Any]]:
    """The axes and options of `var` and `std` for what PyTorch's functions take."""
    if isinstance(dim, builtins.bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise ArgumentError("unbiased and correction say the same: give one of them")
    if correction is None:
        correction = 0 if unbiased is False else 1
    axis = tuple(dim) if isinstance(dim, (list, tuple)) else dim
    return None if axis == () else axis, {"keepdims": keepdim, "correction": correction}
