"""Windows over images: convolutions of ResNet-50, of Burn's suite, in groups; pooling; NCHW unless
said otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers import Graph, Run, frozen, node, torch_module
from benchmarks.work import Work, draw
from cubepy import kernels as K

CONVOLUTIONS = (  # window, stride, channels, filters, batch, side
    "3x1x64x64x1x56", "3x1x64x64x8x56", "1x1x64x256x1x56", "1x1x256x64x1x56", "1x1x64x256x8x56", "7x2x3x64x1x224",
    "7x2x3x64x8x224", "3x1x128x128x1x28", "3x1x256x256x1x14", "3x1x512x512x1x7", "3x2x128x128x1x56",
    "3x1x256x512x16x12", "5x1x96x256x16x24",
)  # fmt: skip
GROUPED = (
    "3x1x64x64x64x1x112",
    "3x2x128x128x128x1x56",
    "3x1x512x512x512x1x14",
    "5x1x240x240x240x1x28",
    "7x1x96x96x96x1x56",
    "3x1x144x144x144x8x56",
    "3x1x128x128x32x1x56",
    "3x1x256x256x32x1x56",
    "3x1x1024x1024x32x1x14",
)  # window, stride, channels, filters, groups, batch, side: of MobileNet, EfficientNet, ConvNeXt and ResNeXt
GRADIENTS = (
    "3x1x64x64x1x56", "3x1x64x64x8x56", "3x1x128x128x1x28", "3x1x256x256x1x14", "3x2x128x128x1x56", "1x1x64x256x1x56",
    "1x2x256x512x1x56",
)  # fmt: skip
TRANSPOSED = (
    "4x2x64x64x1x56",
    "4x2x128x64x1x28",
    "4x2x256x128x1x14",
    "3x2x128x128x1x28",
    "2x2x128x64x1x56",
)
POOLS = (
    "5x2x2x2x2x128x512",
    "5x1x2x1x2x32x512",
    "3x2x1x1x2x128x512",
    "3x1x1x1x2x32x512",
    "3x2x1x1x8x64x112",
)
# window, stride, padding, dilation, batch, channels, side


def _data(k: int, s: int, c: int, filters: int, n: int, side: int) -> tuple[np.ndarray, ...]:
    return (
        draw(n, c, side, side),
        draw(filters, c, k, k, scale=(c * k * k) ** -0.5, seed=1),
        np.array([s, k // 2]),
    )


def _flops(k: int, s: int, c: int, filters: int, n: int, side: int) -> float:
    out = (side + 2 * (k // 2) - k) // s + 1
    return 2.0 * n * out * out * filters * c * k * k


def _ours(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    filters, (s, p) = K.prepack_filter(w), how.tolist()
    return lambda: K.conv2d(x, filters, stride=s, padding=p)


def _ours_last(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    filters, (s, p) = K.prepack_filter(w), how.tolist()
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    return lambda: K.conv2d(last, filters, stride=s, padding=p, layout="NHWC").transpose(0, 3, 1, 2)


def _torch(x: Any, w: Any, how: Any) -> Run:
    conv2d, (s, p) = torch_module().nn.functional.conv2d, how.tolist()
    return lambda: conv2d(x, w, stride=s, padding=p)


def _torch_last(x: Any, w: Any, how: Any) -> Run:
    last = torch_module().channels_last
    return _torch(x.to(memory_format=last), w.to(memory_format=last), how)


def _torch_layer(last: bool) -> Any:
    """A layer of torch with these filters, and its input."""

    def layer(x: Any, w: Any, how: Any) -> tuple[Any, Any]:
        torch, (s, p) = torch_module(), how.tolist()
        module = torch.nn.Conv2d(w.shape[1], w.shape[0], w.shape[2], s, p, bias=False)
        module.weight = torch.nn.Parameter(w, requires_grad=False)
        order = torch.channels_last if last else torch.contiguous_format
        return module.to(memory_format=order), x.to(memory_format=order)

    return layer


def _onnx(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Graph:
    (s, p), k = how.tolist(), w.shape[-1]
    return node("Conv", kernel_shape=[k, k], strides=[s, s], pads=[p] * 4)(x, w)


def _exact(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> np.ndarray:
    (s, p), k = how.tolist(), w.shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (k, k), axis=(2, 3))[:, :, ::s, ::s]
    return np.einsum("nchwij,fcij->nfhw", windows, w, optimize=True)


def _grouped_data(
    k: int, s: int, c: int, filters: int, groups: int, n: int, side: int
) -> tuple[np.ndarray, ...]:
    w = _data(k, s, c // groups, filters, 1, 1)[1]
    return draw(n, c, side, side), w, np.array([s, k // 2, groups])


def _grouped_flops(k: int, s: int, c: int, filters: int, groups: int, n: int, side: int) -> float:
    return _flops(k, s, c // groups, filters, n, side)


def _grouped(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    s, p, groups = how.tolist()
    filters = K.prepack_filter(w, groups)
    return lambda: K.conv2d(x, filters, stride=s, padding=p, groups=groups)


def _grouped_last(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    s, p, groups = how.tolist()
    filters, last = K.prepack_filter(w, groups), np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    return lambda: K.conv2d(
        last, filters, stride=s, padding=p, groups=groups, layout="NHWC"
    ).transpose(0, 3, 1, 2)


def _torch_grouped(x: Any, w: Any, how: Any) -> Run:
    conv2d, (s, p, groups) = torch_module().nn.functional.conv2d, how.tolist()
    return lambda: conv2d(x, w, stride=s, padding=p, groups=groups)


def _torch_grouped_last(x: Any, w: Any, how: Any) -> Run:
    last = torch_module().channels_last
    return _torch_grouped(x.to(memory_format=last), w.to(memory_format=last), how)


def _onnx_grouped(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Graph:
    (s, p, groups), k = how.tolist(), w.shape[-1]
    return node("Conv", kernel_shape=[k, k], strides=[s, s], pads=[p] * 4, group=groups)(x, w)


def _exact_grouped(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> np.ndarray:
    s, p, groups = how.tolist()
    parts = zip(np.split(x, groups, 1), np.split(w, groups), strict=True)
    return np.concatenate([_exact(a, b, np.array([s, p])) for a, b in parts], 1)


def _transposed_data(
    k: int, s: int, c: int, filters: int, n: int, side: int
) -> tuple[np.ndarray, ...]:
    padding = (k - s + 1) // 2
    return (
        draw(n, c, side, side),
        draw(c, filters, k, k, scale=(c * k * k) ** -0.5, seed=1),
        np.array([s, padding]),
    )


def _transposed_flops(k: int, s: int, c: int, filters: int, n: int, side: int) -> float:
    return 2.0 * n * side * side * filters * c * k * k


def _transposed(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    s, p = how.tolist()
    return lambda: K.conv_transpose2d(x, w, None, s, p)


def _last(x: np.ndarray) -> np.ndarray:
    """The same numbers in channels-last memory."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def _transposed_last(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> Run:
    return _transposed(_last(x), w, how)


