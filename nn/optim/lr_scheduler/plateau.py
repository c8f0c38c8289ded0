"""A schedule that looks at the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cubepy.errors import ArgumentError, LaunchError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer


class ReduceLROnPlateau:
    """The rate is multiplied by `factor` when a number did not get better for `patience` steps.

    Args:
        optimizer: whose rates change.
        mode: "min" or "max": which way is better.
        factor: below 1.
        patience: how many steps without progress are waited for.
        threshold, threshold_mode: progress is more than this part ("rel") of the best number, or
            more than this ("abs").
        cooldown: steps after a reduction that do not count.
        min_lr: rates do not fall below; a number, or one for each group.
        eps: smaller changes of rates are left out.

    Attributes:
        best: the best number so far.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
        >>> schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        >>> for loss in (3.0, 2.0, 2.0, 2.0):
        ...     schedule.step(loss)
        >>> optimizer.param_groups[0]["lr"]
        0.25
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise LaunchError(
                f'mode is "min" or "max", threshold_mode "rel" or "abs", not {mode!r} and '
                f"{threshold_mode!r}"
            )
        self.optimizer = optimizer
        self.mode, self.threshold_mode, self.threshold = mode, threshold_mode, threshold
        self.factor = arguments.number("factor", factor, 0, math.nextafter(1, 0))
        self.patience, self.cooldown, self.eps = patience, cooldown, eps
        groups = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, (list, tuple)) else [min_lr] * groups
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def step(self, metrics: Any) -> None:
        """Look at the number of this step, such as the loss on what was held back."""
        now = float(metrics)
        self.last_epoch += 1
        better = self._is_better(now)
        self.best = now if better else self.best
        self.num_bad_epochs = 0 if better else self.num_bad_epochs + 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            groups = self.optimizer.param_groups
            for group, least in zip(groups, [*self.min_lrs, *[0.0] * len(groups)], strict=False):
                new = max(group["lr"] * self.factor, least)
                if group["lr"] - new > self.eps:
                    group["lr"] = new
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _is_better(self, now: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if self.threshold_mode == "abs":
            return now * sign < self.best * sign - self.threshold
        if math.isinf(self.best):
            return now * sign < self.best * sign
        return now * sign < self.best * (1 - sign * self.threshold) * sign

    def get_last_lr(self) -> list[float]:
        """The learning rates now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule knows, but for the optimizer."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another schedule was.

        Raises:
            ArgumentError: it is no state of one.
        """
        if not isinstance(state_dict, Mapping) or state_dict.keys() != self.state_dict().keys():
            raise ArgumentError(
                f"the state is none of a ReduceLROnPlateau: {shown(state_dict)}",
                hint="load what state_dict() of such a schedule gave",
            )
        self.__dict__.update(state_dict)
