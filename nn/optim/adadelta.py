"""Adadelta: steps by the root of how far the parameter moved, over that of the gradient."""

from __future__ import annotations

from typing import Any

from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer

STEP = "adadelta_step", ("square_avg", "acc_delta")


class Adadelta(Optimizer):
    """Adadelta (Zeiler, 2012): `p -= lr * sqrt(d + eps) / sqrt(s + eps) * grad`, where s and d are
    running means of the squares of gradients and steps.

    Args:
        params: see `Optimizer`.
        lr: times the step.
        rho: what s and d keep of themselves in a step.
        eps: added below the roots.
        weight_decay: times p is added to the gradient.
        maximize: climb instead.
        how: see `Optimizer`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.Adadelta([x], rho=0.75, eps=1.0)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> round(x.item(), 3)
        2.06
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        options = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, options, how)

    def check(self, group: dict[str, Any]) -> None:
        """Shares and what is added."""
        super().check(group)
        arguments.number("eps", group["eps"], 0)
        arguments.number("rho", group["rho"], 0, 1)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return STEP

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        sign, rho = -1.0 if group["maximize"] else 1.0, group["rho"]
        return sign, group["weight_decay"], group["lr"], group["eps"], rho, 1 - rho
