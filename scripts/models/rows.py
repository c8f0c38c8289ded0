"""What a step of `run.py` found, and how two functions are timed beside each other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

PAUSE = 0.08
"""Seconds before a call, until idle threads of the library before it sleep: onnxruntime's turn for
50 ms, and take a core from the next one.
"""


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        work: what was tried.
        wanted, found: texts.
        met: whether `found` is what was wanted; None: it is told, not judged.
    """

    work: str
    wanted: str
    found: str
    met: bool | None = None


@dataclass(frozen=True)
class Options:
    """Of a run: where the models are, and how many threads each library has."""

    folder: Path
    threads: int
    small: bool


def at_least(work: str, wanted: float, found: float, told: str = "") -> Row:
    """A ratio of a peer's time to ours."""
    return Row(work, f">= {wanted:g}x", f"{found:.2f}x{told and f' ({told})'}", found >= wanted)


def at_most(work: str, wanted: float, found: float, told: str = "") -> Row:
    """An error, or a part of something."""
    return Row(work, f"<= {wanted:g}", f"{found:.2g}{told and f' ({told})'}", found <= wanted)


def in_turns(
    *functions: Callable[[], Any], rounds: int = 7, seconds: float = 20.0
) -> list[list[float]]:
    """Seconds of functions that are called in turns after one call of each: at least three rounds,
    at most `rounds`, no further one after `seconds`.
    """
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    until = time.perf_counter() + seconds
    while len(times[0]) < 3 or (len(times[0]) < rounds and time.perf_counter() < until):
        for function, kept in zip(functions, times, strict=True):
            time.sleep(PAUSE)
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return times


def ratio(times: list[list[float]]) -> tuple[float, str]:
    """Of the second's median to the first's, and both with their least in milliseconds."""
    ours, theirs = ([f(t) * 1e3 for f in (median, min)] for t in times)
    told = f"{ours[0]:.3g} ms beside {theirs[0]:.3g}, least {ours[1]:.3g} and {theirs[1]:.3g}"
    return theirs[0] / ours[0], told


def use_threads(threads: int) -> None:
    """Before NumPy and the libraries are loaded: how many threads each has."""
    for name in (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "CUBEPY_NUM_THREADS",
    ):
        os.environ[name] = str(threads)
    os.environ["NUMBA_NUM_THREADS"] = str(threads)
