"""What programs fuse on a GPU beside the same without: softmax and norms with maps, gates and
residuals in the epilogues of products, residuals in those of convolutions.

    python asv_benchmarks/gpu_fusion.py            # lines as they come
    python asv_benchmarks/gpu_fusion.py rows gate  # some of them

Both sides are ours, in turns, on one stream, timed by events; "peer" is the side that is not fused,
whose results are as exact or less so. Rows of softmax and norms are written out up to
`cubepy.tensor.fusion.reductions.opened.LONGEST_ON_GPU` elements: the limit belongs where their
ratios fall below one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from gpu_timing import Case, Row, measured, milliseconds, pause, single

sys.path.append(str(Path(__file__).resolve().parents[1]))

DEVICE = "cuda:0"
ROUNDS, CALLS = 9, 10
ROWS = ((8192, 128), (4096, 768), (512, 4096), (8192, 4096), (1024, 8192))
WIDTHS = ((16, 4096, 11008), (512, 4096, 11008), (4096, 768, 3072))
"""Rows, width, inner width of gated networks."""
IMAGES = (
    (1, 56, 64, 256, 1),
    (1, 14, 256, 1024, 1),
    (32, 56, 64, 256, 1),
    (32, 14, 256, 1024, 1),
    (1, 28, 128, 128, 3),
    (32, 56, 64, 64, 3),
)
"""Images, side, channels, filters, window: what ends blocks of ResNet-50, and of ResNet-18."""


def compared(name: str, fused: Callable[[], Any], plain: Callable[[], Any], stream: Any) -> Row:
    """The row of two ways to the same results."""
    for _ in range(4):
        ours, theirs = fused(), plain()
    a, b = (np.asarray(r.astype("f32").to("cpu").numpy(), np.float64) for r in (ours, theirs))
    error = float(np.linalg.norm(a - b) / np.linalg.norm(b))
    waits = [pause(1 << 16, measured(run, CALLS, stream)[1]) for run in (fused, plain)]
    found = milliseconds((fused, plain), stream, ROUNDS, (CALLS, CALLS), waits)
    return {
        "work": name,
        "ours": f"{found[0] * 1e3:.1f} us",
        "peer": f"{found[1] * 1e3:.1f} us, not fused",
        "ratio": f"{found[1] / found[0]:.2f}",
        "error": f"{error:.1e} apart",
        "ms": tuple(found),
    }


def programs(function: Callable[..., Any], given: tuple[Any, ...], longest: int) -> Any:
    """Calls of a function of tensors as a program, which is made while the limit holds."""
    import cubepy as cb
    from cubepy.tensor.fusion.reductions import opened

    program = cb.jit(lambda *xs: function(*xs))

    def call() -> Any:
        with cb.no_grad():
            found = program(*given)
        return found[0] if isinstance(found, tuple) else found

    limits = dict.fromkeys(opened.LONGEST_ON_GPU, longest)
    with mock.patch.object(opened, "LONGEST_ON_GPU", limits):
        for _ in range(4):
            call()
    return call


def rows(kind: str, shape: tuple[int, int], dtype: str, *, stream: Any) -> Row:
    """Softmax or a norm beside maps."""
    import cubepy as cb
    from cubepy.nn import functional as F
    from cubepy.tensor import apply, where

    rng = np.random.default_rng(0)
    x, y = (
        cb.tensor(rng.standard_normal(shape, np.float32)).to(DEVICE).astype(dtype) for _ in range(2)
    )
    w = cb.tensor(rng.standard_normal(shape[1:], np.float32)).to(DEVICE).astype(dtype)
    width = shape[1:]
    functions: dict[str, Callable[..., Any]] = {
        "residual + layer norm": lambda x, y, w: F.layer_norm(x + y, width, w, w),
        "both results": lambda x, y, w: (F.layer_norm(z := x + y, width, w, w), z),
        "residual + RMS norm": lambda x, y, w: apply(
            "rms_norm", x + y, w, normalized_shape=width, eps=1e-6
        ),
        "scale + mask + softmax": lambda x, y, w: where(y > 0.2, x * 0.125, -1e4).softmax(-1),
    }
    given = x, y, w
    fused, plain = (programs(functions[kind], given, longest) for longest in (1 << 16, 0))
    return compared(f"{kind} {shape[0]} x {shape[1]} {dtype}", fused, plain, stream)


def products(kind: str, sizes: tuple[int, int, int], dtype: str, *, stream: Any) -> Row:
    """A gate, or an activation behind a residual; what is not fused is a result as well."""
    import cubepy as cb
    from cubepy.nn import functional as F

    rng, (m, width, inner) = np.random.default_rng(0), sizes

    def drawn(*shape: int) -> Any:
        return cb.tensor(rng.standard_normal(shape, np.float32) / 8).to(DEVICE).astype(dtype)

    x, w, v, r = drawn(m, width), drawn(inner, width), drawn(inner, width), drawn(m, inner)

    def gate(x: Any, w: Any, v: Any, r: Any) -> Any:
        return F.silu(F.linear(x, w)) * F.linear(x, v)

    def gate_stored(x: Any, w: Any, v: Any, r: Any) -> Any:
        a, b = F.silu(F.linear(x, w)), F.linear(x, v)
        return a * b, a, b

    def late(x: Any, w: Any, v: Any, r: Any) -> Any:
        return F.relu(F.linear(x, w) + r)

    def late_stored(x: Any, w: Any, v: Any, r: Any) -> Any:
        a = F.linear(x, w)
        return F.relu(a + r), a

    pair = {"gate": (gate, gate_stored), "relu behind a residual": (late, late_stored)}[kind]
    fused, plain = (programs(function, (x, w, v, r), 0) for function in pair)
    return compared(f"{kind} {m} x {width} x {inner} {dtype}", fused, plain, stream)


def images(sizes: tuple[int, int, int, int, int], dtype: str, *, stream: Any) -> Row:
    """relu(convolution + residual), channels last."""
    import cubepy as cb
    from cubepy import kernels as K
    from cubepy.kernels.primitives.epilogue import after_sum
    from cubepy.kernels.primitives.functions import activation_of

    (n, side, channels, filters, window), rng = sizes, np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        there = cb.tensor(rng.standard_normal(shape, np.float32) / 8).to(DEVICE).astype(dtype)
        return there.storage.dense()

    x, r = drawn(n, side, side, channels), drawn(n, side, side, filters)
    w, b, pad = drawn(filters, channels, window, window), drawn(filters), window // 2
    ending = after_sum(activation_of("relu"))

    def fused() -> Any:
        return K.conv2d(x, w, b, 1, pad, layout="NHWC", activation="relu", add=r)

    def plain() -> Any:
        return K.map(ending, K.conv2d(x, w, b, 1, pad, layout="NHWC"), r)

    size = f"{n} x {side} x {side} x {channels} to {filters}, {window} x {window}"
    name = f"relu(conv + residual) {size} {dtype}"
    return compared(name, lambda: cb.tensor(fused()), lambda: cb.tensor(plain()), stream)


KINDS = "residual + layer norm", "scale + mask + softmax", "residual + RMS norm", "both results"
CASES: dict[str, Case] = {
    **{
        f"rows {kind} {shape} {dtype}": single(rows, kind, shape, dtype)
        for kind in KINDS
        for shape in ROWS
        for dtype in (("f32", "bf16") if kind == KINDS[0] else ("bf16",))
    },
    **{
        f"gate {kind} {sizes}": single(products, kind, sizes, "bf16")
        for kind in ("gate", "relu behind a residual")
        for sizes in WIDTHS
    },
    **{f"images {sizes}": single(images, sizes, "f16") for sizes in IMAGES},
}


def lines(asked: list[str]) -> Iterator[Row]:
    """The rows of the cases whose names begin with what is asked for; all without."""
    for name, case in CASES.items():
        if not asked or name.startswith(tuple(asked)):
            yield from case(DEVICE)


if __name__ == "__main__":
    for row in lines(sys.argv[1:]):
        print(
            " | ".join(row[name] for name in ("work", "ours", "peer", "ratio", "error")), flush=True
        )
