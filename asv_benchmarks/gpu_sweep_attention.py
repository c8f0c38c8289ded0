"""Attention of random shapes for `gpu_sweep.py`:
`python asv_benchmarks/gpu_sweep.py --family attention`.

Half of the shapes are those of a model that writes word by word, with a query or some and long
keys, half those of whole sequences. Peers are torch's backends that take the problem; inputs are
rotated beyond the second-level cache.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

FAMILY = "attention"
CACHE = 120e6
MOST_SETS = 16
MOST_BYTES = 6e8
MOST_FLOPS = 6e11

BACKENDS = {
    "cuDNN": "CUDNN_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
}

Case = tuple[str, Callable[[], Any], dict[str, Callable[[], Any]]]


def between(rng: random.Random, least: int, most: int) -> int:
    """A number whose logarithm is evenly spread."""
    return round(least * (most / least) ** rng.random())


def shape(rng: random.Random) -> tuple[int, ...]:
    """Batch, query heads, key heads, queries, keys, width; neither too much memory nor work for one
    call.
    """
    while True:
        few = rng.random() < 0.5
        group = rng.choice((1, 1, 2, 4, 8))
        heads = group * between(rng, 1, 64 // group)
        seen = between(rng, 64, 131072 if few else 8192)
        length = (
            rng.choice((1, 1, 1, rng.randint(2, 16)))
            if few
            else rng.choice((seen, between(rng, 17, 4096)))
        )
        b, d = between(rng, 1, 64), rng.choice((64, 128))
        moved = 4 * b * d * (heads * length + heads // group * seen)
        if moved <= MOST_BYTES and 4 * b * heads * length * seen * d <= MOST_FLOPS:
            return b, heads, heads // group, length, seen, d


def ours(sets: list[Any], causal: bool) -> Callable[[], Any]:
    """A call with the next of the inputs."""
    from cubepy.kernels import attention

    turns = itertools.cycle(sets)

    def run() -> Any:
        q, k, v, out = next(turns)
        attention(q, k, v, is_causal=causal, out=out)
        return out

    return run


def theirs(sets: list[Any], backend: str, causal: bool) -> Callable[[], Any]:
    """The same by one of torch's backends."""
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    turns, chosen = itertools.cycle(sets), getattr(SDPBackend, backend)

    def run() -> Any:
        q, k, v, _ = next(turns)
        with sdpa_kernel(chosen):
            return F.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
            )

    return run


def cases(rng: random.Random, count: int) -> Iterator[Case]:
    """Label, our call, the peers' calls."""
    import torch

    for _ in range(count):
        b, h, g, length, seen, d = shape(rng)
        dtype, causal = rng.choice(("bfloat16", "float16")), length == seen and rng.random() < 0.5
        shapes = ((b, h, length, d), (b, g, seen, d), (b, g, seen, d), (b, h, length, d))
        draw = lambda s, dtype=dtype: torch.randn(*s, device="cuda", dtype=getattr(torch, dtype))
        moved = 4 * b * d * (h * length + g * seen)
        sets = [
            tuple(map(draw, shapes)) for _ in range(max(1, min(MOST_SETS, int(CACHE / moved) + 1)))
        ]
        peers: dict[str, Callable[[], Any]] = {}
        for name, backend in BACKENDS.items():
            try:
                theirs(sets, backend, causal)()
            except RuntimeError:  # torch says so where a backend does not take a problem
                continue
            peers[name] = theirs(sets, backend, causal)
        heads = f"{h} heads" if h == g else f"{h} heads over {g}"
        label = f"batch {b}, {heads}, {length} x {seen}, width {d}, {dtype}{', causal' if causal else ''}"
        yield label, ours(sets, causal), peers
