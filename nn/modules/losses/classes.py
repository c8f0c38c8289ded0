"""Losses as modules."""

from __future__ import annotations

from typing import Any

from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor


class MSELoss(Module):
    """The squared difference.

    Example:
        >>> MSELoss()([1.0, 2.0], [1.0, 4.0])
        tensor(2.)
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.mse_loss`."""
        return F.mse_loss(input, target, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class L1Loss(Module):
    """The absolute difference.

    Example:
        >>> L1Loss()([1.0, 2.0], [1.0, 4.0])
        tensor(1.)
    """

    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.l1_loss`."""
        return F.l1_loss(input, target, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class SmoothL1Loss(Module):
    """The Huber loss with delta = beta, over beta.

    Example:
        >>> SmoothL1Loss()([0.5, 3.0], [0.0, 0.0])
        tensor(1.3125)
    """

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__()
        self.reduction = reduction
        self.beta = beta

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.smooth_l1_loss`."""
        return F.smooth_l1_loss(input, target, beta=self.beta, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class HuberLoss(Module):
    """Half the squared difference up to delta, and a straight line from there on.

    Example:
        >>> HuberLoss()([0.5, 3.0], [0.0, 0.0])
        tensor(1.3125)
    """

    def __init__(self, *, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__()
        self.reduction = reduction
        self.delta = delta

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.huber_loss`."""
        return F.huber_loss(input, target, delta=self.delta, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class KLDivLoss(Module):
    """Kullback-Leibler divergence of logarithms of probabilities and probabilities.

    Example:
        >>> KLDivLoss("batchmean")([[-1.0, -2.0]], [[0.0, 1.0]])
        tensor(2.)
    """

    def __init__(self, reduction: str = "mean", *, log_target: bool = False) -> None:
        super().__init__()
        self.reduction = reduction
        self.log_target = log_target

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.kl_div`."""
        return F.kl_div(input, target, log_target=self.log_target, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class NLLLoss(Module):
    """Minus the logarithm of the probability of the target's class.

    Example:
        >>> NLLLoss()([[-1.0, -2.0]], [1])
        tensor(2.)
    """

    def __init__(
        self, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.register_buffer("weight", weight)

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.nll_loss`."""
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class CrossEntropyLoss(Module):
    """Minus log softmax of the target's class; see `functional.cross_entropy`.

    Example:
        >>> round(CrossEntropyLoss()([[0.0, 0.0]], [1]).item(), 4)
        0.6931
    """

    def __init__(
        self,
        weight: Any = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.register_buffer("weight", weight)

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.cross_entropy`."""
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class BCELoss(Module):
    """-(y log p + (1 - y) log(1 - p)) of probabilities p.

    Example:
        >>> round(BCELoss()([0.5], [1.0]).item(), 4)
        0.6931
    """

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        self.register_buffer("weight", weight)

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.binary_cross_entropy`."""
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class BCEWithLogitsLoss(Module):
    """The same of p = sigmoid(input).

    Example:
        >>> round(BCEWithLogitsLoss()([0.0], [1.0]).item(), 4)
        0.6931
    """

    def __init__(
        self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Any, target: Any) -> Tensor:
        """As `functional.binary_cross_entropy_with_logits`."""
        return F.binary_cross_entropy_with_logits(
            input, target, weight=self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"


class CosineEmbeddingLoss(Module):
    """1 - cosine of pairs with target 1; cosine above the margin of those with -1.

    Example:
        >>> CosineEmbeddingLoss()([[1.0, 0.0]], [[0.0, 1.0]], [1])
        tensor(1.)
    """

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        self.margin = margin

    def forward(self, input1: Any, input2: Any, target: Any) -> Tensor:
        """As `functional.cosine_embedding_loss`."""
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )

    def extra_repr(self) -> str:
        return f"reduction={self.reduction!r}"
