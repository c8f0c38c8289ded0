"""Operators that move elements and do not look at them; casts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.lang.dtypes import DType, i64
from cubepy.models.exported.promotion import result_dtype
from cubepy.models.exported.records import target
from cubepy.models.exported.targets.reductions import summable
from cubepy.nn import functional as F
from cubepy.tensor import Tensor


@target("view reshape _unsafe_view _reshape_alias")
def reshape(x: Tensor, shape: Any, *rest: Any) -> Tensor:
    if isinstance(shape, DType):
        raise ModelError("a view of the same bytes in another dtype")
    return x.reshape(tuple(shape))


@target("view_as reshape_as")
def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    return x.reshape(other.shape)


@target("flatten")
def flatten(x: Tensor, start: int = 0, end: int = -1) -> Tensor:
    return x.flatten(start, end) if x.ndim else x.reshape(1)


@target("unflatten")
def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    dim %= x.ndim
    return x.reshape((*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


@target("transpose swapaxes swapdims")
def transpose(x: Tensor, a: int, b: int) -> Tensor:
    return x.transpose(a, b) if x.ndim else x


@target("t")
def transposed(x: Tensor) -> Tensor:
    return x.transpose(0, 1) if x.ndim == 2 else x


@target("numpy_T")
def reversed_axes(x: Tensor) -> Tensor:
    return x.permute(tuple(range(x.ndim))[::-1])


@target("mT adjoint mH matrix_H")
def matrix_transposed(x: Tensor) -> Tensor:
    return x.transpose(-1, -2)


@target("permute")
def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return x.permute(tuple(d % x.ndim for d in dims))


@target("movedim moveaxis")
def movedim(x: Tensor, source: Any, destination: Any) -> Tensor:
    return x.movedim(source, destination)


@target("unsqueeze")
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    return x.unsqueeze(dim)


@target("squeeze")
def squeeze(x: Tensor, dim: Any = None) -> Tensor:
    if dim is None:
        return x.reshape(tuple(n for n in x.shape if n != 1))
    dims = {d % (x.ndim or 1) for d in (dim if isinstance(dim, (list, tuple)) else [dim])}
    return x.reshape(tuple(n for d, n in enumerate(x.shape) if d not in dims or n != 1))


@target("expand broadcast_to")
def expand(x: Tensor, shape: Sequence[int], *, implicit: bool = False) -> Tensor:
    lead = len(shape) - x.ndim
    full = tuple(x.shape[d - lead] if n == -1 else n for d, n in enumerate(shape))
    return x.expand(full)


@target("expand_as")
def expand_as(x: Tensor, other: Tensor) -> Tensor:
    return x.expand(other.shape)


@target("broadcast_tensors")
def broadcast_tensors(tensors: Sequence[Tensor]) -> list[Tensor]:
    return list(T.broadcast_arrays(*tensors))


@target("contiguous alias lift_fresh_copy lift_fresh clone positive _conj resolve_conj resolve_neg")
def same(x: Tensor, *, memory_format: Any = None) -> Tensor:
    return x


@target("detach detach_")
def detach(x: Tensor) -> Tensor:
    return x.detach()


@target("slice")
def cut(
    x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    dim %= x.ndim
    return x[(*[slice(None)] * dim, slice(start, end, step))]


@target("narrow")
def narrow(x: Tensor, dim: int, start: Any, length: int) -> Tensor:
    if isinstance(start, Tensor):
        raise ModelError("narrow from a position that is data")
    start = start + x.shape[dim] if start < 0 else start
    return cut(x, dim, start, start + length)


@target("select")
def select(x: Tensor, dim: int, index: int) -> Tensor:
    dim %= x.ndim
    return x[(*[slice(None)] * dim, index)]


@target("split split_with_sizes unsafe_split unsafe_split_with_sizes")
def split(x: Tensor, size: Any, dim: int = 0) -> list[Tensor]:
    return list(x.split(size if isinstance(size, int) else list(size), dim))


@target("chunk unsafe_chunk")
def chunk(x: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    return list(x.chunk(chunks, dim))


@target("tensor_split.sections")
def tensor_split(x: Tensor, sections: int, dim: int = 0) -> list[Tensor]:
    each, more = divmod(x.shape[dim], sections)
    return list(x.split([each + (n < more) for n in range(sections)], dim))


@target("tensor_split.indices")
def split_at(x: Tensor, indices: Sequence[int], dim: int = 0) -> list[Tensor]:
    """Parts between positions, which slices' rules hold for: those behind the end give nothing."""
    bounds = [None, *indices, None]
    return [cut(x, dim, a, b) for a, b in itertools.pairwise(bounds)]


