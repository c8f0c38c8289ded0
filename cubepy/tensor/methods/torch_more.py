"""PyTorch's rarer names: products with something added, frequencies, tensors with a part of
another one, what a tensor is.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.runtime.device import gpu_of
from cubepy.tensor.methods.applied import Applied, formulas, ints, of_lines, several

T = TypeVar("T")


class TorchMore(Applied[T]):
    """What `Tensor` inherits: the rarer of PyTorch's methods.

    Args:
        T: what the methods give, `Tensor`.
    """

    __slots__ = ()

    # Products

    def addmv(self, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> T:
        """`beta * self + alpha * (mat @ vec)`, of a matrix and a vector."""
        return self._plus(self._like(mat).mv(vec), beta, alpha)  # type: ignore[attr-defined]

    @several
    def addr(self, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1) -> T:
        """`beta * self + alpha * vec1.outer(vec2)`"""
        return self._plus(self._like(vec1).outer(self._like(vec2)), beta, alpha)  # type: ignore[attr-defined]

    def addbmm(self, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> T:
        """`beta * self + alpha * (batch1 @ batch2).sum(0)`, of stacks of matrices."""
        return self._plus(self._like(batch1).bmm(self._like(batch2)).sum(0), beta, alpha)  # type: ignore[attr-defined]

    def _plus(self, product: Any, beta: Any, alpha: Any) -> T:
        x: Any = self
        product = product if alpha == 1 else product * alpha
        return product + (x if beta == 1 else x * beta)  # type: ignore[no-any-return]

    def inner(self, other: Any) -> T:
        """Sums of products along the last axes of both; of a number the product."""
        x, y = self, self._like(other)  # type: Any, Any
        if not (x.ndim and y.ndim):
            return x * y  # type: ignore[no-any-return]
        if x.shape[-1] != y.shape[-1]:
            raise ShapeError(f"inner: the last axes of {x.shape} and {y.shape} differ")
        made = x.reshape(-1, x.shape[-1]) @ y.reshape(-1, y.shape[-1]).mT
        return made.reshape(*x.shape[:-1], *y.shape[:-1])  # type: ignore[no-any-return]

    def vdot(self, other: Any) -> T:
        """As `dot`."""
        x: Any = self
        return x.dot(other)  # type: ignore[no-any-return]

    def ger(self, vec2: Any) -> T:
        """As `outer`."""
        x: Any = self
        return x.outer(vec2)  # type: ignore[no-any-return]

    def logdet(self) -> T:
        """The logarithms of determinants of square matrices; NaN where they are below 0."""
        x: Any = self
        sign, size = x.__array_namespace__().linalg.slogdet(x)
        return self._apply("where", sign < 0, size._operand(np.nan), size)  # type: ignore[no-any-return]

    def slogdet(self) -> tuple[T, T]:
        """The signs of determinants of square matrices, and the logarithms of their sizes."""
        x: Any = self
        return tuple(x.__array_namespace__().linalg.slogdet(x))  # type: ignore[return-value]

    def cholesky(self, upper: bool = False) -> T:
        """See `cubepy.tensor.linalg.cholesky`."""
        x: Any = self
        return x.__array_namespace__().linalg.cholesky(x, upper=upper)  # type: ignore[no-any-return]

    def qr(self, some: bool = True) -> tuple[T, T]:
        """See `cubepy.tensor.linalg.qr`; complete, if not `some`."""
        x: Any = self
        mode = "reduced" if some else "complete"
        return tuple(x.__array_namespace__().linalg.qr(x, mode=mode))  # type: ignore[return-value]

    def svd(self, some: bool = True) -> tuple[T, T, T]:
        """U, S and V with x = U diag(S) V^T; as `cubepy.tensor.linalg.svd`, which gives V^T."""
        x: Any = self
        u, s, vh = x.__array_namespace__().linalg.svd(x, full_matrices=not some)
        return u, s, vh.mT

    def matrix_power(self, n: int) -> T:
        """Square matrices multiplied with themselves; of n below 0 their inverses."""
        x: Any = self
        return x.__array_namespace__().linalg.matrix_power(x, n)  # type: ignore[no-any-return]

    # What is there often, or side by side

    @of_lines
    def mode(self, dim: int = -1, keepdim: bool = False) -> tuple[T, T]:
        """The most frequent element along an axis, the smallest of several, and the last place
        where it is.
        """
        x: Any = self
        axis = self._dim(dim, "mode")
        n = x.shape[axis]
        if not n:
            raise ShapeError(f"mode: axis {dim} of the shape {x.shape} has no elements")
        values, order = x.sort(axis)
        spots = self._like(np.arange(n)).to(x.device).reshape(-1, *(1,) * (x.ndim - 1 - axis))  # type: ignore[attr-defined]
        begins = spots.expand(x.shape).masked_fill(_again(x, values, axis), 0).cummax(axis)[0]
        at = (spots - begins).argmax(axis, True)
        found = [one.gather(axis, at) for one in (values, order)]
        return tuple([one if keepdim else one.squeeze(axis) for one in found])  # type: ignore[return-value]

    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        """The elements without those that equal the one before, of the flattened tensor or slices
        along an axis; with where each one is, and how often it is there in a row, if asked for.
        """
        x: Any = self
        axis = 0 if dim is None else self._dim(dim, "unique_consecutive")
        x = x.reshape(-1) if dim is None else x
        n = x.shape[axis]
        rows = x.movedim(axis, 0).reshape(n, -1) if n else x.new_zeros(0, 1)
        begins = x.new_ones(n, dtype="bool_")
        if n:
            begins[1:] = (rows[1:] != rows[:-1]).any(1)
        starts = begins.nonzero().reshape(-1)
        number = begins.astype("i64").cumsum(0) - 1
        given = [x.index_select(axis, starts)]
        given += [number.reshape(self.shape if dim is None else (n,))] if return_inverse else []
        counts = number.new_zeros(starts.size)
        given += [counts.index_add(0, number, number.new_ones(n))] if return_counts else []
        return tuple(given) if len(given) > 1 else given[0]

    def bincount(self, weights: Any = None, minlength: int = 0) -> T:
        """How often each number from 0 on is there; with weights, their sums."""
        x: Any = self
        if x.ndim != 1 or not x.dtype.is_int:
            raise ShapeError(f"bincount takes a vector of integers, not {x.dtype.name}{x.shape}")
        host = x.__cubepy_hosted__() if weights is None else None
        if host is not None and host.dtype != np.uint64:
            if host.size and host.min() < 0:
                raise ArgumentError("bincount takes no numbers below 0")
            counted = np.bincount(host, minlength=max(minlength, 0))
            return x.__cubepy_wrap__(counted)  # type: ignore[no-any-return]
        least, most = formulas().span(x).tolist() if x.size else (0, -1)
        if least < 0:
            raise ArgumentError("bincount takes no numbers below 0")
        count = max(minlength, most + 1)
        if weights is None:
            return self._apply("bincount", x, count=count)  # type: ignore[no-any-return]
        given: Any = self._like(weights)
        return given.new_zeros(count).index_add(0, x.astype("i64"), given)  # type: ignore[no-any-return]

    def isin(self, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> T:
        """Which elements are among others; `assume_unique` promises what is not made use of."""
        x: Any = self
        known: Any = self._like(test_elements).reshape(-1)  # type: ignore[attr-defined]
        if not known.size:
            return (x != x) if not invert else (x == x)  # type: ignore[no-any-return]
        known = known.sort(0)[0]
        at = x.__array_namespace__().searchsorted(known, x.reshape(-1)).clip(max=known.size - 1)
        found = (known.index_select(0, at) == x.reshape(-1)).reshape(x.shape)
        return ~found if invert else found  # type: ignore[no-any-return]

    def bucketize(self, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> T:
        """Between which of some rising numbers each element lies, in i64 or i32."""
        x: Any = self
        side = "right" if right else "left"
        found = x.__array_namespace__().searchsorted(self._like(boundaries), x, side=side)
        return found.astype("i32") if out_int32 else found  # type: ignore[no-any-return]

    # With a part that another tensor gives

    def select_scatter(self, src: Any, dim: int, index: int) -> T:
        """With another tensor at one position of an axis."""
        return self._with((slice(None),) * self._dim(dim, "select_scatter") + (index,), src)

    def slice_scatter(
        self, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
    ) -> T:
        """With another tensor at the positions start, start + step, ... before end of an axis."""
        axis = self._dim(dim, "slice_scatter")
        return self._with((slice(None),) * axis + (slice(start, end, step),), src)

    def _with(self, index: Any, src: Any) -> T:
        made: Any = self.clone()  # type: ignore[attr-defined]
        given: Any = self._like(src)
        there = made[index].shape
        if given.shape != there:
            raise ShapeError(f"a part of the shape {there} is not given by one of {given.shape}")
        made[index] = given
        return made  # type: ignore[no-any-return]

    def diagonal_scatter(self, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> T:
        """With another tensor on the diagonals of two axes."""
        x: Any = self
        ends = self._dims((dim1, dim2), "diagonal_scatter")
        moved = x.movedim(ends, (-2, -1))
        count = moved.diagonal(offset, -2, -1).shape[-1]
        rows = np.arange(count) + max(-offset, 0)
        made = moved._with((..., rows, rows + offset), src)
        return made.movedim((-2, -1), ends)  # type: ignore[no-any-return]

    @of_lines
    def index_reduce(
        self, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
    ) -> T:
        """With slices reduced at the positions of a list of indices; see `scatter_reduce`."""
        x, given = self, self._like(source)  # type: Any, Any
        axis = self._dim(dim, "index_reduce")
        where: Any = self._like(index).reshape(-1, *(1,) * (x.ndim - 1 - axis))  # type: ignore[attr-defined]
        return x.scatter_reduce(  # type: ignore[no-any-return]
            axis, where.expand(given.shape), given, reduce, include_self=include_self
        )

    def put(self, index: Any, source: Any, accumulate: bool = False) -> T:
        """With elements at places of the flattened tensor; added up, if `accumulate`."""
        x: Any = self
        where, given = self._like(index).reshape(-1), self._like(source).reshape(-1)  # type: ignore[attr-defined]
        return x.reshape(-1).index_put((where,), given, accumulate).reshape(x.shape)  # type: ignore[no-any-return]

    # Shapes and elements

    def split_with_sizes(self, split_sizes: Any, dim: int = 0) -> tuple[T, ...]:
        """As `split` of several lengths."""
        x: Any = self
        return x.split(list(split_sizes), dim)  # type: ignore[no-any-return]

    def hsplit(self, indices_or_sections: Any) -> tuple[T, ...]:
        """`tensor_split` along axis 1, of a vector along axis 0."""
        return self._split(indices_or_sections, min(1, max(0, self.ndim - 1)), 1)

    def vsplit(self, indices_or_sections: Any) -> tuple[T, ...]:
        """`tensor_split` along axis 0."""
        return self._split(indices_or_sections, 0, 2)

    def dsplit(self, indices_or_sections: Any) -> tuple[T, ...]:
        """`tensor_split` along axis 2."""
        return self._split(indices_or_sections, 2, 3)

    def _split(self, given: Any, axis: int, least: int) -> tuple[T, ...]:
        x: Any = self
        if x.ndim < least:
            raise ShapeError(f"a split along axis {axis} is not of the shape {x.shape}")
        if isinstance(given, int) and x.shape[axis] % given:
            raise ShapeError(f"an axis of {x.shape[axis]} is not {given} equal parts")
        return x.tensor_split(given, axis)  # type: ignore[no-any-return]

    def sum_to_size(self, *size: Any) -> T:
        """Sums over the axes that a shape lacks, or has with length 1: what `expand` undoes."""
        x: Any = self
        shape = ints(size)
        more = x.ndim - len(shape)
        if more < 0 or any(n not in (1, m) for n, m in zip(shape, x.shape[more:], strict=True)):
            raise ShapeError(f"the shape {shape} does not expand to {x.shape}")
        axes = [d for d in range(x.ndim) if d < more or shape[d - more] != x.shape[d]]
        return (x.sum(tuple(axes), True) if axes else x).reshape(shape)  # type: ignore[no-any-return]

    def ldexp(self, other: Any) -> T:
        """`self * 2**other`"""
        x: Any = self._of_floats()  # type: ignore[attr-defined]
        return x * x._operand(other).astype(x.dtype).exp2()  # type: ignore[no-any-return]

    def float_power(self, exponent: Any) -> T:
        """A power in f64."""
        x: Any = self.astype("f64")
        return x ** x._operand(exponent).astype("f64")  # type: ignore[no-any-return]

    def nextafter(self, other: Any) -> T:
        """The next float from x towards another one."""
        return self._binary("nextafter", other)

    @several
    def logaddexp2(self, other: Any) -> T:
        """log2(2**x + 2**other), without overflow on the way."""
        x, scale = self, float(np.log(2.0))  # type: Any, float
        y: Any = x._operand(other)
        return (x * scale).logaddexp(y * scale) / scale  # type: ignore[no-any-return]

    @several
    def frexp(self) -> tuple[T, T]:
        """Mantissas from 0.5 to 1 (not 1 itself) and exponents of 2 (i32); 0, infinities and NaN
        with the exponent 0.
        """
        x: Any = self._of_floats()  # type: ignore[attr-defined]
        usual = x.isfinite() & (x != 0)
        size = x.abs().masked_fill(~usual, 1)
        size = size.astype("f32") if x.dtype.bits < 32 else size
        tiny = size < 2.0**-100  # their logarithms and powers of 2 may be no normal numbers
        size = self._apply("where", tiny, size * 2.0**120, size)
        power = size.log2().floor() + 1
        rest = size * (-(power / 2).trunc()).exp2() * (-(power - (power / 2).trunc())).exp2()
        over, under = rest >= 1, rest < 0.5
        power = power + over.astype(power.dtype) - under.astype(power.dtype)
        rest = self._apply("where", over, rest / 2, self._apply("where", under, rest * 2, rest))
        power = (power - tiny.astype(power.dtype) * 120).masked_fill(~usual, 0)
        made = self._apply("where", usual, rest.astype(x.dtype).copysign(x), x)
        return made, power.astype("i32")

    def isreal(self) -> T:
        """All elements are."""
        x: Any = self
        return x.new_ones(x.shape, dtype="bool_")  # type: ignore[no-any-return]

    def isposinf(self) -> T:
        """Whether elements are infinity."""
        x: Any = self
        return x == np.inf  # type: ignore[no-any-return]

    def isneginf(self) -> T:
        """Whether elements are -infinity."""
        x: Any = self
        return x == -np.inf  # type: ignore[no-any-return]

    # What it is

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise importlib.import_module("cubepy.elsewhere").missing_of_tensors(name)

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on an NVIDIA GPU."""
        return self.device.backend == "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether the elements are on the host."""
        return self.device.backend == "cpu"

    def get_device(self) -> int:
        """The number of its GPU; -1 on the host."""
        return -1 if gpu_of(self.device) is None else self.device.ordinal

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.numpy.itemsize)

    def is_signed(self) -> bool:
        """Whether the dtype has numbers below 0."""
        return self.dtype.is_float or self.dtype.kind == "i"

    def is_complex(self) -> bool:
        """No: tensors are real."""
        return False

    def is_same_size(self, other: Any) -> bool:
        """Whether another tensor has this shape."""
        return self.shape == other.shape  # type: ignore[no-any-return]

    def is_nonzero(self) -> bool:
        """Whether the only element is not 0."""
        if self.size != 1:
            raise ArgumentError(f"is_nonzero is of one element, not of the shape {self.shape}")
        return bool(self)


def _again(x: Any, values: Any, axis: int) -> Any:
    """Which elements in order equal the one before."""
    n = x.shape[axis]
    same = values.narrow(axis, 1, n - 1) == values.narrow(axis, 0, n - 1)
    first = same.new_zeros((*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return x._apply("concat", first, same, axis=axis)
