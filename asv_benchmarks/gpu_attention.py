"""Attention and its gradients on a GPU beside torch's, through cuDNN:
`python asv_benchmarks/gpu.py --only attention`.

Each pair of calls is timed by events on one stream, interleaved, medians; inputs are normal random
numbers. Floating point operations are counted as usual: 4 B H L S D forward, 10 B H L S D backward,
half of it where causal. The error is the norm of the difference to float64 on one head, over the
norm.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

from gpu_timing import Row, milliseconds, single

ROUNDS, CALLS = 9, 3

# dtype, batch, query heads, key heads, length, width
FORWARD = (
    ("bfloat16", 4, 16, 16, 4096, 128), ("bfloat16", 2, 16, 16, 8192, 128), ("bfloat16", 1, 16, 16, 16384, 128),
    ("bfloat16", 4, 32, 8, 4096, 128), ("float16", 4, 16, 16, 4096, 128), ("bfloat16", 4, 32, 32, 4096, 64),
    ("bfloat16", 1, 32, 32, 16384, 64), ("bfloat16", 4, 8, 8, 4096, 256), ("bfloat16", 4, 16, 16, 4096, 96),
)  # fmt: skip
BACKWARD = (
    ("bfloat16", 4, 16, 16, 4096, 128), ("bfloat16", 1, 16, 16, 16384, 128), ("bfloat16", 4, 32, 8, 4096, 128),
    ("bfloat16", 4, 32, 32, 4096, 64), ("bfloat16", 4, 8, 8, 4096, 256),
)  # fmt: skip
MASKED = (4, 16)  # batch and heads of these
# dtype, mask, length, width: masks, and f32
GENERAL = (
    ("bfloat16", "padding", 2048, 64), ("bfloat16", "padding", 4096, 128), ("bfloat16", "random", 2048, 64),
    ("bfloat16", "random", 4096, 128), ("bfloat16", "window", 4096, 64), ("bfloat16", "numbers", 2048, 64),
    ("bfloat16", "numbers", 4096, 128), ("float32", "", 2048, 64),
)  # fmt: skip


def in_turns(runs: dict[str, Callable[[], Any]], stream: Any) -> dict[str, float]:
    """The median time of a call, for each run."""
    import torch

    for run in runs.values():
        run()
    torch.cuda.synchronize()
    found = milliseconds([*runs.values()], stream, ROUNDS, [CALLS] * len(runs))
    return dict(zip(runs, found, strict=True))


def exact(q: Any, k: Any, v: Any, causal: bool, grad: Any = None) -> tuple[Any, ...]:
    """The result for the first head, or its gradients, in float64."""
    import torch

    q, k, v = (a[:1, :1].double().detach().requires_grad_(grad is not None) for a in (q, k, v))
    s = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    if causal:
        s = s + torch.full_like(s, -math.inf).triu(1)
    out = torch.softmax(s, -1) @ v
    return (out,) if grad is None else torch.autograd.grad(out, (q, k, v), grad[:1, :1].double())


def distance(ours: Any, right: Any) -> float:
    """The norm of the difference over the norm."""
    return float((ours[:1, :1].double() - right).norm() / right.norm())


def row(work: str, flops: float, ms: dict[str, float], peer: str, error: float) -> Row:
    """A row of the table."""
    speed = {name: flops / t / 1e9 for name, t in ms.items()}
    return {
        "work": work, "ms": (ms["ours"], ms["torch"]), "ours": f"{ms['ours']:.3f} ms, {speed['ours']:.0f} TFLOP/s",
        "peer": f"{peer} {ms['torch']:.3f} ms, {speed['torch']:.0f} TFLOP/s",
        "ratio": f"{ms['torch'] / ms['ours']:.2f}x", "error": f"{error:.1e}",
    }  # fmt: skip


def draw(dtype: str, *shape: int) -> Any:
    """Normal random numbers on the GPU."""
    import torch

    return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype))


def cudnn() -> contextlib.AbstractContextManager[Any]:
    """Let torch use cuDNN's attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION)


def named(dtype: str, b: int, h: int, g: int, length: int, d: int, causal: bool) -> str:
    """What a row says of its problem."""
    heads = f"{h} heads" if h == g else f"{h} heads over {g}"
    return f"batch {b}, {heads}, length {length}, width {d}, {dtype}{', causal' if causal else ''}"


