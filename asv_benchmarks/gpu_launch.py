"""What a launch costs on the host: ours beside a bare call of the driver, Triton and torch, also
for new lengths.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from gpu_timing import Row

import cubepy as cb

ROUNDS, CALLS = 21, 200


@cb.kernel
def add(a: cb.Array, b: cb.Array, out: cb.Array):
    """out = a + b."""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = a[i] + b[i]


def host_time(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Microseconds of one call on the host, with the queue empty at the start."""
    wait()
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    seconds = time.perf_counter() - start
    wait()
    return seconds / CALLS * 1e6


def bare(add_bound: Any) -> Callable[[], Any]:
    """The driver's call with everything prepared, through ctypes."""
    from cubepy.backends.cuda.native.driver import DRIVER
    from cubepy.backends.cuda.run import CudaRunner
    from cubepy.backends.gpu.native.stream import thread_stream

    prepared = add_bound.prepared
    runner: CudaRunner = prepared.runner
    runner.fill(add_bound.launcher.leaves(add_bound.values), thread_stream(DRIVER, 0))
    native = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
    arguments = (*runner.head, thread_stream(DRIVER, 0).argument, runner.parameters, None)
    return lambda: native(*arguments)


def triton_launch(a: Any, b: Any, out: Any) -> Callable[[], Any]:
    """The same kernel in Triton."""
    import triton
    import triton.language as tl

    @triton.jit
    def triton_add(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        tl.store(
            out_ptr + i, tl.load(a_ptr + i, mask=mask) + tl.load(b_ptr + i, mask=mask), mask=mask
        )

    return lambda: triton_add[(4,)](a, b, out, 1024, BLOCK=256)


def length_calls(
    torch: Any,
) -> dict[str, tuple[Callable[[int], Any], Callable[..., Any], Callable[..., Any]]]:
    """Calls for arrays of any length: how their arguments are made, ours, and torch's."""
    from cubepy import kernels as K
    from cubepy.kernels.primitives import functions as f

    T, bf16 = torch.nn.functional, torch.bfloat16
    scale, shift = torch.randn(2, 256, device="cuda")
    weight = torch.randn(256, 256, device="cuda", dtype=bf16)

    def rows(n: int) -> Any:
        return torch.randn(n, 256, device="cuda")

    def halves(n: int) -> Any:
        return rows(n).to(bf16)

    def heads(n: int) -> Any:
        return torch.randn(1, 4, n, 64, device="cuda", dtype=bf16)

    def images(n: int) -> Any:  # batches
        return torch.randn(n % 200 + 1, 64, 14, 14, device="cuda", dtype=torch.float16)

    def wide(n: int) -> Any:
        return torch.randn(1, 64, 20, n % 400 + 8, device="cuda", dtype=torch.float16)

    filters = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.float16)
    moments = torch.rand(2, 64, device="cuda", dtype=torch.float16) + 0.5

    return {
        "add": (rows, lambda x: K.map(f.add, x, x), lambda x: x + x),
        "softmax": (rows, K.softmax, lambda x: x.softmax(-1)),
        "layer_norm": (
            rows, lambda x: K.layer_norm(x, 256, scale, shift), lambda x: T.layer_norm(x, (256,), scale, shift)
        ),
        "sum": (rows, lambda x: K.sum(x, 1), lambda x: x.sum(1)),
        "bf16 product": (halves, lambda x: K.matmul(x, weight), lambda x: x @ weight),
        "bf16 attention": (
            heads, lambda x: K.attention(x, x, x), lambda x: T.scaled_dot_product_attention(x, x, x)
        ),
        "f16 convolution": (
            images, lambda x: K.conv2d(x, filters, padding=1), lambda x: T.conv2d(x, filters, padding=1)
        ),
        "f16 convolution, widths": (
            wide, lambda x: K.conv2d(x, filters, padding=1), lambda x: T.conv2d(x, filters, padding=1)
        ),
        "f16 max pool, widths": (wide, lambda x: K.max_pool2d(x, 2), lambda x: T.max_pool2d(x, 2)),
        "f16 batch norm": (
            wide, lambda x: K.batch_norm(x, *moments), lambda x: T.batch_norm(x, *moments)
        ),
    }  # fmt: skip


