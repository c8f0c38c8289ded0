"""Processes that compile what a program will need while this one compiles what it needs first.

Jobs that are found early wait in a queue. Processes take them from its end; who needs the code of
one takes it out, if nobody has begun it, and compiles it himself, or waits for the process that
has. So both begin at once, and meet in the middle. Results are entries of the cache; where there is
none afterwards, whatever the reason was, who needs the code compiles it, and an error is raised
there.

Processes begin with the first jobs and end when there were none for a while. After a fork the child
has none.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from cubepy.backends.llvm.processes.jobs import Job

if TYPE_CHECKING:
    from cubepy.backends.llvm.processes.workers import Worker

IDLE = 10.0
"""Seconds without a job after which a process ends."""
PATIENCE = 60.0
"""Seconds that one waits for the code of a program that a process has begun."""
RENEWED = 256
"""Jobs of a process: what it compiled stays in its memory."""
LOST = 3
"""Processes in a row that may end before their job does; there are none any more then."""


class Pool:
    """Processes that compile jobs of one kind.

    Args:
        kind: of the jobs.
        most: gives how many processes there may be.
        idle: seconds without a job after which a process ends.

    Attributes:
        own: programs that this process has compiled itself.
        made: the keys of what others have compiled, until it is loaded.
    """

    own = 0

    def __init__(self, kind: type[Job], most: Callable[[], int], idle: float = IDLE) -> None:
        self.kind, self.most, self.idle = kind, most, idle
        self.lock = threading.Condition()
        self.forget()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forked)

    def forget(self) -> None:
        """There are no jobs and no processes."""
        self.waiting: dict[str, Job] = {}
        self.jobs: dict[str, threading.Event] = {}  # and those that are begun
        self.made: set[str] = set()
        self.workers: list[Worker] = []
        self.threads = self.lost = 0
        self.closed = False

    def give_up(self) -> None:
        """There are no processes from now on."""
        with self.lock:
            self.lost = LOST

    def forked(self) -> None:
        """The processes are those of the parent, which alone may speak to them."""
        for worker in self.workers:
            worker.leave()
        self.lock = threading.Condition()
        self.forget()

    @property
    def useful(self) -> bool:
        """Whether jobs are taken."""
        return self.lost < LOST and not self.closed and can_start() and self.most() > 0

    def add(self, job: Job) -> None:
        """Let a job wait, unless it does; a process more if there may be one."""
        with self.lock:
            if job.key in self.jobs or not self.useful:
                return
            self.waiting[job.key], self.jobs[job.key] = job, threading.Event()
            if self.threads < min(self.most(), len(self.waiting)):
                self.threads += 1
                threading.Thread(target=self.work, name="cubepy-workers", daemon=True).start()
            else:
                self.lock.notify()

    def settle(self, key: str, *, alone: bool = True) -> bool:
        """Nobody compiles this from now on but who asks, or somebody has.

        Args:
            key: of the job.
            alone: whether one that nobody has begun is taken out of the queue.

        Returns:
            Whether somebody has; who has begun is given `PATIENCE` seconds. Two that compile the
            same do no harm.
        """
        with self.lock:
            over = self.jobs.get(key)
            if over is None or (alone and self.waiting.pop(key, None) is not None):
                self.jobs.pop(key, None)
                return False
        return over.wait(PATIENCE)

    def work(self) -> None:
        """Take jobs from the end of the queue, for as long as there are some."""
        from cubepy.backends.llvm.processes.workers import Worker  # few processes begin others

        worker, done = None, 0
        try:
            while True:
                with self.lock:
                    if not self.waiting and not self.closed:
                        self.lock.wait(self.idle)
                    if not self.waiting or self.closed:
                        return
                    key, job = self.waiting.popitem()
                    over = self.jobs[key]
                try:
                    if worker is None:
                        worker, done = Worker(self.kind, silent=True), 0
                        self.workers.append(worker)
                    if not worker.compile(job):  # else who needs the code finds it again
                        self.made.add(key)
                    done += 1
                except OSError:  # no process can be started
                    self.lost = LOST
                finally:
                    with self.lock:
                        self.jobs.pop(key, None)
                    over.set()
                if worker is None:
                    return
                died = worker.process.poll() is not None
                with self.lock:
                    if self.lost < LOST:  # else it stays as it is, whoever ends well meanwhile
                        self.lost = self.lost + 1 if died else 0
                if died or done >= RENEWED:
                    self.end(worker)
                    worker = None
                if self.lost >= LOST:
                    return
        finally:
            with self.lock:
                self.threads -= 1
                if self.lost >= LOST:
                    self.drop()
            if worker is not None:
                self.end(worker)

    def drop(self) -> None:
        """Nobody does what waits."""
        for key in self.waiting:
            self.jobs.pop(key).set()
        self.waiting.clear()

    def end(self, worker: Worker) -> None:
        """End a process."""
        if worker in self.workers:
            self.workers.remove(worker)
            worker.close()

    def close(self) -> None:
        """End all processes, whatever they do; jobs are taken no more."""
        with self.lock:
            self.closed = True
            self.drop()
            self.lock.notify_all()
        for worker in [*self.workers]:
            worker.process.kill()


def can_start() -> bool:
    """Whether `sys.executable` is a Python: a frozen program would run itself."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)
