"""Padding: a constant, the edge repeated, or what lies behind the edge mirrored."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.elementwise.map_cpu import following
from cubepy.kernels.entry.arguments import array_of, number_of, wholes
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement import pad_gpu
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.movement.pad_gpu import Pad, source_of
from cubepy.kernels.primitives.vector_width import lanes_on
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, Op

MODES = ("constant", "reflect", "replicate")
CHUNK = 8192  # elements of the rows of a cube
CUBES = 32  # at least, so that threads finish together


@cb.func
def copy_run(x, indices, at, out, lead, to, count, lanes: cb.Comptime[int]):
    """`count` neighbours of a row of x to a row of out; the last line overlaps the one before."""
    if count >= lanes:
        for k in range(0, count - lanes, lanes):
            out.store(lead + (to + k,), x.load(indices + (at + k,), lanes))
        out.store(lead + (to + count - lanes,), x.load(indices + (at + count - lanes,), lanes))
    else:
        for k in range(count):
            out[lead + (to + k,)] = x[indices + (at + k,)]


@cb.func
def fill_run(out, lead, to, count, fill, lanes: cb.Comptime[int]):
    """The same number in `count` neighbours of a row."""
    if count >= lanes:
        line = cb.splat(fill, lanes)
        for k in range(0, count - lanes, lanes):
            out.store(lead + (to + k,), line)
        out.store(lead + (to + count - lanes,), line)
    else:
        for k in range(count):
            out[lead + (to + k,)] = fill


@cb.kernel
def pad_rows(
    x: cb.Array,
    out: cb.Array,
    before,
    unit,
    rows,
    value,
    how: cb.Comptime[str],
    lanes: cb.Comptime[int],
):
    """`rows` rows of out for a cube, each a copy of a row of x between what is added at its ends.

    A position of the last axis is `unit` neighbours, which stay together; `before` counts
    positions.
    """
    last = out.ndim - 1
    n, total = x.shape[last] // unit, out.shape[last] // unit
    begin = cb.min(cb.max(before[last], 0), total)
    end = cb.min(cb.max(before[last] + n, begin), total)
    fill = cb.cast(value, out.dtype)
    row = cb.CUBE_POS * rows
    lead = cb.unravel(row, out.shape[:last]) if last > 0 else ()
    for _ in range(cb.min(rows, out.size // out.shape[last] - row)):
        inside = True
        indices = ()
        for d in cb.unroll(range(last)):
            from_x = source_of(lead[d] - before[d], x.shape[d], how)
            inside = inside and from_x >= 0
            indices = indices + (cb.max(from_x, 0),)
        if inside:
            copy_run(
                x,
                indices,
                (begin - before[last]) * unit,
                out,
                lead,
                begin * unit,
                (end - begin) * unit,
                lanes,
            )
            if how == "constant":
                fill_run(out, lead, 0, begin * unit, fill, lanes)
                fill_run(out, lead, end * unit, (total - end) * unit, fill, lanes)
            else:
                for q in range(begin):
                    copy_run(
                        x,
                        indices,
                        source_of(q - before[last], n, how) * unit,
                        out,
                        lead,
                        q * unit,
                        unit,
                        lanes,
                    )
                for q in range(end, total):
                    copy_run(
                        x,
                        indices,
                        source_of(q - before[last], n, how) * unit,
                        out,
                        lead,
                        q * unit,
                        unit,
                        lanes,
                    )
        else:
            fill_run(out, lead, 0, total * unit, fill, lanes)
        lead = following(lead, out.shape)


@repeated
def pad(input: Any, pad: Any, mode: str = "constant", value: float = 0, *, out: Any = None) -> Any:
    """Elements added at the ends of axes, as `torch.nn.functional.pad`.

    Args:
        input: array of any dtype.
        pad: pairs (before, after), for the last axis first. A constant pad may be negative:
            elements are cut off.
        mode: "constant", "reflect" (without the edge itself) or "replicate".
        value: the constant.
        out: array to write.

    Raises:
        ShapeError: an odd number of ints, more pairs than axes, an unknown mode, or more to reflect
            than there is.

    Example:
        >>> import numpy as np
        >>> pad(np.array([1, 2, 3]), (1, 2)), pad(np.array([1, 2, 3]), (2, 0), "reflect")
        (array([0, 1, 2, 3, 0, 0]), array([3, 2, 1, 2, 3]))
    """
    wrap, x = wrapper(input), array_of(input, "input")
    widths = wholes(pad, "pad")
    if not isinstance(mode, str) or mode not in MODES:
        raise ShapeError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ShapeError(f"pad takes pairs of ints for at most {x.ndim} axes, not {widths}")
    before, after = [0] * x.ndim, [0] * x.ndim
    for k in range(len(widths) // 2):
        before[-1 - k], after[-1 - k] = widths[2 * k], widths[2 * k + 1]
    for n, a, b in zip(x.shape, before, after, strict=True):
        if n + a + b < 0:
            raise ShapeError(
                f"pad by {a} and {b} leaves less than nothing of an axis of length {n}"
            )
        if mode == "reflect" and (max(a, b) >= max(n, 1) or min(a, b) < 0):
            raise ShapeError(
                f"reflect by {a} and {b} needs a longer axis than one of {n}, and no "
                "negative numbers"
            )
        if mode == "replicate" and ((n == 0 and (a or b)) or min(a, b) < 0):
            raise ShapeError(
                f"replicate by {a} and {b} needs an axis that is not empty, and no negative numbers"
            )
    shape = tuple(n + a + b for n, a, b in zip(x.shape, before, after, strict=True))
    result, value = (
        output(out, shape, x.dtype, x),
        value if isinstance(value, int) else number_of(value, "value"),
    )
    if result.size:
        flat = result if result.flags.c_contiguous else memory.empty(shape, x.dtype)
        source = contiguous(x)
        if x.size == 0:
            flat[...] = value
        else:
            s, t, ahead = _joined(source, flat, before)
            fill = (
                bool(value)
                if x.dtype == np.bool_
                else (int(value) if x.dtype.kind in "iu" else float(value))
            )
            PAD.run(Pad(s, t, ahead, fill, mode))
        if flat is not result:
            convert_into(result, flat)
    return finish(result, out, wrap)


class Rows(CpuRoutine):
    """Rows on a CPU: a last axis that is not padded is one with the axis before it, whose places it
    is.
    """

    name = "rows"

    def launch(self, p: Pad, properties: cb.DeviceProperties) -> None:
        """A cube does some rows."""
        x, out, before, unit = p.x, p.out, p.before, 1
        if x.ndim > 1 and x.shape[-1] == out.shape[-1] and not before[-1]:
            unit, before = x.shape[-1], before[:-1]
            x, out = (a.reshape(*a.shape[:-2], -1) for a in (x, out))
        count = out.size // out.shape[-1]
        rows = max(1, min(CHUNK // out.shape[-1], count // CUBES))
        pad_rows[-(-count // rows), 1](
            x, out, before, unit, rows, p.value, p.mode, lanes_on(properties, x), mode="unchecked"
        )


PAD = Op("pad", [pad_gpu.Units(), pad_gpu.Lines(), Rows()])


def _joined(x: Any, out: Any, before: list[int]) -> tuple[Any, Any, tuple[int, ...]]:
    """Neighbouring axes that are not padded become one."""
    shape_x, shape_out, ahead = list(x.shape), list(out.shape), list(before)
    same = [a == b and not k for a, b, k in zip(shape_x, shape_out, ahead, strict=True)]
    for d in range(len(shape_x) - 1, 0, -1):
        if same[d] and same[d - 1]:
            for shape in (shape_x, shape_out):
                shape[d - 1 : d + 1] = [shape[d - 1] * shape[d]]
            del ahead[d]
    return x.reshape(tuple(shape_x)), out.reshape(tuple(shape_out)), tuple(ahead)
