"""Losses that ask for a margin between what is right and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.errors import DTypeError, LaunchError, ShapeError
from cubepy.nn import arguments
from cubepy.nn.functional.activations import logsigmoid
from cubepy.nn.functional.distances import pairwise_distance, reduced
from cubepy.tensor import Tensor, apply, as_tensor
from cubepy.tensor.control.composed import composed
from cubepy.tensor.namespace import arange, where


@composed
def margin_ranking_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """max(0, margin - target * (input1 - input2)): the first is to be larger where the target is 1,
    the second where it is -1.

    Args:
        input1, input2, target: of one number of axes; they broadcast.
        margin: by how much.
        reduction: "none", "mean" or "sum".

    Raises:
        ShapeError: other shapes.

    Example:
        >>> margin_ranking_loss([1.0, 2.0], [2.0, 4.0], [1.0, -1.0], margin=0.5, reduction="none")
        tensor([1.5, 0. ])
    """
    x, other, t = as_tensor(input1), as_tensor(input2), as_tensor(target)
    if not x.ndim == other.ndim == t.ndim:
        raise ShapeError(
            "margin_ranking_loss takes inputs and a target of one number of axes, not "
            f"{x.shape}, {other.shape} and {t.shape}"
        )
    difference = arguments.widened(x) - arguments.widened(other)
    loss = (arguments.number("margin", margin) - t * difference).clip(0)
    return reduced(loss, reduction, x)


@composed
def hinge_embedding_loss(
    input: Any, target: Any, margin: float = 1.0, *, reduction: str = "mean"
) -> Tensor:
    """A distance where the target is 1; where it is -1, max(0, margin - distance).

    Args:
        input: distances, of any shape.
        target: 1 and -1, broadcast.
        margin: see above.
        reduction: "none", "mean" or "sum".

    Example:
        >>> hinge_embedding_loss([0.25, 0.25, 3.0], [1, -1, -1], reduction="none")
        tensor([0.25, 0.75, 0.  ])
    """
    x, t = as_tensor(input), as_tensor(target)
    wide = arguments.widened(x)
    near = (arguments.number("margin", margin) - wide).clip(0)
    return reduced(where(t == 1, 0.0, near) + where(t == -1, 0.0, wide), reduction, x)


@composed
def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin + d(anchor, positive) - d(anchor, negative)) of `pairwise_distance`.

    Args:
        anchor, positive, negative: (N, D) or (D,); they broadcast.
        margin: see above.
        p, eps: of the distance.
        swap: whether d(positive, negative) counts where it is smaller than d(anchor, negative).
        reduction: "none", "mean" or "sum".

    Raises:
        ShapeError: numbers of axes that differ.

    Example:
        >>> triplet_margin_loss([[0.0]], [[1.0]], [[1.5]], eps=0.0)
        tensor(0.5)
    """
    arguments.number("p", p, 0)
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction,
    )