def _torch_transposed(x: Any, w: Any, how: Any) -> Run:
    function, (s, p) = torch_module().nn.functional.conv_transpose2d, how.tolist()
    return lambda: function(x, w, None, s, p)


def _torch_transposed_last(x: Any, w: Any, how: Any) -> Run:
    last = torch_module().channels_last
    return _torch_transposed(x.to(memory_format=last), w.to(memory_format=last), how)


def _exact_transposed(x: np.ndarray, w: np.ndarray, how: np.ndarray) -> np.ndarray:
    (s, p), k = how.tolist(), w.shape[-1]
    n, _, high, wide = x.shape
    out = np.zeros((n, w.shape[1], (high - 1) * s + k, (wide - 1) * s + k))
    for i, j in np.ndindex(k, k):
        reached = out[:, :, i : i + (high - 1) * s + 1 : s, j : j + (wide - 1) * s + 1 : s]
        reached += np.einsum("nchw,cf->nfhw", x, w[:, :, i, j], optimize=True)
    return out[:, :, p : out.shape[2] - p, p : out.shape[3] - p]


def _gradient_data(
    k: int, s: int, c: int, filters: int, n: int, side: int
) -> tuple[np.ndarray, ...]:
    out = (side + 2 * (k // 2) - k) // s + 1
    grad = draw(n, filters, out, out, scale=(c * k * k) ** -0.5, seed=2)
    return draw(n, c, side, side), draw(filters, c, k, k, seed=1), grad, np.array([s, k // 2])


def _by_input(x: np.ndarray, w: np.ndarray, grad: np.ndarray, how: np.ndarray) -> Run:
    s, p = how.tolist()
    return lambda: K.conv_input(x.shape, w, grad, s, p)


def _by_input_last(x: np.ndarray, w: np.ndarray, grad: np.ndarray, how: np.ndarray) -> Run:
    return _by_input(x, w, _last(grad), how)


def _by_weight(x: np.ndarray, w: np.ndarray, grad: np.ndarray, how: np.ndarray) -> Run:
    s, p = how.tolist()
    return lambda: K.conv_weight(x, w.shape, grad, s, p)


def _by_weight_last(x: np.ndarray, w: np.ndarray, grad: np.ndarray, how: np.ndarray) -> Run:
    return _by_weight(_last(x), w, _last(grad), how)


def _torch_gradient(which: int, last: bool) -> Any:
    """The gradient by the input (0) or by the filters (1)."""

    def make(x: Any, w: Any, grad: Any, how: Any) -> Run:
        torch, (s, p) = torch_module(), how.tolist()
        if last:
            x, w, grad = (a.to(memory_format=torch.channels_last) for a in (x, w, grad))
        function, mask = torch.ops.aten.convolution_backward, [which == 0, which == 1, False]
        return lambda: function(grad, x, w, None, [s, s], [p, p], [1, 1], False, [0, 0], 1, mask)[
            which
        ]

    return make


def _exact_gradient(which: int) -> Any:
    """The same in float64, tap by tap."""

    def exact(x: np.ndarray, w: np.ndarray, grad: np.ndarray, how: np.ndarray) -> np.ndarray:
        (s, p), k, m = how.tolist(), w.shape[-1], grad.shape[-1]
        wide = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
        by_input, by_weight = np.zeros(wide.shape), np.zeros(w.shape)
        for i, j in np.ndindex(k, k):
            at = (
                slice(None),
                slice(None),
                slice(i, i + (m - 1) * s + 1, s),
                slice(j, j + (m - 1) * s + 1, s),
            )
            by_input[at] += np.einsum("nfhw,fc->nchw", grad, w[:, :, i, j], optimize=True)
            by_weight[:, :, i, j] = np.einsum("nfhw,nchw->fc", grad, wide[at], optimize=True)
        return by_weight if which else by_input[:, :, p : wide.shape[2] - p, p : wide.shape[3] - p]

    return exact


def _pool_data(k: int, s: int, p: int, d: int, n: int, c: int, side: int) -> tuple[np.ndarray, ...]:
    return draw(n, c, side, side), np.array([k, s, p, d])


def _pool_bytes(k: int, s: int, p: int, d: int, n: int, c: int, side: int) -> float:
    out = (side + 2 * p - d * (k - 1) - 1) // s + 1
    return 4.0 * n * c * (side * side + out * out)


def _pool(x: np.ndarray, how: np.ndarray) -> Run:
    k, s, p, d = how.tolist()
    return lambda: K.max_pool2d(x, k, s, p, d)


def _pool_last(x: np.ndarray, how: np.ndarray) -> Run:
    last, (k, s, p, d) = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), how.tolist()
    return lambda: K.max_pool2d(last, k, s, p, d, layout="NHWC").transpose(0, 3, 1, 2)


def _torch_pool(x: Any, how: Any) -> Run:
    pool, (k, s, p, d) = torch_module().nn.functional.max_pool2d, how.tolist()
    return lambda: pool(x, k, s, p, d)


def _torch_pool_last(x: Any, how: Any) -> Run:
    return _torch_pool(x.to(memory_format=torch_module().channels_last), how)


def _onnx_pool(x: np.ndarray, how: np.ndarray) -> Graph:
    k, s, p, d = how.tolist()
    return node("MaxPool", kernel_shape=[k, k], strides=[s, s], pads=[p] * 4, dilations=[d, d])(x)


def _exact_pool(x: np.ndarray, how: np.ndarray) -> np.ndarray:
    k, s, p, d = how.tolist()
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=-np.inf)
    span = d * (k - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (span, span), axis=(2, 3))
    return windows[:, :, ::s, ::s, ::d, ::d].max((4, 5))


def _images(k: int, s: int, p: int, n: int, c: int, side: int) -> tuple[np.ndarray, ...]:
    out = (side + 2 * p - k) // s + 1
    return draw(n, c, side, side), draw(n, c, out, out, seed=1), np.array([k, s, p])


def _resized(n: int, c: int, side: int, out: int) -> tuple[np.ndarray, ...]:
    return draw(n, c, side, side), draw(n, c, out, out, seed=1)


def _as_torch(x: Any, last: bool) -> Any:
    return x.to(memory_format=torch_module().channels_last) if last else x


def _max_places(back: bool, last: bool) -> tuple[Any, Any]:
    """Max pooling with the places of the maxima, or its gradient: cubepy and torch."""

    def ours(x: np.ndarray, grad: np.ndarray, how: np.ndarray) -> Run:
        x, grad = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) if last else a for a in (x, grad))
        settings, layout = how.tolist(), "NHWC" if last else "NCHW"
        places = K.max_pool2d(x, *settings, return_indices=True, layout=layout)[1]
        if back:
            return lambda: K.max_pool2d_input(x.shape, grad, places, *settings, layout=layout)
        return lambda: K.max_pool2d(x, *settings, return_indices=True, layout=layout)[0]

    def torchs(x: Any, grad: Any, how: Any) -> Run:
        x, grad, (k, s, p) = _as_torch(x, last), _as_torch(grad, last), how.tolist()
        pool, ops = torch_module().nn.functional.max_pool2d, torch_module().ops.aten
        places = pool(x, k, s, p, return_indices=True)[1]
        if back:
            function = ops.max_pool2d_with_indices_backward
            return lambda: function(grad, x, [k, k], [s, s], [p, p], [1, 1], False, places)
        return lambda: pool(x, k, s, p, return_indices=True)[0]

    return ours, torchs


