"""Average pooling over 1 to 3 axes, and averages of equal parts, with their gradients, as bands
(see `resample`).
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import number_of, per_axis
from cubepy.kernels.entry.dispatch import repeated, repeated_back
from cubepy.kernels.entry.results import finish, wrapper
from cubepy.kernels.entry.shapes import window_count
from cubepy.kernels.windows.banded import Band, part_band, window_band
from cubepy.kernels.windows.banded_map import LAYOUTS, checked, mapped, size_of


def _bands(
    size: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    up: bool,
    include: bool,
    divisor: Any,
    back: bool,
) -> list[Band]:
    axes = len(size)
    ks, ps = per_axis(kernel, axes, "kernel_size", 1), per_axis(padding, axes, "padding", 0)
    ss = ks if stride is None else per_axis(stride, axes, "stride", 1)
    divisor = None if divisor is None else number_of(divisor, "divisor_override")
    if divisor == 0:
        raise ShapeError("divisor_override must not be zero")
    bands = []
    for d, (n, k, s, p) in enumerate(zip(size, ks, ss, ps, strict=True)):
        m = window_count(f"avg_pool{axes}d", n, k, s, p, 1, up)
        by = None if divisor is None else (float(divisor) if d == axes - 1 else 1.0)
        bands.append(window_band(n, m, k, s, p, include, by, back))
    return bands


def _pool(axes: int) -> Any:
    def avg_pool(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
        *,
        layout: str = LAYOUTS[axes][0],
        out: Any = None,
    ) -> Any:
        x, size, alone = checked(input, axes, layout, f"avg_pool{axes}d")
        how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        return finish(mapped(x, _bands(size, *how, False), layout, out, alone), out, wrapper(input))

    avg_pool.__name__ = avg_pool.__qualname__ = f"avg_pool{axes}d"
    sizes = ("(N, C, L)", "(N, C, H, W)", "(N, C, D, H, W)")[axes - 1]
    avg_pool.__doc__ = f"""Mean of every window, as `torch.nn.functional.avg_pool{axes}d`.

    Args:
        input: {sizes}, or with the channels last by `layout`, or without N; floats.
        kernel_size, stride, padding: int or {axes} of them; stride defaults to the window.
        ceil_mode: windows may hang over the end.
        count_include_pad: whether padding counts among what is averaged.
        divisor_override: what sums are divided by instead of the number of places.
        layout: {" or ".join(map(repr, LAYOUTS[axes]))}.
        out: array to write.

    Raises:
        ShapeError: wrong rank, padding above half the window, a window that does not fit, or a
            divisor of zero.

    Example:
        >>> import numpy as np
        >>> avg_pool{axes}d(np.ones((1, 1, {", ".join("2" * axes)}), np.float32), 2).shape
        (1, 1, {", ".join("1" * axes)})
    """
    return repeated(avg_pool)


def _pool_input(axes: int) -> Any:
    def avg_pool_input(
        input_size: Any,
        grad_output: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
        *,
        layout: str = LAYOUTS[axes][0],
    ) -> Any:
        name = f"avg_pool{axes}d_input"
        grad, size, alone = checked(grad_output, axes, layout, name)
        there = size_of(input_size, axes, layout, grad, name)
        how = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
        bands = _bands(there, *how, True)
        if tuple(b.columns for b in bands) != size:
            raise ShapeError(
                f"the gradient has places {size}, the operation {tuple(b.columns for b in bands)}"
            )
        return wrapper(grad_output)(mapped(grad, bands, layout, None, alone))

    avg_pool_input.__name__ = avg_pool_input.__qualname__ = f"avg_pool{axes}d_input"
    avg_pool_input.__doc__ = f"""The gradient of `avg_pool{axes}d` by its input of shape
    `input_size`.

    Args:
        input_size: shape of the input.
        grad_output: gradient by the result; floats.
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, layout: as for
        `avg_pool{axes}d`.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> grad = np.full({(1,) * (axes + 2)}, 8, np.float32)
        >>> avg_pool{axes}d_input({(1, 1) + (2,) * axes}, grad, 2).ravel().tolist()
        {[8.0 / 2**axes] * 2**axes}
    """
    return repeated_back(avg_pool_input)


def _adaptive(axes: int) -> Any:
    def adaptive_avg_pool(
        input: Any, output_size: Any, *, layout: str = LAYOUTS[axes][0], out: Any = None
    ) -> Any:
        x, size, alone = checked(input, axes, layout, f"adaptive_avg_pool{axes}d")
        wanted = per_axis(output_size, axes, "output_size", 1)
        bands = [part_band(n, m, False) for n, m in zip(size, wanted, strict=True)]
        return finish(mapped(x, bands, layout, out, alone), out, wrapper(input))

    adaptive_avg_pool.__name__ = adaptive_avg_pool.__qualname__ = f"adaptive_avg_pool{axes}d"
    adaptive_avg_pool.__doc__ = f"""Means of equal parts, as
    `torch.nn.functional.adaptive_avg_pool{axes}d`.

    Args:
        output_size: int or {axes} of them.
        input, layout, out: as for `avg_pool{axes}d`.

    Raises:
        ShapeError: wrong rank or an empty input.

    Example:
        >>> import numpy as np
        >>> x = np.ones({(1, 1) + (5,) * axes}, np.float32)
        >>> adaptive_avg_pool{axes}d(x, 2).shape
        {(1, 1) + (2,) * axes}
    """
    return repeated(adaptive_avg_pool)


def _adaptive_input(axes: int) -> Any:
    def adaptive_avg_pool_input(
        input_size: Any, grad_output: Any, *, layout: str = LAYOUTS[axes][0]
    ) -> Any:
        name = f"adaptive_avg_pool{axes}d_input"
        grad, size, alone = checked(grad_output, axes, layout, name)
        there = size_of(input_size, axes, layout, grad, name)
        bands = [part_band(n, m, True) for n, m in zip(there, size, strict=True)]
        return wrapper(grad_output)(mapped(grad, bands, layout, None, alone))

    adaptive_avg_pool_input.__name__ = adaptive_avg_pool_input.__qualname__ = (
        f"adaptive_avg_pool{axes}d_input"
    )
    adaptive_avg_pool_input.__doc__ = f"""The gradient of `adaptive_avg_pool{axes}d` by its input of
    shape `input_size`.

    Args:
        input_size: shape of the input.
        grad_output: gradient by the result; floats.
        layout: as for `avg_pool{axes}d`.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> grad = np.full({(1,) * (axes + 2)}, 8, np.float32)
        >>> adaptive_avg_pool{axes}d_input({(1, 1) + (2,) * axes}, grad).ravel().tolist()
        {[8.0 / 2**axes] * 2**axes}
    """
    return repeated_back(adaptive_avg_pool_input)


avg_pool1d, avg_pool2d, avg_pool3d = map(_pool, (1, 2, 3))
avg_pool1d_input, avg_pool2d_input, avg_pool3d_input = map(_pool_input, (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_adaptive, (1, 2, 3))
adaptive_avg_pool1d_input, adaptive_avg_pool2d_input, adaptive_avg_pool3d_input = map(
    _adaptive_input, (1, 2, 3)
)
