"""Other shapes and orders of the same elements: views where strides allow it, else copies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, IndexShapeError, ShapeError
from cubepy.lang.dtypes import dtype_named, promote
from cubepy.runtime.symbolic.layout import sliced
from cubepy.tensor.ops.library import concatenation, kernels, zeros
from cubepy.tensor.ops.op import Spec, axis_in, broadcast, define


def as_index(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """The index of a slice for NumPy; the ellipsis makes even one element a view, not a scalar."""
    parts = (None if p == "new" else slice(*p) if isinstance(p, tuple) else p for p in index)
    return (*parts, ...)


def _run_slice(dtype: np.dtype, x: np.ndarray, index: tuple[Any, ...]) -> Any:
    return x[as_index(index)]


def _run_reshape(dtype: np.dtype, x: np.ndarray, shape: tuple[int, ...]) -> Any:
    try:
        return np.reshape(x, shape, copy=False)
    except (ValueError, TypeError):  # strides that forbid a view; NumPy 1 has no such argument
        return (x if x.flags.c_contiguous else kernels().copy(x)).reshape(shape)


@define("view", {"contiguous": lambda d, x: x if x.flags.c_contiguous else kernels().copy(x)})
def _contiguous(x: Spec) -> Spec:
    return x


@define("view", {"clone": lambda d, x: kernels().copy(x)})
def _clone(x: Spec) -> Spec:
    """A copy in memory of its own."""
    return x


@define("view", {"reshape": _run_reshape})
def _reshape(x: Spec, shape: tuple[int, ...]) -> Spec:
    size, open_axes = math.prod(x.shape), [d for d, n in enumerate(shape) if n == -1]
    known = math.prod(n for n in shape if n != -1)
    fits = len(open_axes) <= 1 and all(n >= -1 for n in shape)
    if fits and open_axes:
        fits = known > 0 and size % known == 0
        shape = tuple(size // known if n == -1 and known else n for n in shape)
    elif fits:
        fits = known == size
    if not fits:
        raise ShapeError(
            f"a tensor of shape {x.shape} ({size} elements) cannot be reshaped to {shape}",
            hint="the products must be equal; at most one length may be -1",
        )
    return Spec(shape, x.dtype)


def _run_bitcast(d: np.dtype, x: np.ndarray, dtype: str) -> Any:
    return (x if x.flags.c_contiguous else kernels().copy(x)).view(d)


@define("opaque", {"bitcast": _run_bitcast}, constant=True)
def _bitcast(x: Spec, dtype: str) -> Spec:
    """The same bits as elements of another dtype, more or fewer of them along the last axis."""
    wanted = dtype_named(dtype)
    mine, theirs = x.dtype.numpy.itemsize, wanted.numpy.itemsize
    if wanted is not x.dtype and 4 in (wanted.bits, x.dtype.bits):
        raise DTypeError(f"there is no view of {x.dtype.name} as {wanted.name}: bits are packed")
    if mine == theirs:
        return Spec(x.shape, wanted)
    if not x.shape:
        raise ShapeError(
            f"a tensor of rank 0 of {x.dtype.name} has no view as {wanted.name}, whose elements "
            "are of another size",
            hint="x.reshape(1) has an axis along which they may be more or fewer",
        )
    if x.shape[-1] * mine % theirs:
        raise ShapeError(
            f"the last axis of {x.shape} is no multiple of {theirs // mine}: {x.dtype.name} has no "
            f"view as {wanted.name}"
        )
    return Spec((*x.shape[:-1], x.shape[-1] * mine // theirs), wanted)


@define("view", {"permute": lambda dtype, x, axes: x.transpose(axes)})
def _permute(x: Spec, axes: tuple[int, ...]) -> Spec:
    rank = len(x.shape)
    order = tuple(axis_in(a, rank, "permute") for a in axes)
    if sorted(order) != list(range(rank)):
        raise ShapeError(
            f"the axes {axes} are no permutation of the {rank} axes of shape {x.shape}"
        )
    return Spec(tuple(x.shape[a] for a in order), x.dtype)


@define("view", {"expand": lambda dtype, x, shape: np.broadcast_to(x, shape)})
def _expand(x: Spec, shape: tuple[int, ...]) -> Spec:
    lead = len(shape) - len(x.shape)
    fits = all(n == 1 or n == m for n, m in zip(x.shape, shape[lead:], strict=lead >= 0))
    if lead < 0 or not fits:
        raise ShapeError(f"a tensor of shape {x.shape} cannot be expanded to {shape}")
    return Spec(shape, x.dtype)


@define("view", {"slice": _run_slice})
def _slice(x: Spec, index: tuple[Any, ...]) -> Spec:
    """`index`: an int, "new", or (start, stop, step) for each axis, as `Tensor.__getitem__` wrote
    it.
    """
    shape, d = [], 0
    for part in index:
        if part == "new":
            shape.append(1)
            continue
        if isinstance(part, tuple):
            shape.append(sliced(part[0], part[1], part[2], x.shape[d])[2])
        elif not -x.shape[d] <= part < x.shape[d]:
            raise IndexShapeError(
                f"index {part} is outside axis {d} of length {x.shape[d]} (shape {x.shape})"
            )
        d += 1
    return Spec((*shape, *x.shape[d:]), x.dtype)


def spans(index: tuple[Any, ...], shape: tuple[int, ...]) -> list[range]:
    """What a slice takes of each axis of a shape."""
    found, d = [], 0
    for part in index:
        if part == "new":
            continue
        n = shape[d]
        several = isinstance(part, tuple)
        found.append(range(*slice(*part).indices(n)) if several else range(part % n, part % n + 1))
        d += 1
    return found + [range(n) for n in shape[d:]]


def takes_all(index: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """Whether a slice of a shape is all of it, in its order: it has new axes at most."""
    taken = zip(spans(index, shape), shape, strict=True)
    return all(len(span) == n and (span.step == 1 or n < 2) for span, n in taken)


def _run_unslice(dtype: np.dtype, x: Any, shape: tuple[int, ...], index: tuple[Any, ...]) -> Any:
    pads: list[int] = []
    full = spans(index, shape)
    if all(span.step == 1 for span in full):
        for span, n in zip(reversed(full), reversed(shape), strict=True):
            pads += [span.start, n - span.start - len(span)] if len(span) else [n, 0]
        return kernels().pad(x.reshape([len(span) for span in full]), tuple(pads))
    out = zeros(x, shape, dtype)
    kernels().copy(x, out=_run_slice(dtype, out, index))
    return out


@define("view", {"unslice": _run_unslice})
def _unslice(x: Spec, shape: tuple[int, ...], index: tuple[Any, ...]) -> Spec:
    """Zeros of a shape, with x where the slice is."""
    found = _slice(Spec(shape, x.dtype), index)
    if found.shape != x.shape:
        raise ShapeError(f"unslice: {x.shape} is not the slice {index} of {shape}: {found.shape}")
    return Spec(shape, x.dtype)


def _run_slice_put(dtype: np.dtype, x: Any, values: Any, index: tuple[Any, ...]) -> Any:
    out = kernels().copy(x)
    part = _run_slice(dtype, out, index)
    kernels().copy(np.broadcast_to(values, part.shape), out=part)
    return out


@define("view", {"slice_put": _run_slice_put})
def _slice_put(x: Spec, values: Spec, index: tuple[Any, ...]) -> Spec:
    """x, with values of its dtype, broadcast, where the slice is."""
    found = _slice(x, index)
    if broadcast(found, values) != found.shape:
        raise ShapeError(f"values of shape {values.shape} do not broadcast to {found.shape}")
    return x


def _run_concat(dtype: np.dtype, *xs: Any, axis: int) -> Any:
    return concatenation().side_by_side(xs, dtype, axis % xs[0].ndim)


@define("view", {"concat": _run_concat})
def _concat(*xs: Spec, axis: int) -> Spec:
    first = xs[0]
    at = axis_in(axis, len(first.shape), "concat")
    dtype = first.dtype
    for x in xs[1:]:
        dtype = promote(dtype, x.dtype)
        if len(x.shape) != len(first.shape) or any(
            n != m for d, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)) if d != at
        ):
            raise ShapeError(
                f"concat along axis {at}: {x.shape} does not match {first.shape} on the other axes"
            )
    return Spec((*first.shape[:at], sum(x.shape[at] for x in xs), *first.shape[at + 1 :]), dtype)


def _run_pad(dtype: np.dtype, x: Any, widths: tuple[int, ...], mode: str, value: float) -> Any:
    if dtype.kind == "f" or mode != "constant":
        return kernels().pad(x, widths, mode, value)
    return kernels().pad(x, widths, mode, int(value))


@define("view", {"pad": _run_pad})
def _pad(x: Spec, widths: tuple[int, ...], mode: str, value: float) -> Spec:
    """`widths`: pairs (before, after), for the last axis first, as torch has them."""
    if len(widths) % 2 or len(widths) > 2 * len(x.shape):
        raise ShapeError(f"pad takes pairs of ints for at most {len(x.shape)} axes, not {widths}")
    shape = list(x.shape)
    for k in range(len(widths) // 2):
        shape[-1 - k] += widths[2 * k] + widths[2 * k + 1]
    if any(n < 0 for n in shape):
        raise ShapeError(f"pad by {widths} leaves less than nothing of the shape {x.shape}")
    return Spec(tuple(shape), x.dtype)


@define("opaque", {"after": lambda d, x, other: x})
def _after(x: Spec, other: Spec) -> Spec:
    """x, but no sooner than another value is there: it is not taken for what was computed of x
    before.
    """
    return x


@define("view", {"detach": lambda d, x: x}, constant=True)
def _detach(x: Spec) -> Spec:
    """x, through which no gradients go."""
    return x
