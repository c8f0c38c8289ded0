"""Rprop: steps by the sign of the gradient alone."""

from __future__ import annotations

from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer

STEP = "rprop_step", ("prev", "step_size")


class Rprop(Optimizer):
    """Resilient backpropagation (Riedmiller and Braun, 1993), for gradients of all data at once:
    every element has a step of its own, which grows while the gradient keeps its sign and shrinks
    where it changed, where p stays for one step.

    Args:
        params: see `Optimizer`.
        lr: the first steps.
        etas: by what a step shrinks (below 1), and grows (above 1).
        step_sizes: the least and the largest step.
        maximize: climb instead.
        how: see `Optimizer`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0, -1.0])
        >>> optimizer = nn.optim.Rprop([x], lr=0.5)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([ 3.5, -0.5])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        options = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, options, how)

    def check(self, group: dict[str, Any]) -> None:
        """Steps shrink and grow, between two sizes."""
        super().check(group)
        (less, more), (least, most) = (
            arguments.numbers(name, group[name], 2) for name in ("etas", "step_sizes")
        )
        if not 0 < less < 1 < more:
            raise LaunchError(f"etas are below and above 1, not {group['etas']}")
        if not 0 <= least <= most:
            raise LaunchError(f"step_sizes are the least and the largest, not {least} and {most}")

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return STEP

    def _first(self, group: dict[str, Any], name: str) -> float:
        return float(group["lr"]) if name == "step_size" else 0.0

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        return -1.0 if group["maximize"] else 1.0, *group["etas"], *group["step_sizes"]

    def _advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = state.get("step", 0) + 1