def _averages(back: bool, last: bool) -> tuple[Any, Any]:
    """Average pooling or its gradient."""

    def ours(x: np.ndarray, grad: np.ndarray, how: np.ndarray) -> Run:
        x, grad = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) if last else a for a in (x, grad))
        settings, layout = how.tolist(), "NHWC" if last else "NCHW"
        if back:
            return lambda: K.avg_pool2d_input(x.shape, grad, *settings, layout=layout)
        return lambda: K.avg_pool2d(x, *settings, layout=layout)

    def torchs(x: Any, grad: Any, how: Any) -> Run:
        x, grad, (k, s, p) = _as_torch(x, last), _as_torch(grad, last), how.tolist()
        if back:
            function = torch_module().ops.aten.avg_pool2d_backward
            return lambda: function(grad, x, [k, k], [s, s], [p, p], False, True, None)
        return lambda: torch_module().nn.functional.avg_pool2d(x, k, s, p)

    return ours, torchs


def _parts(last: bool) -> tuple[Any, Any]:
    """Averages of equal parts."""

    def ours(x: np.ndarray, like: np.ndarray) -> Run:
        x, size = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x, like.shape[-1]
        return lambda: K.adaptive_avg_pool2d(x, size, layout="NHWC" if last else "NCHW")

    def torchs(x: Any, like: Any) -> Run:
        x, size = _as_torch(x, last), like.shape[-1]
        return lambda: torch_module().nn.functional.adaptive_avg_pool2d(x, size)

    return ours, torchs


