"""Convolutions on a GPU beside torch's (cuDNN): `python asv_benchmarks/gpu.py --only convolution`.

The layers of ResNet-50, channels last, with `torch.backends.cudnn.benchmark` (cuDNN measures its
kernels and takes the fastest) and filters in channels-last memory for both. Inputs are normal
random numbers, rotated beyond the second-level cache; results are written to new memory. A pause on
the GPU before every measurement lets the host run ahead, so that events time the GPU alone; rounds
are interleaved, medians. Floating-point operations are 2 N places filters channels window. The
error is the norm of the difference to float64 over the norm, on some images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpu_matmul import CACHE, in_turns
from gpu_timing import Case, Row, single

SAMPLE = 2
# channels, side, filters, window, stride; the different ones of ResNet-50, in its order
LAYERS = (
    (3, 224, 64, 7, 2), (64, 56, 64, 1, 1), (64, 56, 64, 3, 1), (64, 56, 256, 1, 1), (256, 56, 64, 1, 1),
    (256, 56, 128, 1, 1), (128, 56, 128, 3, 2), (128, 28, 512, 1, 1), (256, 56, 512, 1, 2), (512, 28, 128, 1, 1),
    (128, 28, 128, 3, 1), (512, 28, 256, 1, 1), (256, 28, 256, 3, 2), (256, 14, 1024, 1, 1), (512, 28, 1024, 1, 2),
    (1024, 14, 256, 1, 1), (256, 14, 256, 3, 1), (1024, 14, 512, 1, 1), (512, 14, 512, 3, 2), (512, 7, 2048, 1, 1),
    (1024, 14, 2048, 1, 2), (2048, 7, 512, 1, 1), (512, 7, 512, 3, 1),
)  # fmt: skip
# channels, side, filters, window, stride, groups
DEPTHWISE = (
    (128, 56, 128, 3, 1, 128), (512, 14, 512, 3, 1, 512), (144, 56, 144, 3, 2, 144), (240, 28, 240, 5, 1, 240),
    (96, 56, 96, 7, 1, 96),
)  # fmt: skip
GROUPED = (*DEPTHWISE, (128, 56, 128, 3, 1, 32), (512, 14, 512, 3, 1, 32))
SQUARES = ((64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1), (512, 7, 512, 3, 1))


def compare(
    work: str, batch: int, layer: tuple[int, ...], what: str = "conv2d", groups: int = 1, first: bool = False,
    dtype: str = "float16", fused: bool = False, *, stream: Any,
) -> Row:  # fmt: skip
    """One row: a convolution, with bias and relu if `fused`, or a gradient ("conv_input",
    "conv_weight"), for which the peer's is convolution_backward.

    The dtype "tf32" is float32 that both may round.
    """
    import torch

    from cubepy import kernels as K

    channels, side, filters, window, stride = layer
    padding = window // 2
    torch.backends.cudnn.benchmark = True
    precision = "tf32" if dtype == "tf32" else None
    kind = torch.float32 if precision else getattr(torch, dtype)
    torch.backends.cudnn.allow_tf32 = precision is not None
    form = torch.contiguous_format if first else torch.channels_last
    out_side = (side + 2 * padding - window) // stride + 1
    size = kind.itemsize * batch * (channels * side**2 + filters * out_side**2)
    sets = max(2, min(10, int(CACHE / size) + 1))

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=kind).to(memory_format=form)

    xs = [draw(batch, channels, side, side) for _ in range(sets)]
    grads = [draw(batch, filters, out_side, out_side) for _ in range(sets)]
    w = (
        draw(filters, channels // groups, window, window) * (channels // groups * window**2) ** -0.5
    ).to(memory_format=form)
    bias = torch.randn(filters, device="cuda", dtype=kind) if fused else None
    activation = "relu" if fused else None
    settings = (stride, padding, 1, groups)
    masks = {"conv_input": (True, False, False), "conv_weight": (False, True, False)}

    def theirs(i: int) -> Any:
        if what == "conv2d":
            y = torch.nn.functional.conv2d(xs[i], w, bias, *settings)
            return torch.relu_(y) if fused else y
        done = torch.ops.aten.convolution_backward(
            grads[i],
            xs[i],
            w,
            None,
            [stride] * 2,
            [padding] * 2,
            [1, 1],
            False,
            [0, 0],
            groups,
            masks[what],
        )
        return done[0] if what == "conv_input" else done[1]

    def ours(i: int) -> Any:
        if what == "conv2d":
            return K.conv2d(xs[i], w, bias, *settings, activation=activation, precision=precision)
        if what == "conv_input":
            return K.conv_input(tuple(xs[i].shape), w, grads[i], *settings, precision=precision)
        return K.conv_weight(xs[i], tuple(w.shape), grads[i], *settings, precision=precision)

    flops = 2 * batch * out_side**2 * filters * channels // groups * window**2
    calls = max(sets, min(24, int(4e-3 / max(flops / 5e14, size / 3e12))))
    mine, other = in_turns([ours, theirs], calls, sets, stream)
    some = slice(0, batch if what == "conv_weight" else SAMPLE)
    x, grad = xs[0][some].double(), grads[0][some].double()
    if what == "conv2d":
        right = torch.nn.functional.conv2d(
            x, w.double(), None if bias is None else bias.double(), *settings
        )
        right = torch.relu(right) if fused else right
    elif what == "conv_input":
        right = torch.nn.grad.conv2d_input(tuple(x.shape), w.double(), grad, *settings)
    else:
        right = torch.nn.grad.conv2d_weight(x, tuple(w.shape), grad, *settings)
    got = torch.as_tensor(ours(0), device="cuda")
    error = float(
        ((got if what == "conv_weight" else got[some]).double() - right).norm() / right.norm()
    )
    return {
        "work": work, "ms": (mine, other),
        "ours": f"{mine * 1e3:.1f} us, {flops / mine / 1e9:.0f} TFLOP/s, {size / mine / 1e6:.0f} GB/s",
        "peer": f"{other * 1e3:.1f} us, {flops / other / 1e9:.0f} TFLOP/s (cuDNN)",
        "ratio": f"{other / mine:.2f}", "error": f"{error:.1e}",
    }  # fmt: skip


def layers() -> Iterator[tuple[int, tuple[int, ...], dict[str, Any]]]:
    """ResNet-50's layers at batch 64, its 3x3 layers at other batches, dtypes, layouts and with an
    epilogue; groups, gradients and f32.
    """
    for layer in LAYERS:
        yield 64, layer, {}
    for layer in SQUARES:
        for batch in (32, 128):
            yield batch, layer, {}
        yield 64, layer, {"dtype": "bfloat16"}
        yield 64, layer, {"fused": True}
    for layer in (*SQUARES[:2], LAYERS[3]):
        yield 64, layer, {"first": True}
    for *grouped, groups in GROUPED:
        for first in (False, True):
            yield 64, tuple(grouped), {"groups": groups, "first": first}
    for what in ("conv_input", "conv_weight"):
        for layer in (*SQUARES, LAYERS[6], LAYERS[4]):
            yield 64, layer, {"what": what}
        yield 64, SQUARES[1], {"what": what, "first": True}
        for *grouped, groups in DEPTHWISE:
            for first in (False, True):
                yield 64, tuple(grouped), {"what": what, "groups": groups, "first": first}
    for dtype in ("float32", "tf32"):
        for what in ("conv2d", "conv_input", "conv_weight"):
            for layer in SQUARES[:3]:
                yield 64, layer, {"what": what, "dtype": dtype}
    for what in ("conv2d", "conv_input", "conv_weight"):
        for *grouped, groups in DEPTHWISE[:3]:
            yield 64, tuple(grouped), {"what": what, "groups": groups, "dtype": "float32"}


def cases() -> Iterator[tuple[str, Case]]:
    """All layers with their names."""
    for batch, layer, options in layers():
        channels, side, filters, window, stride = layer
        groups = options.get("groups", 1)
        work = f"{options.get('what', 'conv2d')} {window}x{window} {channels}-{filters} of ({batch}, {side}, {side})"
        work += f", stride {stride}, {options.get('dtype', 'float16')}"
        work += ", relu(conv + bias)" if options.get("fused") else ""
        work += f", {groups} groups" if groups > 1 else ""
        work += ", channels first" if options.get("first") else ""
        yield work, single(compare, work, batch, layer, **options)


CASES = dict(cases())
