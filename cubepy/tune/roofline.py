"""What a device can do at most, measured once: bytes read and fused multiply-adds, by kernels of
the language.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.config import config
from cubepy.errors import TuneError
from cubepy.runtime import cache
from cubepy.runtime.device import as_device, device_properties, gpu_of, use
from cubepy.runtime.memory.device_array import upload
from cubepy.tune.limit_kernels import multiply_add, read_all
from cubepy.tune.stopwatch import Stopwatch
from cubepy.tune.table import Table, seal, unseal
from cubepy.tune.tuned import Work

ROUNDS = 40
"""The best of many counts: a machine with other work shows its limits only now and then."""


@dataclass(frozen=True)
class Peaks:
    """Measured limits of a device.

    Attributes:
        bytes: bytes read per second.
        flops: operations per second, by dtype; a dtype that is not there has no known limit.
    """

    bytes: float = 0.0
    flops: dict[str, float] = field(default_factory=dict)

    def bound(self, work: Work) -> float:
        """The least seconds for some work; 0 when its limit is not known."""
        seconds = work.bytes / self.bytes if self.bytes else 0.0
        if work.dtype in self.flops:
            seconds = max(seconds, work.flops / self.flops[work.dtype])
        return seconds

    def best(self, other: Peaks) -> Peaks:
        """The higher of each limit."""
        names = {*self.flops, *other.flops}
        flops = {n: max(self.flops.get(n, 0.0), other.flops.get(n, 0.0)) for n in names}
        return Peaks(max(self.bytes, other.bytes), flops)


def _call(launch: Callable[[], Any], _: int) -> None:
    launch()


def measure_peaks(device: str, watch: Stopwatch) -> Peaks:
    """Run the two kernels on a device and take the best of some rounds."""
    where = as_device(device)
    p = device_properties(where)
    on_gpu = gpu_of(where) is not None
    units, cubes = (256, p.cores * 8) if on_gpu else (1, p.cores * 4)
    lanes = p.lanes(cb.f32)
    lines, streams = (8, 8) if on_gpu else (12, 4)
    part = -(-(1 << (28 if on_gpu else 25)) // (cubes * units * lanes * streams)) * units * lanes
    steps = 1 << (12 if on_gpu else 16)
    host, zeros = np.ones(part * streams * cubes, np.float32), np.zeros(cubes * units, np.float32)
    x, out = (upload(host, where), upload(zeros, where)) if on_gpu else (host, zeros)
    with use(where):
        reading = read_all[cubes, units].bind(x, out, part, streams, lanes, mode="unchecked")
        adding = multiply_add[cubes, units].bind(out, 0.5, steps, lines, lanes, mode="unchecked")
        best = [float("inf"), float("inf")]
        for _ in range(ROUNDS):
            for k, launch in enumerate((reading, adding)):
                best[k] = min(best[k], watch.time(functools.partial(_call, launch), 1))
                watch.rest(2e-3)
    flops = 2.0 * cubes * units * lanes * lines * steps
    return Peaks(x.nbytes / best[0], {"f32": flops / best[1]})


_measured: dict[str, Peaks] = {}


def peaks_of(device: str, watch: Stopwatch) -> Peaks:
    """The limits of a device: measured once in a process that tunes; the best of all processes is
    kept on disk.
    """
    path = Table(device).folder / "peaks.json"
    known = _measured.get(str(path))
    if known is None:
        known = _measured[str(path)] = measure_peaks(device, watch).best(_read(path))
        if config.cache:
            # where the folder cannot be written the table says so when it keeps the result
            with contextlib.suppress(OSError):
                cache.write_atomically(
                    path, seal({"bytes": known.bytes, "flops": known.flops}).encode()
                )
    return known


def _read(path: Path) -> Peaks:
    """What is on disk; nothing is known where nothing is, or where it is damaged."""
    if not config.cache:
        return Peaks()
    try:
        body = unseal(path.read_text())
        return Peaks(float(body["bytes"]), {str(k): float(v) for k, v in body["flops"].items()})
    except (OSError, TuneError, KeyError, TypeError, ValueError, AttributeError):
        return Peaks()
