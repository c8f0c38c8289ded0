"""How long launches and copies take on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

import cubepy as cb
from cubepy.check.language import axpy

ROUNDS = 7


def measured(device: str, size: int) -> dict[str, float]:
    """Microseconds of launches on the host, and GB/s of copies and of a kernel that reads two
    arrays and writes one.

    Args:
        device: where.
        size: bytes of an array.
    """
    n = size // 4
    host = np.ones(n, np.float32)
    x, y, out = (cb.tensor(host, device=device) for _ in range(3))
    small = [cb.tensor(host[:64], device=device) for _ in range(3)]
    launch = axpy[cb.over(64)].bind(2.0, *small)

    def copied() -> None:
        out.assign_(x)

    def worked() -> None:
        axpy[cb.over(n)](2.0, x, y, out)

    calls = 200 if size > 1 << 20 else 4
    return {
        "bound launch, us": 1e6 * seconds(launch, device, calls),
        "launch, us": 1e6 * seconds(lambda: axpy[cb.over(64)](2.0, *small), device, calls),
        "to the device, GB/s": size / seconds(lambda: cb.tensor(host, device=device), device) / 1e9,
        "from the device, GB/s": size / seconds(x.numpy, device) / 1e9,
        "on the device, GB/s": 2 * size / seconds(copied, device) / 1e9,
        "axpy, GB/s": 3 * size / seconds(worked, device) / 1e9,
    }


def seconds(call: Callable[[], object], device: str, calls: int = 1) -> float:
    """The median time of a call; the device has finished what came before, and its work."""
    call()
    times = []
    for _ in range(ROUNDS):
        cb.sync(device)
        start = time.perf_counter()
        for _ in range(calls):
            call()
        cb.sync(device)
        times.append((time.perf_counter() - start) / calls)
    return median(times)
