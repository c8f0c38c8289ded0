"""RMSprop: steps by the root of the mean square of the gradient."""

from __future__ import annotations

import math
from typing import Any

from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer

STEPS = {
    (False, False): ("rmsprop_step", ("square_avg",)),
    (False, True): ("rmsprop_momentum_step", ("square_avg", "momentum_buffer")),
    (True, False): ("rmsprop_centered_step", ("square_avg", "grad_avg")),
    (True, True): ("rmsprop_centered_momentum_step", ("square_avg", "grad_avg", "momentum_buffer")),
}
"""The op and the states, by whether it is centered and whether it has momentum. Names of ops are
constants: replay knows them by identity.
"""


class RMSprop(Optimizer):
    """RMSprop (Hinton, 2012): `p -= lr * grad / (sqrt(s) + eps)`, where s is the running mean of
    the squared gradient.

    Args:
        params: see `Optimizer`.
        lr: learning rate.
        alpha: what s keeps of itself in a step.
        eps: added to the root.
        weight_decay: times p is added to the gradient.
        momentum: of the step.
        centered: divide by the deviation instead of the root of s.
        maximize: climb instead.
        how: see `Optimizer`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.RMSprop([x], lr=0.1, alpha=0.75)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([3.8])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        options = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
        }
        super().__init__(params, options, how)

    def check(self, group: dict[str, Any]) -> None:
        """Momentum and the share that is kept."""
        super().check(group)
        arguments.number("eps", group["eps"], 0)
        arguments.number("alpha", group["alpha"], 0, math.inf)
        arguments.number("momentum", group["momentum"], 0)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return STEPS[bool(group["centered"]), bool(group["momentum"])]

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        return (
            -1.0 if group["maximize"] else 1.0,
            group["weight_decay"],
            group["lr"],
            group["eps"],
            group["alpha"],
            1 - group["alpha"],
            group["momentum"],
        )