def forward(work: str, problem: tuple[Any, ...], causal: bool, *, stream: Any) -> Row:
    """One row of the forward pass."""
    from torch.nn import functional as F

    from cubepy.kernels import attention

    dtype, b, h, g, length, d = problem
    q, k, v = (
        draw(dtype, b, h, length, d),
        draw(dtype, b, g, length, d),
        draw(dtype, b, g, length, d),
    )
    out = draw(dtype, b, h, length, d)

    def theirs() -> Any:
        with cudnn():
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=h != g)

    ms = in_turns(
        {"ours": lambda: attention(q, k, v, is_causal=causal, out=out), "torch": theirs}, stream
    )
    flops = 4 * b * h * length**2 * d / (2 if causal else 1)
    error = distance(out, exact(q, k, v, causal)[0])
    return row(work, flops, ms, "torch (cuDNN)", error)


def backward(work: str, problem: tuple[Any, ...], causal: bool, *, stream: Any) -> Row:
    """One row of the backward pass."""
    import torch

    with torch.enable_grad():
        return differentiated(work, problem, causal, stream)


def differentiated(work: str, problem: tuple[Any, ...], causal: bool, stream: Any) -> Row:
    """The same where gradients are taken."""
    import torch
    from torch.nn import functional as F

    from cubepy.kernels.attention.gradients import attention_forward, attention_gradients

    dtype, b, h, g, length, d = problem
    q, k, v = (
        draw(dtype, b, h, length, d),
        draw(dtype, b, g, length, d),
        draw(dtype, b, g, length, d),
    )
    grad = draw(dtype, b, h, length, d)
    out, lse = attention_forward(q, k, v, is_causal=causal)
    leaves = [a.detach().requires_grad_() for a in (q, k, v)]
    with cudnn():
        result = F.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=h != g)
    runs = {
        "ours": lambda: attention_gradients(grad, q, k, v, out, lse, is_causal=causal),
        "torch": lambda: torch.autograd.grad(result, leaves, grad, retain_graph=True),
    }
    ms = in_turns(runs, stream)
    found = [torch.as_tensor(a, device="cuda") for a in runs["ours"]()]
    right = exact(q, k, v, causal, grad)
    pairs = list(zip(found, right, strict=True))[
        : 3 if h == g else 1
    ]  # a key head's sums are over several heads
    flops = 10 * b * h * length**2 * d / (2 if causal else 1)
    error = max(distance(a, r) for a, r in pairs)
    return row(work, flops, ms, "torch (cuDNN)", error)


def mask_of(kind: str, b: int, length: int) -> Any:
    """A mask: of padding (sequences from all to half of the length), random, a window of 512 keys,
    or added numbers.
    """
    import torch

    places = torch.arange(length, device="cuda")
    if kind == "padding":
        lengths = torch.linspace(1.0, 0.5, b, device="cuda") * length
        return (places < lengths[:, None])[:, None, None]
    if kind == "random":
        return torch.rand(b, 1, length, length, device="cuda") < 0.7
    if kind == "window":
        return (places[:, None] - places).abs() < 256
    return draw("bfloat16", b, 1, length, length) if kind else None


def general(work: str, dtype: str, kind: str, length: int, d: int, *, stream: Any) -> Row:
    """One row for masks or f32; operations are counted as without a mask."""
    import torch
    from torch.nn import functional as F

    from cubepy.kernels import attention

    b, h = MASKED
    q, k, v, out = (draw(dtype, b, h, length, d) for _ in range(4))
    mask = mask_of(kind, b, length)
    runs = {
        "ours": lambda: attention(q, k, v, attn_mask=mask, out=out),
        "torch": lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    }
    ms = in_turns(runs, stream)
    s = q[:1, :1].double() @ k[:1, :1].double().transpose(2, 3) / math.sqrt(d)
    if kind == "numbers":
        s = s + mask[:1].double()
    elif kind:
        s = s.masked_fill(~mask.expand(b, 1, length, length)[:1], -math.inf)
    error = distance(out, torch.softmax(s, -1) @ v[:1, :1].double())
    return row(work, 4 * b * h * length**2 * d, ms, "torch", error)


def masked(dtype: str, kind: str, length: int, d: int) -> str:
    """What a row says of a problem of `GENERAL`."""
    b, h = MASKED
    return f"attention{f' with a mask ({kind})' if kind else ''}, {named(dtype, b, h, h, length, d, False)}"


CASES = {
    work: single(measure, work, problem, causal)
    for what, measure, problems in (
        ("attention", forward, FORWARD),
        ("attention gradients", backward, BACKWARD),
    )
    for causal in (False, True)
    for problem in problems
    for work in (f"{what}, {named(*problem, causal)}",)
} | {masked(*other): single(general, masked(*other), *other) for other in GENERAL}
"""Forward, backward, and what the general routine does."""
