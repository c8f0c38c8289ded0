"""What a recurrence is: products of inputs, matrices of states, first states, and what is
written.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from cubepy.lang.dtypes import DType, as_dtype, f32

GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
"""Gates of a cell; of an LSTM input, forget, cell, output, of a GRU reset, update, new."""


Function = tuple[str, float, float]
"""A name of an activation, with its alpha and beta."""
USUAL = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh")}
"""Activations of a cell: of its gates, of what is new, and of what an LSTM gives; of others, the
one that they are named for.
"""


class Cell(NamedTuple):
    """A cell, however it differs from the usual one.

    Attributes:
        kind: a name of `GATES`.
        functions: its activations.
        clip: what goes into them lies between this and its negative; 0: anywhere.
        coupled: whether an LSTM forgets what it does not let in.
        before: whether a GRU weighs states before they meet the matrix.
    """

    kind: str
    functions: tuple[Function, ...]
    clip: float = 0.0
    coupled: bool = False
    before: bool = False

    @property
    def text(self) -> str:
        """The same as text; of a usual cell its kind."""
        if self == cell_of(self.kind):
            return self.kind
        functions = ",".join(f"{name}:{a!r}:{b!r}" for name, a, b in self.functions)
        return f"{self.kind} {functions} {self.clip!r} {self.coupled:d} {self.before:d}"


@cache
def cell_of(text: str) -> Cell:
    """The cell of a text.

    Example:
        >>> cell_of("relu").functions, cell_of(Cell("tanh", (("affine", 0.5, 1.0),), 3.0).text).clip
        ((('relu', 0.0, 0.0),), 3.0)
    """
    kind, *rest = text.split()
    if not rest:
        return Cell(kind, tuple([(name, 0.0, 0.0) for name in USUAL.get(kind, (kind,))]))
    functions = [one.split(":") for one in rest[0].split(",")]
    found = tuple([(name, float(a), float(b)) for name, a, b in functions])
    return Cell(kind, found, float(rest[1]), rest[2] == "1", rest[3] == "1")


class Recurrence(NamedTuple):
    """States along a sequence, in D directions.

    Attributes:
        cell: a name of `GATES`, or a text of `Cell`.
        gates: the inputs' products with their matrices, and biases, (T, B, D * G * H), direction
            after direction, gate after gate.
        panels: what the states are multiplied by, as `panels_cpu.pack` lays it out.
        bias: of the states' products, (D, G * H); or None.
        peepholes: what the cells add to the gates input, forget, output, (D, 3 * H); or None.
        lengths: how many steps each sequence has, (B,) i32; None: all.
        first: the first states (h, c), or (h,), each (D, B, H).
        reverse: whether a single direction begins at the end; the second of two does.
        y: the states of all steps, (T, B, D * H); zeros behind a sequence's end.
        last: the last states, as `first`.
        codes: of panels of codes (see `codes_cpu`) the sums of columns, i32, and the scales of the
            matrices, f32, both (D, G * H); None: they are floats.
        joint: whether all sequences are rounded to one range.
    """

    cell: str
    gates: Any
    panels: Any
    bias: Any
    peepholes: Any
    lengths: Any
    first: tuple[Any, ...]
    reverse: bool
    y: Any
    last: tuple[Any, ...]
    codes: tuple[Any, Any] | None = None
    joint: bool = False

    @property
    def acc(self) -> DType:
        """What sums are made in."""
        dtype = as_dtype(self.gates.dtype)
        return dtype if dtype.bits >= 32 else f32

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Steps, sequences, directions, width of a state."""
        directions, batch, width = self.first[0].shape
        return self.gates.shape[0], batch, directions, width


class RecurrenceBack(NamedTuple):
    """Gradients of a recurrence without peepholes, whose arrays have one float dtype.

    Attributes:
        cell, gates, bias, lengths, reverse: see `Recurrence`.
        matrix: of states, (D, G * H, H).
        cells: the first cells of an LSTM, (D, B, H); or None.
        y: the states of all steps.
        before: the states that steps begin with, (D, T, B, H).
        opened: products of these and the matrix, (D, T, B, G * H), in whose place the opened gates
            come; None of a cell without gates.
        more: room for cells, or new states, (D, T, B, H); or None.
        gradient: the gradient by `y`, or None.
        ends: those by the last h and c, or None.
        written: gradients by gates, by the sums of states' products (None where they are the same:
            but for a GRU), by the first h, and by the first c.
    """

    cell: str
    gates: Any
    matrix: Any
    bias: Any
    lengths: Any
    cells: Any
    reverse: bool
    y: Any
    before: Any
    opened: Any
    more: Any
    gradient: Any
    ends: tuple[Any, ...]
    written: tuple[Any, ...]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Steps, sequences, directions, width of a state."""
        directions, steps, batch, width = self.before.shape
        return steps, batch, directions, width
