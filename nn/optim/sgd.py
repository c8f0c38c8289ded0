"""Gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer

STEPS: dict[bool, tuple[str, tuple[str, ...]]] = {
    False: ("sgd_step", ()),
    True: ("sgd_momentum_step", ("momentum_buffer",)),
}
"""Whether there is a momentum -> the op, and its states."""


class SGD(Optimizer):
    """Gradient descent: `p -= lr * d` with `d = grad + weight_decay * p`; with momentum
    `v = momentum * v + (1 - dampening) * d`, the first v is d, and v takes the place of d, or
    `d + momentum * v` where `nesterov`.

    Args:
        params: see `Optimizer`.
        lr: learning rate.
        momentum, dampening, weight_decay, nesterov: as above.
        maximize: climb instead.
        how: see `Optimizer`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.SGD([x], lr=0.25, momentum=0.5)
        >>> for _ in range(2):
        ...     optimizer.zero_grad()
        ...     (x * x).sum().backward()
        ...     optimizer.step()
        >>> x.detach()
        tensor([0.])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        options = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, options, how)

    def check(self, group: dict[str, Any]) -> None:
        """Nesterov's step needs a momentum without dampening."""
        super().check(group)
        arguments.number("momentum", group["momentum"], 0)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise LaunchError("nesterov needs a momentum above 0 and no dampening")

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return STEPS[bool(group["momentum"])]

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        momentum = group["momentum"]
        first = -1.0 if group["maximize"] else 1.0, group["weight_decay"], group["lr"]
        if not momentum:
            return first
        new = 1 - group["dampening"] if "momentum_buffer" in state else 1.0
        ahead = (1.0, momentum) if group["nesterov"] else (0.0, 1.0)
        return (*first, momentum, new, *ahead)
