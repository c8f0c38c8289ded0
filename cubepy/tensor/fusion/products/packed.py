"""Weights that stay, laid out as products read them: in panels, by an op that programs do once."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import f32, i8, i32, u8
from cubepy.runtime.device import DeviceProperties
from cubepy.tensor.fusion.products.epilogues import LAYERS
from cubepy.tensor.fusion.products.flattened import flatten_convolutions
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.fusion.steady import steady
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import define
from cubepy.tensor.ops.order import (
    GATES,
    projected_recurrence,
    recurrence,
    recurrence_of_codes,
    run_packed,
    run_packed_codes,
    run_projected,
)

ROWS = {"matmul": 5}
FEW = 8
"""Rows of a product from which on panels pay: with fewer, a matrix is read once as it stands. One
whose rows lie along its columns is packed on the way from five rows on, which takes twice the time.
"""


@cache
def _kernel(name: str) -> Any:
    """A module of the kernel library."""
    return importlib.import_module(f"cubepy.kernels.{name}")


def _run_matrix(dtype: Any, weight: Any, width: int) -> Any:
    return kernels().prepack(weight.T).panels


@define("product", {"packed_matrix": _run_matrix})
def _packed_matrix(weight: Spec, width: int) -> Spec:
    """The panels of a linear layer's weight (out, in): (1, panels, in, width)."""
    columns, depth = weight.shape
    return Spec((1, -(-columns // width), depth, width), f32)


def _run_linear(
    dtype: Any,
    x: Any,
    weight: Any,
    bias: Any,
    residual: Any,
    columns: int | None,
    activation: Any,
    joined: str = "residual",
) -> Any:
    if columns is None:
        b = weight.T
    else:
        b = _kernel("matmul.prepack").Packed(weight, (weight.shape[2], columns), f32)
    return kernels().matmul(x, b, bias=bias, activation=activation, **{joined: residual})


@define("product", {"fused_linear": _run_linear})
def _fused_linear(
    x: Spec,
    weight: Spec,
    bias: Spec | None,
    residual: Spec | None,
    columns: int | None,
    activation: str | None,
    joined: str = "residual",
) -> Spec:
    """What "linear" gives for a weight in panels, of which so many columns are there (None: for
    the weight itself), and with the residual `joined` otherwise, as products of the library do.
    """
    if columns is None:
        return Spec((*x.shape[:-1], weight.shape[0]), x.dtype)
    if x.shape[-1] != weight.shape[2] or not 0 <= weight.shape[1] * weight.shape[3] - columns:
        raise ShapeError(f"linear of {x.shape} and panels {weight.shape} of {columns} columns")
    return Spec((*x.shape[:-1], columns), f32)


def _run_words(dtype: Any, codes: Any, signed: bool, width: int) -> Any:
    return _kernel("matmul.cpu.codes").pack_codes(codes, signed, width)


@define("product", {"packed_words": _run_words}, constant=True)
def _packed_words(codes: Spec, signed: bool, width: int) -> Spec:
    """Signed codes (K, N) as products read them: (1, panels, ceil(K / 4), 4 * width)."""
    depth, columns = codes.shape
    shape = (1, -(-columns // width), -(-depth // 4), 4 * width)
    return Spec(shape, u8 if signed else i8)


def _run_packed_codes(dtype: Any, a: Any, panels: Any, columns: int) -> Any:
    return _kernel("matmul.cpu.codes").multiply(a, panels, columns)


@define("product", {"packed_matmul_codes": _run_packed_codes}, constant=True)
def _packed_matmul_codes(a: Spec, panels: Spec, columns: int) -> Spec:
    """What "matmul_codes" gives for codes in panels, of which so many columns are there."""
    if -(-a.shape[-1] // 4) != panels.shape[2]:
        raise ShapeError(f"codes {a.shape} and panels {panels.shape} are no product")
    return Spec((*a.shape[:-1], columns), i32)


def _run_panels(dtype: Any, matrix: Any, cell: str, shape: tuple[int, ...]) -> Any:
    return _kernel("recurrent.recurrence").packed(matrix, cell)


@define("product", {"packed_states": _run_panels})
def _packed_states(matrix: Spec, cell: str, shape: tuple[int, ...]) -> Spec:
    """The matrices (D, G * H, H) of a recurrence as its steps read them."""
    return Spec(tuple(shape), matrix.dtype)


def _run_codes(dtype: Any, codes: Any, cell: str, shape: tuple[int, ...]) -> Any:
    return _kernel("recurrent.recurrence").packed_codes(codes, cell)


define("product", {"packed_codes": _run_codes}, constant=True)(_packed_states)


@define("product", {"packed_recurrence_of_codes": run_packed_codes}, constant=True)
def _packed_recurrence_of_codes(
    gates: Spec, panels: Spec, sums: Spec, scales: Spec, *rest: Spec | None, **attrs: bool
) -> list[Spec]:
    """What "recurrence_of_codes" gives for codes in panels."""
    h = rest[2]
    if h is None or panels.shape[0] != h.shape[0]:
        raise ShapeError(f"panels {panels.shape} do not go with states {h and h.shape}")
    codes = Spec((h.shape[0], h.shape[2], 4 * h.shape[2]), panels.dtype)
    return recurrence_of_codes(gates, codes, sums, scales, *rest, **attrs)


@define("product", {"packed_recurrence": run_packed})
def _packed_recurrence(
    gates: Spec, panels: Spec, *rest: Spec | None, cell: str, reverse: bool
) -> list[Spec]:
    """What "recurrence" gives for matrices in panels."""
    h = rest[3]
    if h is None or panels.shape[0] != h.shape[0] or panels.shape[2] != h.shape[2]:
        raise ShapeError(f"panels {panels.shape} do not go with states {h and h.shape}")
    matrix = Spec(
        (h.shape[0], GATES[cell.partition(" ")[0]] * h.shape[2], h.shape[2]), panels.dtype
    )
    return recurrence(gates, matrix, *rest, cell=cell, reverse=reverse)


def _run_narrow(dtype: Any, matrix: Any, cell: str, shape: tuple[int, ...]) -> Any:
    return _kernel("recurrent.recurrence").packed_narrow(matrix)


define("product", {"packed_projection": _run_narrow})(_packed_states)


@define("product", {"packed_projected_recurrence": run_projected})
def _packed_projected_recurrence(
    gates: Spec, panels: Spec, narrow: Spec, lengths: Spec | None, h: Spec, c: Spec, reverse: bool
) -> list[Spec]:
    """What "projected_recurrence" gives for matrices in panels."""
    directions, _, inner = h.shape
    width = c.shape[2]
    if panels.shape[::2] != (directions, inner) or narrow.shape[::2] != (directions, width):
        raise ShapeError(f"panels {panels.shape} and {narrow.shape} do not go with these states")
    matrix = Spec((directions, 4 * width, inner), panels.dtype)
    projection = Spec((directions, inner, width), narrow.dtype)
    return projected_recurrence(gates, matrix, projection, lengths, h, c, reverse)


def _run_filters(dtype: Any, weight: Any, groups: int, width: int) -> Any:
    return kernels().prepack_filter(weight, groups).panels


@define("product", {"packed_filters": _run_filters})
def _packed_filters(weight: Spec, groups: int, width: int) -> Spec:
    """Filters (filters, channels, *window) as convolutions take them; `width` is 0 for groups with
    few.
    """
    filters, channels = weight.shape[0] // groups, weight.shape[1]
    taps = math.prod(weight.shape[2:])
    if not width:
        return Spec((groups, filters, channels, taps), f32)
    return Spec((groups, -(-filters // width), taps * channels, width), f32)


def packed_filter(panels: Any, shape: tuple[int, ...], groups: int) -> Any:
    """Filters of such a shape in panels, as convolutions of the library take them."""
    return _kernel("convolution.cpu.filters").PackedFilter(panels, shape, groups)


def pack_weights(
    schedule: Schedule, given: Iterable[int], properties: DeviceProperties
) -> Schedule:
    """The schedule where linear layers and convolutions whose weights stay have them in panels.

    Args:
        schedule: the steps.
        given: the inputs that stay.
        properties: of the device that they are laid out for.
    """
    schedule = flatten_convolutions(schedule, steady(schedule, given))
    values, specs = steady(schedule, given), dict(schedule.specs)
    steps: list[Step] = []
    packed: dict[Any, int] = {}

    def panels(op: str, weight: int, attrs: dict[str, Any], rule: Any) -> int:
        key = op, weight, *attrs.values()
        if key not in packed:
            packed[key] = max(specs) + 1
            specs[packed[key]] = rule(specs[weight], **attrs)
            steps.append(Step(op, (weight,), attrs, (packed[key],)))
        return packed[key]

    def turned(matrix: int) -> int:
        if ("permute", matrix) not in packed:
            packed["permute", matrix] = weight = max(specs) + 1
            specs[weight] = Spec(specs[matrix].shape[::-1], f32)
            steps.append(Step("permute", (matrix,), {"axes": (1, 0)}, (weight,)))
        return packed["permute", matrix]

    for step in schedule.steps:
        if step.op in (*LAYERS, "matmul") and _is_matrix(step, schedule, values):
            weight, rest, attrs = step.inputs[1], step.inputs[2:], step.attrs
            if step.op == "matmul":
                weight, rest, attrs = turned(weight), (ABSENT, ABSENT), {"activation": None}
            _, lines, lanes = _kernel("matmul.cpu.blocking").tile_of(properties)
            made = panels("packed_matrix", weight, {"width": lines * lanes}, _packed_matrix)
            attrs = {**attrs, "columns": specs[step.results[0]].shape[-1]}
            step = Step("fused_linear", (step.inputs[0], made, *rest), attrs, step.results)
        elif step.op in ("conv", "fused_conv") and _are_filters(step, schedule, values):
            how, activation, rest = _parts(step)
            groups, filters = how[3], specs[step.inputs[1]].shape
            few = _kernel("convolution.cpu.filters").has_few(filters[0], groups)
            tile_for = _kernel("convolution.cpu.register_tile").tile_for
            _, lines, lanes = tile_for(filters[0] // groups, properties)
            attrs = {"groups": groups, "width": 0 if few else lines * lanes}
            made = panels("packed_filters", step.inputs[1], attrs, _packed_filters)
            attrs = {"how": how, "filters": filters, "activation": activation}
            step = Step("fused_conv", (step.inputs[0], made, *rest), attrs, step.results)
        elif step.op == "matmul_codes" and _are_codes(step, values, properties):
            codes, columns = specs[step.inputs[0]], specs[step.inputs[1]].shape[1]
            width = _kernel("matmul.cpu.codes").width_of(properties)
            attrs = {"signed": codes.dtype is i8, "width": width}
            made = panels("packed_words", step.inputs[1], attrs, _packed_words)
            given, attrs = (step.inputs[0], made), {"columns": columns}
            step = Step("packed_matmul_codes", given, attrs, step.results)
        elif step.op == "recurrence" and step.inputs[1] in values:
            matrix, cell = specs[step.inputs[1]], step.attrs["cell"].partition(" ")[0]
            shape = _kernel("recurrent.panels_cpu").shape_of(
                matrix.shape, GATES[cell], matrix.dtype.bits, properties
            )
            attrs = {"cell": cell, "shape": shape}
            made = panels("packed_states", step.inputs[1], attrs, _packed_states)
            given = (step.inputs[0], made, *step.inputs[2:])
            step = Step("packed_recurrence", given, step.attrs, step.results)
        elif step.op == "projected_recurrence" and {*step.inputs[1:3]} <= values:
            shape_of = _kernel("recurrent.panels_cpu").shape_of
            matrices: list[int] = []
            for at, op, gates in ((1, "packed_states", 4), (2, "packed_projection", 1)):
                spec = specs[step.inputs[at]]
                shape = shape_of(spec.shape, gates, spec.dtype.bits, properties, gates == 1)
                attrs = {"cell": "lstm", "shape": shape}
                matrices.append(panels(op, step.inputs[at], attrs, _packed_states))
            given = (step.inputs[0], *matrices, *step.inputs[3:])
            step = Step("packed_projected_recurrence", given, step.attrs, step.results)
        elif step.op == "recurrence_of_codes" and step.inputs[1] in values:
            shape = _kernel("recurrent.codes_cpu").shape_of_codes(
                specs[step.inputs[1]].shape, GATES["lstm"], properties
            )
            attrs = {"cell": "lstm", "shape": shape}
            made = panels("packed_codes", step.inputs[1], attrs, _packed_states)
            given = (step.inputs[0], made, *step.inputs[2:])
            step = Step("packed_recurrence_of_codes", given, step.attrs, step.results)
        steps.append(step)
    return replace(schedule, steps=tuple(steps), specs=specs)


def _is_matrix(step: Step, schedule: Schedule, values: set[int]) -> bool:
    """Whether a product is one of f32 with a matrix that stays, and enough rows."""
    specs = schedule.specs
    x, weight = specs[step.inputs[0]], specs[step.inputs[1]]
    same = all(specs[i].dtype is f32 for i in step.read) and len(x.shape) > 1
    enough = math.prod(x.shape[:-1]) >= ROWS.get(step.op, FEW)
    full = len(weight.shape) == 2 and 0 not in weight.shape
    return same and full and enough and step.inputs[1] in values and step.inputs[0] not in values


def _are_codes(step: Step, values: set[int], properties: DeviceProperties) -> bool:
    """Whether a product is one with codes that stay, by instructions for it."""
    stays = step.inputs[1] in values and step.inputs[0] not in values
    return stays and properties.adds_bytes


def _are_filters(step: Step, schedule: Schedule, values: set[int]) -> bool:
    """Whether a convolution is one of f32 with filters that stay."""
    same = all(schedule.specs[i].dtype is f32 for i in step.read)
    return same and step.inputs[1] in values and step.inputs[0] not in values


def _parts(step: Step) -> tuple[Any, Any, tuple[int, ...]]:
    """Of a convolution: stride, padding, dilation and groups; activation; bias and residual."""
    a = step.attrs
    if step.op == "fused_conv":
        return a["how"], a["activation"], step.inputs[2:]
    how = a["stride"], a["padding"], a["dilation"], a["groups"]
    return how, None, (step.inputs[2], ABSENT)