def _interpolation(mode: str, back: bool, last: bool) -> tuple[Any, Any]:
    """Images of another size, or the gradient."""

    def ours(x: np.ndarray, grad: np.ndarray) -> Run:
        x, grad = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) if last else a for a in (x, grad))
        size, layout = grad.shape[2], "NHWC" if last else "NCHW"
        if back:
            return lambda: K.interpolate_input(x.shape, grad, mode, layout=layout)
        return lambda: K.interpolate(x, size=size, mode=mode, layout=layout)

    def torchs(x: Any, grad: Any) -> Run:
        x, grad = _as_torch(x, last), _as_torch(grad, last)
        size, shape = list(grad.shape[2:]), list(x.shape)
        if back:
            function = getattr(torch_module().ops.aten, f"upsample_{mode}2d_backward")
            more = [] if mode == "nearest" else [False]
            return lambda: function(grad, size, shape, *more)
        return lambda: torch_module().nn.functional.interpolate(x, size=size, mode=mode)

    return ours, torchs


def _pair(shapes: tuple[str, ...], data: Any, pair: tuple[Any, Any]) -> Work:
    return Work(shapes, data, pair[0], None, pair[1])


POOLED = (
    "3x2x1x8x64x64",
    "2x2x0x8x64x64",
    "5x1x2x8x64x64",
)  # window, stride, padding, batch, channels, side
SIZES = ("8x64x64x128", "8x64x64x40")  # batch, channels, side, side of the result
LAYOUTS = (("", False), ("_channels_last", True))

