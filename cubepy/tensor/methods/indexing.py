"""Reading and writing by index: `x[i]` as NumPy means it, and PyTorch's functions."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cubepy.errors import ArgumentError, DTypeError, IndexShapeError, ShapeError
from cubepy.lang.dtypes import bool_
from cubepy.tensor.methods.applied import (
    Applied,
    by_integers,
    indices_of,
    of_lines,
    picked_of,
    positions_of,
    selected_by,
)
from cubepy.tensor.value import Handle

T = TypeVar("T")
_WHOLE = (None, None, None)
REDUCED = {"add": "add", "multiply": "mul"}
"""PyTorch's words of what `scatter` does to what was there."""
SMALL = 1 << 16
"""Elements of which NumPy picks those of a mask faster than positions are made of it."""


class Selection(NamedTuple):
    """What an index with arrays means.

    Attributes:
        basic: the index with whole slices in place of arrays, as the op "slice" takes it.
        axes: of what `basic` gives, those that arrays index.
        flat: one index into these axes as if they were one, counted from the end where it is
            negative.
        ahead: whether the axes of the arrays come first in the result, since something is between
            them; else they come where the first array is.
    """

    basic: tuple[Any, ...]
    axes: tuple[int, ...]
    flat: Any
    ahead: bool


class Indexing(Applied[T]):
    """What `Tensor` inherits: `x[i]`, `x[i] = v`, gather, scatter and the like.

    Args:
        T: what they give, `Tensor`.
    """

    __slots__ = ()

    def __getitem__(self, index: Any) -> T:
        if type(index) is type(self) and index.dtype is bool_:
            host, mask = self.__cubepy_hosted__(), index.__cubepy_hosted__()
            if host is None:
                chosen = selected_by(self, index)
                if chosen is not None:
                    return chosen  # type: ignore[no-any-return]
            elif mask is not None and self.size <= SMALL and mask.shape == self.shape[: mask.ndim]:
                return self.__cubepy_wrap__(host[mask])
        parts = index if isinstance(index, tuple) else (index,)
        if (
            parts
            and type(parts[0]) is type(self)
            and (found := by_integers(self, parts)) is not None
        ):
            return found  # type: ignore[no-any-return]
        taken = 0
        for p in parts:
            kind = type(p)
            if kind is slice or kind is int:
                taken += 1
            elif p is not None and p is not Ellipsis:
                if _is_array(p):
                    picked = picked_of(self, parts, SMALL)
                    if picked is not None:
                        return self.__cubepy_wrap__(picked)
                    return self._selected(_selection(self, parts))
                taken += 1
        return self._view("slice", "index", _encoded(self, parts, taken))

    def __setitem__(self, index: Any, value: Any) -> None:
        parts = index if isinstance(index, tuple) else (index,)
        new: Any = self._like(value) if not _is_number(value) else self._operand(value)
        new = new.astype(self.dtype)
        if new.ndim and new.device != self.device:
            new = new.to(self.device)
        x: Any = self
        if not any(map(_is_array, parts)):
            taken = sum(p is not None and p is not Ellipsis for p in parts)
            at = _encoded(x, parts, taken)
            rank = x.ndim + sum((p == "new") - isinstance(p, int) for p in at)
            found = x._apply("slice_put", x, _without_ones(new, rank), index=at)
        elif len(parts) == 1 and new.ndim == 0 and (mask := _mask(x, parts[0])) is not None:
            found = x._apply("where", mask, new, x)
        else:
            found = _put(x, _selection(x, parts), new)
        self._exchanged(found)

    def _selected(self, s: Selection) -> T:
        """What a selection of this tensor is."""
        x: Any = self
        merged, at, _ = _merged(_part(x, s.basic), s.axes)
        taken = x._apply("take", merged, s.flat, axis=at, from_end=True)
        if s.ahead and at:
            rank = s.flat.ndim
            taken = taken.movedim(tuple(range(at, at + rank)), tuple(range(rank)))
        return taken  # type: ignore[no-any-return]

    def nonzero(self, as_tuple: bool = False) -> Any:
        """The indices (i64) of the elements that are not 0: a row for each, or a tensor for each
        axis.
        """
        x: Any = self
        if not self.shape:
            x = x.reshape(1)
        host = x.__cubepy_hosted__() if x.size <= SMALL or x.ndim == 1 else None
        if host is not None:
            flat = np.flatnonzero(host)
            spots = np.unravel_index(flat, host.shape) if x.ndim > 1 else (flat,)
            if as_tuple:
                return tuple([x.__cubepy_wrap__(spot) for spot in spots])
            stacked = np.stack(spots, 1) if x.ndim > 1 else flat[:, None]
            return x.__cubepy_wrap__(stacked[:, : self.ndim])
        found = indices_of(x if x.dtype is bool_ else x != 0)
        if as_tuple:
            return tuple([found[d] for d in range(x.ndim)])
        if isinstance(found, list):
            return self._apply("concat", *[c.unsqueeze(1) for c in found], axis=1)
        return found.T if self.shape else found.T[:, :0]

    def gather(self, dim: int, index: Any) -> T:
        """out[i, j, ...] = x[index[i, j, ...], j, ...] for axis 0."""
        if self.ndim < 2 and not (self.shape and getattr(index, "shape", True)):
            line, where = self._lines(dim, index, "gather")
            return line.gather(0, where.reshape(where.size)).reshape(where.shape)  # type: ignore[no-any-return]
        return self._apply("gather", self, self._like(index), axis=self._dim(dim, "gather"))  # type: ignore[no-any-return]

    def take_along_dim(self, indices: Any, dim: int | None = None) -> T:
        """Elements at indices along an axis, which may count from the end; the other axes
        broadcast.
        """
        x: Any = self
        where: Any = self._like(indices)
        if dim is None:
            return x.reshape(-1).take_along_dim(where.reshape(-1), 0)  # type: ignore[no-any-return]
        axis = self._dim(dim, "take_along_dim")
        if where.ndim != x.ndim:
            raise ShapeError(
                f"take_along_dim of shape {x.shape} needs indices of rank {x.ndim}, "
                f"not {where.ndim}"
            )
        both = zip(x.shape, where.shape, strict=True)
        full = [m if n == 1 else n for n, m in both]
        source, wanted = list(full), list(full)
        source[axis], wanted[axis] = x.shape[axis], where.shape[axis]
        return self._apply(  # type: ignore[no-any-return]
            "take_along_axis", x.expand(*source), where.expand(*wanted), axis=axis
        )

    def _lines(self, dim: int, index: Any, op: str) -> tuple[Any, Any]:
        """A tensor of one axis or none as a line, and indices."""
        x: Any = self
        x._dim(dim, op, line=True)
        return x.reshape(x.size), x._like(index)

    def index_select(self, dim: int, index: Any) -> T:
        """Whole slices at the positions of a list of indices; one index is a list of one."""
        x: Any = self
        if type(dim) is int and type(index) is type(x) and 0 <= dim < x.ndim and index.shape:
            return x._apply("take", x, index, axis=dim, from_end=True)  # type: ignore[no-any-return]
        return self._slices_at(dim, index)

    @of_lines
    def _slices_at(self, dim: int, index: Any) -> T:
        where: Any = self._like(index)
        where = where if where.shape else where.reshape(1)
        axis = self._dim(dim, "index_select")
        return self._apply("take", self, where, axis=axis, from_end=True)  # type: ignore[no-any-return]

    def index_add(self, dim: int, index: Any, source: Any, *, alpha: float = 1) -> T:
        """With slices added at the positions of a list of indices, `alpha` times."""
        given: Any = source if alpha == 1 else self._like(source) * alpha  # type: ignore[operator]
        return self._indexed(dim, index, given, "add")

    def index_copy(self, dim: int, index: Any, source: Any) -> T:
        """With slices in place of those at the positions of a list of indices."""
        return self._indexed(dim, index, source, "assign")

    @of_lines
    def _indexed(self, dim: int, index: Any, source: Any, update: str) -> T:
        axis = self._dim(dim, "index_add and index_copy")
        values: Any = self._like(source)
        where: Any = self._like(index)
        where = where if where.shape else where.reshape(1)
        return self._apply(  # type: ignore[no-any-return]
            "put", self, where, values.astype(self.dtype), axis=axis, update=update
        )

    def scatter(
        self,
        dim: int,
        index: Any,
        src: Any = None,
        update: str = "assign",
        *,
        value: Any = None,
        reduce: str | None = None,
    ) -> T:
        """With x[index[i, j, ...], j, ...] = src[i, j, ...] for axis 0, or a number `value`
        everywhere; `update` may be "add", "mul", "min" or "max" besides, `reduce` "add" or
        "multiply", as in PyTorch.

        Example:
            >>> import cubepy as cb
            >>> cb.tensor([0.0, 0.0, 0.0]).scatter(0, cb.tensor([2, 0]), value=5)
            tensor([5., 0., 5.])
        """
        if (src is None) == (value is None):
            raise ArgumentError("scatter takes src, elements, or value, a number")
        if reduce is not None and reduce not in REDUCED:
            raise ArgumentError(f"scatter: reduce is {' or '.join(REDUCED)}, not {reduce!r}")
        src, update = value if src is None else src, REDUCED[reduce] if reduce else update
        where: Any = self._like(index)
        given: Any = self._operand(src)
        if self.ndim < 2 and not (self.shape and where.shape):
            x, where = self._lines(dim, where, "scatter")
            given = given.reshape(1) if given.size == 1 else given
            made = x.scatter(0, where.reshape(where.size), given.expand(where.size), update)
            return made.reshape(self.shape)  # type: ignore[no-any-return]
        if _is_number(src):
            given = given.to(self.device).expand(where.shape)
        axis = self._dim(dim, "scatter")
        values = given.astype(self.dtype)
        return self._apply("scatter", self, where, values, axis=axis, update=update)  # type: ignore[no-any-return]

    def scatter_add(self, dim: int, index: Any, src: Any) -> T:
        """With the sums of what goes to a place added there."""
        return self.scatter(dim, index, src, "add")

    def masked_fill(self, mask: Any, value: Any) -> T:
        """With a number where a mask holds."""
        x: Any = self
        return self._apply("where", self._like(mask), x._operand(value).astype(self.dtype), self)  # type: ignore[no-any-return]

    def masked_select(self, mask: Any) -> T:
        """The elements where a mask holds, in one axis."""
        x: Any = self
        where: Any = self._like(mask)
        if x.shape and where.shape == x.shape:
            return x[where]  # type: ignore[no-any-return]
        shape = np.broadcast_shapes(x.shape, where.shape) or (1,)
        return x.expand(shape)[where.expand(shape)]  # type: ignore[no-any-return]


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float))


