"""Losses, and distances of vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.exported.promotion import floats, promoted
from cubepy.models.exported.records import target
from cubepy.nn import functional as F
from cubepy.nn.functional.distances import reduced
from cubepy.tensor import Tensor, apply, as_tensor

REDUCTIONS = ("none", "mean", "sum")
"""What torch writes as 0, 1 and 2."""
MEAN = 1


@target("cross_entropy_loss")
def cross_entropy(
    x: Tensor,
    classes: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    return F.cross_entropy(
        x,
        classes,
        weight,
        reduction=REDUCTIONS[reduction],
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


@target("nll_loss nll_loss_nd nll_loss2d")
def nll_loss(
    x: Tensor,
    classes: Tensor,
    weight: Tensor | None = None,
    reduction: int = MEAN,
    ignore_index: int = -100,
) -> Tensor:
    how = REDUCTIONS[reduction]
    return F.nll_loss(x, classes, weight, reduction=how, ignore_index=ignore_index)


def _of_a_pair(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, y: Tensor, reduction: int = MEAN, *rest: Any) -> Tensor:
        x, y = T.broadcast_arrays(*promoted(x, y))
        name = "delta" if function is F.huber_loss else "beta"
        said = {name: rest[0]} if rest else {}
        return function(x, y, reduction=REDUCTIONS[reduction], **said)

    return run


for _name, _function in {
    "mse_loss": F.mse_loss,
    "l1_loss": F.l1_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
}.items():
    target(_name)(_of_a_pair(_function))


@target("binary_cross_entropy")
def binary_cross_entropy(
    x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    return F.binary_cross_entropy(x, y, weight, reduction=REDUCTIONS[reduction])


@target("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Tensor,
    y: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    how = REDUCTIONS[reduction]
    return F.binary_cross_entropy_with_logits(x, y, weight, reduction=how, pos_weight=pos_weight)


@target("kl_div")
def kl_div(x: Tensor, y: Tensor, reduction: int = MEAN, *, log_target: bool = False) -> Tensor:
    x, y = T.broadcast_arrays(x, y)
    return F.kl_div(x, y, reduction=REDUCTIONS[reduction], log_target=log_target)


@target("poisson_nll_loss")
def poisson_nll_loss(
    x: Tensor, y: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """x - y log x of counts y whose mean is x, and Stirling's term for y! where it is asked for."""
    x, y = floats(x), floats(y)
    loss = x.exp() - y * x if log_input else x - y * (x + eps).log()
    if full:
        many = T.where(y > 1, y, 2.0)
        stirling = many * many.log() - many + (many * (2 * np.pi)).log() * 0.5
        loss = loss + T.where(y > 1, stirling, 0.0)
    return reduced(loss, REDUCTIONS[reduction], x)


@target("soft_margin_loss")
def soft_margin_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    return reduced(F.softplus(-y * x), REDUCTIONS[reduction], x)


@target("margin_ranking_loss")
def margin_ranking_loss(
    a: Tensor, b: Tensor, y: Tensor, margin: float = 0.0, reduction: int = MEAN
) -> Tensor:
    a, b, y = (floats(v) for v in (a, b, y))
    return reduced((-y * (a - b) + margin).relu(), REDUCTIONS[reduction], a)


@target("hinge_embedding_loss")
def hinge_embedding_loss(
    x: Tensor, y: Tensor, margin: float = 1.0, reduction: int = MEAN
) -> Tensor:
    zero = T.zeros_like(x)
    loss = T.where(y != 1, (margin - x).relu(), zero) + T.where(y != -1, x, zero)
    return reduced(loss, REDUCTIONS[reduction], x)


@target("cosine_embedding_loss")
def cosine_embedding_loss(
    a: Tensor, b: Tensor, y: Tensor, margin: float = 0.0, reduction: int = MEAN
) -> Tensor:
    a, b = floats(a), floats(b)
    return F.cosine_embedding_loss(a, b, y, margin, reduction=REDUCTIONS[reduction])


@target("multi_margin_loss")
def multi_margin_loss(
    x: Tensor,
    y: Tensor,
    p: Any = 1,
    margin: Any = 1,
    weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:
    """The mean over classes of what comes nearer to the class's own than the margin."""
    rows = x if x.ndim == 2 else x.reshape(1, -1)
    own = y.reshape(-1, 1).astype("i64")
    loss = (margin - rows.gather(1, own) + rows).relu() ** int(p)
    if weight is not None:
        loss = loss * apply("take", weight, own, axis=0)
    others = T.arange(rows.shape[1], dtype="i64") != own
    loss = T.where(others, loss, 0.0).sum(1) / rows.shape[1]
    return reduced(loss.reshape(y.shape), REDUCTIONS[reduction], x)


@target("multilabel_margin_loss")
def multilabel_margin_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """The same of several classes, which stand in a row before the first that is less than 0."""
    rows, given = (t if t.ndim == 2 else t.reshape(1, -1) for t in (x, y))
    n = rows.shape[1]
    named = (given < 0).astype("i64").cumsum(1) == 0
    own = T.where(named, given, 0).astype("i64")
    classes = T.arange(n, dtype="i64").reshape(1, 1, n)
    other = ~((own.unsqueeze(2) == classes) & named.unsqueeze(2)).any(1)
    loss = (1 - rows.gather(1, own).unsqueeze(2) + rows.unsqueeze(1)).relu()
    counted = named.unsqueeze(2) & other.unsqueeze(1)
    found = T.where(counted, loss, 0.0).sum((1, 2)) / n
    return reduced(found if x.ndim == 2 else found.reshape(()), REDUCTIONS[reduction], x)


# Distances


def _length(d: Tensor, p: float, dim: Any = -1, keepdim: bool = False) -> Tensor:
    size = d.abs()
    if not d.shape[-1]:
        return size.sum(dim, keepdim)
    if p == 2:
        return size.square().sum(dim, keepdim).sqrt()
    if p == 1:
        return size.sum(dim, keepdim)
    if p == float("inf"):
        return size.max(dim, keepdim)
    if p == 0:
        return (size != 0).astype(d.dtype).sum(dim, keepdim)
    return (size**p).sum(dim, keepdim) ** (1 / p)  # type: ignore[no-any-return]


@target("pairwise_distance")
def pairwise_distance(
    a: Tensor, b: Tensor, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    return _length(floats(a - b) + eps, p, -1, keepdim)


@target("cdist _cdist_forward")
def cdist(a: Tensor, b: Tensor, p: float = 2, compute_mode: Any = None) -> Tensor:
    """Distances of all rows of a from all rows of b."""
    if not a.shape[-1]:
        return (a @ b.mT) * 0
    return _length(a.unsqueeze(-2) - b.unsqueeze(-3), p)


@target("pdist")
def pdist(x: Tensor, p: float = 2) -> Tensor:
    """Distances of all pairs of rows."""
    first, second = (as_tensor(i.astype(np.int64)) for i in np.triu_indices(x.shape[0], 1))
    return _length(x.index_select(0, first) - x.index_select(0, second), p)


@target("triplet_margin_loss")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = MEAN,
) -> Tensor:
    near = pairwise_distance(anchor, positive, p, eps)
    away = pairwise_distance(anchor, negative, p, eps)
    if swap:
        away = away.minimum(pairwise_distance(positive, negative, p, eps))
    return reduced((margin + near - away).relu(), REDUCTIONS[reduction], anchor)
