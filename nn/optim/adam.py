"""Adam and AdamW: steps by the first two moments of the gradient."""

from __future__ import annotations

import math
from typing import Any

from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer

STEPS: dict[bool, tuple[str, tuple[str, ...]]] = {
    False: ("adam_step", ("exp_avg", "exp_avg_sq")),
    True: ("adam_amsgrad_step", ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")),
}
"""Whether amsgrad -> the op, and its states."""


class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015): `p -= lr * m / (sqrt(v) + eps)`, where m and v are running means
    of the gradient and its square, without their bias to the zeros that they begin with.

    Args:
        params: see `Optimizer`.
        lr: learning rate.
        betas: what m and v keep of themselves in a step.
        eps: added to the root.
        weight_decay: times p is added to the gradient.
        amsgrad: divide by the largest v so far.
        maximize: climb instead.
        how: see `Optimizer`.
        decoupled_weight_decay: shrink p by `lr * weight_decay` instead, as AdamW does.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0, -1.0])
        >>> optimizer = nn.optim.Adam([x], lr=0.5)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()  # the first step has the length of the learning rate
        tensor([ 3.5, -0.5])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **how: bool | None,
    ) -> None:
        options = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, options, how)

    def check(self, group: dict[str, Any]) -> None:
        """Betas are shares."""
        super().check(group)
        arguments.number("eps", group["eps"], 0)
        for n, beta in enumerate(arguments.numbers("betas", group["betas"], 2)):
            arguments.number(f"betas[{n}]", beta, 0, math.nextafter(1, 0))

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return STEPS[bool(group["amsgrad"])]

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        t, (b1, b2) = state["step"], group["betas"]
        return (
            *before_moments(group),
            group["lr"] / (1 - b1**t),
            1 / math.sqrt(1 - b2**t),
            group["eps"],
        )

    def _advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = state.get("step", 0) + 1


def before_moments(group: dict[str, Any]) -> tuple[float, ...]:
    """What a step begins with: the gradient's sign, its share of the parameter, what the parameter
    is scaled by, and the shares of moments and gradients.
    """
    (b1, b2), decay, decoupled = (
        group["betas"],
        group["weight_decay"],
        group["decoupled_weight_decay"],
    )
    return (
        -1.0 if group["maximize"] else 1.0,
        0.0 if decoupled else decay,
        1 - group["lr"] * decay if decoupled else 1.0,
        *(b1, 1 - b1, b2, 1 - b2),
    )


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself (Loshchilov and Hutter, 2019).

    Args:
        params, lr, betas, eps, amsgrad, maximize, how: as of `Adam`.
        weight_decay: p shrinks by `lr * weight_decay`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.AdamW([x], lr=0.5, weight_decay=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([3.3])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            decoupled_weight_decay=True,
            **how,
        )
