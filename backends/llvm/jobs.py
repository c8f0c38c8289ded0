"""Programs that are found now and compiled later, all at once: launches are prepared, but nothing
runs.

Inside `rehearsal()` a launch goes its way up to the machine code; where the cache has
none, a job is noted in its place, and what "runs" is a function that does nothing. So a call of a
library function, or a whole program, shows which kernels it needs without waiting for one. Results
are whatever lay in memory: a process that has rehearsed is good for nothing else, and ends.

Jobs are compiled by processes of Python that know nothing but what stands in a job: they import no
program of the user, so nothing of it runs twice. They read jobs from a pipe and put the machine
code into the cache.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from cubepy.errors import CubeError


@dataclass(frozen=True)
class Job(ABC):
    """All that a compiler has to know of a program, as numbers and text.

    Attributes:
        kernel: its name, for people.
        key: of the entry in the cache.
        text: the generated source.
        parameters: of the generated function: name, kind, dtype.
        symbol: of the machine code's entry point.
        fast_math: liberties that LLVM may take.
        noalias: whether no two arrays share memory.
    """

    kernel: str
    key: str
    text: str
    parameters: tuple[tuple[str, str, str], ...]
    symbol: str
    fast_math: tuple[str, ...]
    noalias: bool

    def as_line(self) -> str:
        """The job in one line, for a pipe."""
        return json.dumps({f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def of_line(cls, line: str) -> Job:
        """The job of such a line."""
        return cls(**{name: _tuples(value) for name, value in json.loads(line).items()})

    @abstractmethod
    def compile(self) -> None:
        """Compile, and put the machine code into the cache.

        Raises:
            BackendCompileError: numba refused the generated code.
        """


def _tuples(value: Any) -> Any:
    """A value as it was before JSON made lists of its tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


found: dict[str, Job] | None = None
"""The jobs of the rehearsal that goes on, by key; None where launches run."""


@contextlib.contextmanager
def rehearsal() -> Iterator[dict[str, Job]]:
    """Find what the block's launches need; it goes into the dict that this gives."""
    global found
    found = {}
    try:
        yield found
    finally:
        found = None


LONGEST = 600.0
"""Seconds after which a process that compiles one program is given up."""


class Worker:
    """A process that compiles jobs of one kind, one after the other."""

    def __init__(self, kind: type[Job]) -> None:
        program = (
            "from cubepy.backends.llvm.jobs import serve\n"
            f"from {kind.__module__} import {kind.__name__}\n"
            f"serve({kind.__name__})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def compile(self, job: Job) -> str:
        """Compile a job; gives what went wrong, or nothing."""
        watchdog = threading.Timer(LONGEST, self.process.kill)
        watchdog.start()
        try:
            assert self.process.stdin is not None and self.process.stdout is not None
            self.process.stdin.write(job.as_line() + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except OSError as error:
            return f"the process that compiled it is gone: {error}"
        finally:
            watchdog.cancel()
        if not answer:
            return f"the process that compiled it ended with status {self.process.wait()}"
        return str(json.loads(answer))

    def close(self) -> None:
        """End the process, which has nothing to lose between two jobs."""
        self.process.kill()
        self.process.communicate()


def compile_all(
    jobs: Sequence[Job], processes: int, tell: Callable[[Job, str], None]
) -> dict[str, str]:
    """Compile jobs in so many processes, the longest first; gives what went wrong by kernel.

    Args:
        jobs: what to compile, all of one kind.
        processes: how many at most.
        tell: called with each job that is done, and what went wrong with it (or nothing).
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in sorted(jobs, key=lambda j: -len(j.text)):
        waiting.put(job)
    wrong: dict[str, str] = {}
    lock = threading.Lock()
    over = threading.Event()

    def work() -> None:
        worker = Worker(type(jobs[0]))
        try:
            while not over.is_set():
                try:
                    job = waiting.get_nowait()
                except queue.Empty:
                    return
                answer = worker.compile(job)
                if over.is_set():
                    return
                if worker.process.poll() is not None:
                    worker.close()
                    worker = Worker(type(jobs[0]))
                with lock:
                    if answer:
                        wrong[job.kernel] = answer
                    tell(job, answer)
        finally:
            worker.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(processes, len(jobs)))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        over.set()  # an interrupt ends the workers too: none is asked for another job
    return wrong


def serve(kind: type[Job]) -> None:
    """Compile the jobs that come in; the answer to each is what went wrong, or an empty text."""
    for line in sys.stdin:
        answer = ""
        try:
            kind.of_line(line).compile()
        except CubeError as error:
            answer = str(error)
        print(json.dumps(answer), flush=True)
