"""Normalisations over batches, channels, groups and rows."""

from __future__ import annotations

from typing import Any

from cubepy.models.onnx.ops.shapes import padded
from cubepy.models.onnx.records import Call, axes_of, axis_of, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply


@operator("BatchNormalization")
def batch_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Any:
    """With given means and variances, or (in training) those of the batch."""
    eps = call.get("epsilon", 1e-5)
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    if not call.get("training_mode", 0):
        if len(x.shape) >= 3 and {t.dtype for t in (x, scale, bias, mean, var)} == {x.dtype}:
            return apply("channel_norm", x, mean, var, scale, bias, eps=eps)
        factor = scale / (var + eps).sqrt()
        made = (x - mean.reshape(*shape)) * factor.reshape(*shape) + bias.reshape(*shape)
        return made.astype(x.dtype)
    axes = (0, *range(2, len(x.shape)))
    momentum = call.get("momentum", 0.9)
    wide = x.astype("f32") if x.dtype.bits < 32 else x
    own = wide.mean(axis=axes)
    centered = wide - own.reshape(*shape)
    spread = (centered * centered).mean(axis=axes)
    factor = scale.astype(wide.dtype) / (spread + eps).sqrt()
    made = centered * factor.reshape(*shape) + bias.astype(wide.dtype).reshape(*shape)
    running = mean * momentum + own.astype(mean.dtype) * (1 - momentum)
    return (
        made.astype(x.dtype),
        running,
        var * momentum + spread.astype(var.dtype) * (1 - momentum),
    )


@operator("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Each channel of each image by itself."""
    return apply("group_norm", x, scale, bias, groups=x.shape[1], eps=call.get("epsilon", 1e-5))


@operator("GroupNormalization")
def group_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Groups of channels; before opset 21 with one scale for each group."""
    groups = call["num_groups"]
    if scale.shape[0] == groups != x.shape[1]:
        scale = scale.repeat_interleave(x.shape[1] // groups, 0)
        bias = bias.repeat_interleave(x.shape[1] // groups, 0)
    return apply("group_norm", x, scale, bias, groups=groups, eps=call.get("epsilon", 1e-5))


@operator("LayerNormalization")
def layer_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    """All axes from one on, and on demand their mean and inverse deviation."""
    axis, eps = axis_of(call.get("axis", -1), len(x.shape)), call.get("epsilon", 1e-5)
    shape = x.shape[axis:]
    plain = scale.shape == shape and (bias is None or bias.shape == shape)
    if plain and not call.wants(1) and not call.wants(2) and min(shape, default=1):
        return apply("layer_norm", x, scale, bias, normalized_shape=shape, eps=eps)
    wide = x.astype("f32") if x.dtype.bits < 32 else x
    axes = tuple(range(axis, len(x.shape)))
    mean = wide.mean(axis=axes, keepdims=True)
    centered = wide - mean
    inverse = 1 / ((centered * centered).mean(axis=axes, keepdims=True) + eps).sqrt()
    made = (centered * inverse).astype(x.dtype) * scale
    return made if bias is None else made + bias, mean, inverse


@operator("RMSNormalization SimplifiedLayerNormalization")
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    """Divided by the root of the mean square of all axes from one on."""
    axis, eps = axis_of(call.get("axis", -1), len(x.shape)), call.get("epsilon", 1e-5)
    shape = x.shape[axis:]
    if scale.shape == shape and scale.dtype is x.dtype:
        return apply("rms_norm", x, scale, normalized_shape=shape, eps=eps)
    wide = x.astype("f32") if x.dtype.bits < 32 else x
    square = (wide * wide).mean(axis=tuple(range(axis, len(x.shape))), keepdims=True)
    return (wide / (square + eps).sqrt()).astype(scale.dtype) * scale


@operator("MeanVarianceNormalization")
def mean_variance_normalization(call: Call, x: Tensor) -> Tensor:
    """Mean zero and deviation one over axes."""
    axes = axes_of(call.get("axes", [0, 2, 3]), len(x.shape))
    centered = x - x.mean(axis=axes, keepdims=True)
    return centered / ((centered * centered).mean(axis=axes, keepdims=True).sqrt() + 1e-9)


@operator("LRN")
def local_response(call: Call, x: Tensor) -> Tensor:
    """Divided by a power of the squares of neighbouring channels (Krizhevsky et al., 2012)."""
    size, bias = call["size"], call.get("bias", 1.0)
    alpha, beta = call.get("alpha", 1e-4), call.get("beta", 0.75)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    widths = [(before, after) if k == 1 else (0, 0) for k in range(len(x.shape))]
    squares = padded(x * x, widths)
    total = squares[:, : x.shape[1]]
    for k in range(1, size):
        total = total + squares[:, k : k + x.shape[1]]
    return x / (total * (alpha / size) + bias) ** beta