def _is_array(part: Any) -> bool:
    """Whether a part of an index selects by elements."""
    if isinstance(part, Handle):  # an element that is not known here is one
        known: Any = part
        return bool(part.shape) or part.dtype is bool_ or known.__cubepy_hosted__() is None
    return isinstance(part, (list, tuple, range, bool, np.bool_)) or (
        isinstance(part, np.ndarray) and (part.ndim > 0 or part.dtype == np.bool_)
    )


def _encoded(x: Handle, parts: tuple[Any, ...], taken: int) -> tuple[Any, ...]:
    """An index without arrays as the op "slice" takes it; `taken` of its parts stand for axes."""
    if taken > x.ndim:
        raise IndexShapeError(f"{taken} indices for a tensor of rank {x.ndim} (shape {x.shape})")
    encoded: list[Any] = []
    for p in parts:
        if p is None:
            encoded.append("new")
        elif p is Ellipsis:
            encoded.extend([_WHOLE] * (x.ndim - taken))
        elif isinstance(p, slice):
            encoded.append((_end(p.start), _end(p.stop), _end(p.step)))
        elif not hasattr(p, "__index__"):
            raise ArgumentError(
                f"a tensor is indexed by integers, slices, arrays, None and ..., not by {p!r}"
            )
        else:
            encoded.append(operator.index(p))
    return tuple(encoded)


