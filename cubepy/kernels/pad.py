"""Padding: a constant, the edge repeated, or what lies behind the edge mirrored."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels import movement_lines
from cubepy.kernels.arguments import array_of, finish, output, placed, wholes, wrapper
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise import contiguous, lanes_for
from cubepy.kernels.movement_lines import source_of
from cubepy.runtime import memory

MODES = ("constant", "reflect", "replicate")


@cb.kernel
def pad_rows(x: cb.Array, out: cb.Array, before, value, how: cb.Comptime[str], lanes: cb.Comptime[int]):
    """One row of out for a cube: lines where the row comes from a row of x, single elements at its ends."""
    last = out.ndim - 1
    row = cb.CUBE_POS
    inside = True
    lead = ()
    places = ()
    for d in cb.unroll(range(last - 1, -1, -1)):
        at = row % out.shape[d]
        from_x = source_of(at - before[d], x.shape[d], how)
        inside = inside and from_x >= 0
        lead = (at,) + lead
        places = (cb.max(from_x, 0),) + places
        row = row // out.shape[d]
    n, total = x.shape[last], out.shape[last]
    fill = cb.cast(value, out.dtype)
    for k in range(cb.UNIT_POS * lanes, total, cb.CUBE_DIM * lanes):
        at = k - before[last]
        if inside and at >= 0 and at + lanes <= n and k + lanes <= total:
            out.store(lead + (k,), x.load(places + (at,), lanes))
        else:
            for j in range(k, cb.min(k + lanes, total)):
                from_x = source_of(j - before[last], n, how)
                if inside and from_x >= 0:
                    out[lead + (j,)] = x[places + (from_x,)]
                else:
                    out[lead + (j,)] = fill


@placed
def pad(input: Any, pad: Any, mode: str = "constant", value: float = 0, *, out: Any = None) -> Any:
    """Elements added at the ends of axes, as `torch.nn.functional.pad`.

    Args:
        input: array of any dtype.
        pad: pairs (before, after), for the last axis first. A constant pad may be negative: elements are cut off.
        mode: "constant", "reflect" (without the edge itself) or "replicate".
        value: the constant.
        out: array to write.

    Raises:
        ShapeError: an odd number of ints, more pairs than axes, an unknown mode, or more to reflect than there is.

    Example:
        >>> import numpy as np
        >>> pad(np.array([1, 2, 3]), (1, 2)), pad(np.array([1, 2, 3]), (2, 0), "reflect")
        (array([0, 1, 2, 3, 0, 0]), array([3, 2, 1, 2, 3]))
    """
    wrap, x = wrapper(input), array_of(input, "input")
    widths = wholes(pad, "pad")
    if mode not in MODES:
        raise ShapeError(f"mode is one of {', '.join(MODES)}, not {mode!r}")
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ShapeError(f"pad takes pairs of ints for at most {x.ndim} axes, not {widths}")
    before, after = [0] * x.ndim, [0] * x.ndim
    for k in range(len(widths) // 2):
        before[-1 - k], after[-1 - k] = widths[2 * k], widths[2 * k + 1]
    for n, a, b in zip(x.shape, before, after, strict=True):
        if n + a + b < 0:
            raise ShapeError(f"pad by {a} and {b} leaves less than nothing of an axis of length {n}")
        if mode == "reflect" and (max(a, b) >= max(n, 1) or min(a, b) < 0):
            raise ShapeError(f"reflect by {a} and {b} needs a longer axis than one of {n}, and no negative numbers")
        if mode == "replicate" and ((n == 0 and (a or b)) or min(a, b) < 0):
            raise ShapeError(f"replicate by {a} and {b} needs an axis that is not empty, and no negative numbers")
    shape = tuple(n + a + b for n, a, b in zip(x.shape, before, after, strict=True))
    result = output(out, shape, x.dtype)
    if result.size:
        flat = result if result.flags.c_contiguous else memory.empty(shape, x.dtype)
        source = contiguous(x)
        if x.size == 0:
            flat[...] = value
        else:
            s, t, ahead = _joined(source, flat, before)
            fill = bool(value) if x.dtype == np.bool_ else (int(value) if x.dtype.kind in "iu" else float(value))
            if has_planes():
                movement_lines.pad(s, t, ahead, fill, mode)
            else:
                pad_rows[t.size // t.shape[-1], 1](s, t, ahead, fill, mode, lanes_for(s), mode="checked")
        if flat is not result:
            result[...] = flat
    return finish(result, out, wrap)


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
