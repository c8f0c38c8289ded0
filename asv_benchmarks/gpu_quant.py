"""Linear layers with packed weights on a GPU: `python asv_benchmarks/gpu.py --only quant`.

Peers: torch's bf16 matmul (cuBLAS) with the same shapes, and torch's int4 product (tinygemm) with
the same groups. Weights are random codes, rotated beyond the second-level cache; activations are
normal random numbers. The GPU waits before every measurement until the host is ahead, so that
events time the GPU alone; rounds are interleaved, medians. Bytes are those of codes, scales and
minimums. The error is the norm of the difference to float64 over the norm, on some channels of the
weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from gpu_matmul import in_turns
from gpu_timing import Row, single

CACHE = 160e6
CALLS = 24
SAMPLE = 64

# M, N, K, scheme, group, symmetric, activations
FLOATS = tuple(
    (m, n, k, "int4", group, symmetric, "float")
    for m in (1, 16)
    for n, k in ((4096, 4096), (14336, 4096), (4096, 14336), (14336, 14336))
    for group, symmetric in ((32, False), (128, True))
)
OTHERS = (
    (1, 14336, 4096, "int8", None, True, "float"), (1, 4096, 14336, "int8", None, True, "float"),
    (16, 14336, 4096, "int8", None, True, "float"), (4, 14336, 4096, "int4", 32, False, "float"),
    *((m, n, k, "int4", 32, False, "float")
      for m in (32, 64, 128, 512) for n, k in ((14336, 4096), (4096, 14336), (4096, 4096))),
    (64, 14336, 4096, "int4", 128, True, "float"), (64, 14336, 4096, "int8", None, True, "float"),
    (1, 14336, 4096, "int8", None, True, "int8"), (16, 14336, 4096, "int8", None, True, "int8"),
    (1, 14336, 4096, "int4", 32, False, "int8"), (16, 14336, 4096, "int4", 32, False, "int8"),
)  # fmt: skip


def random_weight(
    n: int, k: int, scheme: str, group: int | None, symmetric: bool, activations: str, device: str
) -> Any:
    """A packed weight of random codes, on the host and on the GPU; making one from floats would
    take minutes.
    """
    from cubepy.quant import QuantizedWeight, parse_scheme
    from cubepy.runtime.device import as_device

    rng = np.random.default_rng(0)
    panels = -(-n // 16)
    factors = rng.uniform(0.5, 2, k).astype(np.float16)
    if group is None:
        chosen = parse_scheme(scheme, activations=activations)
        codes = rng.integers(-127, 128, (panels, -(-k // 4), 16, 4), np.int8)
        scales = rng.uniform(0.01, 0.02, (panels, 16)).astype(np.float32)
        sums = codes.sum(axis=(1, 3), dtype=np.int32)
        made = QuantizedWeight((n, k), chosen, codes, scales, None, sums, factors)
    else:
        chosen = parse_scheme(scheme, group=group, symmetric=symmetric, activations=activations)
        codes = rng.integers(0, 256, (panels, k // 8, 16, 4), np.uint8)
        scales = rng.uniform(0.01, 0.02, (panels, k // group, 16)).astype(np.float16)
        least = (
            None if symmetric else (scales * rng.uniform(-8, -7, scales.shape)).astype(np.float16)
        )
        made = QuantizedWeight(
            (n, k), chosen, codes, scales, least, np.zeros((panels, 16), np.float32), factors
        )
        for at in range(0, n if activations == "int8" else 0, 1024):
            part = made.even_rows(at, at + 1024).sum(axis=1, dtype=np.float64)
            made.sums.reshape(-1)[at : at + len(part)] = part
    return made, made.on(as_device(device))


def tinygemm(m: int, n: int, k: int, group: int, sets: int) -> Callable[[int], Any]:
    """torch's product with int4 weights."""
    import torch

    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    codes = [
        torch.randint(0, 255, (n, k // 2), dtype=torch.uint8, device="cuda") for _ in range(sets)
    ]
    packed = [torch.ops.aten._convert_weight_to_int4pack(c, 8) for c in codes]
    facts = [
        torch.randn(k // group, n, 2, device="cuda", dtype=torch.bfloat16) for _ in range(sets)
    ]
    return lambda i: torch.ops.aten._weight_int4pack_mm(x, packed[i % sets], group, facts[i % sets])


def named(
    m: int, n: int, k: int, scheme: str, group: int | None, symmetric: bool, activations: str
) -> str:
    """What a row says of its case."""
    label = (
        scheme
        if group is None
        else f"{scheme} in groups of {group}{', symmetric' if symmetric else ''}"
    )
    kind = "bf16" if activations == "float" else "int8"
    return f"linear {m} x {n} x {k}, {label}, {kind} activations"


def compare(case: tuple[Any, ...], *, stream: Any) -> Row:
    """One row."""
    import torch

    from cubepy.quant.linear.gpu.layout import planes_of
    from cubepy.quant.linear.linear import quantized_linear
    from cubepy.runtime.device import as_device
    from cubepy.runtime.memory.device_array import upload

    m, n, k, scheme, group, symmetric, activations = case
    device = f"cuda:{torch.cuda.current_device()}"
    host, first = random_weight(n, k, scheme, group, symmetric, activations, device)
    nbytes = planes_of(first).words.nbytes + (planes_of(first).facts.nbytes if group else 0)
    sets = max(2, min(8, int(CACHE / nbytes) + 1))
    weights = [
        replace(first, **{name: a.copy() for name, a in first.arrays().items()})
        for _ in range(sets)
    ]
    rows = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    values = rows.float().cpu().numpy()
    x = upload(values, as_device(device)).astype("bf16")
    results: list[Any] = [None] * sets

    def ours(i: int) -> None:
        results[i] = quantized_linear(x, weights[i], dtype=x.dtype)

    dense = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    runs: list[Callable[[int], Any]] = [ours, lambda i: rows @ dense[i % 2].T]
    if scheme == "int4":
        runs.append(tinygemm(m, n, k, int(group), sets))
    mine, cublas, *tiny = in_turns(runs, CALLS // sets * sets, sets, stream)
    ours(0)
    right = values.astype(np.float64) @ host.dequantize(0, SAMPLE).T.astype(np.float64)
    got = results[0].numpy()[:, :SAMPLE].astype(np.float64)
    error = float(np.linalg.norm(got - right) / np.linalg.norm(right))
    inner = f", tinygemm {tiny[0] * 1e3:.1f} us" if tiny else ""
    ratio = f"{cublas / mine:.2f}" + (f", {tiny[0] / mine:.2f} to tinygemm" if tiny else "")
    return {
        "work": named(*case), "ms": (mine, min(cublas, *tiny) if tiny else cublas),
        "ours": f"{mine * 1e3:.1f} us, {nbytes / mine / 1e6:.0f} GB/s",
        "peer": f"{cublas * 1e3:.1f} us (torch, bf16){inner}", "ratio": ratio, "error": f"{error:.1e}",
    }  # fmt: skip


CASES = {named(*case): single(compare, case) for case in (*FLOATS, *OTHERS)}
"""int4 with float activations, then int8 and activations in eight bits."""