def _end(value: Any) -> int | None:
    return value if value is None or type(value) is int else operator.index(value)


def _selection(x: Any, parts: tuple[Any, ...]) -> Selection:
    """What an index with arrays means for a tensor."""
    arrays = [_index_tensor(x, p) if _is_array(p) else None for p in parts]
    taken = 0
    for p, a in zip(parts, arrays, strict=True):
        if a is not None:
            taken += a.ndim if a.dtype is bool_ else 1
        elif p is not None and p is not Ellipsis:
            taken += 1
    if taken > x.ndim:
        raise IndexShapeError(f"{taken} indices for a tensor of rank {x.ndim} (shape {x.shape})")
    basic: list[Any] = []
    axes: list[int] = []
    indices: list[Any] = []
    lengths: list[int] = []
    numbers: list[int] = []  # of the parts that count as arrays
    axis = to = 0  # of x, and of what `basic` gives
    for k, (p, a) in enumerate(zip(parts, arrays, strict=True)):
        if a is not None:
            numbers.append(k)
            several = a.ndim if a.dtype is bool_ else 1
            span = x.shape[axis : axis + several]
            if a.dtype is bool_:
                if any(m not in (0, n) for m, n in zip(a.shape, span, strict=True)):
                    raise IndexShapeError(
                        f"a mask of shape {a.shape} does not go with axes of the shape {span}"
                    )
                a = positions_of(a.reshape(-1))
            if several:
                basic += [_WHOLE] * several
            else:
                basic.append("new")  # a mask of rank 0 has an axis of its own
            axes += range(to, to + max(several, 1))
            indices.append(a)
            lengths.append(math.prod(span))
            axis, to = axis + several, to + max(several, 1)
        elif p is Ellipsis:
            basic += [_WHOLE] * (x.ndim - taken)
            axis, to = axis + x.ndim - taken, to + x.ndim - taken
        else:
            (code,) = _encoded(x, (p,), 1)
            basic.append(code)
            if isinstance(code, int):
                numbers.append(k)
            axis, to = axis + (p is not None), to + (not isinstance(code, int))
    ahead = numbers[-1] - numbers[0] >= len(numbers)
    try:
        np.broadcast_shapes(*(i.shape for i in indices))
    except ValueError:
        shapes = " and ".join(str(i.shape) for i in indices)
        raise IndexShapeError(f"indices of the shapes {shapes} do not broadcast together") from None
    flat = indices[0]
    if len(indices) > 1 or len(flat.shape) == 0:
        flat = x._apply("flat_index", *indices, lengths=tuple(lengths))
    return Selection(tuple(basic), tuple(axes), flat, ahead)


