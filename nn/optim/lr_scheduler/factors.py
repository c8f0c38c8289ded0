"""Schedules that multiply the rate by a factor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.nn.optim.lr_scheduler.scheduler import LRScheduler
from cubepy.nn.optim.optimizer import Optimizer


class LambdaLR(LRScheduler):
    """The rate that the optimizer began with, times a function of the step.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        lr_lambda: a function of the step, or one for each group.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
        >>> warm = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
        >>> [(warm.get_last_lr()[0], warm.step())[0] for _ in range(5)]
        [0.125, 0.25, 0.375, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(self.of(optimizer).param_groups)
        several = lr_lambda if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        functions = list(several)
        if not all(map(callable, functions)):
            raise ArgumentError(
                f"lr_lambda must be a function of the step, or one for each group, not "
                f"{shown(lr_lambda)}"
            )
        if len(functions) != groups:
            raise ArgumentError(f"{groups} groups need as many functions, not {len(functions)}")
        self.lr_lambdas = functions
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The first rates times the functions."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * function(self.last_epoch) for base, function in pairs]

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer and the functions."""
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}


class StepLR(LRScheduler):
    """Every `step_size` steps the rate is multiplied by gamma.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        step_size: after how many steps.
        gamma: the factor.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
        >>> schedule = StepLR(optimizer, step_size=2, gamma=0.5)
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(5)]
        [0.5, 0.5, 0.25, 0.25, 0.125]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = arguments.size("step_size", step_size, 1)
        self.gamma = arguments.number("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates, times gamma where a stretch begins."""
        due = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [lr * self.gamma if due else lr for lr in self.rates()]


class MultiStepLR(LRScheduler):
    """At each of the milestones the rate is multiplied by gamma.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        milestones: numbers of steps.
        gamma: the factor.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
        >>> schedule = MultiStepLR(optimizer, [1, 3], gamma=0.5)
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(5)]
        [0.5, 0.25, 0.25, 0.125, 0.125]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(milestones, Iterable):
            raise ArgumentError(
                f"milestones must be several steps, not {shown(milestones)}",
                hint="MultiStepLR(optimizer, [30, 80]); StepLR takes one distance",
            )
        self.milestones = Counter(arguments.size("milestones", n) for n in milestones)
        self.gamma = arguments.number("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates, times gamma at a milestone."""
        factor = self.gamma ** self.milestones[self.last_epoch]
        return [lr * factor for lr in self.rates()]


class ExponentialLR(LRScheduler):
    """Every step multiplies the rate by gamma.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        gamma: the factor.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
        >>> schedule = ExponentialLR(optimizer, gamma=0.5)
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(3)]
        [0.5, 0.25, 0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = arguments.number("gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates times gamma."""
        return [lr * self.gamma if self.last_epoch > 0 else lr for lr in self.rates()]


class LinearLR(LRScheduler):
    """The factor goes from `start_factor` to `end_factor` in a straight line, and stays there.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        start_factor, end_factor: of the first rate.
        total_iters: after how many steps the end is reached.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
        >>> schedule = LinearLR(optimizer, start_factor=0.5, total_iters=2)
        >>> [(round(schedule.get_last_lr()[0], 6), schedule.step())[0] for _ in range(4)]
        [0.25, 0.375, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.start_factor = arguments.number("start_factor", start_factor, 0, 1)
        self.end_factor = arguments.number("end_factor", end_factor, 0, 1)
        self.total_iters = arguments.size("total_iters", total_iters, 1)
        if not self.start_factor:
            raise ArgumentError("start_factor must be above 0")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates times the quotient of two factors."""
        t, n, start = self.last_epoch, self.total_iters, self.start_factor
        rise = self.end_factor - start
        factor = start if t == 0 else 1.0
        if 0 < t <= n:
            factor = 1 + rise / (n * start + (t - 1) * rise)
        return [lr * factor for lr in self.rates()]


class ConstantLR(LRScheduler):
    """The rate times a factor for the first steps, as it was afterwards.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        factor: above 0, up to 1.
        total_iters: for how many steps.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
        >>> schedule = ConstantLR(optimizer, factor=0.5, total_iters=2)
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(4)]
        [0.25, 0.25, 0.5, 0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.factor = arguments.number("factor", factor, math.nextafter(0, 1), 1)
        self.total_iters = arguments.size("total_iters", total_iters)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates, times the factor at first, and without it at the end."""
        first, last = self.last_epoch == 0, self.last_epoch == self.total_iters
        by = self.factor if first else 1 / self.factor if last else 1.0
        return [lr * by for lr in self.rates()]


class PolynomialLR(LRScheduler):
    """Down to zero in `total_iters` steps, by a power of the steps that are left.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        total_iters: steps to zero.
        power: of the part that is left.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=1.0)
        >>> schedule = PolynomialLR(optimizer, total_iters=4)
        >>> [(round(schedule.get_last_lr()[0], 6), schedule.step())[0] for _ in range(6)]
        [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1
    ) -> None:
        self.total_iters = arguments.size("total_iters", total_iters, 1)
        self.power = arguments.number("power", power)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        """The rates, times the quotient of two places."""
        t, n = self.last_epoch, self.total_iters
        if t == 0 or t > n:
            return self.rates()
        factor = ((n - t) / (n - t + 1)) ** self.power
        return [lr * factor for lr in self.rates()]


class MultiplicativeLR(LambdaLR):
    """Every step multiplies the rate by a function of the step.

    Args:
        optimizer, last_epoch: see `LRScheduler`.
        lr_lambda: a function of the step, or one for each group.

    Example:
        >>> from cubepy import nn
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=1.0)
        >>> schedule = MultiplicativeLR(optimizer, lambda step: 0.5)
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(3)]
        [1.0, 0.5, 0.25]
    """

    def get_lr(self) -> list[float]:
        """The rates times the functions, but for the first step."""
        if self.last_epoch == 0:
            return self.rates()
        functions = zip(self.rates(), self.lr_lambdas, strict=False)
        found = [lr * function(self.last_epoch) for lr, function in functions]
        return found + self.rates()[len(found) :]
