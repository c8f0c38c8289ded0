"""Relatives of Adam: NAdam, RAdam, Adamax."""

from __future__ import annotations

import math
import threading
from typing import Any

from cubepy.nn import arguments
from cubepy.nn.optim.adam import Adam, before_moments

MOMENTS = ("exp_avg", "exp_avg_sq")
NADAM = "nadam_step", MOMENTS
RADAM = "radam_step", MOMENTS
ADAMAX = "adamax_step", ("exp_avg", "exp_inf")
_products: dict[tuple[float, float], list[float]] = {}
"""By beta1 and its decay: the products of momenta up to each step."""
_counting = threading.Lock()


class NAdam(Adam):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Args:
        params: see `Optimizer`.
        lr, betas, eps, weight_decay, decoupled_weight_decay, maximize, how: as of `Adam`.
        momentum_decay: how fast the momentum comes to beta1.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.NAdam([x], lr=0.5)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> round(x.item(), 3)
        3.472
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        self._decay = arguments.number("momentum_decay", momentum_decay, 0)
        more: dict[str, Any] = {
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
            **how,
        }
        super().__init__(params, lr, betas, eps, weight_decay, **more)

    def add_param_group(self, param_group: Any) -> None:
        """Train more parameters."""
        if isinstance(param_group, dict):
            param_group = {"momentum_decay": self._decay, **param_group}
        super().add_param_group(param_group)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return NADAM

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        t, (b1, b2), lr, slow = state["step"], group["betas"], group["lr"], group["momentum_decay"]
        known = _products.setdefault((b1, slow), [1.0])
        with _counting:
            while len(known) <= t + 1:
                known.append(known[-1] * b1 * (1 - 0.5 * 0.96 ** (len(known) * slow)))
        now, then = (b1 * (1 - 0.5 * 0.96 ** (k * slow)) for k in (t, t + 1))
        return (
            *before_moments(group),
            lr * (1 - now) / (1 - known[t]),
            lr * then / (1 - known[t + 1]),
            1 / math.sqrt(1 - b2**t),
            group["eps"],
        )


class RAdam(Adam):
    """Adam whose steps are rectified while few gradients came (Liu et al., 2019).

    Args:
        params: see `Optimizer`.
        lr, betas, eps, weight_decay, decoupled_weight_decay, maximize, how: as of `Adam`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.RAdam([x], lr=0.125)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()  # the first steps are those of gradient descent with momentum
        tensor([3.])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        more: dict[str, Any] = {
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
            **how,
        }
        super().__init__(params, lr, betas, eps, weight_decay, **more)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return RADAM

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        t, (b1, b2) = state["step"], group["betas"]
        rate, left = group["lr"] / (1 - b1**t), 1 - b2**t
        most = 2 / (1 - b2) - 1
        length = most - 2 * t * b2**t / left
        sure = length > 5
        if sure:
            part = (length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)
            rate *= math.sqrt(part * left)
        return (*before_moments(group), rate, group["eps"], float(sure))


class Adamax(Adam):
    """Adam by the largest gradient instead of the mean square (Kingma and Ba, 2015).

    Args:
        params: see `Optimizer`.
        lr, betas, eps, weight_decay, maximize, how: as of `Adam`.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([4.0])
        >>> optimizer = nn.optim.Adamax([x], lr=0.5)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([3.5])
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        more: dict[str, Any] = {"maximize": maximize, **how}
        super().__init__(params, lr, betas, eps, weight_decay, **more)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return ADAMAX

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        t, (b1, b2) = state["step"], group["betas"]
        sign = -1.0 if group["maximize"] else 1.0
        rate = group["lr"] / (1 - b1**t)
        return sign, group["weight_decay"], b1, 1 - b1, b2, rate, group["eps"]
