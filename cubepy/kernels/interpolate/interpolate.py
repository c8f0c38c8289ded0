"""Average pooling and interpolation: linear maps along one axis after the other, forward and
backward.

Every output position is a weighted sum of neighbours, so each of these operations is a small banded
matrix for each axis, and its gradient is the transposed matrix. One kernel does an axis; on a CPU
one does the last two (see `windows.separable_cpu`). Sums of 16-bit floats stay f32 between axes.
"""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import float_array, number_of, per_axis
from cubepy.kernels.entry.dispatch import repeated, repeated_back
from cubepy.kernels.entry.results import finish, wrapper
from cubepy.kernels.windows.banded import Band, part_band, point_band, smooth_band
from cubepy.kernels.windows.banded_map import LAYOUTS, checked, mapped, size_of

MODES = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "area": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "trilinear": (3,),
    "bicubic": (2,),
}


def _interpolation(
    size: tuple[int, ...],
    wanted: Any,
    factor: Any,
    mode: str,
    corners: bool,
    smooth: bool,
    back: bool,
) -> list[Band]:
    axes = len(size)
    if not isinstance(mode, str) or mode not in MODES or axes not in MODES[mode]:
        raise ShapeError(
            f"mode is one of {', '.join(m for m, a in MODES.items() if axes in a)}, not {mode!r}"
        )
    if smooth and mode not in ("bilinear", "bicubic"):
        raise ShapeError(f"antialias is for the modes bilinear and bicubic, not for {mode!r}")
    if (wanted is None) == (factor is None):
        raise ShapeError("interpolate takes either size or scale_factor")
    if factor is not None:
        given = factor if isinstance(factor, (tuple, list)) else (factor,) * axes
        factors = tuple(number_of(k, "scale_factor") for k in given)
        if len(factors) != axes or not all(0 < k < math.inf for k in factors):
            raise ShapeError(
                f"scale_factor must be a positive number or {axes} of them, not {factor!r}"
            )
        wanted = tuple(math.floor(n * k) for n, k in zip(size, factors, strict=True))
        if min(wanted) < 1:
            raise ShapeError(f"interpolate of {size} by {factor} leaves nothing")
        wanted = per_axis(wanted, axes, "size times scale_factor", 1)
        scales = tuple(1 / k for k in factors)
    else:
        wanted = per_axis(wanted, axes, "size", 1)
        scales = tuple(n / m for n, m in zip(size, wanted, strict=True))
    if mode == "area":
        return [part_band(n, m, back) for n, m in zip(size, wanted, strict=True)]
    kind = {"bicubic": "cubic"}.get(mode, mode if mode.startswith("nearest") else "linear")
    band = smooth_band if smooth else point_band
    return [
        band(n, m, s, kind, corners, back) for n, m, s in zip(size, wanted, scales, strict=True)
    ]


@repeated
def interpolate(
    input: Any,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = False,
    *,
    antialias: bool = False,
    layout: str = "NCHW",
    out: Any = None,
) -> Any:
    """Images, signals or volumes of another size, as `torch.nn.functional.interpolate`.

    Args:
        input: (N, C, ...) with 1 to 3 axes of size, or channels last with layout "NLC", "NHWC" or
            "NDHWC".
        size: of the result, an int or one for each axis.
        scale_factor: instead of a size, a number or one for each axis.
        mode: "nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear", "bicubic".
        align_corners: the outermost positions of input and result lie on each other.
        antialias: a smaller image weighs all positions that it leaves out ("bilinear", "bicubic").
        layout: "NCHW" stands for channels first in any number of axes.
        out: array to write.

    Raises:
        ShapeError: both or neither of size and scale_factor, or a mode for another number of axes.

    Example:
        >>> import numpy as np
        >>> interpolate(np.array([[[0.0, 1.0]]]), size=4, mode="linear")
        array([[[0.  , 0.25, 0.75, 1.  ]]])
    """
    axes = float_array(input, "input").ndim - 2
    if axes not in LAYOUTS:
        raise ShapeError(f"interpolate needs 3 to 5 axes, not {axes + 2}")
    layout = LAYOUTS[axes][0] if layout == "NCHW" else layout
    x, there, _ = checked(input, axes, layout, "interpolate", either=False)
    bands = _interpolation(there, size, scale_factor, mode, bool(align_corners), antialias, False)
    return finish(mapped(x, bands, layout, out), out, wrapper(input))


@repeated_back
def interpolate_input(
    input_size: tuple[int, ...],
    grad_output: Any,
    mode: str = "nearest",
    align_corners: bool = False,
    *,
    scale_factor: Any = None,
    antialias: bool = False,
    layout: str = "NCHW",
) -> Any:
    """The gradient of `interpolate` by its input of shape `input_size`.

    Args:
        input_size: shape of the input.
        grad_output: gradient by the result; floats.
        mode, align_corners, antialias, layout: as for `interpolate`.
        scale_factor: as it was given to `interpolate`; None where a size was.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> interpolate_input((1, 1, 2), np.array([[[1, 2, 3, 4]]], np.float32))
        array([[[3., 7.]]], dtype=float32)
    """
    axes = len(input_size) - 2
    if axes not in LAYOUTS:
        raise ShapeError(f"interpolate_input needs 3 to 5 axes, not {axes + 2}")
    layout = LAYOUTS[axes][0] if layout == "NCHW" else layout
    grad, size, _ = checked(grad_output, axes, layout, "interpolate_input", either=False)
    there = size_of(input_size, axes, layout, grad, "interpolate_input")
    wanted = size if scale_factor is None else None
    bands = _interpolation(there, wanted, scale_factor, mode, bool(align_corners), antialias, True)
    if tuple(b.columns for b in bands) != size:
        raise ShapeError(f"a gradient of size {size} does not come from {there} by {scale_factor}")
    return wrapper(grad_output)(mapped(grad, bands, layout))
