"""ASGD: gradient descent that keeps an average of the parameters."""

from __future__ import annotations

from typing import Any

from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer

STEP = "asgd_step", ("ax",)


class ASGD(Optimizer):
    """Averaged gradient descent (Polyak and Juditsky, 1992): `p -= eta * (grad + lambd * p)` with a
    rate that falls, `lr / (1 + lambd * lr * t) ** alpha`. The average of p since step t0 is
    `optimizer.state[p]["ax"]`.

    Args:
        params: see `Optimizer`.
        lr: the first rate.
        lambd: times p is added to the gradient, and how fast the rate falls.
        alpha: the power of the rate.
        t0: the step from which on p is averaged; before it the average is p.
        weight_decay: times p is added to the gradient.
        maximize: climb instead.
        how: see `Optimizer`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.ASGD([x], lr=0.25, lambd=0.0, t0=1)
        >>> for _ in range(3):
        ...     optimizer.zero_grad()
        ...     (x * x).sum().backward()
        ...     optimizer.step()
        >>> x.detach(), optimizer.state[x]["ax"]
        (tensor([0.5]), tensor([0.5]))
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        options = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, options, how)

    def check(self, group: dict[str, Any]) -> None:
        """All options are at least 0."""
        super().check(group)
        for name in ("lambd", "alpha", "t0"):
            arguments.number(name, group[name], 0)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return STEP

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        eta, mu = state["now"]
        return (
            -1.0 if group["maximize"] else 1.0,
            group["weight_decay"],
            1 - group["lambd"] * eta,
            eta,
            mu,
        )

    def _advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        """`eta` and `mu` are those of the next step, as PyTorch keeps them."""
        t, lr = state.get("step", 0) + 1, group["lr"]
        state["now"] = state.get("eta", lr), state.get("mu", 1.0)
        state["step"] = t
        state["eta"] = lr / (1 + group["lambd"] * lr * t) ** group["alpha"]
        state["mu"] = 1 / max(1, t - group["t0"])
