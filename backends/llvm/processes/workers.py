"""Processes of Python that compile jobs: they know nothing but what stands in a job, so they import
no program of the user, and nothing of it runs twice.

They read jobs from a pipe and put the machine code into the cache.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from cubepy.backends.llvm.processes.jobs import Job
from cubepy.config import config
from cubepy.errors import CubeError

LONGEST = 600.0
"""Seconds after which a process that compiles one program is given up."""


class Worker:
    """A process that compiles jobs of one kind, one after the other.

    It imports from where this process does, writes to the cache of this process, and is told
    nothing by the terminal: an interrupt is for who waits for it.

    Args:
        kind: of the jobs.
        silent: whether what it says on standard error is nobody's.
    """

    def __init__(self, kind: type[Job], *, silent: bool = False) -> None:
        program = (
            "import sys\n"
            f"sys.path[:] = {sys.path!r}\n"
            "from cubepy.backends.llvm.processes.workers import serve\n"
            f"from {kind.__module__} import {kind.__name__}\n"
            f"serve({kind.__name__})"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if silent else None,
            text=True,
            env=os.environ | {"CUBEPY_CACHE_DIR": str(config.cache_dir), "CUBEPY_CACHE": "1"},
            start_new_session=True,
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

    def leave(self) -> None:
        """After a fork: only the parent holds the process's pipes. Their numbers stay taken, by
        what swallows whatever waited to be written.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                os.dup2(nowhere, pipe.fileno(), inheritable=False)
        os.close(nowhere)

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
