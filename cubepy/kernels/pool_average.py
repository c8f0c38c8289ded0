"""Average pooling over 1 and 3 axes, and averages of equal parts with their gradients, as bands (see `resample`)."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.arguments import finish, per_axis, placed, wrapper
from cubepy.kernels.resample import LAYOUTS, _checked, _fits, _mapped, _pool_bands, _shares


def _pool(axes: int) -> Any:
    def avg_pool(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, *, layout: str = LAYOUTS[axes][0], out: Any = None,
    ) -> Any:  # fmt: skip
        x, size = _checked(input, axes, layout, f"avg_pool{axes}d")
        bands = _pool_bands(size, kernel_size, stride, padding, ceil_mode, count_include_pad, False)
        return finish(_mapped(x, bands, axes, layout, out), out, wrapper(input))

    avg_pool.__name__ = avg_pool.__qualname__ = f"avg_pool{axes}d"
    avg_pool.__doc__ = f"`avg_pool2d` over {axes} axes: the same arguments, errors and layouts {LAYOUTS[axes]}."
    return placed(avg_pool)


def _pool_input(axes: int) -> Any:
    def avg_pool_input(
        input_size: Any, grad_output: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
    ) -> Any:  # fmt: skip
        grad, size = _checked(grad_output, axes, LAYOUTS[axes][0], f"avg_pool{axes}d_input")
        bands = _pool_bands(tuple(input_size[2:]), kernel_size, stride, padding, ceil_mode, count_include_pad, True)
        _fits(bands, size)
        return wrapper(grad_output)(_mapped(grad, bands, axes, LAYOUTS[axes][0], None))

    avg_pool_input.__name__ = avg_pool_input.__qualname__ = f"avg_pool{axes}d_input"
    avg_pool_input.__doc__ = f"The gradient of `avg_pool{axes}d` by its input, channels first."
    return placed(avg_pool_input)


def _adaptive(axes: int) -> Any:
    def adaptive_avg_pool(input: Any, output_size: Any, *, layout: str = LAYOUTS[axes][0], out: Any = None) -> Any:
        x, size = _checked(input, axes, layout, f"adaptive_avg_pool{axes}d")
        wanted = per_axis(output_size, axes, "output_size", 1)
        bands = [_shares(n, m, False) for n, m in zip(size, wanted, strict=True)]
        return finish(_mapped(x, bands, axes, layout, out), out, wrapper(input))

    adaptive_avg_pool.__name__ = adaptive_avg_pool.__qualname__ = f"adaptive_avg_pool{axes}d"
    adaptive_avg_pool.__doc__ = f"`adaptive_avg_pool2d` over {axes} axes, with layouts {LAYOUTS[axes]}."
    return placed(adaptive_avg_pool)


def _adaptive_input(axes: int) -> Any:
    def adaptive_avg_pool_input(input_size: Any, grad_output: Any) -> Any:
        grad, size = _checked(grad_output, axes, LAYOUTS[axes][0], f"adaptive_avg_pool{axes}d_input")
        bands = [_shares(n, m, True) for n, m in zip(tuple(input_size[2:]), size, strict=True)]
        return wrapper(grad_output)(_mapped(grad, bands, axes, LAYOUTS[axes][0], None))

    adaptive_avg_pool_input.__name__ = adaptive_avg_pool_input.__qualname__ = f"adaptive_avg_pool{axes}d_input"
    adaptive_avg_pool_input.__doc__ = f"The gradient of `adaptive_avg_pool{axes}d` by its input, channels first."
    return placed(adaptive_avg_pool_input)


avg_pool1d, avg_pool3d = _pool(1), _pool(3)
avg_pool1d_input, avg_pool3d_input = _pool_input(1), _pool_input(3)
adaptive_avg_pool1d, adaptive_avg_pool3d = _adaptive(1), _adaptive(3)
adaptive_avg_pool1d_input, adaptive_avg_pool2d_input, adaptive_avg_pool3d_input = map(_adaptive_input, (1, 2, 3))