def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` of any distance.

    Args:
        anchor, positive, negative: of one number of axes.
        distance_function: of two tensors; by default `pairwise_distance`.
        margin, swap, reduction: see `triplet_margin_loss`.

    Raises:
        ShapeError: numbers of axes that differ.

    Example:
        >>> from cubepy.nn import functional as F
        >>> def angle(a, b):
        ...     return 1 - F.cosine_similarity(a, b)
        >>> triplet_margin_with_distance_loss(
        ...     [[1.0, 0.0]], [[2.0, 0.0]], [[0.0, 1.0]], distance_function=angle, margin=1.5
        ... )
        tensor(0.5)
    """
    x, near, other = as_tensor(anchor), as_tensor(positive), as_tensor(negative)
    if not x.ndim == near.ndim == other.ndim:
        raise ShapeError(
            "a triplet has one number of axes, not the shapes "
            f"{x.shape}, {near.shape} and {other.shape}"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    a, b, c = map(arguments.widened, (x, near, other))
    away = distance(a, c)
    if arguments.flag("swap", swap):
        away = away.minimum(distance(b, c))
    loss = (arguments.number("margin", margin) + distance(a, b) - away).clip(0)
    return reduced(loss, reduction, x)


@composed
def soft_margin_loss(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * input)), finite for inputs of any size.

    Args:
        input: of any shape.
        target: 1 and -1, broadcast.
        reduction: "none", "mean" or "sum".

    Example:
        >>> soft_margin_loss([0.0, -200.0], [1.0, 1.0], reduction="none")
        tensor([  0.6931472, 200.       ])
    """
    x = as_tensor(input)
    return reduced(-logsigmoid(as_tensor(target) * arguments.widened(x)), reduction, x)


@composed
def multi_margin_loss(
    input: Any,
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    *,
    reduction: str = "mean",
) -> Tensor:
    """The sum of max(0, margin - x[target] + x[i])^p over the other classes i, over the number of
    classes.

    Args:
        input: x, (N, C) or (C,).
        target: classes as integers, (N,) or a number.
        p: 1 or 2.
        margin: see above.
        weight: of each class, (C,): that of the target multiplies.
        reduction: "none", "mean" or "sum".

    Raises:
        ShapeError: shapes that do not go together.
        DTypeError: targets that are no integers.
        LaunchError: another p.

    Example:
        >>> multi_margin_loss([[0.5, 0.0, 1.0, -4.0]], [0])
        tensor(0.5)
    """
    x, t = as_tensor(input), as_tensor(target)
    if p not in (1, 2):
        raise LaunchError(f"multi_margin_loss: p is 1 or 2, not {p}")
    if x.ndim > 2 or t.size != (x.shape[0] if x.ndim == 2 else 1) or t.ndim > 1:
        raise ShapeError(
            f"multi_margin_loss: an input of shape {x.shape} has no target of {t.shape}"
        )
    chosen = _classes(t).reshape(-1, 1)
    count = x.shape[-1] if x.ndim else 1
    wide = arguments.widened(x).reshape(chosen.shape[0], count)
    short = apply("relu", arguments.number("margin", margin) - wide.gather(1, chosen) + wide)
    short = short * short if p == 2 else short
    if weight is not None:
        each = arguments.widened(as_tensor(weight))
        if each.shape != (count,):
            raise ShapeError(f"a weight for each of {count} classes, not {each.shape}")
        short = short * each.gather(0, chosen.reshape(-1)).unsqueeze(1)
    own = arange(count, device=x.device) == chosen
    loss = where(own, 0.0, short).sum(axis=1) / count
    return reduced(loss.reshape(t.shape), reduction, x)


def multilabel_margin_loss(input: Any, target: Any, *, reduction: str = "mean") -> Tensor:
    """The sum of max(0, 1 - x[j] + x[i]) over the classes j of a target and the other classes i,
    over the number of classes.

    Args:
        input: x, (N, C) or (C,).
        target: integers of the same shape: the classes of each row, up to the first -1.
        reduction: "none", "mean" or "sum".

    Raises:
        ShapeError: shapes that differ.
        DTypeError: targets that are no integers.

    Example:
        >>> multilabel_margin_loss([[0.5, 0.5, 1.0]], [[2, 0, -1]])
        tensor(0.5)
    """
    x, t = as_tensor(input), _classes(as_tensor(target))
    if x.ndim > 2 or x.shape != t.shape:
        raise ShapeError(
            f"multilabel_margin_loss: an input of shape {x.shape} has no target of {t.shape}"
        )
    if x.ndim < 2:
        rows = arguments.widened(x).reshape(1, -1)
        loss = multilabel_margin_loss(rows, t.reshape(1, -1), reduction="sum")
        return reduced(loss, reduction, x)
    wide, count = arguments.widened(x), x.shape[1]
    counted = (t < 0).astype("i32").cumsum(1) == 0
    chosen = where(counted, t, 0)
    named = arange(count, device=x.device) == chosen.unsqueeze(2)  # (N, its target, class)
    mine = (named & counted.unsqueeze(2)).any(axis=1)
    short = apply("relu", 1 - wide.gather(1, chosen).unsqueeze(2) + wide.unsqueeze(1))
    short = where(counted.unsqueeze(2) & ~mine.unsqueeze(1), short, 0.0)
    return reduced(short.sum(axis=(1, 2)) / count, reduction, x)


@composed
def multilabel_soft_margin_loss(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean"
) -> Tensor:
    """The mean over the last axis of -(y log sigmoid(x) + (1 - y) log sigmoid(-x)).

    Args:
        input: x, (N, C) or (..., C).
        target: y, 0 and 1, of the same shape.
        weight: of each class, broadcast.
        reduction: "none", "mean" or "sum".

    Raises:
        ShapeError: shapes that differ.

    Example:
        >>> round(multilabel_soft_margin_loss([[0.0, 200.0]], [[1.0, 0.0]]).item(), 3)
        100.347
    """
    x, y = as_tensor(input), as_tensor(target)
    if x.shape != y.shape or not x.ndim:
        raise ShapeError(
            f"multilabel_soft_margin_loss: an input of shape {x.shape} has no target of {y.shape}"
        )
    wide, y = arguments.widened(x), arguments.widened(y)
    loss = -(y * logsigmoid(wide) + (1 - y) * logsigmoid(-wide))
    if weight is not None:
        loss = loss * arguments.widened(as_tensor(weight))
    return reduced(loss.mean(axis=-1), reduction, x)


def _classes(target: Tensor) -> Tensor:
    if not target.dtype.is_int:
        raise DTypeError(
            f"classes are integers, not {target.dtype.name}", hint="convert them: target.long()"
        )
    return target.astype("i64")
