"""The clock of everything that is timed on a GPU, and how its cases are run: events on one stream
around some calls, runs in turns, medians.

Before each measurement the GPU is kept busy while the host gets ahead, so that events time the GPU
alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import cycle
from statistics import median
from typing import Any

Run = Callable[[], Any]
Row = dict[str, Any]
"""A line of the table, texts by the names of columns; "ms" are the milliseconds of ours and the
peer's.
"""
Case = Callable[[str], Iterable[Row]]
"""What is measured under one name: takes a device such as "cuda:0"."""
CLOCK = 2e9


def turning(run: Callable[[int], Any], sets: int) -> Run:
    """Calls of a function of a number, with 0 to sets - 1 in turn."""
    following = cycle(range(sets))
    return lambda: run(next(following))


def measured(run: Run, calls: int, stream: Any) -> tuple[float, float]:
    """Milliseconds of one call on the GPU, and the seconds that the host took for all of them."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(stream)
    began = time.perf_counter()
    for _ in range(calls):
        run()
    host = time.perf_counter() - began
    end.record(stream)
    end.synchronize()
    return start.elapsed_time(end) / calls, host


def pause(least: int, host: float) -> int:
    """Cycles of the GPU that the host gets ahead by: half more than its calls took."""
    return max(least, int(1.5 * CLOCK * host))


def milliseconds(
    runs: Sequence[Run],
    stream: Any,
    rounds: int,
    calls: Sequence[int],
    pauses: Sequence[int] | None = None,
) -> list[float]:
    """The median time of one call, for each run.

    Args:
        runs: what is timed, in turns.
        stream: PyTorch's, on which everything runs.
        rounds: measurements of each.
        calls: of each in a measurement.
        pauses: cycles that the GPU waits before a measurement of each; without them a call more
            keeps it busy.
    """
    import torch

    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for at, run in enumerate(runs):
            if pauses is None:
                run()
            else:
                torch.cuda._sleep(pauses[at])
            times[at].append(measured(run, calls[at], stream)[0])
    return [median(t) for t in times]


@cache
def _stream(device: str) -> Any:
    import torch

    return torch.cuda.Stream(device)


@contextlib.contextmanager
def own_stream(device: str) -> Iterator[Any]:
    """A stream of PyTorch's on which both libraries work, without gradients."""
    import torch

    import cubepy as cb

    own = _stream(device)
    with torch.cuda.stream(own), cb.Stream(device, handle=own.cuda_stream), torch.no_grad():
        yield own


def rows(cases: Mapping[str, Case], device: str = "cuda:0") -> Iterator[Row]:
    """The rows of all cases."""
    for case in cases.values():
        yield from case(device)


def single(compare: Callable[..., Row], *args: Any, **options: Any) -> Case:
    """The case of one row, which `compare` measures on a stream."""

    def case(device: str) -> Iterator[Row]:
        with own_stream(device) as own:
            yield compare(*args, stream=own, **options)

    return case
