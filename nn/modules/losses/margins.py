"""Losses with margins, and of distributions, as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor


class MarginRankingLoss(Module):
    """max(0, margin - target * (input1 - input2)).

    Example:
        >>> MarginRankingLoss(0.5)([1.0], [2.0], [1.0])
        tensor(1.5)
    """

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        self.margin = margin

    def forward(self, input1: Any, input2: Any, target: Any) -> Tensor:
        """As `functional.margin_ranking_loss`."""
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class HingeEmbeddingLoss(Module):
    """A distance where the target is 1; where it is -1, max(0, margin - distance).

    Example:
        >>> HingeEmbeddingLoss()([0.25, 0.25], [1, -1])
        tensor(0.5)
    """

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        self.margin = margin

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.hinge_embedding_loss`."""
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class TripletMarginLoss(Module):
    """max(0, margin + d(anchor, positive) - d(anchor, negative)).

    Example:
        >>> TripletMarginLoss(eps=0.0)([[0.0]], [[1.0]], [[1.5]])
        tensor(0.5)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        *,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        """As `functional.triplet_margin_loss`."""
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class TripletMarginWithDistanceLoss(Module):
    """`TripletMarginLoss` of any distance.

    Example:
        >>> TripletMarginWithDistanceLoss(distance_function=lambda a, b: abs(a - b).sum(axis=1))(
        ...     [[0.0]], [[1.0]], [[1.5]]
        ... )
        tensor(0.5)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Tensor:
        """As `functional.triplet_margin_with_distance_loss`."""
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class SoftMarginLoss(Module):
    """log(1 + exp(-target * input)).

    Example:
        >>> SoftMarginLoss()([-200.0], [1.0])
        tensor(200.)
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.soft_margin_loss`."""
        return F.soft_margin_loss(input, target, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class MultiMarginLoss(Module):
    """max(0, margin - x[target] + x[i])^p of the other classes.

    Example:
        >>> MultiMarginLoss()([[0.5, 0.0, 1.0, -4.0]], [0])
        tensor(0.5)
    """

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Any = None, *, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.p = p
        self.margin = margin
        self.register_buffer("weight", weight)

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.multi_margin_loss`."""
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class MultiLabelMarginLoss(Module):
    """max(0, 1 - x[j] + x[i]) of the classes j of a target and the other ones.

    Example:
        >>> MultiLabelMarginLoss()([[0.5, 0.5, 1.0]], [[2, 0, -1]])
        tensor(0.5)
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.multilabel_margin_loss`."""
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class MultiLabelSoftMarginLoss(Module):
    """Of each class, -(y log sigmoid(x) + (1 - y) log sigmoid(-x)).

    Example:
        >>> MultiLabelSoftMarginLoss()([[-200.0, 200.0]], [[1.0, 0.0]])
        tensor(200.)
    """

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        self.register_buffer("weight", weight)

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.multilabel_soft_margin_loss`."""
        return F.multilabel_soft_margin_loss(
            input, target, weight=self.weight, reduction=self.reduction
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class GaussianNLLLoss(Module):
    """(log var + (input - target)^2 / var) / 2.

    Example:
        >>> GaussianNLLLoss()([1.0, 2.0], [2.0, 4.0], [1.0, 1.0])
        tensor(1.25)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        self.full = full
        self.eps = eps

    def forward(self, input: Any, target: Any, var: Any) -> Tensor:
        """As `functional.gaussian_nll_loss`."""
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class PoissonNLLLoss(Module):
    """exp(input) - target * input, of the logarithms of expected counts.

    Example:
        >>> PoissonNLLLoss()([0.0, 0.0], [1.0, 2.0])
        tensor(1.)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        *,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.poisson_nll_loss`."""
        return F.poisson_nll_loss(
            input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"
