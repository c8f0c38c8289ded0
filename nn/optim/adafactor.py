"""Adafactor: second moments of matrices as a row times a column."""

from __future__ import annotations

import math
from typing import Any

from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer, filled, gradient
from cubepy.tensor import Tensor
from cubepy.tensor.namespace import finfo

FACTORED = "row_var", "col_var"
WHOLE = ("variance",)


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018): the second moment of a parameter of two axes and more is
    kept as its means along the last axis and the one before, so a matrix (n, m) has n + m numbers
    beside it; steps have the size of the parameter.

    Args:
        params: see `Optimizer`.
        lr: the largest rate, times the parameter's root mean square.
        beta2_decay: of the step's number t, `t ** beta2_decay` is the share of a new square.
        eps: added to squares (None: that of the dtype); the least size of a parameter that counts.
        d: the largest root mean square of a step before it is scaled.
        weight_decay: p shrinks by `lr * weight_decay`.
        maximize: climb instead.
        how: see `Optimizer`.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.Linear(64, 32)
        >>> optimizer = nn.optim.Adafactor(layer.parameters())
        >>> layer(nn.init.constant((1, 64), 1.0)).sum().backward()
        >>> optimizer.step()
        >>> [optimizer.state[layer.weight][name].shape for name in ("row_var", "col_var")]
        [(32, 1), (1, 64)]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **how: bool | None,
    ) -> None:
        options = {
            "lr": lr,
            "beta2_decay": beta2_decay,
            "eps": eps,
            "d": d,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, options, how)

    def check(self, group: dict[str, Any]) -> None:
        """The decay is no growth."""
        super().check(group)
        arguments.number("beta2_decay", group["beta2_decay"], -math.inf, 0)
        arguments.number("d", group["d"], 1)
        eps = group["eps"]
        if isinstance(eps, (tuple, list)) and eps and eps[0] is None:
            eps = 0.0, *eps[1:]
        arguments.numbers("eps", eps, 2)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return "", ()

    def _states(self, group: dict[str, Any], p: Tensor) -> tuple[str, ...]:
        return FACTORED if p.ndim > 1 else WHOLE

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        t = state["step"]
        return (
            -1.0 if group["maximize"] else 1.0,
            1 - group["lr"] * group["weight_decay"],
            t ** group["beta2_decay"],
            min(group["lr"], 1 / math.sqrt(t)),
            *(group["eps"][1], group["d"]),
        )

    def _advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        state["step"] = state.get("step", 0) + 1

    def _update(
        self, p: Any, state: dict[str, Any], group: dict[str, Any], numbers: dict[Any, Any]
    ) -> None:
        """Several ops: means of squares, the step, the parameter."""
        sign, kept, share, rate, least, most = self._scalars(p, state, group, numbers)
        eps = finfo(p.dtype).eps if group["eps"][0] is None else group["eps"][0]
        before, grad = arguments.widened(p.detach()), arguments.widened(gradient(p)) * sign
        if p.ndim > 1:
            row, column = (
                self._mean(state, name, grad, axis, share, p)
                for name, axis in zip(FACTORED, (-1, -2), strict=True)
            )
            square = row * column / row.mean(axis=-2, keepdims=True).clip(eps)
        else:
            square = self._mean(state, *WHOLE, grad, None, share, p)
        step = grad / square.clip(eps * eps).sqrt()
        size = _size(step) / most
        rate = rate * _size(before)._binary("maximum", least)
        p.assign_((before * kept - step * (rate / size.clip(1.0))).astype(p.dtype))

    def _mean(
        self, state: dict[str, Any], name: str, grad: Tensor, axis: int | None, share: Any, p: Any
    ) -> Tensor:
        """The running mean of squares of a gradient, or of their means along an axis."""
        square = grad * grad
        new = square if axis is None else square.mean(axis=axis, keepdims=True)
        if name not in state:
            state[name] = filled(new.shape, p)
        old = arguments.widened(state[name])
        found = old + (new - old) * share
        state[name].assign_(found.astype(p.dtype))
        return found


def _size(x: Tensor) -> Tensor:
    """The root mean square."""
    return (x * x).mean().sqrt()
