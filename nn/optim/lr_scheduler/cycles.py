"""Schedules that go down along a cosine: over and over, or once after a rise."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import ArgumentError, LaunchError
from cubepy.nn import arguments
from cubepy.nn.optim.lr_scheduler.scheduler import LRScheduler
from cubepy.nn.optim.optimizer import Optimizer


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate down to `eta_min` in `T_max` steps, and up again
    (Loshchilov and Hutter, 2017).

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        T_max: steps from top to bottom.
        eta_min: the rate at the bottom.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=1.0)
        >>> schedule = CosineAnnealingLR(optimizer, T_max=4)
        >>> [(round(schedule.get_last_lr()[0], 3), schedule.step())[0] for _ in range(6)]
        [1.0, 0.854, 0.5, 0.146, 0.0, 0.146]
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = arguments.size("T_max", T_max, 1)
        self.eta_min = arguments.number("eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates by those before: the quotient of two places of the cosine."""
        t, n, low = self.last_epoch, self.T_max, self.eta_min
        if t == 0:
            return self.rates()
        if (t - 1 - n) % (2 * n) == 0:  # from the bottom, where the quotient has no denominator
            rise = (1 - math.cos(math.pi / n)) / 2
            return [
                lr + (base - low) * rise
                for lr, base in zip(self.rates(), self.base_lrs, strict=False)
            ]
        share = (1 + math.cos(math.pi * t / n)) / (1 + math.cos(math.pi * (t - 1) / n))
        return [share * (lr - low) + low for lr in self.rates()]


class OneCycleLR(LRScheduler):
    """Up from `max_lr / div_factor` to `max_lr`, then down to a part of where it began; momentum
    goes the other way (Smith and Topin, 2018).

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        max_lr: the highest rate, or one for each group.
        total_steps: of the whole cycle; or `epochs * steps_per_epoch`.
        epochs, steps_per_epoch: see `total_steps`.
        pct_start: which part of the steps rises.
        anneal_strategy: "cos" or "linear".
        cycle_momentum: whether momentum (of Adam: beta1) moves as well.
        base_momentum, max_momentum: its range.
        div_factor: `max_lr` over the first rate.
        final_div_factor: the first rate over the last one.
        three_phase: go down to the first rate as fast as up, and then to the last one.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.Adam([nn.Parameter([1.0])])
        >>> schedule = OneCycleLR(optimizer, max_lr=1.0, total_steps=6, pct_start=0.5)
        >>> [(round(schedule.get_last_lr()[0], 3), schedule.step())[0] for _ in range(5)]
        [0.04, 0.52, 1.0, 0.75, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ArgumentError("give total_steps, or epochs and steps_per_epoch")
        if anneal_strategy not in ("cos", "linear"):
            raise LaunchError(f'anneal_strategy is "cos" or "linear", not {anneal_strategy!r}')
        steps = total_steps if total_steps is not None else epochs * steps_per_epoch  # type: ignore[operator]
        self.total_steps = arguments.size("total_steps", steps, 1)
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        tops = (
            max_lr if isinstance(max_lr, (list, tuple)) else [max_lr] * len(optimizer.param_groups)
        )
        self.phases = self._phases(arguments.number("pct_start", pct_start, 0, 1), three_phase)
        for group, top in zip(optimizer.param_groups, tops, strict=True):
            if last_epoch == -1:
                group["initial_lr"], group["max_lr"] = top / div_factor, top
                group["min_lr"] = group["initial_lr"] / final_div_factor
                group["max_momentum"], group["base_momentum"] = max_momentum, base_momentum
        super().__init__(optimizer, last_epoch)

    def _phases(self, rising: float, three: bool) -> list[tuple[float, str, str, str, str]]:
        """Where each phase ends, and between which rates and momentums it goes."""
        n = self.total_steps
        low, high = "base_momentum", "max_momentum"
        up = (rising * n - 1, "initial_lr", "max_lr", high, low)
        if not three:
            return [up, (n - 1.0, "max_lr", "min_lr", low, high)]
        back = (2 * rising * n - 2, "max_lr", "initial_lr", low, high)
        return [up, back, (n - 1.0, "initial_lr", "min_lr", high, high)]

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return start + (end - start) * share
        return end + (start - end) / 2 * (1 + math.cos(math.pi * share))

    def get_lr(self) -> list[float]:
        """The rates of the phase; momentum is set beside.

        Raises:
            LaunchError: the cycle is over.
        """
        t = self.last_epoch
        if t > self.total_steps:
            raise LaunchError(f"step {t} of a cycle of {self.total_steps} steps")
        begin, found = 0.0, []
        for n, phase in enumerate(self.phases):
            if t <= phase[0] or n == len(self.phases) - 1:
                break
            begin = phase[0]
        end, first, last, slow, quick = phase
        share = (t - begin) / (end - begin)
        for group in self.optimizer.param_groups:
            if "max_lr" not in group:  # it was added since, and stays as it is
                found.append(group["lr"])
                continue
            found.append(self._between(group[first], group[last], share))
            if self.cycle_momentum:
                self._set_momentum(group, self._between(group[slow], group[quick], share))
        return found

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        elif "momentum" in group:
            group["momentum"] = momentum
        else:
            raise LaunchError(
                "the optimizer has no momentum", hint="pass cycle_momentum=False to OneCycleLR"
            )