def _split_along(x: Tensor, given: Any, dim: int) -> list[Tensor]:
    return (tensor_split if isinstance(given, int) else split_at)(x, given, dim)


target("hsplit")(lambda x, given: _split_along(x, given, 0 if x.ndim == 1 else 1))
target("vsplit")(lambda x, given: _split_along(x, given, 0))
target("dsplit")(lambda x, given: _split_along(x, given, 2))


@target("unbind")
def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    return list(x.unbind(dim))


@target("cat concat concatenate")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dtype = result_dtype(*tensors)
    kept = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])  # torch leaves those out
    return T.concat([t.astype(dtype) for t in kept], axis=dim)


@target("stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dtype = result_dtype(*tensors)
    return T.stack([t.astype(dtype) for t in tensors], axis=dim)


def _at_least(x: Tensor, rank: int) -> Tensor:
    """With axes of 1 as torch (and NumPy) adds them."""
    if x.ndim >= rank:
        return x
    if rank == 3 and x.ndim:
        return x.reshape((1, *x.shape, 1) if x.ndim == 1 else (*x.shape, 1))
    return x.reshape((1,) * (rank - x.ndim) + x.shape)


for _rank in (1, 2, 3):
    target(f"atleast_{_rank}d.default")(lambda x, rank=_rank: _at_least(x, rank))
    target(f"atleast_{_rank}d.Sequence")(lambda xs, rank=_rank: [_at_least(x, rank) for x in xs])


@target("hstack")
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    parts = [_at_least(t, 1) for t in tensors]
    return cat(parts, 0 if parts[0].ndim == 1 else 1)


target("vstack row_stack")(lambda tensors: cat([_at_least(t, 2) for t in tensors], 0))
target("dstack")(lambda tensors: cat([_at_least(t, 3) for t in tensors], 2))


@target("column_stack")
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    return cat([t if t.ndim > 1 else t.reshape((-1, 1)) for t in tensors], 1)


@target("repeat")
def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return x.repeat(*repeats)


@target("tile")
def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    return x.tile(*repeats)


@target("repeat_interleave.self_int")
def repeat_interleave(x: Tensor, repeats: int, dim: int | None = None, **said: Any) -> Tensor:
    return x.repeat_interleave(repeats, dim)


@target("flip")
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    return x.flip(*dims)


target("fliplr")(lambda x: x.flip(1))
target("flipud")(lambda x: x.flip(0))


@target("rot90")
def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    a, b = dims
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return x.flip(a, b)
    turned = x.transpose(a, b)
    return turned.flip(a) if k == 1 else turned.flip(b)


@target("roll")
def roll(x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    if not dims:
        return (
            x.flatten().roll(shifts[0] if isinstance(shifts, list) else shifts, 0).reshape(x.shape)
        )
    return x.roll(tuple(shifts), tuple(dims))


@target("tril")
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return x.tril(diagonal)


@target("triu")
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return x.triu(diagonal)


@target("constant_pad_nd")
def constant_pad(x: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    return F.pad(x, pad, "constant", value)


@target("pad")
def pad(x: Tensor, widths: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    return F.pad(x, widths, mode, value)


@target("reflection_pad1d reflection_pad2d reflection_pad3d")
def reflection_pad(x: Tensor, widths: Sequence[int]) -> Tensor:
    return pad(x, widths, "reflect")


@target("replication_pad1d replication_pad2d replication_pad3d")
def replication_pad(x: Tensor, widths: Sequence[int]) -> Tensor:
    return pad(x, widths, "replicate")


@target("meshgrid")
def meshgrid(tensors: Sequence[Tensor], indexing: str = "ij") -> list[Tensor]:
    return list(T.meshgrid(*tensors, indexing=indexing))


@target("pixel_shuffle")
def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    return F.pixel_shuffle(x, factor)


@target("pixel_unshuffle")
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    return F.pixel_unshuffle(x, factor)


@target("unfold")
def unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    """Windows along an axis, in a new last one."""
    if not x.ndim:
        return x.reshape(1)[:size]
    dim %= x.ndim
    count = (x.shape[dim] - size) // step + 1
    if not size:
        return T.zeros((*x.shape[:dim], count, *x.shape[dim + 1 :], 0), dtype=x.dtype)
    columns = [cut(x, dim, k, k + step * (count - 1) + 1, step) for k in range(size)]
    return T.stack(columns, axis=x.ndim)


@target("diagonal")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    x = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    first, begin = max(-offset, 0), max(offset, 0)
    count = max(min(rows - first, columns - begin), 0)
    flat = x.reshape((*x.shape[:-2], rows * columns))
    start = first * columns + begin
    return cut(flat, -1, start, start + count * (columns + 1), columns + 1)[..., :count]


@target("diag_embed")
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Rows as diagonals of matrices of zeros."""
    n = x.shape[-1]
    size = n + abs(offset)
    index = T.arange(n, dtype=i64) * (size + 1) + max(-offset, 0) * size + max(offset, 0)
    flat = T.zeros((*x.shape[:-1], size * size), dtype=x.dtype)
    made = flat.index_copy(-1, index, x) if n else flat
    rank = x.ndim + 1
    return made.reshape((*x.shape[:-1], size, size)).movedim((-2, -1), (dim1 % rank, dim2 % rank))


@target("diag")
def diag(x: Tensor, offset: int = 0) -> Tensor:
    return diag_embed(x, offset) if x.ndim == 1 else diagonal(x, offset)


@target("diagflat")
def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    return diag_embed(x.reshape(-1), offset)


@target("linalg_diagonal")
def matrix_diagonal(x: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    return diagonal(x, offset, dim1, dim2)


@target("diagonal_scatter")
def diagonal_scatter(
    x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    start = max(-offset, 0) * columns + max(offset, 0)
    index = T.arange(source.shape[-1], dtype=i64) * (columns + 1) + start
    flat = moved.reshape((*moved.shape[:-2], rows * columns))
    made = flat.index_copy(-1, index, source.astype(x.dtype))
    return made.reshape(moved.shape).movedim((-2, -1), (dim1, dim2))


@target("sum_to_size")
def sum_to_size(x: Tensor, size: Sequence[int]) -> Tensor:
    lead = x.ndim - len(size)
    axes = [d for d in range(x.ndim) if d < lead or (size[d - lead] == 1 and x.shape[d] != 1)]
    summed = summable(x, None).sum(tuple(axes)) if axes or not size else x
    return summed.reshape(tuple(size))


@target("ravel")
def ravel(x: Tensor) -> Tensor:
    return x.reshape(-1)


# Casts


@target("to.dtype to.dtype_layout to.device _to_copy")
def cast(x: Tensor, *args: Any, dtype: DType | None = None, **said: Any) -> Tensor:
    wanted = next((a for a in args if isinstance(a, DType)), dtype)
    return x if wanted is None or x.dtype is wanted else x.astype(wanted)


@target("to.other type_as")
def type_as(x: Tensor, other: Tensor, *rest: Any) -> Tensor:
    return cast(x, dtype=other.dtype)


@target("numel")
def numel(x: Tensor) -> int:
    return math.prod(x.shape)
