"""Recurrent networks: one step after the other along a sequence."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from cubepy.errors import LaunchError, ShapeError
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.modules.cells import along, along_once, gru, lstm, plain, projected, projected_once
from cubepy.nn.modules.packed import PackedSequence
from cubepy.nn.parameter import Parameter
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, as_tensor, scan
from cubepy.tensor.array import constant
from cubepy.tensor.control.recurrence import serves
from cubepy.tensor.modes import mode
from cubepy.tensor.namespace import concat, stack, where
from cubepy.tensor.record import recording_here

LONG = 100
"""Steps from which on a program has them as a loop. Written out they take 0.85 of the time of a
training step, and 17 times as long to trace."""


class _Recurrent(Module):
    """Layers of cells, each one over what the one below gave; with `bidirectional` there is a
    second one from the end.
    """

    gates = 1
    states = 1
    proj_size = 0

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.input_size = arguments.size("input_size", input_size, 1)
        self.hidden_size = arguments.size("hidden_size", hidden_size, 1)
        self.num_layers = arguments.size("num_layers", num_layers, 1)
        self.bias, self.batch_first = (
            arguments.flag("bias", bias),
            arguments.flag("batch_first", batch_first),
        )
        self.dropout = arguments.number("dropout", dropout, 0, 1)
        self.bidirectional = arguments.flag("bidirectional", bidirectional)
        bound, rows = 1 / math.sqrt(hidden_size), self.gates * hidden_size
        given = self._widths()[0]
        for layer in range(self.num_layers):
            width = input_size if layer == 0 else given * len(self._ways())
            for way in self._ways():
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (rows, width),
                    "weight_hh": (rows, given),
                }
                if self.bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if self.proj_size:
                    shapes["weight_hr"] = (self.proj_size, hidden_size)
                for name, shape in shapes.items():
                    full = f"{name}_l{layer}{way}"
                    setattr(self, full, Parameter(init.uniform(shape, bound)))

    def _ways(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def _widths(self) -> tuple[int, ...]:
        """The widths of the states; that of the first is the output's."""
        return (self.proj_size or self.hidden_size, self.hidden_size)[: self.states]

    def _cell(self, x: Tensor, state: tuple[Tensor, ...], *weights: Any) -> tuple[Tensor, ...]:
        """The next states, of which the first is the output."""
        raise NotImplementedError

    def _run(self, input: Any, states: tuple[Any, ...] | None) -> tuple[Any, list[Tensor]]:
        """The outputs, and the last states of all layers."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, states)
        return self._run_padded(input, states, None)

    def _run_packed(
        self, input: PackedSequence, states: tuple[Any, ...] | None
    ) -> tuple[Any, list[Tensor]]:
        """The same of sequences of several lengths; states are in the order that they had first."""
        x, lengths = input.padded()
        if states is not None and input.sorted_indices is not None:
            order = as_tensor(input.sorted_indices)
            states = tuple(as_tensor(s)[:, order] for s in states)
        ends_at = None if (lengths == x.shape[0]).all() else lengths
        y, ends = self._run_padded(x.transpose(0, 1) if self.batch_first else x, states, ends_at)
        if input.unsorted_indices is not None:
            back = as_tensor(input.unsorted_indices)
            ends = [s[:, back] for s in ends]
        return input.like(y.transpose(0, 1) if self.batch_first else y), ends

    def _run_padded(
        self, input: Any, states: tuple[Any, ...] | None, lengths: np.ndarray | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The same; behind its length (N,) the state of a sequence stays as it is."""
        x = as_tensor(input)
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__} takes (length, batch, {self.input_size}) or "
                f"(length, {self.input_size}), not {x.shape}"
            )
        alone = x.ndim == 2
        if alone:
            x = x.unsqueeze(1)
        elif self.batch_first:
            x = x.transpose(0, 1)
        ways, batch = self._ways(), x.shape[1]
        count = self.num_layers * len(ways)
        shapes = [(count, batch, width) for width in self._widths()]
        if states is None:
            zero = constant(0, x.dtype).to(x.device)
            given: list[Any] = [zero.expand(shape) for shape in shapes]
        else:
            if len(states) != self.states:
                raise ShapeError(
                    f"{type(self).__name__} begins with {self.states} states, not {len(states)}"
                )
            given = [as_tensor(s) for s in states]
            given = [s.unsqueeze(1) if alone and s.ndim == 2 else s for s in given]
            for s, shape in zip(given, shapes, strict=True):
                if s.shape != shape:
                    raise ShapeError(f"a state of shape {shape} is needed, not {s.shape}")
        last: list[list[Tensor]] = [[] for _ in range(self.states)]
        for layer in range(self.num_layers):
            only = self.num_layers == 1
            first = given if only else [s[layer * len(ways) :][: len(ways)] for s in given]
            done = self._at_once(x, first, layer, lengths)
            x, *ends = done or self._step_by_step(x, first, layer, lengths)
            for all_ends, end in zip(last, ends, strict=True):
                all_ends.append(end)
            if self.dropout and layer + 1 < self.num_layers:
                x = F.dropout(x, self.dropout, self.training)
        ended = [s[0] if len(s) == 1 else concat(s, axis=0) for s in last]
        if alone:
            return x.squeeze(1), [s.squeeze(1) for s in ended]
        return (x.transpose(0, 1) if self.batch_first else x), ended

    def _at_once(
        self, x: Tensor, first: list[Tensor], layer: int, lengths: np.ndarray | None
    ) -> list[Tensor] | None:
        """One layer in all directions, its steps in one launch; None where that is not for it, as
        on a GPU where h is projected.
        """
        if self.proj_size and gpu_of(x.device) is not None:
            return None
        names = ["weight_ih", "weight_hh", *(["weight_hr"] if self.proj_size else [])]
        names += ["bias_ih", "bias_hh"] if self.bias else []
        weights = [getattr(self, f"{n}_l{layer}{way}") for n in names for way in self._ways()]
        if not serves(x, *first, *weights, cell=self.cell_name):
            return None
        steps = None if lengths is None else as_tensor(lengths.astype(np.int32)).to(x.device)
        given = x, *first, *weights
        learns = mode.enabled and any(t.requires_grad for t in given)
        # a program would do all steps again to go back
        if self.proj_size:
            return list((projected_once if learns else projected)(x, steps, *given[1:]))
        run = along_once if learns else along
        return list(run(self.cell_name, x, steps, len(first), *given[1:]))

    @property
    def cell_name(self) -> str:
        """What the cell is called as an op."""
        return sys.intern(type(self).__name__.lower())

    def _step_by_step(
        self, x: Tensor, first: list[Tensor], layer: int, lengths: np.ndarray | None
    ) -> list[Tensor]:
        """One layer in all directions, in ops of tensors."""
        mask = None
        if lengths is not None:
            mask = as_tensor((np.arange(x.shape[0])[:, None] < lengths)[..., None]).to(x.device)
        outputs, ends = [], []
        for n, way in enumerate(self._ways()):
            begin = tuple(s[n] for s in first)
            y, last = self._along(x, begin, f"_l{layer}{way}", bool(way), mask)
            outputs.append(y)
            ends.append(last)
        joined = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
        return [joined, *(stack(list(parts), axis=0) for parts in zip(*ends, strict=True))]

    def _along(
        self, x: Tensor, state: tuple[Tensor, ...], suffix: str, back: bool, mask: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One layer in one direction; the input is multiplied for all steps at once. In programs
        many steps are a loop.
        """
        w_ih, w_hh = (getattr(self, f"weight_{part}{suffix}") for part in ("ih", "hh"))
        b_ih = getattr(self, f"bias_ih{suffix}") if self.bias else None
        b_hh = getattr(self, f"bias_hh{suffix}") if self.bias else None
        w_hr = [getattr(self, f"weight_hr{suffix}")] if self.proj_size else []
        projected = F.linear(x, w_ih, b_ih)
        dtypes = {t.dtype for t in (projected, w_hh, *w_hr, *state)}
        if recording_here() and x.shape[0] >= LONG and len(dtypes) == 1:

            def step(now: tuple[Tensor, ...], given: Any) -> tuple[tuple[Tensor, ...], Tensor]:
                part, seen = given if mask is not None else (given, None)
                new = _kept(seen, self._cell(part, now, w_hh, b_hh, *w_hr), now)
                return new, new[0]

            parts = projected if mask is None else (projected, mask)
            state, y = scan(step, tuple(state), parts, reverse=back)
            return y, state
        found: list[Tensor] = []
        steps = range(x.shape[0])
        for t in reversed(steps) if back else steps:
            new = self._cell(projected[t], state, w_hh, b_hh, *w_hr)
            state = _kept(None if mask is None else mask[t], new, state)
            found.append(state[0].unsqueeze(0))
        if not found:
            return state[0].unsqueeze(0)[:0], state
        return concat(found[::-1] if back else found, axis=0), state

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        text += f", proj_size={self.proj_size}" if self.proj_size else ""
        text += f", num_layers={self.num_layers}" if self.num_layers > 1 else ""
        text += ", batch_first=True" if self.batch_first else ""
        return text + (", bidirectional=True" if self.bidirectional else "")


def _kept(
    seen: Tensor | None, new: tuple[Tensor, ...], old: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """The next states of sequences that go on, and the last ones of the others."""
    if seen is None:
        return tuple(new)
    return tuple(where(seen, a, b) for a, b in zip(new, old, strict=True))


class RNN(_Recurrent):
    """h' = tanh(W x + b + V h + c) (Elman, 1990).

    Args:
        input_size, hidden_size: widths of x and h.
        num_layers: each one takes what the one below gives.
        nonlinearity: "tanh" or "relu".
        bias: whether there are b and c.
        batch_first: inputs are (batch, length, width), else (length, batch, width).
        dropout: between layers.
        bidirectional: a second network goes from the end to the beginning.

    Attributes:
        weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0: of layer 0; `_reverse` from the end.

    Example:
        >>> import numpy as np
        >>> y, h = RNN(3, 4)(np.ones((5, 2, 3), np.float32))
        >>> y.shape, h.shape
        ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise LaunchError(f'nonlinearity is "tanh" or "relu", not {nonlinearity!r}')
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.nonlinearity = nonlinearity

    @property
    def cell_name(self) -> str:
        """See the other networks."""
        return self.nonlinearity

    def _cell(self, x: Tensor, state: tuple[Tensor, ...], *weights: Any) -> tuple[Tensor, ...]:
        return (plain(x, state[0], weights[0], weights[1], self.nonlinearity),)

    def forward(self, input: Any, hx: Any = None) -> tuple[Tensor, Tensor]:
        """(length, batch, input_size) -> the h of all steps in the last layer, and the last h of
        all layers (num_layers, batch, hidden_size).

        Args:
            input: as `batch_first` says; or (length, input_size).
            hx: the first h of all layers; zeros by default.
        """
        output, (h,) = self._run(input, None if hx is None else (hx,))
        return output, h


class GRU(_Recurrent):
    """Gated recurrent units (Cho et al., 2014); reset, update and new gate lie in this order in
    weights.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: see `RNN`.

    Example:
        >>> import numpy as np
        >>> y, h = GRU(3, 4, batch_first=True)(np.ones((2, 5, 3), np.float32))
        >>> y.shape, h.shape
        ((2, 5, 4), (1, 2, 4))
    """

    gates = 3

    def _cell(self, x: Tensor, state: tuple[Tensor, ...], *weights: Any) -> tuple[Tensor, ...]:
        return (gru(x, state[0], *weights),)

    def forward(self, input: Any, hx: Any = None) -> tuple[Tensor, Tensor]:
        """See `RNN.forward`."""
        output, (h,) = self._run(input, None if hx is None else (hx,))
        return output, h


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); input, forget, cell and output
    gate lie in this order in weights.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: see `RNN`.
        proj_size: the width of h, which a matrix makes of the cell's output after each step (Sak et
            al., 2014); 0 leaves it as it is. On a GPU such layers go step by step.

    Attributes:
        weight_hr_l0: (proj_size, hidden_size), of layer 0; the others see `RNN`.

    Raises:
        LaunchError: a projection that is not narrower than hidden_size.

    Example:
        >>> import numpy as np
        >>> y, (h, c) = LSTM(3, 4, num_layers=2, bidirectional=True)(np.ones((5, 2, 3), np.float32))
        >>> y.shape, h.shape, c.shape
        ((5, 2, 8), (4, 2, 4), (4, 2, 4))
    """

    gates, states = 4, 2

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
    ) -> None:
        self.__dict__["proj_size"] = arguments.size("proj_size", proj_size, 0)
        if proj_size and proj_size >= hidden_size:
            raise LaunchError(f"proj_size is below hidden_size ({hidden_size}), not {proj_size}")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )

    def _cell(self, x: Tensor, state: tuple[Tensor, ...], *weights: Any) -> tuple[Tensor, ...]:
        h, c = lstm(x, state[0], state[1], *weights[:2])
        return (F.linear(h, weights[2]) if self.proj_size else h), c

    def forward(self, input: Any, hx: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(length, batch, input_size) -> the h of all steps in the last layer, and the last h and c
        of all layers.

        Args:
            input: as `batch_first` says; or (length, input_size).
            hx: the first (h, c) of all layers; zeros by default.
        """
        output, (h, c) = self._run(input, None if hx is None else tuple(hx))
        return output, (h, c)