def _index_tensor(x: Any, part: Any) -> Any:
    """An array of an index as a tensor of integers or booleans."""
    part = list(part) if isinstance(part, (tuple, range)) else part
    found = x._like(np.zeros(0, np.int64) if isinstance(part, list) and not part else part)
    if found.device != x.device:
        found = found.to(x.device)
    if found.dtype is not bool_ and not found.dtype.is_int:
        raise DTypeError(f"indices are integers or booleans, not {found.dtype.name}")
    return found


def _part(x: Any, basic: tuple[Any, ...]) -> Any:
    """A part of a tensor; itself where that is all."""
    return x if all(p == _WHOLE for p in basic) else x._apply("slice", x, index=basic)


def _merged(x: Any, axes: tuple[int, ...]) -> tuple[Any, int, tuple[int, ...] | None]:
    """A tensor with some axes as one, where that is, and how axes were permuted before, if they
    were.
    """
    first, order = axes[0], None
    if axes != tuple(range(first, first + len(axes))):
        order = (*axes, *(d for d in range(x.ndim) if d not in axes))
        x, first = x.permute(order), 0
    if len(axes) > 1:
        shape, end = x.shape, first + len(axes)
        x = x.reshape(*shape[:first], math.prod(shape[first:end]), *shape[end:])
    return x, first, order


def _put(x: Any, s: Selection, values: Any) -> Any:
    """x with values at what is selected."""
    part = _part(x, s.basic)
    merged, at, order = _merged(part, s.axes)
    rank = s.flat.ndim
    flat = s.flat if rank else s.flat.reshape(1)  # one place is a list of one
    values = _without_ones(values, merged.ndim - 1 + rank)
    full = merged.shape[:at] + merged.shape[at + 1 :]
    if not rank and values.ndim:
        values = values.expand(full).unsqueeze(at)
    elif s.ahead and at and values.ndim:
        values = values.expand(flat.shape + full)
        values = values.movedim(tuple(range(rank)), tuple(range(at, at + rank)))
    done = x._apply("put", merged, flat, values, axis=at, update="assign")
    if order is None:
        done = done.reshape(part.shape)
    else:
        back = sorted(range(len(order)), key=order.__getitem__)
        done = done.reshape(*(part.shape[d] for d in order)).permute(back)
    return done if part is x else x._apply("slice_put", x, done, index=s.basic)


def _without_ones(values: Any, rank: int) -> Any:
    """Values without the axes of length one that they have before `rank` others, as NumPy and
    PyTorch assign them.
    """
    more = values.ndim - rank
    if more <= 0 or any(n != 1 for n in values.shape[:more]):
        return values
    return values.reshape(values.shape[more:])


def _mask(x: Any, part: Any) -> Any:
    """A mask for the first axes of a tensor as one that broadcasts to it; None for other
    indices.
    """
    mask = _index_tensor(x, part)
    if mask.dtype is not bool_:
        return None
    if mask.shape != x.shape[: mask.ndim]:
        raise IndexShapeError(
            f"a mask of shape {mask.shape} does not go with a tensor of {x.shape}"
        )
    return mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim))