def lengths_of(device: str) -> Iterator[Row]:
    """The first and the second call for lengths that never came before, and the tenth; structures
    are known.
    """
    import torch

    torch.cuda.set_device(device)
    lengths = [(617 * k) % 1999 + 1 for k in range(1, 401)]
    for name, (make, ours, peer) in length_calls(torch).items():
        seen = set()
        for n in lengths[:100]:
            x = make(n)
            seen.add(x.shape)
            ours(x), peer(x)
        times: dict[tuple[str, int], list[float]] = {}
        runs = [("ours", ours), ("torch", peer)]
        for n in lengths[100:]:
            x = make(n)
            if x.shape in seen:
                continue
            seen.add(x.shape)
            runs.reverse()
            torch.cuda.synchronize()
            for who, run in runs:
                for k in range(1, 11):
                    start = time.perf_counter()
                    run(x)
                    times.setdefault((who, k), []).append((time.perf_counter() - start) * 1e6)
        for k, which in ((1, "first"), (2, "second"), (3, "third"), (10, "tenth")):
            mine, theirs = median(times["ours", k]), median(times["torch", k])
            yield {"work": f"{which} call of {name} for a length", "ms": (mine / 1e3, theirs / 1e3), "ours": f"{mine:.1f} us",
                   "peer": f"torch {theirs:.1f} us", "ratio": f"{theirs / mine:.2f}x"}  # fmt: skip


def launches(device: str) -> Iterator[Row]:
    """Bound and unbound launches of a kernel with three arrays of 1024 elements."""
    import numpy as np
    import torch

    torch.cuda.set_device(device)
    host = np.random.default_rng(0).standard_normal(1024).astype(np.float32)
    a, b, out = (cb.tensor(host, device=device) for _ in range(3))
    ta, tb, to = (torch.from_numpy(host).to(device) for _ in range(3))
    grid = add[4, 256]
    grid(a, b, out)
    bound = grid.bind(a, b, out)
    runs: dict[str, Callable[[], Any]] = {
        "bound": bound,
        "unbound": lambda: grid(a, b, out),
        "unbound, torch tensors": lambda: grid(ta, tb, to),
        "driver": bare(bound),
        "torch": lambda: torch.add(ta, tb, out=to),
    }
    try:
        runs["Triton"] = triton_launch(ta, tb, to)
        runs["Triton"]()
    except ImportError:
        del runs["Triton"]
    waits = (cb.sync, torch.cuda.synchronize)

    def wait() -> None:
        for w in waits:
            w()

    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(host_time(run, wait))
    mid = {name: median(t) for name, t in times.items()}
    work = "launch of a kernel with 3 arrays, "
    driver = f"prepacked cuLaunchKernel {mid['driver']:.2f} us"
    yield {"work": work + "bound", "ms": (mid["bound"] / 1e3, mid["driver"] / 1e3), "ours": f"{mid['bound']:.2f} us", "peer": driver,
           "ratio": f"{mid['driver'] / mid['bound']:.2f}x"}  # fmt: skip
    for name in ("unbound", "unbound, torch tensors"):
        for peer in ("Triton", "torch"):
            if peer in mid:
                yield {"work": work + name, "ms": (mid[name] / 1e3, mid[peer] / 1e3), "ours": f"{mid[name]:.2f} us", "peer": f"{peer} {mid[peer]:.2f} us",
                       "ratio": f"{mid[peer] / mid[name]:.2f}x"}  # fmt: skip


CASES = {"launches": launches, "new lengths": lengths_of}
