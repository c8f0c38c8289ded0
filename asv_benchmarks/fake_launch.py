"""What a launch costs on the host with AMD's driver and with NVIDIA's, where neither has a GPU: both
are the tests' fake one, and its launch does nothing.

    python asv_benchmarks/fake_launch.py

The backends take turns; a row has the medians of many turns, and the median of the ratios of turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import pytest

import cubepy as cb
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import upload
from tests.backends.gpu import fake_driver as fakes
from tests.runtime.replay.gpu_calls import Executable

ROUNDS, CALLS = 201, 1000
VENDORS = ("cuda", "hip")


class Nothing(fakes.FakeDriver):
    """A driver whose launches do nothing."""

    def launch(self, *arguments: Any) -> int:
        return 0


@fakes.kernel(9)
def nothing(words: list[int]) -> None:
    """A kernel of three arrays of one axis."""


def kernels() -> tuple[Any, Any]:
    """Kernels that were never launched."""

    @cb.kernel
    def add(a: cb.Array, b: cb.Array, out: cb.Array):
        """out = a + b."""
        out[cb.ABSOLUTE_POS] = a[cb.ABSOLUTE_POS] + b[cb.ABSOLUTE_POS]

    @cb.kernel
    def scale(a: cb.Array, by: cb.f32, out: cb.Array):
        """out = by * a."""
        out[cb.ABSOLUTE_POS] = a[cb.ABSOLUTE_POS] * by

    return add, scale


def launches(vendor: str) -> dict[str, Callable[[], Any]]:
    """The kinds of launches that are timed."""
    add, scale = kernels()
    a, b, out = (upload(np.zeros(16, np.float32), Device(vendor, 0)) for _ in range(3))
    return {
        "bound": add[1, 16].bind(a, b, out),
        "by arguments, repeated by machine code": lambda: add[1, 16](a, b, out),
        "by arguments, one a number": lambda: scale[1, 16](a, 1.5, out),
    }


def microseconds(run: Callable[[], Any]) -> float:
    """Of one call."""
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    return (time.perf_counter() - start) / CALLS * 1e6


def main() -> None:
    with pytest.MonkeyPatch.context() as m, ExitStack() as stack:
        found = {}
        for vendor in VENDORS:
            m.setattr(
                fakes.BACKENDS[vendor], "executable", lambda s, k, program, *_: Executable(program)
            )
            fake = Nothing(vendor=vendor)
            stack.enter_context(fakes.fake_driver(m, vendor=vendor, fake=fake))
            fake.kernels |= {"add": nothing, "scale": nothing}
        for vendor in VENDORS:
            m.setattr(fakes, "CHOSEN", vendor)  # what is prepared now is this vendor's
            found[vendor] = launches(vendor)
            for run in found[vendor].values():
                microseconds(run)
        print("| microseconds a launch | CUDA | HIP | HIP / CUDA |\n|---|---|---|---|")
        for name in found["cuda"]:
            runs = [found[vendor][name] for vendor in VENDORS]
            turns = []
            for n in range(ROUNDS):
                times = {k: microseconds(runs[k]) for k in ((0, 1) if n % 2 else (1, 0))}
                turns.append((times[0], times[1]))
            ours, theirs = median(t[1] for t in turns), median(t[0] for t in turns)
            ratio = median(t[1] / t[0] for t in turns)
            print(f"| {name} | {theirs:.2f} | {ours:.2f} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
