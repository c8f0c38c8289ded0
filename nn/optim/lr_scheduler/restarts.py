"""Schedules that begin again and again."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn import arguments
from cubepy.nn.optim.lr_scheduler.scheduler import LRScheduler
from cubepy.nn.optim.optimizer import Optimizer


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine down to `eta_min`, then from the top again (Loshchilov and Hutter, 2017).

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        T_0: steps of the first round.
        T_mult: what rounds are longer than those before by, an integer.
        eta_min: the lowest rate.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=1.0)
        >>> schedule = CosineAnnealingWarmRestarts(optimizer, T_0=2, T_mult=2)
        >>> [(round(schedule.get_last_lr()[0], 3), schedule.step())[0] for _ in range(7)]
        [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_0 = arguments.size("T_0", T_0, 1)
        self.T_mult = arguments.size("T_mult", T_mult, 1)
        self.eta_min = arguments.number("eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this place in the round."""
        at, length = self.last_epoch, self.T_0
        while at >= length:
            at, length = at - length, length * self.T_mult
        share = (1 + math.cos(math.pi * at / length)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class CyclicLR(LRScheduler):
    """Straight up from `base_lr` to `max_lr` and down again, over and over; momentum goes the other
    way (Smith, 2017).

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        base_lr, max_lr: the lowest rate and the highest, each a number or one for each group.
        step_size_up, step_size_down: steps of a rise, and of a fall; as many, if left out.
        mode: "triangular"; "triangular2", where each cycle is half as high as that before; or
            "exp_range", whose height is `gamma` to the number of steps.
        gamma: see `mode`.
        scale_fn: the height of a cycle instead of a mode: a function of its number, or of the step.
        scale_mode: what `scale_fn` is a function of: "cycle" or "iterations".
        cycle_momentum: whether momentum (of Adam: beta1) moves as well.
        base_momentum, max_momentum: its range.

    Raises:
        LaunchError: another mode, or momentum that the optimizer does not have.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=1.0, momentum=0.9)
        >>> schedule = CyclicLR(optimizer, 0.0, 1.0, step_size_up=2)
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(6)]
        [0.0, 0.5, 1.0, 0.5, 0.0, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in MODES and scale_fn is None:
            raise LaunchError(f"mode is {', '.join(map(repr, MODES))}, not {mode!r}")
        if scale_mode not in ("cycle", "iterations"):
            raise LaunchError(f'scale_mode is "cycle" or "iterations", not {scale_mode!r}')
        self.up = arguments.size("step_size_up", step_size_up, 1)
        down = step_size_up if step_size_down is None else step_size_down
        self.down = arguments.size("step_size_down", down, 1)
        self.mode, self.gamma = mode, arguments.number("gamma", gamma)
        self.scale_fn, self.scale_mode = scale_fn, scale_mode
        self.momenta = (
            arguments.number("base_momentum", base_momentum),
            arguments.number("max_momentum", max_momentum),
        )
        self.cycle_momentum = arguments.flag("cycle_momentum", cycle_momentum)
        groups = getattr(optimizer, "param_groups", [])
        if cycle_momentum and not all("momentum" in g or "betas" in g for g in groups):
            raise LaunchError(
                "the optimizer has no momentum to move", hint="say cycle_momentum=False"
            )
        self.tops, low = (
            list(given) if isinstance(given, (list, tuple)) else [given] * len(groups)
            for given in (max_lr, base_lr)
        )
        if not len(self.tops) == len(low) == len(groups):
            raise LaunchError(f"{len(groups)} groups need as many rates: {base_lr}, {max_lr}")
        for group, lr in zip(groups, low, strict=True):
            group["initial_lr"] = arguments.number("base_lr", lr, 0)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates of this place in the cycle; momentum is set beside."""
        whole = self.up + self.down
        cycle = math.floor(1 + self.last_epoch / whole)
        x = 1 + self.last_epoch / whole - cycle
        rise = self.up / whole
        height = (x / rise if x <= rise else (x - 1) / (rise - 1)) * self._scale(cycle)
        if self.cycle_momentum:
            low, high = self.momenta
            for group in self.optimizer.param_groups:
                _momentum(group, high - (high - low) * height)
        pairs = zip(self.base_lrs, self.tops, strict=True)
        return [low + (top - low) * height for low, top in pairs]

    def _scale(self, cycle: int) -> float:
        if self.scale_fn is not None:
            return self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.mode == "exp_range":
            return float(self.gamma**self.last_epoch)
        return 1.0 if self.mode == "triangular" else 1 / 2.0 ** (cycle - 1)


MODES = ("triangular", "triangular2", "exp_range")


def _momentum(group: dict[str, Any], value: float) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value
