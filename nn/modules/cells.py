"""One step of recurrent networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.array import apply, constant
from cubepy.tensor.control.composed import composed
from cubepy.tensor.control.recurrence import recur
from cubepy.tensor.namespace import concat, stack


def _parts(x: Tensor, count: int) -> list[Tensor]:
    n = x.shape[-1] // count
    return [x[..., i * n : (i + 1) * n] for i in range(count)]


def along_once(
    cell: str, x: Tensor, lengths: Tensor | None, states: int, *given: Tensor
) -> tuple[Tensor, ...]:
    """All steps of a layer, in one or both directions, in one launch.

    Args:
        cell: a name of `recur`.
        x: inputs (T, B, I).
        lengths: steps of each sequence, (B,); None: all.
        states: how many there are.
        given: the first states, each (D, B, H); then of all directions the matrices of inputs
            (G * H, I), those of states (G * H, H), and the biases of both, or none.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> x, one = cb.tensor(np.ones((3, 1, 1))), cb.tensor(np.ones((1, 1)))
        >>> y, h = along_once("relu", x, None, 1, cb.tensor(np.zeros((1, 1, 1))), one, one)
        >>> y.flatten().tolist(), h.shape
        ([1.0, 2.0, 3.0], (1, 1, 1))
    """
    first, ways = given[:states], given[0].shape[0]
    parts = [given[n : n + ways] for n in range(states, len(given), ways)]
    b_ih, b_hh = parts[2:] or (None, None)
    separate = cell == "gru"  # whose reset gate weighs its bias of states
    if b_ih and b_hh and not separate:
        b_ih = tuple(b + c for b, c in zip(b_ih, b_hh, strict=True))
    gates = F.linear(x, _joined(parts[0]), None if b_ih is None else _joined(b_ih))
    bias = _stacked(b_hh) if separate and b_hh else None
    return tuple(recur(cell, gates, _stacked(parts[1]), first, bias, None, lengths))


along = composed(along_once)
"""The same, by programs where it comes often; their gradients do all steps again."""


def projected_once(
    x: Tensor, lengths: Tensor | None, h: Tensor, c: Tensor, *given: Tensor
) -> tuple[Tensor, ...]:
    """All steps of an LSTM that projects its states, in one or both directions, in one launch.

    Args:
        x: inputs (T, B, I).
        lengths: steps of each sequence, (B,); None: all.
        h, c: the first states (D, B, P) and cells (D, B, H).
        given: of all directions the matrices of inputs (4 * H, I), those of states (4 * H, P), the
            projections (P, H), and the biases of the former two, or none.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> x, w, v, p = (cb.tensor(np.ones(n)) for n in ((3, 1, 1), (8, 1), (8, 1), (1, 2)))
        >>> h, c = cb.tensor(np.zeros((1, 1, 1))), cb.tensor(np.zeros((1, 1, 2)))
        >>> [t.shape for t in projected_once(x, None, h, c, w, v, p)]
        [(3, 1, 1), (1, 1, 1), (1, 1, 2)]
    """
    ways = h.shape[0]
    parts = [given[n : n + ways] for n in range(0, len(given), ways)]
    bias = None
    if len(parts) > 3:
        bias = _joined([b + d for b, d in zip(parts[3], parts[4], strict=True)])
    gates = F.linear(x, _joined(parts[0]), bias)
    weights = _stacked(parts[1]), _stacked(parts[2])
    made: list[Tensor] = apply(
        "projected_recurrence", gates, *weights, lengths, h, c, reverse=False
    )
    return tuple(made[:3])


projected = composed(projected_once)
"""The same, by programs where it comes often; their gradients do all steps again."""


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else concat(parts)


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    return parts[0].unsqueeze(0) if len(parts) == 1 else stack(parts)


@composed
def plain(x: Tensor, h: Tensor, w: Tensor, b: Tensor | None, nonlinearity: str) -> Tensor:
    """The next h of an Elman network, whose product with the input is x.

    Example:
        >>> import cubepy as cb
        >>> one = cb.tensor([[1.0]])
        >>> plain(one, one, one, None, "relu")
        tensor([[2.]])
    """
    total = x + F.linear(h, w, b)
    return total.tanh() if nonlinearity == "tanh" else F.relu(total)


@composed
def gru(x: Tensor, h: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """The next h of gated units, whose products with the input are x.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> x, h, w = cb.tensor(np.zeros((1, 3))), cb.tensor([[1.0]], "f64"), np.zeros((3, 1))
        >>> gru(x, h, cb.tensor(w), None).item()
        0.5
    """
    by_h = _parts(F.linear(h, w, b), 3)
    by_x = _parts(x, 3)
    reset, update = ((p + q).sigmoid() for p, q in zip(by_x[:2], by_h[:2], strict=True))
    new = (by_x[2] + reset * by_h[2]).tanh()
    return new + update * (h - new)


@composed
def lstm(x: Tensor, h: Tensor, c: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
    """The next h and c of a memory cell, whose products with the input are x.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> x, c, w = cb.tensor(np.zeros((1, 4))), cb.tensor([[1.0]], "f64"), np.zeros((4, 1))
        >>> lstm(x, c, c, cb.tensor(w), None)[1].item()
        0.5
    """
    i, f, g, o = _parts(x + F.linear(h, w, b), 4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


class _Cell(Module):
    gates = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        self.input_size = arguments.size("input_size", input_size, 1)
        self.hidden_size = arguments.size("hidden_size", hidden_size, 1)
        bound, rows = 1 / math.sqrt(hidden_size), self.gates * hidden_size
        self.weight_ih = Parameter(init.uniform((rows, input_size), bound))
        self.weight_hh = Parameter(init.uniform((rows, hidden_size), bound))
        biased = arguments.flag("bias", bias)
        self.bias_ih = Parameter(init.uniform((rows,), bound)) if biased else None
        self.bias_hh = Parameter(init.uniform((rows,), bound)) if biased else None

    def _prepared(self, input: Any, states: tuple[Any, ...]) -> tuple[Tensor, list[Tensor]]:
        """The input times its weights, and the states; zeros where there are none."""
        x = as_tensor(input)
        shape = (*x.shape[:-1], self.hidden_size)
        zero = constant(0, x.dtype).to(x.device)
        found = [zero.expand(shape) if s is None else as_tensor(s) for s in states]
        return F.linear(x, self.weight_ih, self.bias_ih), found

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class RNNCell(_Cell):
    """One step of `RNN`.

    Example:
        >>> RNNCell(3, 4)([[1.0, 2.0, 3.0]]).shape
        (1, 4)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise LaunchError(f'nonlinearity is "tanh" or "relu", not {nonlinearity!r}')
        super().__init__(input_size, hidden_size, bias)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Tensor:
        """(batch, input_size) and h (batch, hidden_size) -> the next h."""
        x, (h,) = self._prepared(input, (hx,))
        return plain(x, h, self.weight_hh, self.bias_hh, self.nonlinearity)


class GRUCell(_Cell):
    """One step of `GRU`.

    Example:
        >>> GRUCell(3, 4)([[1.0, 2.0, 3.0]]).shape
        (1, 4)
    """

    gates = 3

    def forward(self, input: Any, hx: Any = None) -> Tensor:
        """(batch, input_size) and h (batch, hidden_size) -> the next h."""
        x, (h,) = self._prepared(input, (hx,))
        return gru(x, h, self.weight_hh, self.bias_hh)


class LSTMCell(_Cell):
    """One step of `LSTM`.

    Example:
        >>> h, c = LSTMCell(3, 4)([[1.0, 2.0, 3.0]])
        >>> h.shape, c.shape
        ((1, 4), (1, 4))
    """

    gates = 4

    def forward(self, input: Any, hx: Any = None) -> tuple[Tensor, Tensor]:
        """(batch, input_size) and (h, c) -> the next (h, c)."""
        x, (h, c) = self._prepared(input, (None, None) if hx is None else tuple(hx))
        return lstm(x, h, c, self.weight_hh, self.bias_hh)
