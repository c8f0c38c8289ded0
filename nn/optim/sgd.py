"""Gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer, zeros_like


class SGD(Optimizer):
    """Gradient descent: `p -= lr * d` with `d = grad + weight_decay * p`; with momentum
    `v = momentum * v + (1 - dampening) * d`, the first v is d, and v takes the place of d, or
    `d + momentum * v` where `nesterov`.

    Args:
        params: see `Optimizer`.
        lr: learning rate.
        momentum, dampening, weight_decay, nesterov: as above.
        maximize: climb instead.

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
    ) -> None:
        options = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, options)

    def check(self, group: dict[str, Any]) -> None:
        """Nesterov's step needs a momentum without dampening."""
        super().check(group)
        arguments.number("momentum", group["momentum"], 0)
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise LaunchError("nesterov needs a momentum above 0 and no dampening")

    def _update(
        self, p: Any, state: dict[str, Any], group: dict[str, Any], numbers: dict[Any, Any]
    ) -> None:
        momentum = group["momentum"]
        sign = -1.0 if group["maximize"] else 1.0
        if not momentum:
            self._apply(
                "sgd_step",
                p,
                state,
                (),
                numbers,
                lambda own: (sign, group["weight_decay"], group["lr"]),
            )
            return
        new = 1 - group["dampening"]
        if "momentum_buffer" not in state:
            state["momentum_buffer"], new = zeros_like(p), 1.0
        ahead = (1.0, momentum) if group["nesterov"] else (0.0, 1.0)
        self._apply(
            "sgd_momentum_step",
            p,
            state,
            ("momentum_buffer",),
            numbers,
            lambda own: (sign, group["weight_decay"], group["lr"], momentum, new, *ahead),
        )
