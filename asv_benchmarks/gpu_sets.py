"""Masks, sets and searches on a GPU, without `cb.jit`, beside torch's: how long results are is not
known before, so the host waits for most of them.

    python asv_benchmarks/gpu_sets.py               # lines as they come
    python asv_benchmarks/gpu_sets.py unique mask   # rows whose names have one of these
    python asv_benchmarks/gpu_sets.py --device cpu  # the same on the host

Times are of the clock, over calls between two waits, in turns, as in `gpu_eager.py`.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gpu_eager import BEFORE, LEAST, ROUNDS, main, seconds
from gpu_timing import Case, Row

sys.path.append(str(Path(__file__).resolve().parents[1]))

SIZES = {"small": 1 << 12, "large": 1 << 20, "larger": 1 << 24}
Call = Callable[..., Any]

OPS: dict[str, Call] = {
    "nonzero of a mask": lambda f, m, x, i, k: m.nonzero(),
    "nonzero of a matrix": lambda f, m, x, i, k: m.reshape(64, -1).nonzero(),
    "x[mask]": lambda f, m, x, i, k: x[m],
    "masked_select of rows": lambda f, m, x, i, k: x.reshape(-1, 16)[m[: len(m) // 16]],
    "unique": lambda f, m, x, i, k: i.unique(),
    "unique, inverse and counts": lambda f, m, x, i, k: i.unique(
        return_inverse=True, return_counts=True
    )[0],
    "bincount": lambda f, m, x, i, k: i.bincount(),
    "searchsorted in 1,000": lambda f, m, x, i, k: f.searchsorted(k, x),
    "bucketize by 16": lambda f, m, x, i, k: (
        x.bucketize(k[::64]) if f.__name__ != "torch" else f.bucketize(x, k[::64])
    ),
    "isin 100": lambda f, m, x, i, k: (
        i.isin(i[:100]) if f.__name__ != "torch" else f.isin(i, i[:100])
    ),
    "x[rows]": lambda f, m, x, i, k: x.reshape(-1, 16)[i % (x.shape[0] // 16)],
    "diff": lambda f, m, x, i, k: x.diff(),
    "x ** 3": lambda f, m, x, i, k: x**3,
}
"""Of the library, a mask, numbers and integers below 1,000, all of one length, and 1,000 numbers in
order."""


def compared(name: str, size: int, device: str) -> Row:
    """The row of an op."""
    import torch

    import cubepy as cb
    import cubepy.tensor as xp

    rng = np.random.default_rng(0)
    arrays = [
        rng.random(size) < 0.3,
        rng.standard_normal(size).astype(np.float32),
        rng.integers(0, 1000, size),
        np.sort(rng.standard_normal(1000)).astype(np.float32),
    ]
    op = OPS[name]
    ours = [cb.tensor(a, device=device) for a in arrays]
    theirs = [torch.tensor(a, device=device) for a in arrays]
    calls: list[Call] = [lambda: op(xp, *ours), lambda: op(torch, *theirs)]
    waits: list[Call] = [
        lambda: cb.sync(device),
        torch.cuda.synchronize if device != "cpu" else lambda: None,
    ]
    same = np.array_equal(calls[0]().numpy(), calls[1]().cpu().numpy())
    counts = []
    for call, wait in zip(calls, waits, strict=True):
        for _ in range(BEFORE):
            call()
        counts.append(max(2, min(50, int(LEAST / seconds(call, wait, 2)))))
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for side, call, wait, count in zip(times, calls, waits, counts, strict=True):
            side.append(seconds(call, wait, count))
    mine, peer = (statistics.median(side) for side in times)
    return {
        "work": f"{name}, {size:,}",
        "ours": f"{mine * 1e6:.1f} us",
        "peer": f"{peer * 1e6:.1f} us (torch)",
        "ratio": f"{peer / mine:.2f}",
        "error": "equal" if same else "differs",
        "ms": (mine * 1e3, peer * 1e3),
    }


def _case(name: str, size: int) -> Case:
    def case(device: str) -> Iterator[Row]:
        yield compared(name, size, device)

    return case


CASES: dict[str, Case] = {
    f"{name} {how}": _case(name, size) for how, size in SIZES.items() for name in OPS
}


if __name__ == "__main__":
    raise SystemExit(main(CASES, __doc__ or ""))
