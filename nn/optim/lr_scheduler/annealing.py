"""SWALR: from the rates of now to those of an average of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.nn.optim.lr_scheduler.scheduler import LRScheduler
from cubepy.nn.optim.optimizer import Optimizer


class SWALR(LRScheduler):
    """Rates go to `swa_lr` within some steps and stay there (Izmailov et al., 2018).

    Args:
        optimizer: whose rates change.
        swa_lr: a rate, or one for each group.
        anneal_epochs: steps until it is reached.
        anneal_strategy: "cos" or "linear".
        last_epoch: -1 to begin.

    Raises:
        ArgumentError: another strategy, or rates for other groups.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=1.0)
        >>> schedule = nn.optim.swa_utils.SWALR(optimizer, 0.5, 2, "linear")
        >>> for _ in range(3):
        ...     schedule.step()
        ...     print(schedule.get_last_lr())
        [0.75]
        [0.5]
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | Sequence[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        groups = self.of(optimizer).param_groups
        one = not isinstance(swa_lr, (list, tuple))
        rates = [swa_lr] * len(groups) if one else arguments.numbers("swa_lr", swa_lr, len(groups))
        for group, rate in zip(groups, rates, strict=True):
            group["swa_lr"] = arguments.number("swa_lr", rate, 0)
        if anneal_strategy not in ("cos", "linear"):
            raise ArgumentError(
                f"anneal_strategy is 'cos' or 'linear', not {shown(anneal_strategy)}"
            )
        self.anneal_epochs = arguments.size("anneal_epochs", anneal_epochs)
        self.anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """A mean of the two rates."""
        step = self.last_epoch if self.anneal_epochs else max(1, self.last_epoch)
        before, now = self._share(step - 1), self._share(step)
        found = []
        for group in self.optimizer.param_groups:
            lr, last = group["lr"], group["swa_lr"]
            first = last if before == 1 else (lr - before * last) / (1 - before)
            found.append(last * now + first * (1 - now))
        return found

    def _share(self, step: int) -> float:
        """The share of the last rate at a step."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self.anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2
