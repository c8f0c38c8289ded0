"""Layers: convolutions, pools, norms, dropout, resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import ModelError
from cubepy.models.exported.records import target
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, apply, as_tensor

CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


def each(value: Any, axes: int) -> Any:
    """A number of each axis; torch writes one for all as a list of one, too."""
    if isinstance(value, (int, str)):
        return value
    return tuple(value) * axes if len(value) == 1 else tuple(value)


def _conv(axes: int) -> Callable[..., Tensor]:
    def run(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        stride, dilation = each(stride, axes), each(dilation, axes)
        if isinstance(padding, str):
            x, padding = _same_padding(x, weight, padding, dilation, axes)
        return CONVOLUTIONS[axes](x, weight, bias, stride, each(padding, axes), dilation, groups)

    return run


def _same_padding(
    x: Tensor, weight: Tensor, padding: str, dilation: Any, axes: int
) -> tuple[Tensor, Any]:
    """Images filled up so that they keep their lengths; one more behind where that is odd."""
    if padding == "valid":
        return x, 0
    steps = (dilation,) * axes if isinstance(dilation, int) else dilation
    sums = [d * (n - 1) for d, n in zip(steps, weight.shape[2:], strict=True)]
    if all(s % 2 == 0 for s in sums):
        return x, tuple(s // 2 for s in sums)
    widths = tuple(n for s in reversed(sums) for n in (s // 2, s - s // 2))
    return apply("pad", x, widths=widths, mode="constant", value=0.0), 0


def _conv_transpose(axes: int) -> Callable[..., Tensor]:
    def run(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        how = [each(v, axes) for v in (stride, padding, output_padding)]
        return TRANSPOSED[axes](x, weight, bias, *how, groups, each(dilation, axes))

    return run


for _axes in (1, 2, 3):
    target(f"conv{_axes}d")(_conv(_axes))
    target(f"conv_transpose{_axes}d")(_conv_transpose(_axes))


@target("convolution _convolution")
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *rest: Any,
) -> Tensor:
    axes = weight.ndim - 2
    if transposed:
        how = (stride, padding, output_padding, groups, dilation)
        return _conv_transpose(axes)(x, weight, bias, *how)
    return _conv(axes)(x, weight, bias, stride, padding, dilation, groups)


def _max_pool(axes: int, indices: bool) -> Callable[..., Any]:
    pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[axes]

    def run(
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        given = each(stride, axes) if stride != [] and stride != () else None
        how = (each(padding, axes), each(dilation, axes), ceil_mode, indices)
        found = pool(x, each(kernel, axes), given, *how)
        return list(found) if indices else found

    return run


def _avg_pool(axes: int) -> Callable[..., Any]:
    pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[axes]

    def run(
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Any:
        given = each(stride, axes) if stride != [] and stride != () else None
        how = (each(padding, axes), ceil_mode, count_include_pad, divisor_override)
        return pool(x, each(kernel, axes), given, *how)

    return run


for _axes in (1, 2, 3):
    target(f"max_pool{_axes}d")(_max_pool(_axes, False))
    target(f"max_pool{_axes}d_with_indices")(_max_pool(_axes, True))
    target(f"avg_pool{_axes}d")(_avg_pool(_axes))

ADAPTIVE: dict[str, Callable[..., Any]] = {
    "adaptive_avg_pool1d": F.adaptive_avg_pool1d,
    "adaptive_avg_pool2d": F.adaptive_avg_pool2d,
    "adaptive_avg_pool3d": F.adaptive_avg_pool3d,
    "_adaptive_avg_pool2d": F.adaptive_avg_pool2d,
    "_adaptive_avg_pool3d": F.adaptive_avg_pool3d,
}


def _adaptive(name: str) -> Callable[..., Any]:
    pool, axes = ADAPTIVE[name], int(name[-2])
    return lambda x, size: pool(x, each(size, axes))


def _adaptive_max(axes: int) -> Callable[..., Any]:
    functions = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}
    return lambda x, size: list(functions[axes](x, each(size, axes), True))


for _name in ADAPTIVE:
    target(_name)(_adaptive(_name))
for _axes in (1, 2, 3):
    target(f"adaptive_max_pool{_axes}d")(_adaptive_max(_axes))


# Norms


@target("layer_norm")
def layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *rest: Any,
) -> Tensor:
    return F.layer_norm(x, tuple(shape), weight, bias, eps)


@target("rms_norm")
def rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Without `eps` it is the distance of 1 to the next float, as torch has it."""
    from_dtype = (
        2.0**-7 if x.dtype.name == "bf16" else {16: 2.0**-10, 64: 2.0**-52}.get(x.dtype.bits)
    )
    small = eps if eps is not None else from_dtype or 2.0**-23
    return apply("rms_norm", x, weight, normalized_shape=tuple(shape), eps=small)  # type: ignore[no-any-return]