WORKS = {
    "conv2d": Work(
        CONVOLUTIONS, _data, _ours, None, _torch, _onnx, _exact, _flops, compiled=frozen(_torch_layer(False))
    ),
    "conv2d_channels_last": Work(
        CONVOLUTIONS, _data, _ours_last, None, _torch_last, _onnx, _exact, _flops, compiled=frozen(_torch_layer(True))
    ),
    "conv2d_grouped": Work(
        GROUPED, _grouped_data, _grouped, None, _torch_grouped, _onnx_grouped, _exact_grouped, _grouped_flops
    ),
    "conv2d_grouped_channels_last": Work(
        GROUPED, _grouped_data, _grouped_last, None, _torch_grouped_last, _onnx_grouped, _exact_grouped, _grouped_flops
    ),
    "conv_transpose2d": Work(
        TRANSPOSED, _transposed_data, _transposed, None, _torch_transposed, None, _exact_transposed, _transposed_flops
    ),
    "conv_transpose2d_channels_last": Work(
        TRANSPOSED, _transposed_data, _transposed_last, None, _torch_transposed_last, None, _exact_transposed,
        _transposed_flops,
    ),
    "conv_input": Work(
        GRADIENTS, _gradient_data, _by_input, None, _torch_gradient(0, False), None, _exact_gradient(0), _flops
    ),
    "conv_input_channels_last": Work(
        GRADIENTS, _gradient_data, _by_input_last, None, _torch_gradient(0, True), None, _exact_gradient(0), _flops
    ),
    "conv_weight": Work(
        GRADIENTS, _gradient_data, _by_weight, None, _torch_gradient(1, False), None, _exact_gradient(1), _flops
    ),
    "conv_weight_channels_last": Work(
        GRADIENTS, _gradient_data, _by_weight_last, None, _torch_gradient(1, True), None, _exact_gradient(1), _flops
    ),
    "max_pool2d": Work(
        POOLS, _pool_data, _pool, None, _torch_pool, _onnx_pool, _exact_pool, None, _pool_bytes, "5x2x2x2x1x8x64"
    ),
    "max_pool2d_channels_last": Work(
        POOLS, _pool_data, _pool_last, None, _torch_pool_last, _onnx_pool, _exact_pool, None, _pool_bytes,
        "5x2x2x2x1x8x64",
    ),
}  # fmt: skip
for _name, _is_last in LAYOUTS:
    WORKS[f"max_pool2d_places{_name}"] = _pair(POOLED, _images, _max_places(False, _is_last))
    WORKS[f"max_pool2d_input{_name}"] = _pair(POOLED, _images, _max_places(True, _is_last))
    WORKS[f"avg_pool2d{_name}"] = _pair(POOLED, _images, _averages(False, _is_last))
    WORKS[f"avg_pool2d_input{_name}"] = _pair(POOLED, _images, _averages(True, _is_last))
    WORKS[f"adaptive_avg_pool2d{_name}"] = _pair(("8x64x64x7",), _resized, _parts(_is_last))
    for _mode in ("nearest", "bilinear", "bicubic"):
        WORKS[f"interpolate_{_mode}{_name}"] = _pair(
            SIZES, _resized, _interpolation(_mode, False, _is_last)
        )
        WORKS[f"interpolate_{_mode}_input{_name}"] = _pair(
            SIZES, _resized, _interpolation(_mode, True, _is_last)
        )
