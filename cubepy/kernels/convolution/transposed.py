"""Transposed convolutions, which are the gradients of convolutions by their input, too."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.convolution.conv import LAYOUTS, as_it_lies, on_three_axes, orders
from cubepy.kernels.convolution.transposed_routines import CONV_TRANSPOSE, Transposed
from cubepy.kernels.entry.arguments import float_array, rounds_to_tf32, whole
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import output, wrapper
from cubepy.kernels.movement.copy import convert_into


def transposed_into(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    layout: str,
    axes: int,
    precision: str | None,
    out: Any,
) -> Any:
    wrap, x, w = wrapper(input), float_array(input, "input"), float_array(weight, "weight")
    first, last = LAYOUTS[axes]
    if layout not in (first, last):
        raise ShapeError(f'layout is "{first}" or "{last}", not {layout!r}')
    if x.ndim != axes + 2 or w.ndim != axes + 2:
        raise ShapeError(
            f"conv_transpose{axes}d needs {axes + 2} axes, not shapes {x.shape} and {w.shape}"
        )
    view = x if layout == last else x.transpose(0, *range(2, axes + 2), 1)
    groups = whole(groups, "groups")
    rounds_to_tf32(precision)  # a CPU has no use for it, but a name of nothing is refused
    if groups < 1 or view.shape[-1] != w.shape[0] or w.shape[0] % groups:
        raise ShapeError(
            f"filters of shape {w.shape} in {groups} groups do not go with {view.shape[-1]} "
            "channels"
        )
    step, dil = (
        on_three_axes(stride, "stride", axes, 1)[-axes:],
        on_three_axes(dilation, "dilation", axes, 1)[-axes:],
    )
    cut, more = (
        on_three_axes(padding, "padding", axes, 0)[-axes:],
        on_three_axes(output_padding, "output_padding", axes, 0)[-axes:],
    )
    for m, s, d in zip(more, step, dil, strict=True):
        if m >= max(s, d):
            raise ShapeError(
                f"output_padding {m} must be smaller than the stride {s} or the dilation {d}"
            )
    add = None if bias is None else float_array(bias, "bias")
    p = Transposed(x, w, add, None, layout, step, cut, more, dil, groups, precision)
    if min(p.sizes) < 1:
        raise ShapeError(
            f"a transposed convolution of {x.shape} with filters {w.shape} has no place: "
            f"{list(p.sizes)}"
        )
    if add is not None and add.shape != (p.filters,):
        raise ShapeError(f"bias has shape {add.shape}, but there are {p.filters} filters")
    if out is None:
        return wrap(CONV_TRANSPOSE.run(p))
    n, filters = x.shape[0], p.filters
    target = output(out, (n, *p.sizes, filters) if p.last else (n, filters, *p.sizes), x.dtype)
    result = CONV_TRANSPOSE.run(p._replace(out=target))
    if result is not target:
        convert_into(target, result)
    return out


_known = repeated(transposed_into)


def _transposed(axes: int) -> Any:
    (first, last), (_, to_first) = LAYOUTS[axes], orders(axes)

    def conv_transpose(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
        *,
        layout: str = LAYOUTS[axes][0],
        precision: str | None = None,
        out: Any = None,
    ) -> Any:
        view = as_it_lies(input, layout, out, axes)
        if view is not None:
            input, layout = view, last
        done = _known(
            input,
            weight,
            bias,
            stride,
            padding,
            output_padding,
            groups,
            dilation,
            layout,
            axes,
            precision,
            out,
        )
        return done if view is None else done.transpose(to_first)

    name, x, w = f"conv_transpose{axes}d", (1, 2, *(3,) * axes), (2, 4, *(2,) * axes)
    conv_transpose.__name__ = conv_transpose.__qualname__ = name
    conv_transpose.__doc__ = f"""Transposed convolution over {axes} {"axes" if axes > 1 else "axis"},
    as `torch.nn.functional.{name}`.

    Args:
        input: (N, C, *size), or (N, *size, C) with layout "{last}".
        weight: (channels, filters / groups, *window).
        bias: (filters,), or None.
        stride, padding, output_padding, dilation: int or {axes} of them.
        groups: channels and filters fall into so many groups.
        layout: "{first}" or "{last}".
        precision: as the convolution's.
        out: array to write.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> {name}(np.ones({x}, np.float32), np.ones({w}, np.float32), stride=2).shape
        {(1, 4, *(6,) * axes)}
    """
    return conv_transpose


conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed, (1, 2, 3))
