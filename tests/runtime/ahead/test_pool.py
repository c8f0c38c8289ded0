"""Processes that compile beside a program's first run: the same results, and only time is lost
where something happens to them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cpu import backend
from cubepy.backends.cpu.compile import versions
from cubepy.backends.cpu.jobs import POOL, Job, beside
from cubepy.backends.cpu.threads import choice
from cubepy.backends.llvm.processes import pool as pools
from cubepy.backends.llvm.processes.pool import Pool
from cubepy.config import config
from cubepy.runtime import cache
from cubepy.runtime.ahead import foresight
from cubepy.runtime.stats import counters

LONG = 120  # seconds that nothing here takes
EMPTY = "from cubepy.backends.llvm.ops import *\n\ndef kernel(first, last):\n    pass\n"
JOB = Job(
    "empty", "ab" * 32, EMPTY, (("first", "i64", ""), ("last", "i64", "")), "cubepy_empty", (), True,
    versions(),
)  # fmt: skip


class Sleeping(Job):
    """A job that never ends."""

    def compile(self) -> None:
        time.sleep(1000)


class Dying(Job):
    """A job that ends its process."""

    def compile(self) -> None:
        os._exit(3)


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that comes."""
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty cache, and processes that may compile."""
    with config.override(cache_dir=str(tmp_path), cache=True, compile_workers=3):
        yield tmp_path


@pytest.fixture
def made(folder: Path) -> Iterator[Callable[..., Pool]]:
    """Makes pools, which end with the test."""
    known: list[Pool] = []

    def make(kind: type[Job], most: int = 1, idle: float = LONG) -> Pool:
        known.append(Pool(kind, lambda: most, idle))
        return known[-1]

    yield make
    for one in known:
        one.close()


@pytest.fixture
def own(made: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch) -> Pool:
    """The pool that launches ask, for one test."""
    pool = made(Job, 2)
    monkeypatch.setattr(backend, "POOL", pool)
    return pool


PROGRAM = """
import json, sys
import numpy as np
import cubepy as cb
from cubepy.backends.cpu.jobs import POOL

rng = np.random.default_rng(0)
shapes = (37, 50), (50, 64), (64,)
x, w, v = (cb.tensor(rng.standard_normal(s).astype(np.float32)) for s in shapes)

@cb.jit
def f(x, w, v):
    y = (x @ w).tanh() + v
    z = (y * y.exp().sum(-1, keepdims=True)).softmax(-1)
    return z, (z * v).sum(0), y.cumsum(0), (y - y.mean(-1, keepdims=True)).abs().max(0)

