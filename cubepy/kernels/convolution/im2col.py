"""Another way to a convolution: by columns in memory and a matrix product."""

from __future__ import annotations

import math
from typing import Any

from cubepy.kernels.convolution.problem import Problem, in_three
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.movement.pad import pad


def padded(view: Any, problem: Problem) -> Any:
    """(N, d, h, w, C) with the padding in memory."""
    five = in_three(view)
    if not any(problem.pad):
        return five
    return pad(five, (0, 0, *(p for p in reversed(problem.pad) for _ in range(2))))


def windows_of(view: Any, problem: Problem) -> Any:
    """A view (N, *out, *window, C) of what every output pixel sees; no element is copied but for
    the padding.
    """
    x = padded(view, problem)
    n, d, h, w, c = x.strides
    along = (d, h, w)
    steps = tuple(s * k for s, k in zip(along, problem.stride, strict=True))
    inside = tuple(s * k for s, k in zip(along, problem.dilation, strict=True))
    return strided(
        x, (x.shape[0], *problem.out, *problem.window, x.shape[4]), (n, *steps, *inside, c)
    )


def columns_of(view: Any, problem: Problem, first: int, channels: int) -> Any:
    """The matrix (pixels, window * channels) of some channels, in memory where strides allow no
    view.
    """
    seen = windows_of(view, problem)[..., first : first + channels]
    return contiguous(seen).reshape(-1, math.prod(problem.window) * channels)


def by_columns(
    view: Any,
    w: Any,
    bias: Any,
    out: Any,
    problem: Problem,
    groups: int,
    channels_last: bool,
    function: Any,
) -> None:
    """out = columns times filters, group by group: what runs on a GPU's matrix units."""
    channels, filters = w.shape[1], w.shape[0] // groups
    order = (0, *range(2, w.ndim), 1)
    matrix = contiguous(w.transpose(order)).reshape(groups, filters, -1)
    n, how = view.shape[0], {"activation": function, "precision": problem.precision}
    for g in range(groups):
        columns = columns_of(view, problem, g * channels, channels)
        part = slice(g * filters, (g + 1) * filters)
        add = None if bias is None else contiguous(bias[part])
        if (
            channels_last and groups == 1 and out.dtype == w.dtype == view.dtype
        ):  # the product stands where it belongs
            target = out.reshape(-1, filters)
            matmul(columns, matrix[g].T, bias=add, out=target, **how)
            return
        done = matmul(columns, matrix[g].T, bias=add, **how)
        done = done.reshape(n, -1, filters)
        convert_into(
            out[:, :, part] if channels_last else out[:, part],
            done if channels_last else done.transpose(0, 2, 1),
        )
