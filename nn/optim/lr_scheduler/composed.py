"""Schedules that are made of others: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.nn.optim.lr_scheduler.scheduler import LRScheduler
from cubepy.nn.optim.optimizer import Optimizer


class _Composed(LRScheduler):
    def __init__(self, optimizer: Any, schedulers: Sequence[LRScheduler]) -> None:
        if not isinstance(schedulers, Sequence) or not schedulers:
            raise ArgumentError(f"schedulers must be schedules, not {shown(schedulers)}")
        for one in schedulers:
            if not isinstance(one, LRScheduler):
                raise ArgumentError(f"schedulers must be schedules that multiply, not {shown(one)}")
        first = schedulers[0].optimizer if optimizer is None else optimizer
        if any(one.optimizer is not first for one in schedulers):
            raise ArgumentError("all schedulers must be of one optimizer")
        self.optimizer, self.schedulers = first, list(schedulers)
        self.base_lrs = [group["initial_lr"] for group in first.param_groups]
        self.last_epoch = 0

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule and its parts know, but for the optimizer and functions."""
        mine = {k: v for k, v in super().state_dict().items() if k != "schedulers"}
        return {**mine, "schedulers": [one.state_dict() for one in self.schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another schedule was."""
        parts = self._checked(state_dict)["schedulers"]
        mine = {k: v for k, v in state_dict.items() if k != "schedulers"}
        super().load_state_dict({**mine, "schedulers": self.schedulers})
        for one, state in zip(self.schedulers, parts, strict=True):
            one.load_state_dict(state)


class SequentialLR(_Composed):
    """One schedule after the other: each begins anew at a milestone.

    Args:
        optimizer: whose rates change.
        schedulers: of that optimizer, in order.
        milestones: the steps at which the second and those after it begin.

    Raises:
        ArgumentError: no schedules, one of another optimizer, or not one milestone less.

    Example:
        >>> from cubepy import nn
        >>> from cubepy.nn.optim import lr_scheduler
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=1.0)
        >>> parts = [lr_scheduler.LinearLR(optimizer, 0.25, total_iters=3),
        ...     lr_scheduler.ExponentialLR(optimizer, 0.5)]
        >>> schedule = SequentialLR(optimizer, parts, milestones=[3])
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(6)]
        [0.25, 0.5, 0.75, 1.0, 0.5, 0.25]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]
    ) -> None:
        super().__init__(optimizer, schedulers)
        self.milestones = [arguments.size("milestones", n) for n in milestones]
        if len(self.milestones) != len(self.schedulers) - 1:
            raise ArgumentError(
                f"{len(self.schedulers)} schedulers need {len(self.schedulers) - 1} milestones, "
                f"not {len(self.milestones)}"
            )
        self.schedulers[0].begin()
        self._last = self.rates()

    def begin(self, keep: bool = False) -> None:
        """Go to the first step again."""
        self.last_epoch = 0
        self.schedulers[0].begin(keep)
        self._last = self.rates()

    def step(self) -> None:
        """Go to the next step."""
        self.last_epoch += 1
        n = bisect_right(self.milestones, self.last_epoch)
        if n and self.milestones[n - 1] == self.last_epoch:
            self.schedulers[n].begin()
        else:
            self.schedulers[n].step()
        self._last = self.rates()


class ChainedScheduler(_Composed):
    """Several schedules at once: their factors multiply.

    Args:
        schedulers: of one optimizer.
        optimizer: that one, which they know.

    Raises:
        ArgumentError: no schedules, or some of different optimizers.

    Example:
        >>> from cubepy import nn
        >>> from cubepy.nn.optim import lr_scheduler
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=1.0)
        >>> parts = [lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=2),
        ...     lr_scheduler.ExponentialLR(optimizer, 0.5)]
        >>> schedule = ChainedScheduler(parts)
        >>> [(schedule.get_last_lr()[0], schedule.step())[0] for _ in range(4)]
        [0.5, 0.25, 0.25, 0.125]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        super().__init__(optimizer, schedulers)
        self._last = self.rates()

    def begin(self, keep: bool = False) -> None:
        """Go to the first step again."""
        self.last_epoch = 0
        for n, one in enumerate(self.schedulers):
            one.begin(keep or n > 0)
        self._last = self.rates()

    def step(self) -> None:
        """Go to the next step."""
        self.last_epoch += 1
        for one in self.schedulers:
            one.step()
        self._last = self.rates()
