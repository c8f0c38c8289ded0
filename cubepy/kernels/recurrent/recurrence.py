"""A recurrence of arrays: results are made, and a routine runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous, convert_into, copy
from cubepy.kernels.recurrent.back_cpu import put_before
from cubepy.kernels.recurrent.clusters_back_gpu import OPENERS, states_before, sums_of
from cubepy.kernels.recurrent.codes_cpu import pack_bytes
from cubepy.kernels.recurrent.panels_cpu import pack, panel_of
from cubepy.kernels.recurrent.problem import GATES, Recurrence, RecurrenceBack, cell_of
from cubepy.kernels.recurrent.projected.back_cpu import ProjectedBack
from cubepy.kernels.recurrent.projected.steps_cpu import ProjectedRecurrence
from cubepy.kernels.recurrent.routines import (
    PROJECTED_BACK,
    PROJECTED_RECURRENCE,
    RECURRENCE,
    RECURRENCE_BACK,
)
from cubepy.runtime import memory
from cubepy.runtime.device import current, device_properties


def packed(matrix: Any, cell: str) -> Any:
    """The matrices (D, G * H, H) of a cell as its steps read them on the current device."""
    properties = device_properties(current())
    if properties.plane_size > 1:
        return copy(matrix.transpose(0, 2, 1))
    return pack(matrix, GATES[cell_of(cell).kind], properties)


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


def packed_narrow(matrix: Any) -> Any:
    """The matrices (D, P, H) of an LSTM's projection as its steps read them on a CPU."""
    return pack(matrix, 1, device_properties(current()), projects=True)


def projected_recurrence(
    gates: Any, panels: Any, narrow: Any, lengths: Any, first: tuple[Any, Any], reverse: bool
) -> list[Any]:
    """The states of all steps, the last ones and cells, and what cells gave; see
    `ProjectedRecurrence`. Shapes go together.
    """
    (directions, _, inner), width = first[0].shape, first[1].shape[2]
    y = memory.empty((*gates.shape[:2], directions * inner), gates.dtype)
    made = memory.empty((*gates.shape[:2], directions * width), gates.dtype)
    if not y.size:
        return [y, *[copy(s) for s in first], made]
    last = memory.empty(first[0].shape, gates.dtype), memory.empty(first[1].shape, gates.dtype)
    lengths = None if lengths is None else contiguous(lengths)
    PROJECTED_RECURRENCE.run(
        ProjectedRecurrence(
            contiguous(gates), panels, narrow, lengths, first, reverse, y, last, made
        )
    )
    return [y, *last, made]


def recurrence_back(
    cell: str,
    gates: Any,
    matrix: Any,
    bias: Any,
    lengths: Any,
    first: tuple[Any, ...],
    y: Any,
    gradients: tuple[Any, ...],
    reverse: bool,
) -> list[Any]:
    """Gradients of a recurrence without peepholes, of floats of one dtype; on a CPU of 32 bits or
    64.

    Args:
        cell, gates, bias, lengths, first, reverse: see `Recurrence`.
        matrix: of states, (D, G * H, H).
        y: the states of all steps.
        gradients: by `y`, and by the last states; None for those that there are not.

    Returns:
        The gradients by gates, by the first h, and c of an LSTM; the states that steps begin with
        (D, T, B, H); and of a GRU the gradient by the states' products (T, B, D * G * H).
    """
    directions, batch, width = first[0].shape
    steps, rows = gates.shape[0], matrix.shape[1]
    by_gates = memory.empty(gates.shape, gates.dtype)
    by_first = [memory.empty(s.shape, s.dtype) for s in first]
    before = memory.empty((directions, steps, batch, width), y.dtype)
    by_sums = memory.empty(gates.shape, gates.dtype) if cell == "gru" else None
    more = [] if by_sums is None else [by_sums]
    if not y.size:
        for made, end in zip(by_first, gradients[1:], strict=True):
            convert_into(made, np.zeros(made.shape, made.dtype) if end is None else end)
        return [by_gates, *by_first, before, *more]
    gates, matrix, y = contiguous(gates), contiguous(matrix), contiguous(y)
    first = tuple(map(contiguous, first))
    bias, lengths, by_y, *ends = (
        None if a is None else contiguous(a) for a in (bias, lengths, *gradients)
    )
    properties = device_properties(current())
    if properties.plane_size > 1:
        states_before[-(-before.size // OPENERS), OPENERS](
            y, first[0], lengths, before, reverse, mode="unchecked"
        )
    else:
        _, lanes = panel_of(1, 8 * y.itemsize, properties)
        put_before[directions * steps, 1](
            y, first[0], lengths, before, reverse, lanes, mode="unchecked"
        )
    opened, room, acc = None, None, sums_of(y.dtype)
    if GATES[cell] > 1:
        opened = matmul(
            before.reshape(directions, steps * batch, width), matrix.transpose(0, 2, 1), dtype=acc
        ).reshape(directions, steps, batch, rows)
        room = memory.empty(before.shape, acc.numpy)
    cells = first[1] if len(first) > 1 else None
    RECURRENCE_BACK.run(
        RecurrenceBack(
            cell,
            gates,
            matrix,
            bias,
            lengths,
            cells,
            reverse,
            y,
            before,
            opened,
            room,
            by_y,
            (*ends, None)[:2],
            (by_gates, by_sums, *by_first),
        )
    )
    return [by_gates, *by_first, before, *more]


def projected_back(
    gates: Any,
    matrix: Any,
    projection: Any,
    lengths: Any,
    first: tuple[Any, Any],
    y: Any,
    gradients: tuple[Any, Any, Any],
    reverse: bool,
) -> list[Any]:
    """Gradients of `projected_recurrence`, of f32 or f64.

    Args:
        gates, lengths, first, reverse: see `ProjectedRecurrence`.
        matrix, projection: (D, 4 * H, P), (D, P, H).
        y: the states of all steps.
        gradients: by `y`, and by the last states and cells; None for those that there are not.

    Returns:
        The gradients by gates, the first states and cells; the states that steps begin with
        (D, T, B, P); and the gradients by all states, with what comes from later steps.
    """
    (directions, batch, narrow), width = first[0].shape, first[1].shape[2]
    steps = gates.shape[0]
    by_gates, by_states = memory.empty(gates.shape, y.dtype), memory.empty(y.shape, y.dtype)
    by_first = [memory.empty(s.shape, s.dtype) for s in first]
    before = memory.empty((directions, steps, batch, narrow), y.dtype)
    if not y.size:
        for made, end in zip(by_first, gradients[1:], strict=True):
            convert_into(made, np.zeros(made.shape, made.dtype) if end is None else end)
        return [by_gates, *by_first, before, by_states]
    gates, matrix, projection, y, h, c = map(contiguous, (gates, matrix, projection, y, *first))
    lengths, by_y, *ends = (None if a is None else contiguous(a) for a in (lengths, *gradients))
    _, lanes = panel_of(1, 8 * y.itemsize, device_properties(current()))
    put_before[directions * steps, 1](y, h, lengths, before, reverse, lanes, mode="unchecked")
    flat = before.reshape(directions, steps * batch, narrow)
    opened = matmul(flat, matrix.transpose(0, 2, 1)).reshape(directions, steps, batch, 4 * width)
    room = memory.empty((directions, steps, batch, width), y.dtype)
    PROJECTED_BACK.run(
        ProjectedBack(
            gates,
            matrix,
            projection,
            lengths,
            c,
            reverse,
            opened,
            room,
            by_y,
            (ends[0], ends[1]),
            (by_gates, by_states, *by_first),
        )
    )
    return [by_gates, *by_first, before, by_states]
