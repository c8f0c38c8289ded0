"""Threads that launch, capture, replay and free on one GPU at once:
`python scripts/stress_gpu.py --seconds 600`.

Every thread works on arrays of its own and on weights that all of them read, with streams and
threads that come and go, streams of PyTorch and CuPy among them where these are installed, and
lengths that vary. Every value is checked. At intervals it prints what was done, errors and memory;
the exit status says whether there were errors or memory grew.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import importlib
import os
import random
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy.backends.cuda.native.driver import DRIVER
from cubepy.backends.gpu.native.stream import all_streams
from cubepy.kernels.primitives import functions as f
from cubepy.runtime.memory.pool import trim

LONGEST = 40_000
GROWTH = 96 << 20  # bytes that memory may move by between the first third and the end


@cb.kernel
def double_and_add(x: cb.Array, w: cb.Array, out: cb.Array):
    """out = 2 x + w"""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] + x[i] + w[i]


class Worker(threading.Thread):
    """One thread's work, until it is told to stop.

    Attributes:
        done: how often each thing was done.
        errors: tracebacks.
    """

    def __init__(self, seed: int, weights: Any, stop: threading.Event) -> None:
        super().__init__(name=f"worker {seed}")
        self.rng, self.weights, self.stop = random.Random(seed), weights, stop
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []
        self.arrays: list[tuple[Any, float]] = []  # on the GPU, all elements equal, and their value
        self.streams = [cb.Stream("cuda") for _ in range(2)]
        self.torch, self.cupy = _imported("torch"), _imported("cupy")
        self.works: list[Callable[[], None]] = [
            self.make,
            self.make,
            self.launch,
            self.launch,
            self.launch,
            self.library,
            self.capture,
            self.capture,
            self.check,
            self.drop,
            self.drop,
            self.stream,
            self.foreign,
            self.thread,
            self.empty,
            self.fail,
            self.wait,
        ]

    def run(self) -> None:
        """Do one thing after the other."""
        while not self.stop.is_set():
            work = self.rng.choice(self.works) if len(self.arrays) >= 3 else self.make
            try:
                with cb.use("cuda"):
                    work()
                self.done[work.__name__] += 1
            except Exception:
                self.errors.append(f"{self.name}, {work.__name__}: {traceback.format_exc()}")
                if len(self.errors) > 20:
                    return
        self.arrays.clear()

    def make(self) -> None:
        """A new array."""
        value = float(self.rng.randrange(100))
        size = self.rng.choice((self.rng.randrange(1, LONGEST), 1000, 4096))
        self.arrays.append((cb.tensor(np.full(size, value, np.float32), device="cuda"), value))

    def some(self) -> tuple[int, Any, float]:
        """Any array."""
        k = self.rng.randrange(len(self.arrays))
        return k, *self.arrays[k]

    def launch(self) -> None:
        """A kernel on one of the streams, or on the thread's own."""
        k, x, value = self.some()
        out = K.copy(x)
        where = self.rng.choice((None, *self.streams))
        double_and_add[cb.over(x.size)](x, self.weights[: x.size], out, stream=where)
        self.arrays[k] = out, self.small(out, 2 * value + 1)

    def small(self, x: Any, value: float) -> float:
        """Values stay small enough to be exact."""
        if value > 1e5:
            x.storage.dense()[...] = 1.0
            return 1.0
        return value

    def library(self) -> None:
        """Ops that are repeated."""
        k, x, value = self.some()
        with self.rng.choice((contextlib.nullcontext(), *self.streams)):
            y = x + self.weights[: x.size]
            total = K.sum(x)
            z = K.map(f.mul, y, y)
        self.expect(y, value + 1)
        self.expect(z, (value + 1) ** 2)
        assert abs(float(total.numpy()) - value * x.size) <= 1e-3 * value * x.size
        self.arrays[k] = y, value + 1

    def capture(self) -> None:
        """A graph with memory of its own, replayed with other inputs."""
        _, x, value = self.some()
        own = K.copy(x)
        s = self.rng.choice((None, *self.streams))
        with cb.capture("cuda") as graph:
            y = own + self.weights[: x.size]
            with contextlib.nullcontext() if s is None else s:
                z = y * 2.0
            out = z - y
        for n in range(self.rng.randrange(4)):
            graph.put(own, value + n)
            graph.replay(self.rng.choice((None, *self.streams)))
            self.expect(out, value + n + 1)
        self.arrays.append((own, float(own.numpy()[0])))

    def check(self) -> None:
        """Read an array."""
        _, x, value = self.some()
        self.expect(x, value)

    def expect(self, x: Any, value: float) -> None:
        """All elements are the value."""
        found = x.numpy()
        if not (found == np.float32(value)).all():
            raise AssertionError(f"{found.size} elements are {np.unique(found)[:8]}, not {value}")

    def drop(self) -> None:
        """Let go of arrays."""
        while len(self.arrays) > 12 or self.rng.random() < 0.5:
            if self.arrays:
                self.arrays.pop(self.rng.randrange(len(self.arrays)))
        if self.rng.random() < 0.05:
            gc.collect()

    def stream(self) -> None:
        """A new stream, and one less."""
        self.streams[self.rng.randrange(2)] = cb.Stream("cuda", priority=self.rng.choice((0, -1)))

    def foreign(self) -> None:
        """A stream of another library, which that library may destroy afterwards."""
        k, x, value = self.some()
        if self.cupy is not None and self.rng.random() < 0.6:
            theirs = self.cupy.cuda.Stream(non_blocking=self.rng.random() < 0.5)
            handle = theirs.ptr
        elif self.torch is not None:
            theirs = self.torch.cuda.Stream()
            handle = theirs.cuda_stream
        else:
            return
        with cb.Stream("cuda", handle=handle):
            out = x * 2.0
            y = out + self.weights[: x.size]
            del out
            if self.rng.random() < 0.3:
                with cb.capture("cuda") as graph:
                    y = y + self.weights[: x.size]
                graph.replay()
                value += 0.5
        if self.torch is None or self.rng.random() < 0.5:
            del theirs
        self.arrays[k] = y, self.small(y, 2 * value + 1)

    def thread(self) -> None:
        """A thread that lives for a moment."""
        k, x, value = self.some()
        made: list[Any] = []

        def work() -> None:
            with cb.use("cuda"):
                made.append(x + self.weights[: x.size])
                made.append(made[0] * 2.0)

        short = threading.Thread(target=work)
        short.start()
        short.join()
        self.arrays[k] = made[1], self.small(made[1], 2 * (value + 1))

    def empty(self) -> None:
        """A graph without work."""
        with cb.capture("cuda") as graph:
            pass
        graph.replay()

    def fail(self) -> None:
        """A capture that raises."""
        _, x, value = self.some()
        try:
            with cb.capture("cuda"), self.streams[0]:
                _ = x + x
                raise KeyError
        except KeyError:
            pass
        self.expect(x, value)

    def wait(self) -> None:
        """Wait for the GPU, and now and then give its memory back."""
        cb.sync("cuda")
        if self.rng.random() < 0.02:
            trim("cuda")


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def given_to_process() -> int | None:
    """Bytes that the driver says this process has of GPUs; None where it does not tell."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    rows = [line.split(",") for line in text.splitlines()]
    mine = [
        int(mib) << 20 for pid, mib in rows if int(pid) == os.getpid() and mib.strip().isdigit()
    ]
    return sum(mine) if mine else None


def memory_now() -> dict[str, int]:
    """Bytes: what arrays use, what the pool keeps, what the GPU gave to this process (to anybody,
    where the driver does not tell), what the process has of the host.
    """
    stats, mine = cb.memory_stats("cuda"), given_to_process()
    free, total = DRIVER.context(0).memory()
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    return {
        "in use": stats.in_use,
        "kept": stats.reserved,
        "GPU": total - free if mine is None else mine,
        "host": pages * 4096,
    }


def stress(threads: int, seconds: float, interval: float, shared: bool) -> int:
    """Run; gives how many errors there were, and says so. Of a GPU that is shared with other
    processes it may be that nobody knows whose memory grew.
    """
    weights = cb.tensor(np.ones(LONGEST, np.float32), device="cuda")
    stop = threading.Event()
    workers = [Worker(n, weights, stop) for n in range(threads)]
    start = time.monotonic()
    for w in workers:
        w.start()
    seen: list[tuple[float, dict[str, int]]] = []
    while (passed := time.monotonic() - start) < seconds and any(w.is_alive() for w in workers):
        stop.wait(min(interval, seconds - passed))
        seen.append((time.monotonic() - start, memory_now()))
        report(workers, *seen[-1])
    stop.set()
    for w in workers:
        w.join()
    print("done:", dict(sorted(sum((w.done for w in workers), Counter()).items())))
    errors = [e for w in workers for e in w.errors]
    for e in errors[:5]:
        print(e)
    early = [m for t, m in seen if t <= seconds / 3] or [seen[0][1]]
    unknown = shared and given_to_process() is None
    for what in ("host",) if unknown else ("GPU", "host"):
        grown = seen[-1][1][what] - max(m[what] for m in early)
        if grown > GROWTH:
            errors.append(f"{what} memory grew by {grown >> 20} MiB")
            print(errors[-1])
    print(f"{len(errors)} errors")
    return len(errors)


def report(workers: list[Worker], at: float, memory: dict[str, int]) -> None:
    """One line."""
    count, errors = sum(sum(w.done.values()) for w in workers), sum(len(w.errors) for w in workers)
    text = ", ".join(f"{what} {size / 2**20:.1f} MiB" for what, size in memory.items())
    stats, streams = cb.memory_stats("cuda"), sum(1 for _ in all_streams(DRIVER, 0))
    text += f"; {stats.allocations} blocks made, {stats.reuses} used again, {streams} streams"
    print(f"{at:6.1f} s: {count} pieces of work, {errors} errors; {text}", flush=True)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--interval", type=float, default=10, help="between reports")
    parser.add_argument("--shared", action="store_true", help="other processes use the GPU, too")
    given = parser.parse_args()
    faulthandler.enable()
    return 1 if stress(given.threads, given.seconds, given.interval, given.shared) else 0


if __name__ == "__main__":
    sys.exit(main())
