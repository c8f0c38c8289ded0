"""Adagrad: steps by the root of the sum of the squares of all gradients."""

from __future__ import annotations

from typing import Any

from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer

STEP = "adagrad_step", ("sum",)


class Adagrad(Optimizer):
    """Adagrad (Duchi et al., 2011): `p -= lr * grad / (sqrt(s) + eps)`, where s is the sum of the
    squared gradients.

    Args:
        params: see `Optimizer`.
        lr: learning rate; at step t it is `lr / (1 + (t - 1) * lr_decay)`.
        lr_decay: as above.
        weight_decay: times p is added to the gradient.
        initial_accumulator_value: of s.
        eps: added to the root.
        maximize: climb instead.
        how: see `Optimizer`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.Adagrad([x], lr=0.5)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([3.5])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        options = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
            "maximize": maximize,
        }
        super().__init__(params, options, how)

    def check(self, group: dict[str, Any]) -> None:
        """All options are at least 0."""
        super().check(group)
        for name in ("lr_decay", "initial_accumulator_value", "eps"):
            arguments.number(name, group[name], 0)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return STEP

    def _first(self, group: dict[str, Any], name: str) -> float:
        return float(group["initial_accumulator_value"])

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        lr = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        return -1.0 if group["maximize"] else 1.0, group["weight_decay"], lr, group["eps"]

    def _advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = state.get("step", 0) + 1
