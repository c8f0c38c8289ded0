"""A recurrence of arrays: results are made, and a routine runs."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.recurrent.codes_cpu import pack_bytes
from cubepy.kernels.recurrent.panels_cpu import pack
from cubepy.kernels.recurrent.problem import GATES, Recurrence
from cubepy.kernels.recurrent.routines import RECURRENCE
from cubepy.runtime import memory
from cubepy.runtime.device import current, device_properties


def packed(matrix: Any, cell: str) -> Any:
    """The matrices (D, G * H, H) of a cell as its steps read them on the current device."""
    properties = device_properties(current())
    if properties.plane_size > 1:
        return copy(matrix.transpose(0, 2, 1))
    return pack(matrix, GATES[cell], properties)


def packed_codes(codes: Any, cell: str) -> Any:
    """Signed codes (D, H, G * H) in the same way."""
    return pack_bytes(codes, GATES[cell], device_properties(current()))


def recurrence(
    cell: str,
    gates: Any,
    panels: Any,
    bias: Any,
    peepholes: Any,
    lengths: Any,
    first: tuple[Any, ...],
    reverse: bool,
    codes: tuple[Any, Any] | None = None,
    joint: bool = False,
) -> list[Any]:
    """The states of all steps, and the last ones; see `Recurrence`. Shapes go together."""
    directions, _, width = first[0].shape
    y = memory.empty((*gates.shape[:2], directions * width), gates.dtype)
    if not y.size:
        return [y, *[copy(s) for s in first]]
    last = tuple(memory.empty(s.shape, s.dtype) for s in first)
    bias, peepholes, lengths = (
        None if x is None else contiguous(x) for x in (bias, peepholes, lengths)
    )
    RECURRENCE.run(
        Recurrence(
            cell,
            contiguous(gates),
            panels,
            bias,
            peepholes,
            lengths,
            first,
            reverse,
            y,
            last,
            codes and (contiguous(codes[0]), contiguous(codes[1])),
            joint,
        )
    )
    return [y, *last]
