"""Sorts and scans along an axis, and recurrences along a sequence."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.lang.dtypes import DType, f32, i8, i32, i64, u64
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import Run, Spec, axis_in, define

GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}
"""Gates of a cell; of an LSTM input, forget, cell, output, of a GRU reset, update, new."""


def _in_order(x: Spec, axis: int, op: str) -> None:
    """Raise unless x can be sorted along an axis."""
    axis_in(axis, len(x.shape), op)
    if x.dtype.storage_only:
        raise DTypeError(f"{op} works on dtypes that kernels compute with, not {x.dtype.name}")


@define("order", {"sort": lambda d, x, axis, descending: kernels().sort(x, axis, descending)})
def _sort(x: Spec, axis: int, descending: bool) -> Spec:
    _in_order(x, axis, "sort")
    return x


def _run_argsort(dtype: np.dtype, x: Any, axis: int, descending: bool) -> Any:
    return kernels().argsort(x, axis, descending)


@define("order", {"argsort": _run_argsort}, constant=True)
def _argsort(x: Spec, axis: int, descending: bool) -> Spec:
    _in_order(x, axis, "argsort")
    return Spec(x.shape, i64)


def _run_topk(dtype: np.dtype, x: Any, k: int, axis: int, largest: bool) -> Any:
    return list(kernels().topk(x, k, axis, largest))


@define("order", {"topk": _run_topk}, keeps=True)
def _topk(x: Spec, k: int, axis: int, largest: bool) -> list[Spec]:
    """Values, and their indices."""
    _in_order(x, axis, "topk")
    at = axis_in(axis, len(x.shape), "topk")
    if not 0 <= k <= x.shape[at]:
        raise ShapeError(f"topk of {k} elements of an axis of length {x.shape[at]}")
    shape = (*x.shape[:at], k, *x.shape[at + 1 :])
    return [Spec(shape, x.dtype), Spec(shape, i64)]


def _scan(name: str) -> Run:
    def run_scan(dtype: np.dtype, x: Any, axis: int, exclusive: bool) -> Any:
        return getattr(kernels(), name)(x, axis, exclusive=exclusive)

    return run_scan


@define("order", {"cumsum": _scan("cumsum"), "cumprod": _scan("cumprod")})
def _scans(x: Spec, axis: int, exclusive: bool) -> Spec:
    """`exclusive`: an element is the sum of those before it, without itself."""
    axis_in(axis, len(x.shape), "cumsum and cumprod")
    return Spec(x.shape, _sum_of(x.dtype))


def _running(largest: bool) -> Run:
    def run_running(dtype: np.dtype, x: Any, axis: int) -> Any:
        return list(_scan_kernels().running(x, axis % x.ndim, largest))

    return run_running


@define("order", {"cummax": _running(True), "cummin": _running(False)}, keeps=True)
def _running_extremes(x: Spec, axis: int) -> list[Spec]:
    """Values, and the indices of the last ones that are equal to them."""
    _in_order(x, axis, "cummax and cummin")
    return [Spec(x.shape, x.dtype), Spec(x.shape, i64)]


def _sum_of(dtype: DType) -> DType:
    found = dtype.compute
    return found if found.is_float else (u64 if found.kind == "u" else i64)


@cache
def _scan_kernels() -> Any:
    return importlib.import_module("cubepy.kernels.scan.scan")


@cache
def _kernel() -> Any:
    return importlib.import_module("cubepy.kernels.recurrent.recurrence")


def _run(dtype: np.dtype, gates: Any, matrix: Any, *rest: Any, **attrs: Any) -> Any:
    return run_packed(dtype, gates, _kernel().packed(matrix, attrs["cell"]), *rest, **attrs)


def run_packed(
    dtype: np.dtype,
    gates: Any,
    panels: Any,
    bias: Any,
    peepholes: Any,
    lengths: Any,
    h: Any,
    c: Any,
    cell: str,
    reverse: bool,
) -> list[Any]:
    """What a recurrence gives whose matrices are laid out as its steps read them."""
    first = (h,) if c is None else (h, c)
    made: list[Any] = _kernel().recurrence(
        cell, gates, panels, bias, peepholes, lengths, first, reverse
    )
    return made


@define("product", {"recurrence": _run}, keeps=True)
def recurrence(
    gates: Spec,
    matrix: Spec,
    bias: Spec | None,
    peepholes: Spec | None,
    lengths: Spec | None,
    h: Spec,
    c: Spec | None,
    cell: str,
    reverse: bool,
) -> list[Spec]:
    """The states (T, B, D * H) of all steps, and the last h, and c of an LSTM, (D, B, H).

    gates (T, B, D * G * H): products of inputs, and biases. matrix (D, G * H, H) and bias
    (D, G * H): of states. peepholes (D, 3 * H): of an LSTM's gates input, forget, output. lengths
    (B,). h, c: the first states.
    """
    kind = cell.partition(" ")[0]
    if kind not in GATES:
        raise ShapeError(f"there is no cell {cell!r}", hint=f"one of {', '.join(GATES)}")
    if len(h.shape) != 3 or h.shape[0] not in (1, 2) or not h.shape[2]:
        raise ShapeError(f"states are (directions, batch, width), with 1 or 2 first, not {h.shape}")
    directions, batch, width = h.shape
    rows = GATES[kind] * width
    if len(gates.shape) != 3 or gates.shape[1:] != (batch, directions * rows):
        raise ShapeError(
            f"{cell}: states {h.shape} need gates (length, {batch}, {directions * rows}), not "
            f"{gates.shape}"
        )
    is_lstm = kind == "lstm"
    wanted = {
        "matrix": (matrix, (directions, rows, width)),
        "bias": (bias, (directions, rows)),
        "peepholes": (peepholes, (directions, 3 * width) if is_lstm else None),
        "lengths": (lengths, (batch,)),
        "c": (c, h.shape if is_lstm else None),
    }
    for name, (spec, shape) in wanted.items():
        if spec is not None and spec.shape != shape:
            raise ShapeError(f"{cell}: {name} of shape {shape} expected, not {spec.shape}")
    if is_lstm and c is None:
        raise ShapeError("an lstm has two first states, h and c")
    for spec in (gates, matrix, bias, peepholes, h, c):
        if spec is not None and (spec.dtype is not gates.dtype or not spec.dtype.is_float):
            raise DTypeError(
                f"{cell}: floats of one dtype expected, not {gates.dtype.name} and "
                f"{spec.dtype.name}"
            )
    if lengths is not None and not lengths.dtype.is_int:
        raise DTypeError(f"{cell}: lengths are integers, not {lengths.dtype.name}")
    last = Spec(h.shape, h.dtype)
    y = Spec((*gates.shape[:2], directions * width), gates.dtype)
    return [y, last] if c is None else [y, last, last]


def _run_projected(
    dtype: np.dtype, gates: Any, matrix: Any, projection: Any, *rest: Any, **attrs: Any
) -> Any:
    panels, narrow = _kernel().packed(matrix, "lstm"), _kernel().packed_narrow(projection)
    return run_projected(dtype, gates, panels, narrow, *rest, **attrs)


def run_projected(
    dtype: np.dtype,
    gates: Any,
    panels: Any,
    narrow: Any,
    lengths: Any,
    h: Any,
    c: Any,
    reverse: bool,
) -> list[Any]:
    """What an LSTM gives that projects its states, whose matrices are laid out as steps read
    them.
    """
    made: list[Any] = _kernel().projected_recurrence(
        gates, panels, narrow, lengths, (h, c), reverse
    )
    return made


@define("product", {"projected_recurrence": _run_projected}, keeps=True)
def projected_recurrence(
    gates: Spec,
    matrix: Spec,
    projection: Spec,
    lengths: Spec | None,
    h: Spec,
    c: Spec,
    reverse: bool,
) -> list[Spec]:
    """An LSTM on a CPU whose states are its cells' output times `projection` (D, P, H): the states
    (T, B, D * P) of all steps, the last ones, the last cells, and what cells gave (T, B, D * H).

    gates (T, B, D * 4 * H): products of inputs, and biases. matrix (D, 4 * H, P): of states. h
    (D, B, P), c (D, B, H): the first states and cells. lengths (B,).
    """
    if len(c.shape) != 3 or c.shape[0] not in (1, 2) or not c.shape[2]:
        raise ShapeError(f"cells are (directions, batch, width), with 1 or 2 first, not {c.shape}")
    directions, batch, width = c.shape
    narrow = projection.shape[1] if len(projection.shape) == 3 else 0
    wanted = {
        "gates": (gates, (*gates.shape[:1], batch, directions * 4 * width)),
        "matrix": (matrix, (directions, 4 * width, narrow)),
        "projection": (projection, (directions, max(narrow, 1), width)),
        "lengths": (lengths, (batch,)),
        "h": (h, (directions, batch, narrow)),
    }
    for name, (spec, shape) in wanted.items():
        if spec is not None and spec.shape != shape:
            raise ShapeError(f"lstm: {name} of shape {shape} expected, not {spec.shape}")
        if spec is not None and name != "lengths" and spec.dtype is not c.dtype:
            raise DTypeError(f"lstm: {name} is {spec.dtype.name}, but cells are {c.dtype.name}")
    if not c.dtype.is_float or lengths is not None and not lengths.dtype.is_int:
        raise DTypeError("lstm: floats are expected, and lengths that are integers")
    steps = gates.shape[0]
    y = Spec((steps, batch, directions * narrow), c.dtype)
    return [y, h, c, Spec((steps, batch, directions * width), c.dtype)]


def _run_projected_back(
    dtype: np.dtype,
    gates: Any,
    matrix: Any,
    projection: Any,
    lengths: Any,
    h: Any,
    c: Any,
    y: Any,
    by_y: Any,
    by_h: Any,
    by_c: Any,
    reverse: bool,
) -> list[Any]:
    by = by_y, by_h, by_c
    made: list[Any] = _kernel().projected_back(
        gates, matrix, projection, lengths, (h, c), y, by, reverse
    )
    return made


@define("product", {"projected_recurrence_back": _run_projected_back}, constant=True)
def _projected_recurrence_back(
    gates: Spec,
    matrix: Spec,
    projection: Spec,
    lengths: Spec | None,
    h: Spec,
    c: Spec,
    y: Spec,
    by_y: Spec | None,
    by_h: Spec | None,
    by_c: Spec | None,
    reverse: bool,
) -> list[Spec]:
    """Gradients of "projected_recurrence" by gates, the first h, and c; the states that steps begin
    with (D, T, B, P); and the gradients by all states with what comes from later steps (T, B,
    D * P). y, by_y, by_h, by_c: its results, and gradients by these.
    """
    wanted = projected_recurrence(gates, matrix, projection, lengths, h, c, reverse)
    for given, like in zip((y, by_y, by_h, by_c), (wanted[0], *wanted[:3]), strict=True):
        if given is not None and given != like:
            raise ShapeError("lstm: gradients have the shapes and dtypes of what they are by")
    before = Spec((h.shape[0], gates.shape[0], *h.shape[1:]), y.dtype)
    return [gates, h, c, before, y]


def _run_back(
    dtype: np.dtype,
    gates: Any,
    matrix: Any,
    bias: Any,
    lengths: Any,
    h: Any,
    c: Any,
    y: Any,
    by_y: Any,
    by_h: Any,
    by_c: Any,
    cell: str,
    reverse: bool,
) -> list[Any]:
    states = 1 if c is None else 2
    first, ends = (h, c)[:states], (by_h, by_c)[:states]
    made: list[Any] = _kernel().recurrence_back(
        cell, gates, matrix, bias, lengths, first, y, (by_y, *ends), reverse
    )
    return made


@define("product", {"recurrence_back": _run_back}, constant=True)
def _recurrence_back(
    gates: Spec,
    matrix: Spec,
    bias: Spec | None,
    lengths: Spec | None,
    h: Spec,
    c: Spec | None,
    y: Spec,
    by_y: Spec | None,
    by_h: Spec | None,
    by_c: Spec | None,
    cell: str,
    reverse: bool,
) -> list[Spec]:
    """Gradients of "recurrence" by gates, the first h, and c; the states that steps begin with
    (D, T, B, H); and of a GRU the gradient by the states' products. y, by_y, by_h, by_c: its
    results, and gradients by these.
    """
    recurrence(gates, matrix, bias, None, lengths, h, c, cell, reverse)
    for given, like in ((y, y), (by_y, y), (by_h, h), (by_c, c)):
        if given is not None and given != like:
            raise ShapeError(f"{cell}: gradients have the shapes and dtypes of what they are by")
    before = Spec((h.shape[0], gates.shape[0], *h.shape[1:]), y.dtype)
    return [
        gates,
        *(s for s in (h, c) if s is not None),
        before,
        *([gates] if cell == "gru" else []),
    ]


def _run_codes(dtype: np.dtype, gates: Any, codes: Any, *rest: Any, **attrs: Any) -> Any:
    return run_packed_codes(dtype, gates, _kernel().packed_codes(codes, "lstm"), *rest, **attrs)


def run_packed_codes(
    dtype: np.dtype,
    gates: Any,
    panels: Any,
    sums: Any,
    scales: Any,
    peepholes: Any,
    lengths: Any,
    h: Any,
    c: Any,
    reverse: bool,
    joint: bool,
) -> list[Any]:
    """What an LSTM gives whose codes are laid out as its steps read them."""
    made: list[Any] = _kernel().recurrence(
        "lstm", gates, panels, None, peepholes, lengths, (h, c), reverse, (sums, scales), joint
    )
    return made


@define("product", {"recurrence_of_codes": _run_codes}, constant=True)
def recurrence_of_codes(
    gates: Spec,
    codes: Spec,
    sums: Spec,
    scales: Spec,
    peepholes: Spec | None,
    lengths: Spec | None,
    h: Spec,
    c: Spec,
    reverse: bool,
    joint: bool,
) -> list[Spec]:
    """An LSTM whose matrix of states is signed codes (D, H, 4 * H) times scales (D, 4 * H).

    sums (D, 4 * H): of the columns of codes. Each step rounds the states of each sequence, or of
    all jointly, to codes of their range.
    """
    if gates.dtype is not f32 or codes.dtype is not i8 or sums.dtype is not i32:
        raise DTypeError(
            f"lstm of codes: gates f32, codes i8 and sums i32 expected, not {gates.dtype.name}, "
            f"{codes.dtype.name} and {sums.dtype.name}"
        )
    if len(codes.shape) != 3:
        raise ShapeError(f"lstm: codes (directions, width, gates) expected, not {codes.shape}")
    directions, width, rows = codes.shape
    matrix = Spec((directions, rows, width), f32)
    for name, spec in (("sums", sums), ("scales", scales)):
        if spec.shape != (directions, rows):
            raise ShapeError(f"lstm: {name} of shape {(directions, rows)} expected")
    return recurrence(gates, matrix, scales, peepholes, lengths, h, c, "lstm", reverse)
