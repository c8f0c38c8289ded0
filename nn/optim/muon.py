"""Muon: steps whose singular values are all about 1."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import ArgumentError, ShapeError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.nn.optim.optimizer import Optimizer, filled, gradient
from cubepy.tensor import Tensor

BUFFER = ("momentum_buffer",)
ADJUSTED = None, "original", "match_rms_adamw"


class Muon(Optimizer):
    """Gradient descent with momentum whose step is made orthogonal by an iteration of Newton and
    Schulz in bf16 (Jordan, 2024), for weights of hidden layers: matrices. Biases, embeddings and
    heads are for another optimizer, such as AdamW.

    Args:
        params: see `Optimizer`; all have two axes.
        lr: learning rate.
        weight_decay: p shrinks by `lr * weight_decay`.
        momentum: what the mean of gradients keeps of itself in a step.
        nesterov: whether the gradient counts once more.
        ns_coefficients: of x, x x^T x and (x x^T)^2 x in a turn of the iteration.
        eps: the least norm that a step is divided by.
        ns_steps: turns of the iteration.
        adjust_lr_fn: how the rate depends on the shape (n, m): "original" (None) times
            sqrt(max(1, n / m)), "match_rms_adamw" times 0.2 sqrt(max(n, m)).

    Raises:
        ShapeError: a parameter that is no matrix.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.Linear(8, 4, bias=False)
        >>> optimizer = nn.optim.Muon(layer.parameters(), lr=0.1)
        >>> layer(nn.init.constant((2, 8), 1.0)).sum().backward()
        >>> optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        options = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, options)

    def check(self, group: dict[str, Any]) -> None:
        """All parameters are matrices."""
        super().check(group)
        arguments.number("momentum", group["momentum"], 0)
        arguments.number("eps", group["eps"], 0)
        arguments.size("ns_steps", group["ns_steps"], 0)
        arguments.numbers("ns_coefficients", group["ns_coefficients"], 3)
        if group["adjust_lr_fn"] not in ADJUSTED:
            raise ArgumentError(
                f"adjust_lr_fn is 'original' or 'match_rms_adamw', not "
                f"{shown(group['adjust_lr_fn'])}"
            )
        for p in group["params"]:
            if p.ndim != 2:
                raise ShapeError(
                    f"Muon trains matrices, not a parameter of shape {p.shape}",
                    hint="give it the weights of hidden layers, and AdamW the others",
                )

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        return "", BUFFER

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        lr = group["lr"]
        return 1 - lr * group["weight_decay"], group["momentum"], 1 - group["momentum"], lr

    def _update(
        self, p: Any, state: dict[str, Any], group: dict[str, Any], numbers: dict[Any, Any]
    ) -> None:
        """Several ops: the mean of gradients, its iteration, the parameter."""
        kept, momentum, rest, rate = self._scalars(p, state, group, numbers)
        if BUFFER[0] not in state:
            state[BUFFER[0]] = filled(p.shape, p)
        grad, old = arguments.widened(gradient(p)), arguments.widened(state[BUFFER[0]])
        mean = old + (grad - old) * rest
        state[BUFFER[0]].assign_(mean.astype(p.dtype))
        step = grad + (mean - grad) * momentum if group["nesterov"] else mean
        step = orthogonal(step, group["ns_coefficients"], group["ns_steps"], group["eps"])
        before = arguments.widened(p.detach())
        change = step.astype(before.dtype) * (rate * _by_shape(group["adjust_lr_fn"], *p.shape))
        p.assign_((before * kept - change).astype(p.dtype))


def orthogonal(
    x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """A matrix with singular values of about 1 and the directions of another one, in bf16."""
    a, b, c = coefficients
    turned = x.shape[0] > x.shape[1]
    x = (x.T if turned else x).astype("bf16")
    norm = (arguments.widened(x) ** 2).sum().sqrt().astype("bf16")
    x = x / norm.clip(eps)
    for _ in range(steps):
        gram = x @ x.T
        x = x * a + (gram * b + (gram @ gram) * c) @ x
    return x.T if turned else x


def _by_shape(how: str | None, n: int, m: int) -> float:
    """The factor of the rate for a matrix (n, m)."""
    return 0.2 * math.sqrt(max(n, m)) if how == ADJUSTED[2] else math.sqrt(max(1, n / m))
