"""Matrix products on a GPU beside torch's (cuBLAS): `python asv_benchmarks/gpu.py --only matmul`.

The right matrix is a linear layer's weight (N, K) unless a row says otherwise. Inputs are normal
random numbers (int8: uniform), rotated beyond the second-level cache. A pause on the GPU before
every measurement lets the host run ahead, so that events time the GPU alone; rounds are
interleaved, medians. Floating-point operations are 2 M N K. The error is the norm of the difference
to float64 over the norm, on some rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_timing import Case, Row, measured, milliseconds, pause, single, turning

ROUNDS = 7
PAUSE = 8_000_000
"""Cycles of the GPU that the host gets ahead by, at least: half more than its calls took."""
CACHE = 120e6
SAMPLE = 64

SQUARES = ((2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192))
# M, N, K of layers of transformers, from a few tokens to many
LAYERS = (
    (64, 4096, 4096), (128, 4096, 4096), (128, 14336, 4096), (256, 4096, 4096), (256, 4096, 14336), (512, 4096, 4096),
    (512, 14336, 4096), (512, 4096, 14336), (1024, 4096, 4096), (2048, 11008, 4096), (2048, 4096, 11008),
    (4096, 14336, 4096), (4096, 4096, 14336), (8192, 1024, 8192), (8192, 8192, 1024), (8192, 3072, 1024),
)  # fmt: skip
FEW = (
    (1, 4096, 4096),
    (1, 14336, 4096),
    (1, 4096, 14336),
    (16, 4096, 4096),
    (16, 14336, 4096),
    (16, 4096, 14336),
)
SMALL = ((32, 384, 384), (32, 4096, 4096), (256, 3072, 768), (1024, 1024, 1024))
"""Of f32 without tensor cores."""
FUSED = ((4096, 4096, 4096), (8192, 8192, 1024), (2048, 11008, 4096))
ORDERS = (
    ("weight (K, N)", False, True),
    ("x (K, M)", True, False),
    ("both transposed", True, True),
)


def in_turns(runs: list[Callable[[int], Any]], calls: int, sets: int, stream: Any) -> list[float]:
    """The median time of one call, for each run, with sets of inputs in turn."""
    import torch

    turns, pauses = [turning(run, sets) for run in runs], []
    for run in turns:
        for _ in range(2 * sets):
            run()
        torch.cuda.synchronize()
        pauses.append(pause(PAUSE, measured(run, calls, stream)[1]))
    return milliseconds(turns, stream, ROUNDS, [calls] * len(runs), pauses)


def draw(dtype: str, *shape: int) -> Any:
    """Random numbers on the GPU."""
    import torch

    kind = getattr(torch, dtype)
    if dtype == "int8":
        return torch.randint(-127, 128, shape, device="cuda", dtype=kind)
    return torch.randn(*shape, device="cuda", dtype=kind)


def compare(
    work: str, shape: tuple[int, int, int], dtype: str = "bfloat16",
    flips: tuple[bool, ...] = (False, False), fused: bool = False, tf32: bool = False, bandwidth: bool = False,
    *, stream: Any,
) -> Row:  # fmt: skip
    """One row."""
    import torch

    from cubepy import kernels as K

    m, n, k = shape
    flip_x, flip_w = flips
    size = getattr(torch, dtype).itemsize
    sets = max(2, min(10, int(CACHE / (size * (m * k + n * k + m * n))) + 1))
    xs = [draw(dtype, k, m).T if flip_x else draw(dtype, m, k) for _ in range(sets)]
    ws = [draw(dtype, k, n) if flip_w else draw(dtype, n, k).T for _ in range(sets)]
    result = torch.int32 if dtype == "int8" else xs[0].dtype
    outs = [torch.zeros(m, n, device="cuda", dtype=result) for _ in range(sets)]
    options: dict[str, Any] = (
        {"dtype": "i32"} if dtype == "int8" else {"precision": "tf32"} if tf32 else {}
    )
    torch.backends.cuda.matmul.allow_tf32 = tf32
    peer = "torch"
    if fused:
        bias, residuals = draw(dtype, n), [draw(dtype, m, n) for _ in range(sets)]

        def chain(x: Any, w: Any, r: Any) -> Any:
            return torch.nn.functional.gelu(torch.addmm(bias, x, w)) + r

        compiled = torch.compile(chain, dynamic=False)
        theirs = [
            lambda i: chain(xs[i], ws[i], residuals[i]),
            lambda i: compiled(xs[i], ws[i], residuals[i]),
        ]
        ours = lambda i: K.matmul(
            xs[i], ws[i], bias=bias, activation="gelu", residual=residuals[i], out=outs[i]
        )
        peer = "torch, the better of eager and compile"
    else:
        ours = lambda i: K.matmul(xs[i], ws[i], out=outs[i], **options)
        theirs = (
            [lambda i: torch._int_mm(xs[i], ws[i])]
            if dtype == "int8"
            else [lambda i: torch.matmul(xs[i], ws[i])]
        )
    flops = 2 * m * n * k
    calls = max(sets, min(24, int(4e-3 / max(flops / 6e14, size * n * k / 4e12))))
    mine, *others = in_turns([ours, *theirs], calls, sets, stream)
    best = min(others)
    rows = torch.randperm(m, device="cuda")[:SAMPLE]
    right = xs[0][rows].double() @ ws[0].double()
    if fused:
        right = torch.nn.functional.gelu(right + bias.double()) + residuals[0][rows].double()
    error = float((outs[0][rows].double() - right).norm() / right.norm())
    unit = size * (m * k + n * k + m * n) / 1e9 if bandwidth else flops / 1e9
    kind = "GB/s" if bandwidth else "TOP/s" if dtype == "int8" else "TFLOP/s"
    scale = 1e3 if bandwidth else 1.0
    return {
        "work": work, "ms": (mine, best),
        "ours": f"{mine * 1e3:.1f} us, {unit / mine * scale:.0f} {kind}",
        "peer": f"{best * 1e3:.1f} us ({peer})", "ratio": f"{best / mine:.2f}", "error": f"{error:.1e}",
    }  # fmt: skip


def product(
    name: str, shape: tuple[int, int, int], dtype: str = "bfloat16", **options: Any
) -> tuple[str, Case]:
    """A case with its name."""
    kind = "tf32" if options.get("tf32") else dtype
    work = f"{name} {' x '.join(map(str, shape))}, {kind}"
    return work, single(compare, work, shape, dtype, **options)


CASES = dict((
    *(product("matmul", shape) for shape in (*SQUARES, *LAYERS)),
    *(product("matmul", shape, dtype, tf32=tf32) for shape in SQUARES
      for dtype, tf32 in (("float16", False), ("float32", True), ("int8", False))),
    *(product("matmul", shape, "float32") for shape in (SQUARES[1], *SMALL)),
    *(product(f"matmul, {name},", SQUARES[1], flips=tuple(flips)) for name, *flips in ORDERS),
    *(product("matmul", shape, bandwidth=True) for shape in FEW),
    product("matmul", FEW[0], "float32", bandwidth=True),
    *(product("gelu(x @ w + bias) + residual,", shape, fused=True) for shape in FUSED),
))  # fmt: skip
"""Squares, layers of transformers, other dtypes and orders, few rows, fused epilogues."""
