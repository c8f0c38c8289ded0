"""Methods of tensors that are several ops: one pass over memory, and one gradient, where they come
often.
"""

from __future__ import annotations

import math
from typing import Any

from cubepy.tensor.control.composed import composed

WIDE, ENOUGH = 4, 1 << 14
"""A matrix is wide on a CPU if it has so many times the columns that a triangle cuts, and it, or
those beside it, so many elements."""


@composed
def lerp(x: Any, end: Any, weight: Any) -> Any:
    """x + weight (end - x)

    Example:
        >>> import cubepy as cb
        >>> lerp(cb.tensor([0.0, 1.0]), cb.tensor([10.0, 11.0]), 0.25)
        tensor([2.5, 3.5])
    """
    return x + (end - x) * weight


@composed
def addcmul(x: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    """x + value * tensor1 * tensor2

    Example:
        >>> import cubepy as cb
        >>> addcmul(cb.tensor([1.0]), cb.tensor([2.0]), cb.tensor([3.0]), 0.5)
        tensor([4.])
    """
    return x + tensor1 * tensor2 * value


@composed
def addcdiv(x: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    """x + value * tensor1 / tensor2

    Example:
        >>> import cubepy as cb
        >>> addcdiv(cb.tensor([1.0]), cb.tensor([6.0]), cb.tensor([3.0]), 0.5)
        tensor([2.])
    """
    return x + tensor1 / tensor2 * value


@composed
def kthvalue(x: Any, k: int, axis: int, keepdim: bool) -> Any:
    """The k-th smallest element along an axis, and its index.

    Example:
        >>> import cubepy as cb
        >>> kthvalue(cb.tensor([3.0, 1.0, 2.0]), 2, 0, False)
        (tensor(2.), tensor(2))
    """
    found = [one.narrow(axis, k - 1, 1) for one in x.sort(axis)]
    return tuple([one if keepdim else one.squeeze(axis) for one in found])


@composed
def median(x: Any, axis: int, keepdim: bool) -> Any:
    """The lower one of the elements in the middle along an axis, NaN where one is; its index.

    Example:
        >>> import cubepy as cb
        >>> median(cb.tensor([3.0, 1.0, 2.0]), 0, False)
        (tensor(2.), tensor(2))
    """
    n = x.shape[axis]
    missing = x.isnan().sum(axis, True)  # in order they are the last
    middle = x._apply("where", missing > 0, n - missing, missing._operand((n - 1) // 2))
    found = [one.gather(axis, middle) for one in x.sort(axis)]
    return tuple([one if keepdim else one.squeeze(axis) for one in found])


@composed
def element(x: Any, at: Any, axis: int, keepdim: bool) -> Any:
    """An element of each line along an axis, and where it is.

    Example:
        >>> import cubepy as cb
        >>> element(cb.tensor([3.0, 1.0, 2.0]), cb.tensor([2]), 0, False)
        (tensor(2.), tensor(2))
    """
    found = x.gather(axis, at), at
    return tuple([one if keepdim else one.squeeze(axis) for one in found])


def _of_wide(x: Any, compare: str, above: int, low: int, high: int) -> Any:
    """The same where few columns, from `low` to `high`, are neither all there nor all zeros: the
    others are copied or filled.
    """
    width, kept, parts = x.shape[-1], compare == "ge", []
    if low and kept:
        parts.append(x[..., :low])
    if low < high:
        alone: Any = triangle
        parts.append(alone.__wrapped__(x[..., low:high], compare, above - low))
    if high < width and not kept:
        parts.append(x[..., high:])
    y = parts[0] if len(parts) == 1 else x._apply("concat", *parts, axis=-1)
    around = (0, width - high) if kept else (low, 0)
    return x._apply("pad", y, widths=around, mode="constant", value=0) if any(around) else y


@composed
def triangle(x: Any, compare: str, above: int) -> Any:
    """The elements of matrices whose row, with `above`, compares so to their column, zeros
    elsewhere.

    Example:
        >>> import cubepy as cb
        >>> triangle(cb.tensor([[1.0, 2.0], [3.0, 4.0]]), "ge", 0)
        tensor([[1., 0.],
                [3., 4.]])
    """
    count, width = x.shape[-2:]
    low, high = (max(0, min(n, width)) for n in (above, count + above))
    is_wide = width >= WIDE * max(high - low, 1) and x.size >= ENOUGH
    some = high > 0 if compare == "ge" else low < width
    if is_wide and some and x.device.backend == "cpu":
        return _of_wide(x, compare, above, low, high)
    rows, columns = (
        x._apply("arange", start=0, step=1, count=n, dtype="i64") for n in x.shape[-2:]
    )
    inside = x._apply(compare, rows.unsqueeze(1) + above, columns)
    return x._apply("where", inside, x, x._operand(0).astype(x.dtype))


@composed
def sum_of_numbers(x: Any, axes: Any, keepdim: bool, dtype: Any) -> Any:
    """Sums over axes of what is not NaN.

    Example:
        >>> import cubepy as cb
        >>> sum_of_numbers(cb.tensor([1.0, float("nan"), 2.0]), None, False, None)
        tensor(3.)
    """
    numbers = x.masked_fill(x != x, 0)
    if axes is None and x.ndim > 1 and x.dtype.bits >= 32:  # rows first, which are one pass
        return numbers.sum(-1, keepdim, dtype=dtype).sum(None, keepdim)
    return numbers.sum(axes, keepdim, dtype=dtype)


@composed
def finite(x: Any, nan: float, most: float, least: float) -> Any:
    """Numbers in place of NaN and infinities.

    Example:
        >>> import cubepy as cb
        >>> finite(cb.tensor([1.0, float("nan"), float("inf")]), 0.0, 5.0, -5.0)
        tensor([1., 0., 5.])
    """
    x = x.masked_fill(x.isnan(), nan)
    x = x.masked_fill(x == math.inf, most)
    return x.masked_fill(x == -math.inf, least)


@composed
def picked(x: Any, *indices: Any) -> Any:
    """What integers of one shape pick from the first axes.

    Example:
        >>> import cubepy as cb
        >>> picked(cb.tensor([[1.0, 2.0], [3.0, 4.0]]), cb.tensor([1, 0]), cb.tensor([0, 0]))
        tensor([3., 1.])
    """
    count, whole = len(indices), x.shape
    if count == 1:
        return x._apply("take", x, indices[0], axis=0, from_end=True)
    flat = x._apply("flat_index", *indices, lengths=whole[:count])
    x = x.reshape(math.prod(whole[:count]), *whole[count:])
    return x._apply("take", x, flat, axis=0)


@composed
def span(x: Any) -> Any:
    """The least and the largest element.

    Example:
        >>> import cubepy as cb
        >>> span(cb.tensor([3, 1, 2]))
        tensor([1, 3])
    """
    flat = x.reshape(-1)
    return x._apply("concat", flat.amin(0, True), flat.amax(0, True), axis=0)


@composed
def groups(ordered: Any) -> Any:
    """Which elements in order differ from the one before, the first one, too.

    Example:
        >>> import cubepy as cb
        >>> groups(cb.tensor([1, 1, 3]))
        tensor([ True, False,  True])
    """
    n = ordered.shape[0]
    begins = ordered.new_ones(min(n, 1), dtype="bool_")
    if n < 2:
        return begins
    return ordered._apply("concat", begins, ordered[1:] != ordered[:-1], axis=0)


@composed
def gaps(starts: Any, end: int) -> Any:
    """From each start to the next one, and from the last one to the end.

    Example:
        >>> import cubepy as cb
        >>> gaps(cb.tensor([0, 2, 3]), 7)
        tensor([2, 1, 4])
    """
    last = starts.new_full((min(1, starts.shape[0]),), end)
    return starts._apply("concat", starts[1:], last, axis=0) - starts


@composed
def numbered(order: Any, begins: Any) -> Any:
    """Numbers of groups from 0 on, where the order of a sort was before it.

    Example:
        >>> import cubepy as cb
        >>> numbered(cb.tensor([2, 0, 1]), cb.tensor([True, False, True]))
        tensor([0, 1, 0])
    """
    number = begins._apply("cumsum", begins, axis=0, exclusive=False) - 1
    start = order.new_zeros(order.shape[0], dtype="i64")
    return start._apply("put", start, order, number, axis=0, update="assign")
