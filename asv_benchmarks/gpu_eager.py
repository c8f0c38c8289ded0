"""One op forward and back on a GPU, without `cb.jit`, beside torch's, also eager: small tensors, where
the host is what takes time, and large ones, where memory is.

    python asv_benchmarks/gpu_eager.py               # lines as they come
    python asv_benchmarks/gpu_eager.py norm gelu     # rows whose names have one of these
    python asv_benchmarks/gpu_eager.py --device cpu  # the same on the host

Times are of the clock, over calls between two waits, in turns; both sides were called 40 times
before, so that what comes often is a program. The error is that of the gradients, of the largest.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gpu_timing import Case, Row

sys.path.append(str(Path(__file__).resolve().parents[1]))

ROUNDS, BEFORE, LEAST = 5, 40, 0.02
"""Of turns, calls before the first one, and seconds of a turn."""

Shape = tuple[int, ...]
Call = Callable[..., Any]


def recurrent(cell: str, f: Any, x: Any, *weights: Any) -> Any:
    """The states of all steps of a layer whose weights are matrices and biases, here scaled."""
    w, v, b, c = (t * 0.05 for t in weights)
    if f.__name__.startswith("torch"):
        import torch

        first = x.new_zeros(1, x.shape[1], v.shape[1])
        states = (first, first) if cell == "lstm" else first
        how = True, 1, 0.0, True, False, False  # biases, layers, dropout, training, and both not
        return getattr(torch, cell)(x, states, [w, v, b, c], *how)[0]
    from cubepy import kernels

    return getattr(kernels, cell)(x, w[None], v[None], b[None], c[None])[0]


OPS: dict[str, tuple[Call, tuple[Shape, ...]]] = {
    "mul": (lambda f, t, a, b: a * b, ((64, 64), (64, 64))),
    "gelu": (lambda f, t, a: f.gelu(a), ((64, 64),)),
    "silu": (lambda f, t, a: f.silu(a), ((64, 64),)),
    "softmax": (lambda f, t, a: f.softmax(a, -1), ((64, 64),)),
    "layer_norm": (lambda f, t, a, w, b: f.layer_norm(a, w.shape, w, b), ((64, 64), (64,), (64,))),
    "rms_norm": (lambda f, t, a, w: f.rms_norm(a, w.shape, w), ((64, 64), (64,))),
    "group_norm": (lambda f, t, a, w, b: f.group_norm(a, 8, w, b), ((4, 32, 16, 16), (32,), (32,))),
    "batch_norm": (
        lambda f, t, a, w, b: f.batch_norm(a, None, None, w, b, training=True),
        ((4, 32, 16, 16), (32,), (32,)),
    ),
    "linear": (lambda f, t, a, w, b: f.linear(a, w, b), ((64, 64), (64, 64), (64,))),
    "conv2d": (
        lambda f, t, a, w, b: f.conv2d(a, w, b, padding=1),
        ((4, 16, 16, 16), (32, 16, 3, 3), (32,)),
    ),
    "max_pool2d": (lambda f, t, a: f.max_pool2d(a, 2), ((4, 16, 16, 16),)),
    "attention": (
        lambda f, t, q, k, v: f.scaled_dot_product_attention(q, k, v),
        ((2, 4, 64, 32),) * 3,
    ),
    "mse_loss": (lambda f, t, a, b: f.mse_loss(a, b), ((64, 64), (64, 64))),
    "cross_entropy": (lambda f, t, a: f.cross_entropy(a, t), ((64, 64),)),
    "grid_sample": (
        lambda f, t, a, g: f.grid_sample(a, g, align_corners=False),
        ((2, 4, 16, 16), (2, 16, 16, 2)),
    ),
    "unfold": (lambda f, t, a: f.unfold(a, 3), ((2, 4, 16, 16),)),
    "lstm": (
        lambda f, t, *given: recurrent("lstm", f, *given),
        ((64, 32, 256), (1024, 256), (1024, 256), (1024,), (1024,)),
    ),
    "gru": (
        lambda f, t, *given: recurrent("gru", f, *given),
        ((64, 32, 256), (768, 256), (768, 256), (768,), (768,)),
    ),
}
"""By name, a function of a library's functional names, of classes and of tensors; shapes of these."""
LARGE: dict[str, tuple[Shape, ...]] = {
    "gelu": ((8192, 4096),),
    "softmax": ((8192, 1024),),
    "layer_norm": ((16384, 768), (768,), (768,)),
    "rms_norm": ((8192, 4096), (4096,)),
    "group_norm": ((8, 512, 32, 32), (512,), (512,)),
    "batch_norm": ((32, 64, 56, 56), (64,), (64,)),
    "linear": ((4096, 1024), (1024, 1024), (1024,)),
    "attention": ((4, 16, 1024, 64),) * 3,
    "mse_loss": ((4096, 4096), (4096, 4096)),
    "cross_entropy": ((2048, 32000),),
    "grid_sample": ((8, 32, 64, 64), (8, 64, 64, 2)),
    "unfold": ((8, 16, 56, 56),),
    "lstm": ((64, 128, 512), (2048, 512), (2048, 512), (2048,), (2048,)),
}


