"""Losses and similarities of numbers: how far what was found is from what was wanted."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import LaunchError, ShapeError
from cubepy.lang.dtypes import promote
from cubepy.nn import arguments
from cubepy.tensor import Tensor, apply, as_tensor
from cubepy.tensor.array import operand
from cubepy.tensor.control.composed import composed
from cubepy.tensor.namespace import broadcast_arrays, where


def reduced(loss: Tensor, reduction: str, like: Tensor) -> Tensor:
    """A loss of each element as a reduction says: "none", "mean" or "sum"; in the dtype of the
    input, computed in a wider one.

    Raises:
        LaunchError: another reduction.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 3.0])
        >>> reduced(x, "mean", x), reduced(x, "sum", x)
        (tensor(2.), tensor(4.))
    """
    if reduction == "mean":
        loss = loss.mean()
    elif reduction == "sum":
        loss = loss.sum()
    elif reduction != "none":
        raise LaunchError(f'reduction is "none", "mean" or "sum", not {reduction!r}')
    return loss if loss.dtype is like.dtype or not like.dtype.is_float else loss.astype(like.dtype)


def _pair(op: str, input: Any, target: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The input as it came, and both in f32 where they are narrower."""
    x = as_tensor(input)
    y = as_tensor(target)
    if x.shape != y.shape:
        raise ShapeError(f"{op}: an input of shape {x.shape} has a target of shape {y.shape}")
    return x, arguments.widened(x), arguments.widened(y)


def _weighed(op: str, loss: Tensor, weight: Any, reduction: str, like: Tensor) -> Tensor:
    """A loss of each element, weighed where there are weights, as a reduction says; a mean is then
    the sum over that of the weights, as in torch, where that of Huber's loss is over the elements.
    """
    if weight is None:
        return reduced(loss, reduction, like)
    w = arguments.widened(as_tensor(weight))
    if w.shape != loss.shape:
        raise ShapeError(f"{op}: an input of shape {loss.shape} has a weight of shape {w.shape}")
    if reduction == "mean" and op != "huber_loss":
        return reduced((loss * w).sum() / w.sum(), "none", like)
    return reduced(loss * w, reduction, like)


@composed
def mse_loss(input: Any, target: Any, *, reduction: str = "mean", weight: Any = None) -> Tensor:
    """The squared difference, of elements that count as much as a weight says; a mean is over the
    sum of the weights.

    Example:
        >>> mse_loss([1.0, 2.0], [1.0, 4.0])
        tensor(2.)
        >>> mse_loss([1.0, 2.0], [1.0, 4.0], weight=[1.0, 3.0])
        tensor(3.)
    """
    x, a, b = _pair("mse_loss", input, target)
    d = a - b
    return _weighed("mse_loss", d * d, weight, reduction, x)


@composed
def l1_loss(input: Any, target: Any, *, reduction: str = "mean", weight: Any = None) -> Tensor:
    """The absolute difference; `weight` as of `mse_loss`.

    Example:
        >>> l1_loss([1.0, 2.0], [1.0, 4.0])
        tensor(1.)
    """
    x, a, b = _pair("l1_loss", input, target)
    return _weighed("l1_loss", abs(a - b), weight, reduction, x)


@composed
def huber_loss(
    input: Any, target: Any, *, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> Tensor:
    """Half the squared difference up to delta, and a straight line from there on; `weight` as of
    `mse_loss`, but a mean is over the elements, as in torch.

    Example:
        >>> huber_loss([0.5, 3.0], [0.0, 0.0], reduction="none")
        tensor([0.125, 2.5  ])
    """
    delta = arguments.number("delta", delta, 0)
    x, a, b = _pair("huber_loss", input, target)
    d = abs(a - b)
    loss = where(d <= delta, d * d * 0.5, (d - 0.5 * delta) * delta)
    return _weighed("huber_loss", loss, weight, reduction, x)


@composed
def smooth_l1_loss(
    input: Any, target: Any, *, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """The Huber loss with delta = beta, over beta.

    Example:
        >>> smooth_l1_loss([0.5, 3.0], [0.0, 0.0], reduction="none")
        tensor([0.125, 2.5  ])
    """
    beta = arguments.number("beta", beta, 0)
    x, a, b = _pair("smooth_l1_loss", input, target)
    d = abs(a - b)
    if beta:
        d = where(d < beta, d * d * (0.5 / beta), d - 0.5 * beta)
    return reduced(d, reduction, x)


@composed
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; norms count as at least eps.

    Example:
        >>> cosine_similarity([[3.0, 4.0]], [[4.0, 3.0]])
        tensor([0.96])
    """
    eps = arguments.number("eps", eps, 0)
    x, y = as_tensor(x1), as_tensor(x2)
    a, b = broadcast_arrays(arguments.widened(x), arguments.widened(y))
    least = max(eps * eps, 1e-37)
    lengths = [(t * t).sum(axis=dim).clip(least).sqrt() for t in (a, b)]
    found = (a * b).sum(axis=dim) / (lengths[0] * lengths[1])
    return found.astype(x.dtype) if x.dtype.is_float else found


@composed
def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """1 - cosine where the target is 1; where it is -1, by how much the cosine is above the margin.

    Args:
        input1, input2: (N, D) or (D,).
        target: (N,) or a number, of 1 and -1.
        margin: see above.
        reduction: "none", "mean" or "sum".

    Example:
        >>> cosine_embedding_loss([[1.0, 0.0]] * 2, [[1.0, 0.0]] * 2, [1, -1], reduction="none")
        tensor([0., 1.])
    """
    x, t = as_tensor(input1), as_tensor(target)
    a, b = arguments.widened(x), arguments.widened(as_tensor(input2))
    cosine = cosine_similarity(a, b, dim=-1)
    beyond = apply("relu", cosine - margin)
    loss = where(t == 1, 1 - cosine, where(t == -1, beyond, operand(0.0, cosine)))
    return reduced(loss, reduction, x)


@composed
def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The norm of x1 - x2 + eps over the last axis.

    Args:
        x1, x2: (N, D) or (D,); they broadcast.
        p: of the norm, above 0.
        eps: added to each difference.
        keepdim: whether the last axis stays, of length 1.

    Returns:
        (N,) or a number.

    Example:
        >>> pairwise_distance([[0.0, 1.0]], [[3.0, 5.0]], eps=0.0)
        tensor([5.])
    """
    x, y = as_tensor(x1), as_tensor(x2)
    difference = arguments.widened(x) - arguments.widened(y) + arguments.number("eps", eps)
    found = difference.norm(p, -1, arguments.flag("keepdim", keepdim))
    return found.astype(promote(x.dtype, y.dtype)) if x.dtype.is_float else found


def pdist(input: Any, p: float = 2.0) -> Tensor:
    """The distances of every two rows: 0 and 1, 0 and 2, ..., 1 and 2, ...

    Args:
        input: (N, D).
        p: of the norm, above 0.

    Returns:
        (N * (N - 1) / 2,).

    Raises:
        ShapeError: no matrix.

    Example:
        >>> pdist([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
        tensor([5.       , 1.       , 4.2426405])
    """
    x = as_tensor(input)
    if x.ndim != 2:
        raise ShapeError(f"pdist takes a matrix (N, D), not the shape {x.shape}")
    wide = arguments.widened(x)
    first, second = (as_tensor(i).to(x.device) for i in np.triu_indices(x.shape[0], 1))
    found = (wide.index_select(0, first) - wide.index_select(0, second)).norm(p, -1)
    return found.astype(x.dtype) if x.dtype.is_float else found
