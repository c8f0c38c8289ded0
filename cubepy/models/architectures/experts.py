"""Mixture of experts: at each position a router picks few of many networks (Shazeer et al., 2017;
Jiang et al., 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from cubepy.lang.dtypes import f32
from cubepy.models.packed.picked import picked
from cubepy.nn import Linear, Module, Parameter, init
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.modes import is_grad_enabled
from cubepy.tensor.namespace import concat
from cubepy.tensor.record import recording_here

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


@dataclass(frozen=True)
class ExpertConfig:
    """The experts of a decoder.

    Attributes:
        count: of each layer.
        chosen: by each position.
        inner: width of an expert.
        shared: width of the network that all positions pass, 0: there is none.
        normalized: whether the shares of those that were chosen sum to one.
        plain: layers that have one network instead.
    """

    count: int
    chosen: int
    inner: int
    shared: int = 0
    normalized: bool = True
    plain: tuple[int, ...] = ()


class Experts(Module):
    """A router, gated networks as stacked matrices, and what all positions share.

    Args:
        width: of a position.
        c: of the experts.
        activation: of gates.
        shared: the network of all positions, or None.

    Example:
        >>> layer = Experts(4, ExpertConfig(count=3, chosen=2, inner=8), "silu", None)
        >>> layer(as_tensor(np.ones((1, 5, 4), np.float32)), None).shape
        (1, 5, 4)
    """

    def __init__(self, width: int, c: ExpertConfig, activation: str, shared: Module | None) -> None:
        super().__init__()
        self.config, self.activation = c, ACTIVATIONS[activation]
        self.router = Linear(width, c.count, bias=False)
        self.gate, self.up = (
            Parameter(init.uniform((c.count, c.inner, width), init.linear_bound(width)))
            for _ in range(2)
        )
        self.down = Parameter(init.uniform((c.count, width, c.inner), init.linear_bound(c.inner)))
        self.shared = shared
        self.shared_gate = None if shared is None else Linear(width, 1, bias=False)

    def forward(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """(B, L, width) -> the same, plus `residual`."""
        c = self.config
        rows = x.reshape(-1, x.shape[-1])
        shares, which = self.router(rows).softmax(-1).topk(c.chosen)
        if c.normalized:
            shares = shares / shares.sum(-1, keepdims=True)
        learns = is_grad_enabled() and any(t.requires_grad for t in (x, *self.parameters()))
        few = rows.shape[0] * c.chosen <= c.count and rows.dtype is f32
        if few and not learns:
            found = self.few(rows, shares, which)
        elif recording_here() or learns:
            found = self.all(rows, shares, which)
        else:
            found = self.sorted(rows, shares, which)
        if self.shared is not None:
            assert self.shared_gate is not None
            found = found + self.shared_gate(rows).sigmoid() * self.shared(rows, None)
        found = found.reshape(x.shape)
        return found if residual is None else residual + found

    def expert(self, x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        """(..., width) through networks of (..., inner, width) and (..., width, inner)."""
        return F.linear(self.activation(F.linear(x, gate)) * F.linear(x, up), down)

    def few(self, rows: Tensor, shares: Tensor, which: Tensor) -> Tensor:
        """The matrices of few rows, picked by numbers that stay in tensors."""
        flat = which.reshape(-1)
        inner = self.activation(picked(rows, self.gate, flat)) * picked(rows, self.up, flat)
        found = picked(inner, self.down, flat).reshape(*which.shape, -1)
        return (found * shares.unsqueeze(-1)).sum(1)

    def all(self, rows: Tensor, shares: Tensor, which: Tensor) -> Tensor:
        """All rows through all experts: nobody looks which were chosen."""
        found = None
        for n in range(self.config.count):
            share = (shares * (which == n)).sum(-1, keepdims=True)
            part = self.expert(rows, self.gate[n], self.up[n], self.down[n]) * share
            found = part if found is None else found + part
        assert found is not None
        return found

    def sorted(self, rows: Tensor, shares: Tensor, which: Tensor) -> Tensor:
        """Each expert reads the rows that chose it; each row has its results in a fixed order."""
        c = self.config
        chosen = which.numpy().ravel()
        order = np.argsort(chosen, kind="stable")
        ends = np.cumsum(np.bincount(chosen, minlength=c.count))
        taken = rows[as_tensor(order // c.chosen).to(rows.device)]
        parts, first = [], 0
        for n, end in enumerate(ends.tolist()):
            if end > first:
                parts.append(self.expert(taken[first:end], self.gate[n], self.up[n], self.down[n]))
            first = end
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        found = concat(parts, axis=0)[as_tensor(back).to(rows.device)]
        return (found.reshape(*which.shape, -1) * shares.unsqueeze(-1)).sum(1)
