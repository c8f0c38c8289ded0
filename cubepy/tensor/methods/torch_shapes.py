"""PyTorch's names of views: axes in another order, parts of axes, diagonals, windows."""

from __future__ import annotations

import itertools
from typing import Any, TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from cubepy.errors import ShapeError
from cubepy.tensor.methods.applied import ints
from cubepy.tensor.methods.indexing import Indexing
from cubepy.tensor.methods.reducing import Reducing
from cubepy.tensor.methods.shaping import Shaping

T = TypeVar("T")


def _windows(x: np.ndarray, axis: int, count: int, size: int, step: int) -> np.ndarray:
    """Windows along an axis in a new last one: each element may be in several, so none is
    written.
    """
    at = x.strides[axis]
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)
    strides = (*x.strides[:axis], at * step, *x.strides[axis + 1 :], at)
    return as_strided(x, shape, strides, writeable=False)


class TorchShapes(Reducing[T], Shaping[T], Indexing[T]):
    """What `Tensor` inherits: other shapes and parts by PyTorch's names.

    Args:
        T: what the methods give, `Tensor`.
    """

    __slots__ = ()

    def ravel(self) -> T:
        """All elements in one axis."""
        return self.reshape(-1)

    def reshape_as(self, other: Any) -> T:
        """The elements in the shape of another tensor."""
        return self.reshape(other.shape)

    def moveaxis(self, source: Any, destination: Any) -> T:
        """As `movedim`."""
        return self.movedim(source, destination)

    def swapaxes(self, axis0: int, axis1: int) -> T:
        """Two axes exchanged, as `transpose`; no copy."""
        return self.transpose(axis0, axis1)

    def swapdims(self, dim0: int, dim1: int) -> T:
        """Two axes exchanged, as `transpose`; no copy."""
        return self.transpose(dim0, dim1)

    def broadcast_to(self, *size: Any) -> T:
        """Axes of length 1 stretched to a shape; no copy."""
        return self.expand(*size)

    def fliplr(self) -> T:
        """Columns backwards: axis 1."""
        return self.flip(1)

    def flipud(self) -> T:
        """Rows backwards: axis 0."""
        return self.flip(0)

    def rot90(self, k: int = 1, dims: Any = (0, 1)) -> T:
        """Rotated by k times 90 degrees, from the first axis towards the second one."""
        axes = self._dims(dims, "rot90")
        if len(axes) != 2:
            raise ShapeError(f"rot90 is of two axes, not {dims}")
        a, b = axes
        quarter = k % 4
        if quarter == 0:
            return self.clone()
        if quarter == 2:
            return self.flip(a, b)
        exchanged: Any = self.transpose(a, b)
        return exchanged.flip(a if quarter == 1 else b)  # type: ignore[no-any-return]

    def select(self, dim: int, index: int) -> T:
        """One position of an axis, which is gone; no copy."""
        axis, n = self._dim(dim, "select"), self.shape[self._dim(dim, "select")]
        if not -n <= index < n:
            raise ShapeError(f"select: {index} is outside axis {dim} of length {n}")
        return self[(slice(None),) * axis + (index,)]

    def tensor_split(self, indices_or_sections: Any, dim: int = 0) -> tuple[T, ...]:
        """About equal parts of an axis, the first ones longer by one; or the parts between
        positions, as of slices. No copies.
        """
        axis = self._dim(dim, "tensor_split")
        given = indices_or_sections
        if hasattr(given, "tolist"):
            given = given.tolist()
        if isinstance(given, (tuple, list)):
            ends = [None, *ints((given,)), None]
            lead = (slice(None),) * axis
            return tuple(self[(*lead, slice(a, b))] for a, b in itertools.pairwise(ends))
        if given < 1:
            raise ShapeError(f"tensor_split into {given} parts")
        each, more = divmod(self.shape[axis], given)
        return self.split([each + (n < more) for n in range(given)], dim)

    def unfold(self, dimension: int, size: int, step: int) -> T:
        """Windows of `size` positions along an axis, every `step`, in a new last axis:
        (..., n, ...) -> (..., (n - size) // step + 1, ..., size).
        """
        x: Any = self if self.ndim else self.reshape(1)
        axis, n = x._dim(dimension, "unfold"), x.shape[x._dim(dimension, "unfold")]
        if not 0 <= size <= n or step < 1:
            raise ShapeError(f"unfold: no windows of {size} every {step} in an axis of {n}")
        count = (n - size) // step + 1
        lead = (slice(None),) * axis
        host = x.__cubepy_hosted__()
        if host is not None:
            found = x.__cubepy_wrap__(_windows(host, axis, count, size, step))
            return found if self.ndim else found[0]  # type: ignore[no-any-return]
        if not size:
            return x[(*lead, slice(count))].unsqueeze(-1)[..., :0]  # type: ignore[no-any-return]
        span = step * (count - 1) + 1
        parts = [x[(*lead, slice(k, k + span, step))].unsqueeze(-1) for k in range(size)]
        found = parts[0] if size == 1 else self._apply("concat", *parts, axis=parts[0].ndim - 1)
        return found if self.ndim else found[0]  # type: ignore[no-any-return]

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
        """The diagonals of two axes, in a last axis, `offset` above the main one; no copy where
        strides allow it.
        """
        if self.ndim < 2:
            raise ShapeError(f"diagonal is of two axes, not of the shape {self.shape}")
        first, second = self._dims((dim1, dim2), "diagonal")
        x: Any = self.movedim((first, second), (-2, -1))
        rows, columns = x.shape[-2:]
        count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
        flat = x.reshape((*x.shape[:-2], rows * columns))
        begin = offset if offset >= 0 else -offset * columns
        if not count:
            return flat[..., :0]  # type: ignore[no-any-return]
        return flat[..., begin : begin + (count - 1) * (columns + 1) + 1 : columns + 1]  # type: ignore[no-any-return]

    def diag(self, diagonal: int = 0) -> T:
        """The diagonal of a matrix; of a vector the matrix that has it as diagonal."""
        if self.ndim == 2:
            return self.diagonal(diagonal)
        if self.ndim != 1:
            raise ShapeError(f"diag takes a vector or a matrix, not the shape {self.shape}")
        x: Any = self
        side = x.shape[0] + abs(diagonal)
        begin = diagonal if diagonal >= 0 else -diagonal * side
        zeros = x._operand(0).astype(x.dtype).to(x.device).expand(side * side)
        if not x.shape[0]:
            return zeros.reshape(side, side)  # type: ignore[no-any-return]
        index = (slice(begin, begin + (x.shape[0] - 1) * (side + 1) + 1, side + 1),)
        at = tuple((s.start, s.stop, s.step) for s in index)
        return self._apply("slice_put", zeros, x, index=at).reshape(side, side)  # type: ignore[no-any-return]

    def trace(self) -> T:
        """The sum of a matrix's diagonal."""
        if self.ndim != 2:
            raise ShapeError(f"trace takes a matrix, not the shape {self.shape}")
        diagonal: Any = self.diagonal()
        return diagonal.sum()  # type: ignore[no-any-return]

    def index_fill(self, dim: int, index: Any, value: Any) -> T:
        """With a number at the positions of a list of indices."""
        x: Any = self if self.ndim else self.reshape(1)
        axis = x._dim(dim, "index_fill")
        at: Any = self._like(index)
        at = at if at.ndim else at.reshape(1)
        at, fill = at.to(x.device), x._operand(value).astype(x.dtype)
        none = x._operand(0).astype(x.dtype).to(x.device).expand(x.shape[axis])
        marked = none.index_copy(0, at, none[:1].expand(at.shape) + 1) != 0
        marked = marked.reshape(-1, *(1,) * (x.ndim - 1 - axis))
        return self._apply("where", marked, fill, x).reshape(self.shape)  # type: ignore[no-any-return]
