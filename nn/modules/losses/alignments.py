"""The loss of connectionist temporal classification as a module."""

from __future__ import annotations

from typing import Any

from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor


class CTCLoss(Module):
    """Minus the logarithm of the probability of labels, over all ways to spread them over the steps
    of a sequence (Graves et al., 2006); see `functional.ctc_loss`.

    Args:
        blank: the class between labels.
        reduction: "none", "sum", or "mean": each over the number of its labels, then over all.
        zero_infinity: whether sequences that are too short for their labels count as 0.

    Example:
        >>> import cubepy as cb
        >>> log = cb.tensor([[0.5, 0.5], [0.5, 0.5]]).log()
        >>> round(CTCLoss()(log, [1], 2, 1).exp().item(), 4)
        1.3333
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__()
        self.blank, self.reduction, self.zero_infinity = blank, reduction, zero_infinity

    def forward(
        self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """As `functional.ctc_loss`."""
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )

    def extra_repr(self) -> str:
        return f"blank={self.blank}, reduction={self.reduction!r}"