def drawn(shapes: tuple[Shape, ...], classes: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Numbers of shapes, and a class for each row of the first."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    return arrays, rng.integers(0, max(1, classes), shapes[0][0])


def seeds(shape: Shape) -> np.ndarray:
    """What the gradients by a result are."""
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def of_cubepy(op: Call, arrays: list[np.ndarray], classes: np.ndarray, dtype: str, at: str) -> Any:
    """A call with its gradients, their arrays, and what waits for it."""
    import cubepy as cb
    from cubepy.nn import functional

    given = [cb.tensor(a, device=at).astype(dtype).detach() for a in arrays]
    labels = cb.tensor(classes, device=at)
    for x in given:
        x.requires_grad_(True)
    shape = op(functional, labels, *given).shape
    seed = cb.tensor(seeds(shape), device=at).astype(dtype)

    def call() -> None:
        for x in given:
            x.grad = None
        op(functional, labels, *given).backward(seed)

    return call, lambda: [x.grad.astype("f32").numpy() for x in given], lambda: cb.sync(at)


def of_torch(op: Call, arrays: list[np.ndarray], classes: np.ndarray, dtype: str, at: str) -> Any:
    """The same of torch."""
    import torch

    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    given = [torch.tensor(a, device=at).to(kind).requires_grad_() for a in arrays]
    labels = torch.tensor(classes, device=at)
    functional = torch.nn.functional
    shape = tuple(op(functional, labels, *given).shape)
    seed = torch.tensor(seeds(shape), device=at).to(kind)

    def call() -> None:
        for x in given:
            x.grad = None
        op(functional, labels, *given).backward(seed)

    wait = torch.cuda.synchronize if at != "cpu" else lambda: None
    return call, lambda: [x.grad.float().cpu().numpy() for x in given], wait


def seconds(call: Callable[[], None], wait: Callable[[], None], count: int) -> float:
    """What a call takes, of so many between two waits."""
    wait()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - begin) / count


def compared(name: str, shapes: tuple[Shape, ...], dtype: str, device: str) -> Row:
    """The row of an op."""
    op = OPS[name][0]
    arrays, classes = drawn(shapes, shapes[0][-1])
    sides = [make(op, arrays, classes, dtype, device) for make in (of_cubepy, of_torch)]
    counts = []
    for call, _, wait in sides:
        for _ in range(BEFORE):
            call()
        counts.append(max(2, min(50, int(LEAST / seconds(call, wait, 2)))))
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for side, (call, _, wait), count in zip(times, sides, counts, strict=True):
            side.append(seconds(call, wait, count))
    ours, theirs = (statistics.median(side) for side in times)
    pairs = zip(*(grads() for _, grads, _ in sides), strict=True)
    error = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
    text = " x ".join(map(str, shapes[0]))
    return {
        "work": f"{name} {text}, {dtype}, forward and back",
        "ours": f"{ours * 1e6:.1f} us",
        "peer": f"{theirs * 1e6:.1f} us (torch)",
        "ratio": f"{theirs / ours:.2f}",
        "error": f"{error:.1e}",
        "ms": (ours * 1e3, theirs * 1e3),
    }


def _case(name: str, shapes: tuple[Shape, ...], dtype: str) -> Case:
    def case(device: str) -> Iterator[Row]:
        yield compared(name, shapes, dtype, device)

    return case


CASES: dict[str, Case] = {
    **{f"{name} small": _case(name, shapes, "f32") for name, (_, shapes) in OPS.items()},
    **{
        f"{name} large {dtype}": _case(name, shapes, dtype)
        for name, shapes in LARGE.items()
        for dtype in ("f32", "bf16")
        if (name, dtype) != ("grid_sample", "bf16")  # positions in 8 bits
    },
}


def main(cases: dict[str, Case] = CASES, about: str = __doc__ or "") -> int:
    """Print the rows of some cases that are asked for."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names of rows")
    parser.add_argument("--device", default="cuda:0")
    asked = parser.parse_args()
    show = functools.partial(print, flush=True)
    for name, case in cases.items():
        if not asked.names or any(part in name for part in asked.names):
            for row in case(asked.device):
                show(row["work"], row["ours"], row["peer"], row["ratio"], row["error"], sep=" | ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
