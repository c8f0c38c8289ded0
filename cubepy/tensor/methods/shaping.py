"""Other shapes and orders of the same elements."""

from __future__ import annotations

import itertools
import math
import operator
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime.device import use
from cubepy.tensor.methods.applied import Applied, formulas, ints
from cubepy.tensor.ops.movement import as_index

R = TypeVar("R")


@lru_cache(4096)
def _exchanged(rank: int, first: int, second: int) -> tuple[int, ...]:
    """Axes, two of them exchanged."""
    order = list(range(rank))
    order[first], order[second] = second, first
    return tuple(order)


@lru_cache(4096)
def _flattened(shape: tuple[int, ...], first: int, last: int) -> tuple[int, ...]:
    """A shape with some axes as one."""
    return (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


@lru_cache(4096)
def _squeezed(shape: tuple[int, ...], drop: tuple[int, ...] | None) -> tuple[int, ...]:
    """A shape without axes of length 1, all or those that are named."""
    return tuple([n for d, n in enumerate(shape) if n != 1 or drop is not None and d not in drop])


@lru_cache(4096)
def _stretched(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Lengths, where -1 stands for that of a shape."""
    lead = len(wanted) - len(shape)
    return tuple([shape[d - lead] if n == -1 and d >= lead else n for d, n in enumerate(wanted)])


@lru_cache(4096)
def _parts(axis: int, lengths: tuple[int, ...]) -> tuple[Any, ...]:
    """The indices of pieces of an axis one after the other, as the op "slice" takes them and as
    NumPy does.
    """
    ends = list(itertools.accumulate(lengths))
    before = ((None, None, None),) * axis
    made = [(*before, (end - n, end, None)) for n, end in zip(lengths, ends, strict=True)]
    return tuple([(index, as_index(index)) for index in made])


@lru_cache(1024)
def _positions(axis: int, count: int) -> tuple[Any, ...]:
    """The same of single positions of an axis."""
    before = ((None, None, None),) * axis
    made = [(*before, k) for k in range(count)]
    return tuple([(index, as_index(index)) for index in made])


def _names_a_dtype(given: Any) -> bool:
    known = isinstance(given, (DType, str, np.dtype, type))
    return known or type(given).__module__ == "torch" and not hasattr(given, "__index__")


HELD = 1 << 16
"""Elements that NumPy repeats."""


class Shaping(Applied[R]):
    """What `Tensor` inherits: reshape, transpose, expand, flip and the like, named as in PyTorch.

    Args:
        R: what they give, `Tensor`.
    """

    __slots__ = ()

    def contiguous(self) -> R:
        """The tensor in C order, copied only if it is not."""
        host = self.__cubepy_hosted__()
        if host is not None and host.flags.c_contiguous and host.ndim:
            return self.__cubepy_wrap__(host)
        return self._unary("contiguous")

    def clone(self) -> R:
        """A copy in memory of its own."""
        return self._unary("clone")

    def reshape(self, *shape: Any) -> R:
        """The elements in another shape (one length may be -1); copied only if strides force it."""
        return self._view("reshape", "shape", ints(shape))

    def view(self, *shape: Any) -> R:
        """As `reshape`; with a dtype, the bits of the elements as those of another dtype: as many
        along the last axis as there are of that size, as in PyTorch.

        Example:
            >>> import cubepy as cb
            >>> x = cb.tensor([1.0, -0.0])
            >>> x.view(cb.u32), x.view(cb.f64).shape, x.view(2, 1).shape
            (tensor([1065353216, 2147483648], dtype=cb.u32), (1,), (2, 1))
        """
        if len(shape) == 1 and _names_a_dtype(shape[0]):
            return self._unary("bitcast", dtype=as_dtype(shape[0]).name)
        return self._view("reshape", "shape", ints(shape))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> R:
        """Axes `start_dim` to `end_dim` as one."""
        if not self.shape:
            return self.reshape(1)
        first, last = self._dim(start_dim, "flatten"), self._dim(end_dim, "flatten")
        if first > last:
            raise ShapeError(
                f"flatten: axis {start_dim} comes after axis {end_dim} (rank {self.ndim})"
            )
        return self._view("reshape", "shape", _flattened(self.shape, first, last))

    def permute(self, *axes: Any, dims: Any = None) -> R:
        """Axes in another order; no copy."""
        return self._view("permute", "axes", ints(axes if dims is None else (dims,)))

    def transpose(self, dim0: int, dim1: int) -> R:
        """Two axes exchanged, as in PyTorch; no copy."""
        first, second = (self._dim(d, "transpose", line=True) for d in (dim0, dim1))
        if not self.shape:
            return self  # type: ignore[return-value]
        return self._view("permute", "axes", _exchanged(self.ndim, first, second))

    def movedim(self, source: Any, destination: Any) -> R:
        """Axes moved to other places, the others in their order; no copy."""
        origin, goal = (self._dims(d, "movedim", line=True) for d in (source, destination))
        if len(origin) != len(goal):
            raise ShapeError(f"movedim of the axes {source} to {len(goal)} places")
        if not self.shape:
            return self  # type: ignore[return-value]
        order = [d for d in range(self.ndim) if d not in origin]
        for to, d in sorted(zip(goal, origin, strict=True)):
            order.insert(to, d)
        return self.permute(*order)

    @property
    def T(self) -> R:
        """The axes reversed; no copy."""
        return self._view("permute", "axes", tuple(range(self.ndim - 1, -1, -1)))

    @property
    def mT(self) -> R:
        """The last two axes exchanged: matrices transposed; no copy."""
        rank = self.ndim
        if rank < 2:
            raise ShapeError(f"mT needs two axes or more, not the shape {self.shape}")
        return self._view("permute", "axes", _exchanged(rank, rank - 2, rank - 1))

    def unsqueeze(self, dim: int) -> R:
        """A new axis of length 1 at `dim`."""
        if not hasattr(dim, "__index__"):
            raise ArgumentError(f"unsqueeze: an axis is an integer, not {dim!r}")
        if not -self.ndim - 1 <= dim <= self.ndim:
            raise ShapeError(
                f"unsqueeze: axis {dim} is out of range for a tensor of rank {self.ndim}"
            )
        shape = self.shape
        at = operator.index(dim) % (len(shape) + 1)
        return self._view("reshape", "shape", (*shape[:at], 1, *shape[at:]))

    def squeeze(self, dim: Any = None) -> R:
        """Without axes of length 1 (all, or those of `dim` that are)."""
        drop = None if dim is None else self._dims(dim, "squeeze", line=True)
        return self._view("reshape", "shape", _squeezed(self.shape, drop))

    def expand(self, *shape: Any) -> R:
        """Axes of length 1 stretched, without a copy; -1 keeps a length."""
        return self._view("expand", "shape", _stretched(self.shape, ints(shape)))

    def flip(self, *axes: Any, dims: Any = None) -> R:
        """Axes backwards (all by default); no copy."""
        axes = axes if dims is None else (dims,)
        axes = self._dims(ints(axes) if axes else None, "flip", line=True)
        index = tuple((None, None, -1 if d in axes else None) for d in range(self.ndim))
        return self._unary("slice", index=index)

    def roll(self, shifts: Any, dims: Any = None) -> R:
        """Elements moved along axes, those that leave at an end come back at the other; without
        axes, of the flattened tensor.
        """
        if dims is None:
            flat: Any = self.reshape(-1)
            return flat.roll(shifts, 0).reshape(self.shape)  # type: ignore[no-any-return]
        axes = tuple(
            self._dim(d, "roll") for d in (dims if isinstance(dims, (tuple, list)) else (dims,))
        )
        steps = ints(shifts) if isinstance(shifts, (tuple, list)) else ints((shifts,)) * len(axes)
        if len(steps) != len(axes):
            raise ShapeError(f"roll by {len(steps)} shifts along {len(axes)} axes")
        found: Any = self
        for axis, step in zip(axes, steps, strict=True):
            n = self.shape[axis]
            if n and step % n:
                lead = (slice(None),) * axis
                cut = n - step % n
                tail, head = found[(*lead, slice(cut, None))], found[(*lead, slice(None, cut))]
                found = self._apply("concat", tail, head, axis=axis)
        return found  # type: ignore[no-any-return]

    def repeat(self, *repeats: Any) -> R:
        """The whole tensor several times along each axis, as in PyTorch (NumPy's `tile`)."""
        times = ints(repeats)
        if len(times) < self.ndim:
            raise ShapeError(f"repeat of {self.ndim} axes needs as many numbers, not {times}")
        shape = (1,) * (len(times) - self.ndim) + self.shape
        pairs = [m for n, k in zip(shape, times, strict=True) for m in (k, n)]
        spaced: Any = self.reshape(*(m for n in shape for m in (1, n)))
        return spaced.expand(*pairs).reshape(*(n * k for n, k in zip(shape, times, strict=True)))  # type: ignore[no-any-return]

    def tile(self, *repeats: Any, dims: Any = None) -> R:
        """As `repeat`, where numbers for the first axes may be missing."""
        times = ints(repeats if dims is None else (dims,))
        return self.repeat(*(1,) * (self.ndim - len(times)), *times)

    def repeat_interleave(
        self, repeats: Any, dim: int | None = None, *, output_size: int | None = None
    ) -> R:
        """Every element several times in a row along an axis; without one, of the flattened
        tensor. `repeats` is a number for all, or a list or tensor with one for each, whose sum
        `output_size` promises.
        """
        if dim is None:
            flat: Any = self.reshape(-1)
            return flat.repeat_interleave(repeats, 0, output_size=output_size)  # type: ignore[no-any-return]
        axis, shape = self._dim(dim, "repeat_interleave"), self.shape
        if output_size is not None:
            made = self.repeat_interleave(repeats, dim)
            if made.shape[axis] != output_size:  # type: ignore[attr-defined]
                raise ShapeError(f"repeat_interleave: {output_size} is not the sum of {repeats}")
            return made
        if getattr(repeats, "ndim", 0) or isinstance(repeats, (list, tuple)):
            return self._counted(repeats, axis)
        host = self.__cubepy_hosted__() if type(repeats) is int and self.size <= HELD else None
        if host is not None and repeats >= 0:
            return self.__cubepy_wrap__(np.repeat(host, repeats, axis))
        spaced: Any = self.unsqueeze(axis + 1)
        wide = spaced.expand(*shape[: axis + 1], repeats, *shape[axis + 1 :])
        return wide.reshape(*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])  # type: ignore[no-any-return]

    def _counted(self, repeats: Any, axis: int) -> R:
        """The slices of an axis, each as often as its number says."""
        times = np.asarray(repeats.numpy() if hasattr(repeats, "storage") else repeats)
        n = self.shape[axis]
        if times.ndim != 1 or times.dtype.kind not in "iu" or len(times) not in (1, n):
            raise ShapeError(
                f"repeat_interleave: one integer for each of {n} slices, not {times.dtype} of the "
                f"shape {times.shape}"
            )
        if (times < 0).any():
            raise ShapeError(f"repeat_interleave: {times.min()} times")
        x: Any = self
        order = np.repeat(np.arange(n), times)
        return x.index_select(axis, x._like(order).to(x.device))  # type: ignore[no-any-return]

    def unbind(self, dim: int = 0) -> tuple[R, ...]:
        """The slices along an axis; no copies."""
        axis = self._dim(dim, "unbind")
        return self._slices(_positions(axis, self.shape[axis]))

    def chunk(self, chunks: int, dim: int = 0) -> tuple[R, ...]:
        """About equal parts of an axis, the last one may be shorter; no copies."""
        n = self.shape[self._dim(dim, "chunk")]
        return self.split(max(1, -(-n // chunks)), dim)

    def split(self, split_size: Any, dim: int = 0) -> tuple[R, ...]:
        """Parts of an axis of one length (the last one may be shorter), or of several; no
        copies.
        """
        axis = self._dim(dim, "split")
        n = self.shape[axis]
        if isinstance(split_size, (tuple, list)):
            lengths = ints(split_size)
            if sum(lengths) != n:
                raise ShapeError(f"split into {lengths} of an axis of length {n}")
        else:
            lengths = tuple([min(split_size, n - k) for k in range(0, n, split_size)]) or (0,)
        return self._slices(_parts(axis, lengths))

    def tril(self, diagonal: int = 0) -> R:
        """The elements of matrices on and below a diagonal, zeros elsewhere."""
        return self._triangle("ge", diagonal)

    def triu(self, diagonal: int = 0) -> R:
        """The elements of matrices on and above a diagonal, zeros elsewhere."""
        return self._triangle("le", diagonal)

    def _triangle(self, compare: str, diagonal: int) -> R:
        if self.ndim < 2:
            raise ShapeError(f"tril and triu need two axes or more, not the shape {self.shape}")
        rows, columns = self.shape[-2:]
        above = max(-rows, min(diagonal, columns))  # beyond these no diagonal is
        with use(self.device):
            return formulas().triangle(self, compare, above)  # type: ignore[no-any-return]