found = [t.numpy().tobytes().hex() for t in f(x, w, v)]
again = [t.numpy().tobytes().hex() for t in f(x, w, v)]
print(json.dumps([found, again, cb.stats().compiled, POOL.own]))
"""


def run(folder: Path, text: str = PROGRAM, **more: str) -> subprocess.CompletedProcess[str]:
    """A process of Python whose cache is a folder."""
    environment = os.environ | {"CUBEPY_CACHE_DIR": str(folder), "CUBEPY_CACHE": "1"} | more
    return subprocess.run(
        [sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list:
    """What the program gives where one process compiles all."""
    made = run(tmp_path_factory.mktemp("alone"), CUBEPY_COMPILE_WORKERS="1")
    return json.loads(made.stdout)  # type: ignore[no-any-return]


def test_a_first_run_gives_the_same_and_compiles_the_same(tmp_path: Path, alone: list) -> None:
    made = run(tmp_path, CUBEPY_COMPILE_WORKERS="4", CUBEPY_NUM_THREADS="2")
    found, again, compiled, own = json.loads(made.stdout)
    assert [found, again] == alone[:2] and found == again and compiled == alone[2] == alone[3]
    assert own < compiled and not made.stderr
    warm = json.loads(run(tmp_path, CUBEPY_COMPILE_WORKERS="4").stdout)
    assert warm == [found, found, 0, 0]


def test_without_a_cache_nobody_else_compiles(tmp_path: Path, alone: list) -> None:
    made = run(tmp_path, CUBEPY_COMPILE_WORKERS="4", CUBEPY_CACHE="0")
    found, _, compiled, own = json.loads(made.stdout)
    assert found == alone[0] and own == compiled == alone[2]


def test_a_cache_that_cannot_be_written_costs_a_warning(tmp_path: Path, alone: list) -> None:
    (tmp_path / "file").write_text("")
    made = run(tmp_path / "file", CUBEPY_COMPILE_WORKERS="4")
    assert json.loads(made.stdout)[:1] == alone[:1] and "cannot be written" in made.stderr


def test_a_frozen_program_starts_no_process(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert POOL.useful
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert not POOL.useful


def test_as_many_as_threads_with_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "threads", lambda launches: 1)
    with config.override(compile_workers=0):
        assert beside() == 0
    with config.override(compile_workers=5):
        assert beside() == 4


def test_jobs_that_wait_are_taken_back_and_those_begun_are_waited_for(
    made: Callable[..., Pool],
) -> None:
    pool = made(Job)
    others = [replace(JOB, key=f"{n:064}") for n in range(3)]
    assert not pool.settle(JOB.key)
    for job in others:
        pool.add(job)
    taken = not pool.settle(others[0].key)  # the last of one process, which begins at the end
    assert taken or cache.holds(others[0].key)
    until(lambda: not pool.jobs)
    assert not any(pool.settle(job.key) for job in others)
    assert cache.holds(others[1].key) and cache.holds(others[2].key)


def test_a_process_without_work_ends(made: Callable[..., Pool]) -> None:
    pool = made(Job, idle=0.05)
    pool.add(JOB)
    until(lambda: cache.holds(JOB.key))
    until(lambda: pool.threads == 0 and not pool.workers)
    again = replace(JOB, key="cd" * 32)
    pool.add(again)
    until(lambda: cache.holds(again.key))


def test_processes_that_die_are_given_up(made: Callable[..., Pool]) -> None:
    pool = made(Dying)
    for n in range(pools.LOST + 1):
        pool.add(Dying(**{**vars(JOB), "key": f"{n:064}"}))
    until(lambda: pool.threads == 0)
    assert pool.lost == pools.LOST and not pool.useful and not pool.jobs and not pool.workers
    pool.add(Dying(**vars(JOB)))
    assert not pool.waiting


def test_processes_are_given_up_though_one_ends_well(made: Callable[..., Pool]) -> None:
    pool = made(Job)
    pool.add(JOB)
    pool.give_up()
    until(lambda: pool.threads == 0)
    assert not pool.useful and not pool.workers


def test_a_process_that_hangs_is_not_waited_for(
    made: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "PATIENCE", 0.1)
    pool = made(Sleeping)
    pool.add(Sleeping(**vars(JOB)))
    until(lambda: not pool.waiting)
    assert not pool.settle(JOB.key)
    process = pool.workers[0].process if pool.workers else None
    pool.close()
    until(lambda: pool.threads == 0)
    assert process is None or process.returncode is not None


def test_results_are_right_where_processes_are_killed(own: Pool) -> None:
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.05):
            for worker in [*own.workers]:
                worker.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        x = np.linspace(-1, 1, 999, dtype=np.float32)
        f = cb.jit(lambda t: [(t * k).tanh().exp().sum() for k in (1.5, 2.5)] + [t.cumsum(0)])
        ones = [t.numpy() for t in f(cb.tensor(x))]
    finally:
        over.set()
        killer.join()
    for one, k in zip(ones, (1.5, 2.5), strict=False):
        assert np.isclose(one, np.exp(np.tanh(x.astype(np.float64) * k)).sum(), rtol=1e-5)
    assert np.allclose(ones[2], np.cumsum(x.astype(np.float64)), atol=1e-4)


def test_from_many_programs_on_others_compile(own: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "MANY", 0)
    before = counters.compiled

    @cb.kernel
    def tripled(x: cb.Array, out: cb.Array):
        if cb.ABSOLUTE_POS < x.size:
            out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS] * 3

    x, out = np.arange(20.0), np.zeros(20)
    tripled[cb.over(20)](x, out)
    assert (out == 3 * x).all() and counters.compiled == before + 1 and own.own == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_has_no_processes_and_leaves_those_of_its_parent(made: Callable[..., Pool]) -> None:
    pool = made(Job)
    pool.add(JOB)
    until(lambda: cache.holds(JOB.key))
    child = os.fork()
    if child == 0:
        right = not pool.workers and not pool.jobs and pool.threads == 0
        pool.add(replace(JOB, key="ef" * 32))
        end = time.monotonic() + LONG
        while not cache.holds("ef" * 32) and time.monotonic() < end:
            time.sleep(0.02)
        for worker in [*pool.workers]:
            worker.process.kill()
        os._exit(0 if right and cache.holds("ef" * 32) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    again = replace(JOB, key="12" * 32)
    pool.add(again)
    until(lambda: cache.holds(again.key))


INTERRUPTED = (
    """
import threading, os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have let it be ignored
from cubepy.backends.cpu.jobs import POOL
def interrupt():
    while not POOL.workers:
        time.sleep(0.01)
    print(*[w.process.pid for w in POOL.workers], flush=True)
    os.killpg(os.getpgrp(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
"""
    + PROGRAM
)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no groups of processes here")
def test_an_interrupt_ends_all(tmp_path: Path) -> None:
    environment = os.environ | {"CUBEPY_CACHE_DIR": str(tmp_path), "CUBEPY_COMPILE_WORKERS": "2"}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, wrong = process.communicate(timeout=LONG)
    assert process.returncode and "KeyboardInterrupt" in wrong, wrong
    for number in map(int, said.split()[:1]):
        until(lambda number=number: not alive(number))


def alive(process: int) -> bool:
    """Whether a process runs; what has ended and nobody asks about does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_launches_on_the_side_do_nothing(folder: Path) -> None:
    @cb.kernel
    def written(out: cb.Array):
        if cb.ABSOLUTE_POS < out.size:
            out[cb.ABSOLUTE_POS] = 7

    out = np.zeros(8, np.float32)
    with foresight.first_run(lambda: None), foresight.aside():
        written[cb.over(8)](out)
        assert foresight.looks()
    assert not out.any() and not foresight.looks()
    written[cb.over(8)](out)
    assert (out == 7).all()


@pytest.mark.parametrize("written", [False, True])
def test_one_process_that_dies_is_not_the_end_of_all(
    own: Pool, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    """But one that has compiled what is not in the cache cannot write it, nor can others."""

    @cb.kernel
    def fivefold(x: cb.Array, out: cb.Array):
        if cb.ABSOLUTE_POS < x.size:
            out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS] * 5

    def settle(key: str, *, alone: bool = True) -> bool:
        own.made |= {key} if written else set()
        return True

    monkeypatch.setattr(own, "settle", settle)
    x, out = np.arange(20.0), np.zeros(20)
    fivefold[cb.over(20)](x, out)
    assert (out == 5 * x).all() and own.useful == (not written)
