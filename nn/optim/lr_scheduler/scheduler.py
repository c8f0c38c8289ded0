"""`LRScheduler`: what all schedules share: the count of steps, and the rates of all groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cubepy.errors import ArgumentError, FileFormatError
from cubepy.kernels.entry.options import shown
from cubepy.nn.optim.optimizer import Optimizer


class LRScheduler:
    """Base of all schedules; a subclass gives the rates of this step by those of the step before,
    so that several schedules of one optimizer multiply.

    Args:
        optimizer: whose rates change; call `step()` after `optimizer.step()`.
        last_epoch: -1 to begin, or the step to go on from.

    Attributes:
        last_epoch: the number of the step.
        base_lrs: the rates that the schedule began with.

    Example:
        >>> from cubepy import nn
        >>> class Halves(nn.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         first = self.last_epoch == 0
        ...         return [lr if first else lr / 2 for lr in self.rates()]
        >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
        >>> schedule = Halves(optimizer)
        >>> schedule.step()
        >>> optimizer.param_groups[0]["lr"]
        0.25
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = self.of(optimizer)
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self.step()

    @staticmethod
    def of(optimizer: Any) -> Optimizer:
        """The optimizer.

        Raises:
            ArgumentError: it is none.
        """
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(f"a schedule is of an optimizer, not of {shown(optimizer)}")
        return optimizer

    def begin(self, keep: bool = False) -> None:
        """Go to the first step again, with the rates that the schedule began with.

        Args:
            keep: begin with the rates of now.
        """
        for group, lr in zip(self.optimizer.param_groups, self.base_lrs, strict=False):
            group["lr"] = group["lr"] if keep else lr
        self.last_epoch = -1
        self.step()

    def rates(self) -> list[float]:
        """The learning rates of the groups now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_lr(self) -> list[float]:
        """The learning rates of the groups at step `self.last_epoch`."""
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """The learning rates that the last step set."""
        return self._last

    def step(self) -> None:
        """Go to the next step."""
        self.last_epoch += 1
        # groups that were added since stay as they are, where the schedule goes by first rates
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=False):
            group["lr"] = lr
        self._last = self.rates()

    def state_dict(self) -> dict[str, Any]:
        """All that the schedule knows, but for the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another schedule was.

        Raises:
            FileFormatError: the state of a schedule of another kind, or of none.
        """
        self.__dict__.update(self._checked(state_dict))

    def _checked(self, state_dict: Any) -> Mapping[str, Any]:
        known = self.state_dict()
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(
                f"the state of a schedule is what state_dict() gives, not {shown(state_dict)}"
            )
        if state_dict.keys() != known.keys():
            lost = ", ".join(sorted(map(str, known.keys() ^ state_dict.keys())))
            raise FileFormatError(
                f"the state is none of {type(self).__name__}: {lost} is in one of them alone",
                hint="load the state of a schedule of the same kind and arguments",
            )
        return state_dict
