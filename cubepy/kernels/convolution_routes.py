"""Another way to a convolution: by columns in memory and a matrix product."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cubepy.kernels.elementwise import contiguous, convert_into
from cubepy.kernels.matmul import matmul
from cubepy.kernels.pad import pad
from cubepy.kernels.shapes import strided


@dataclass(frozen=True)
class Problem:
    """A convolution in three axes; fewer are axes of length 1.

    Attributes:
        size, window, stride, pad, dilation, out: along depth, height, width.
        tf32: whether a GPU may round f32 to tf32.
    """

    size: tuple[int, int, int]
    window: tuple[int, int, int]
    stride: tuple[int, int, int]
    pad: tuple[int, int, int]
    dilation: tuple[int, int, int]
    out: tuple[int, int, int]
    tf32: bool = False

    @property
    def precision(self) -> str | None:
        """As the matmul's."""
        return "tf32" if self.tf32 else None


def in_three(view: Any) -> Any:
    """(N, *size, C) with three axes of size."""
    return view.reshape(view.shape[0], *(1,) * (5 - view.ndim), *view.shape[1:])


def padded(view: Any, problem: Problem) -> Any:
    """(N, d, h, w, C) with the padding in memory."""
    five = in_three(view)
    if not any(problem.pad):
        return five
    return pad(five, (0, 0, *(p for p in reversed(problem.pad) for _ in range(2))))


def windows_of(view: Any, problem: Problem) -> Any:
    """A view (N, *out, *window, C) of what every output place sees; no element is copied but for the padding."""
    x = padded(view, problem)
    n, d, h, w, c = x.strides
    along = (d, h, w)
    steps = tuple(s * k for s, k in zip(along, problem.stride, strict=True))
    inside = tuple(s * k for s, k in zip(along, problem.dilation, strict=True))
    return strided(
        x, (x.shape[0], *problem.out, *problem.window, x.shape[4]), (n, *steps, *inside, c)
    )


def columns_of(view: Any, problem: Problem, first: int, channels: int) -> Any:
    """The matrix (places, window * channels) of some channels, in memory where strides allow no view."""
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
    n = view.shape[0]
    for g in range(groups):
        columns = columns_of(view, problem, g * channels, channels)
        part = slice(g * filters, (g + 1) * filters)
        add = None if bias is None else contiguous(bias[part])
        if (
            channels_last and groups == 1 and out.dtype == w.dtype == view.dtype
        ):  # the product stands where it belongs
            target = out.reshape(-1, filters)
            matmul(
                columns,
                matrix[g].T,
                bias=add,
                activation=function,
                precision=problem.precision,
                out=target,
            )
            return
        done = matmul(
            columns, matrix[g].T, bias=add, activation=function, precision=problem.precision
        )
        done = done.reshape(n, -1, filters)
        convert_into(
            out[:, :, part] if channels_last else out[:, part],
            done if channels_last else done.transpose(0, 2, 1),
        )
