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
from cubepy.tensor import Tensor, as_tensor

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
    how = REDUCTIONS[reduction]
    return F.poisson_nll_loss(floats(x), floats(y), log_input, full, eps=eps, reduction=how)


@target("soft_margin_loss")
def soft_margin_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    return F.soft_margin_loss(x, y, reduction=REDUCTIONS[reduction])


@target("margin_ranking_loss")
def margin_ranking_loss(
    a: Tensor, b: Tensor, y: Tensor, margin: float = 0.0, reduction: int = MEAN
) -> Tensor:
    a, b, y = (floats(v) for v in (a, b, y))
    return F.margin_ranking_loss(a, b, y, margin, reduction=REDUCTIONS[reduction])


@target("hinge_embedding_loss")
def hinge_embedding_loss(
    x: Tensor, y: Tensor, margin: float = 1.0, reduction: int = MEAN
) -> Tensor:
    return F.hinge_embedding_loss(x, y, margin, reduction=REDUCTIONS[reduction])


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
    how = REDUCTIONS[reduction]
    return F.multi_margin_loss(x, y, int(p), float(margin), weight, reduction=how)


@target("multilabel_margin_loss")
def multilabel_margin_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    return F.multilabel_margin_loss(x, y, reduction=REDUCTIONS[reduction])


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
