"""Convolutions, transposed and deformed ones among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.ops.images.windows import windows
from cubepy.models.onnx.ops.shapes import padded
from cubepy.models.onnx.records import Call, ints, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply
from cubepy.tensor.control.sampled import sampled


@operator("Conv")
def conv(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolution in one to three axes, channels first."""
    return convolved(call, x, weight, bias)


def convolved(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What the attributes of a convolution say."""
    rank = len(x.shape) - 2
    if not 1 <= rank <= 3 or len(weight.shape) != rank + 2:
        raise call.refuse(f"a convolution of {list(x.shape)} with {list(weight.shape)}")
    w = windows(call, x.shape[2:], call.get("kernel_shape") or weight.shape[2:])
    padding = w.before
    if not w.even:
        x, padding = padded(x, w.widths()), (0,) * rank
    return apply(
        "conv",
        x,
        weight,
        bias,
        stride=w.stride,
        padding=padding,
        dilation=w.dilation,
        groups=call.get("group", 1),
        precision=None,
    )


@operator("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Transposed convolution in one to three axes."""
    rank, size = len(x.shape) - 2, x.shape[2:]
    w = windows(call, size, call.get("kernel_shape") or weight.shape[2:])
    more = call.get("output_padding") or [0] * rank
    whole = [(n - 1) * s + e for n, s, e in zip(size, w.stride, w.spans(), strict=True)]
    before, after = list(w.before), list(w.after)
    wanted = call.get("output_shape")
    auto = call.get("auto_pad", "NOTSET")
    if wanted is None and auto.startswith("SAME"):
        wanted = [n * s for n, s in zip(size, w.stride, strict=True)]
    if wanted is not None:
        wanted = list(wanted)[-rank:]
        for k in range(rank):
            total = max(0, whole[k] + more[k] - wanted[k])
            small, large = total // 2, total - total // 2
            before[k], after[k] = (small, large) if auto == "SAME_UPPER" else (large, small)
    out = [n + m - a - b for n, m, a, b in zip(whole, more, before, after, strict=True)]
    out = out if wanted is None else [int(n) for n in wanted]
    groups = call.get("group", 1)
    how: dict[str, Any] = {"stride": w.stride, "dilation": w.dilation, "groups": groups}
    rest = [n - (m - 2 * b) for n, m, b in zip(out, whole, before, strict=True)]
    usual = all(0 <= r < s and b >= 0 for r, s, b in zip(rest, w.stride, before, strict=True))
    if usual:
        return apply(
            "conv_transpose",
            x,
            weight,
            bias,
            size=tuple(out),
            padding=tuple(before),
            precision=None,
            **how,
        )
    full = apply(
        "conv_transpose",
        x,
        weight,
        None,
        size=tuple(whole),
        padding=(0,) * rank,
        precision=None,
        **how,
    )
    ends = [n - b - whole_n for n, b, whole_n in zip(out, [-b for b in before], whole, strict=True)]
    full = padded(
        full,
        [(0, 0), (0, 0), *((max(0, -b), max(0, e)) for b, e in zip(before, ends, strict=True))],
    )
    cut = tuple(slice(max(0, b), max(0, b) + n) for b, n in zip(before, out, strict=True))
    full = full[(slice(None), slice(None), *cut)]
    return full if bias is None else full + bias.reshape(-1, *(1,) * rank)


@operator("Col2Im", reads=(1, 2))
def col2im(call: Call, columns: Tensor, image: Any, block: Any) -> Tensor:
    """Columns of windows added up where they came from: a transposed convolution with ones."""
    size, kernel = ints(image), ints(block)
    rank = len(size)
    w = windows(call, size, kernel)
    n, channels = columns.shape[0], columns.shape[1] // math.prod(kernel)
    spans = zip(size, w.before, w.after, w.spans(), w.stride, strict=True)
    counts = [(m + a + b - e) // s + 1 for m, a, b, e, s in spans]
    taps = math.prod(kernel)
    parts = columns.reshape(n, channels, *kernel, *counts)
    whole = [m + a + b for m, a, b in zip(size, w.before, w.after, strict=True)]
    result = T.zeros((n, channels, *whole), dtype=columns.dtype, device=columns.device)
    flat = parts.reshape(n, channels, taps, *counts)
    for k, at in enumerate(np.ndindex(*kernel)):
        index: Any = (slice(None), slice(None)) + tuple(
            slice(a * d, a * d + (c - 1) * s + 1, s)
            for a, d, c, s in zip(at, w.dilation, counts, w.stride, strict=True)
        )
        result[index] = result[index] + flat[:, :, k]
    inside = tuple(slice(b, b + m) for b, m in zip(w.before, size, strict=True))
    return result[(slice(None), slice(None), *inside)] if rank else result


@operator("DeformConv")
def deform_conv(
    call: Call,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution whose taps are moved by offsets, and weighted by a mask (Dai et al., 2017)."""
    w = windows(call, x.shape[2:], call.get("kernel_shape") or weight.shape[2:])
    n, channels, height, width = x.shape
    parts, groups = call.get("offset_group", 1), call.get("group", 1)
    rows, columns = offset.shape[2:]
    taps = math.prod(w.kernel)
    moved = offset.reshape(n, parts, taps, 2, rows, columns)
    at_y = np.arange(rows)[:, None] * w.stride[0] - w.before[0]
    at_x = np.arange(columns)[None, :] * w.stride[1] - w.before[1]
    found = []
    for k, (i, j) in enumerate(np.ndindex(*w.kernel)):
        base_y = T((at_y + i * w.dilation[0] + 0 * at_x).astype(np.float32), device=x.device)
        base_x = T((at_x + j * w.dilation[1] + 0 * at_y).astype(np.float32), device=x.device)
        y, z = (
            moved[:, :, k, 0] + base_y.astype(x.dtype),
            moved[:, :, k, 1] + base_x.astype(x.dtype),
        )
        image = x.reshape(n * parts, channels // parts, height, width)
        grid = [y.reshape(n * parts, rows, columns), z.reshape(n * parts, rows, columns)]
        value = sampled(image, grid, "linear", "zeros").reshape(
            n, parts, channels // parts, rows, columns
        )
        if mask is not None:
            value = value * mask.reshape(n, parts, taps, rows, columns)[:, :, k].unsqueeze(2)
        found.append(value.reshape(n, channels, rows * columns))
    columns_of = T.stack(found, axis=2).reshape(
        n, groups, channels // groups * taps, rows * columns
    )
    filters = weight.reshape(groups, weight.shape[0] // groups, -1)
    result = (filters.unsqueeze(0) @ columns_of).reshape(n, weight.shape[0], rows, columns)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


@operator("CausalConvWithState")
def causal_conv(
    call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A depthwise convolution along time that sees what came before, and what is needed next."""
    taps = weight.shape[-1]
    if state is None:
        state = T.zeros((*x.shape[:2], taps - 1), dtype=x.dtype, device=x.device)
    joined = T.concat([state.astype(x.dtype), x], axis=2)
    made = apply(
        "conv",
        joined,
        weight,
        bias,
        stride=(1,),
        padding=(0,),
        dilation=(1,),
        groups=x.shape[1],
        precision=None,
    )
    name = call.get("activation", "none")
    if name in ("silu", "swish"):
        made = made * made.sigmoid()
    elif name != "none":
        raise call.refuse(f"an activation {name!r}")
    return made, joined[:, :, joined.shape[2] - (taps - 1) :]