@target("group_norm")
def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *rest: Any,
) -> Tensor:
    return F.group_norm(x, groups, weight, bias, eps)


@target("native_layer_norm")
def native_layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> list[Tensor]:
    """With the means and what divides."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    wide = x.astype("f32") if x.dtype.bits < 32 else x
    spread = (wide.var(axes, True) + eps).rsqrt()
    return [F.layer_norm(x, tuple(shape), weight, bias, eps), wide.mean(axes, True), spread]


@target("native_group_norm")
def native_group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    n: int,
    c: int,
    size: int,
    groups: int,
    eps: float,
) -> list[Tensor]:
    rows = x.reshape(n, groups, -1)
    spread = (rows.var(2) + eps).rsqrt()
    return [F.group_norm(x, groups, weight, bias, eps), rows.mean(2), spread]


def _normalized(x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    return apply("channel_norm", x, mean, var, weight, bias, eps=eps)  # type: ignore[no-any-return]


@target("batch_norm")
def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> Tensor:
    if training or mean is None or var is None:
        return apply("batch_norm", x, weight, bias, eps=eps)[0]  # type: ignore[no-any-return]
    return _normalized(x, weight, bias, mean, var, eps)


@target("_native_batch_norm_legit_no_training")
def trained_batch_norm(
    x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> list[Any]:
    return [_normalized(x, weight, bias, mean, var, eps), None, None]


@target("instance_norm")
def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> Tensor:
    if not use_input_stats and mean is not None and var is not None:
        return _normalized(x, weight, bias, mean, var, eps)
    return F.instance_norm(x, weight=weight, bias=bias, eps=eps)


@target("_weight_norm")
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """A direction and its length: g v / |v|, along all axes but one (Salimans and Kingma, 2016)."""
    axes = tuple(a for a in range(v.ndim) if dim == -1 or a != dim % v.ndim)
    return v * (g / v.square().sum(axes, True).sqrt())


@target("dropout dropout_ alpha_dropout feature_dropout feature_alpha_dropout")
def dropout(x: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
    if train and p > 0:
        raise ModelError("dropout of a module that learns: call module.eval() before the export")
    return x


# Resizing


def _resized(mode: str) -> Callable[..., Tensor]:
    corners = mode in ("linear", "bilinear", "bicubic", "trilinear")

    def run(x: Tensor, size: Any, *rest: Any) -> Tensor:
        align = rest[0] if corners else None
        factors = rest[-1] if rest and isinstance(rest[-1], (list, tuple)) else ()
        if size is not None:
            return F.interpolate(x, size=tuple(size), mode=mode, align_corners=align)
        return F.interpolate(x, scale_factor=tuple(factors), mode=mode, align_corners=align)

    return run


for _mode, _names in {
    "nearest": "nearest1d nearest2d nearest3d",
    "linear": "linear1d",
    "bilinear": "bilinear2d",
    "bicubic": "bicubic2d",
    "trilinear": "trilinear3d",
}.items():
    for _name in _names.split():
        target(f"upsample_{_name}.vec")(_resized(_mode))


@target("_upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec")
def nearest_exact(x: Tensor, size: Any, factors: Any) -> Tensor:
    """Of an axis the element at floor((i + 1/2) * before / after)."""
    for axis, n in enumerate(x.shape[2:], 2):
        count = size[axis - 2] if size is not None else int(n * factors[axis - 2])
        step = n / count if size is not None else 1 / factors[axis - 2]
        at = np.minimum(((np.arange(count) + 0.5) * step).astype(np.int64), n - 1)
        x = x.index_select(axis, as_tensor(at).to(x.device))
    return x
