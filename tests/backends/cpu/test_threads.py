"""When a launch on the CPU uses several threads, and how they share its cubes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cpu import run
from cubepy.backends.cpu.threads import choice as threads
from cubepy.backends.cpu.threads import pool, sharing
from cubepy.errors import OutOfBoundsError


@cb.kernel
def collatz(out: cb.Array, start, steps):
    """Much work on few elements: the sum of `steps` steps, for every unit another number."""
    i = cb.ABSOLUTE_POS
    v = cb.u64(start + i)
    total = cb.u64(0)
    for _ in range(steps):
        v = cb.select(v % 2 == 0, v // 2, 3 * v + 1)
        total = total + v
    out[i] = total


def expected(n: int, start: int, steps: int) -> list[int]:
    result = []
    for v in range(start, start + n):
        total = 0
        for _ in range(steps):
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            total += v
        result.append(total)
    return result


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The chunks that were done before threads took over, for each launch that they did."""
    seen: list[int] = []
    share = run.CpuRunner.share

    def counted(self: run.CpuRunner, done: int) -> None:
        seen.append(done)
        share(self, done)

    monkeypatch.setattr(run.CpuRunner, "share", counted)
    monkeypatch.setattr(threads, "threads", lambda: 2)
    return seen


@pytest.mark.parametrize("cubes", [2, 7, 37])
def test_long_work_on_few_elements_goes_on_all_threads(shared: list[int], cubes: int) -> None:
    out = np.zeros(cubes, np.uint64)
    launch = collatz[cubes, 1].bind(out, 27, 2_000_000)
    launch()
    again = out.copy()
    launch()
    assert shared == [1, 0], "the first run begins on one thread, the next one does not"
    assert out.tolist() == again.tolist()
    out[:] = 0
    collatz[cubes, 1](out, 27, 100)
    assert out.tolist() == expected(cubes, 27, 100)


def test_a_launch_that_went_on_all_threads_is_measured_no_more(shared: list[int]) -> None:
    collatz[9, 1](np.zeros(9, np.uint64), 27, 2_000_000)
    runner = list(collatz.launches.local.table.values())[-1].runner
    assert shared == [1] and runner.parallel and not runner.trials, (
        "calls of launches that are measured do not repeat"
    )


def test_short_work_on_few_elements_stays_on_one_thread(shared: list[int]) -> None:
    out = np.zeros(5, np.uint64)
    with cb.config.override(serial_us=10_000_000):
        launch = collatz[5, 1].bind(out, 27, 10)
        for _ in range(run.TRIALS + 2):
            launch()
    assert shared == [] and out.tolist() == expected(5, 27, 10)


def test_zero_never_shares(shared: list[int]) -> None:
    out = np.zeros(4, np.uint64)
    with cb.config.override(serial_us=0):
        collatz[4, 1].bind(out, 27, 2_000_000)()
    assert shared == []


Piece = Callable[[int, int, int], None]


def shared_out(piece: Piece, cubes: int, pieces: int, team: int, done: int = 0) -> None:
    """Share a launch whose kernel is a function of Python: (first cube, last, address of the
    arguments).
    """
    entry = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(piece)
    address = ctypes.cast(entry, ctypes.c_void_p).value
    driver = threads.driver()
    with driver.lock or threading.Lock():
        driver.run(address, cubes, pieces, team, 0, done)


@pytest.mark.parametrize("done", [0, 1])
@pytest.mark.parametrize(
    ("cubes", "pieces", "team"),
    [(1, 1, 2), (7, 3, 5), (37, 37, 2), (1000, 24, 3), (999, 129, 17), (5, 5, 40), (64, 16, 1)],
)
def test_every_cube_runs_once(cubes: int, pieces: int, team: int, done: int) -> None:
    seen: list[tuple[int, int]] = []
    for _ in range(20):
        seen.clear()
        shared_out(lambda first, last, _: seen.append((first, last)), cubes, pieces, team, done)
        ran = sorted(cube for first, last in seen for cube in range(first, last))
        assert ran == list(range(done * cubes // pieces, cubes)) and len(seen) == pieces - done


@pytest.mark.skipif(threads.threads() < 2, reason="needs two cores")
def test_a_thread_begins_with_its_own_pieces_and_the_same_in_every_launch() -> None:
    both = threading.Barrier(2, timeout=60)
    for _ in range(5):
        firsts: dict[int, int] = {}

        def piece(first: int, last: int, _: int, firsts: dict[int, int] = firsts) -> None:
            if threading.get_ident() not in firsts:
                firsts[threading.get_ident()] = first
                both.wait()

        shared_out(piece, 16, 16, 2)
        mine = firsts.pop(threading.get_ident())
        assert mine == 0 and list(firsts.values()) == [12], (
            "of 0 to 7 the first, of 8 to 15 the one in the middle"
        )


@pytest.mark.skipif(threads.threads() < 2, reason="needs two cores")
def test_others_do_the_pieces_of_a_thread_that_is_held_up() -> None:
    seen: set[int] = set()
    rest, waited = threading.Event(), []

    def piece(first: int, last: int, _: int) -> None:
        seen.add(first)
        if len(seen) == 16:
            rest.set()
        if first == 0:
            waited.append(rest.wait(60))

    shared_out(piece, 16, 16, 2)
    assert waited == [True] and seen == set(range(16))


@pytest.mark.skipif(threads.driver().layer == "workqueue", reason="the layer does not nest")
def test_a_launch_inside_a_launch_does_all_its_pieces() -> None:
    seen: list[int] = []

    def outer(first: int, last: int, _: int) -> None:
        shared_out(lambda f, last, _: seen.append(100 * first + f), 6, 6, 3)

    shared_out(outer, 4, 4, 2)
    assert sorted(seen) == [100 * a + b for a in range(4) for b in range(6)]


@cb.kernel
def shift(x: cb.Array, by, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = x[i + by]


def test_a_fault_on_any_thread_is_raised_and_the_next_launch_is_right() -> None:
    x = np.arange(64 * 32, dtype=np.float32)
    out = np.zeros(63 * 32, np.float32)
    with cb.config.override(serial_elements=0):
        for by in (31, 32, 40, 0):
            out[:] = 0
            if by > 32:
                with pytest.raises(OutOfBoundsError, match="shift accesses index"):
                    shift[63, 32](x, by, out, mode="validate")
            else:
                shift[63, 32](x, by, out, mode="validate")
                assert (out == x[by : by + len(out)]).all()


needs_pool = pytest.mark.skipif(threads.driver().layer != "own", reason="about our own threads")


@needs_pool
@pytest.mark.skipif(threads.threads() < 2, reason="needs two cores")
def test_threads_that_sleep_are_woken() -> None:
    mine = threads.driver().alive
    sleepers = (mine.at - ctypes.addressof(mine.words)) // 8 + pool.SLEEPERS
    end = time.monotonic() + 60
    while mine.words[sleepers] < len(mine.members) and time.monotonic() < end:
        time.sleep(0.001)
    assert mine.words[sleepers] == len(mine.members), "idle threads sleep"
    both = threading.Barrier(2, timeout=60)
    shared_out(lambda first, last, _: both.wait() and None, 2, 2, 2)


@needs_pool
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_code_of_the_pool_is_valid(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    made = pool.Pool(3)
    code = sharing.text(made.start, made.functions)
    llvm.parse_assembly(code).verify()
    assert ("llvm.aarch64.hint" in code) == (machine == "aarch64")


OFFERS = """
import ctypes, platform, threading
from cubepy.backends.llvm import machine_code as native
from cubepy.backends.cpu.threads import pool, sharing

offers = []
asleep, over = threading.Event(), threading.Event()

@ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)
def system_call(which):
    if which == pool._YIELD[platform.machine()]:
        offers.append(which)
    elif asleep.is_set():
        over.set()  # wake: the pool is closed
    else:
        asleep.set()
        over.wait()
    return 0

made = pool.Pool(2)
made.system_call = ctypes.cast(system_call, ctypes.c_void_p).value
native.load_written(
    sharing.SHARE,
    lambda: sharing.text(made.start, made.functions),
    (sharing.__file__, pool.__file__),
    **made.known(),
)
made.open(native.address_of(pool.MEMBER), native.address_of(pool.STOP))
assert asleep.wait(60)
print(len(offers) == -(-pool.SPINS // pool.OFFER))
made.close()
"""


@needs_pool
def test_a_thread_that_turns_offers_its_core_to_others(tmp_path: Path) -> None:
    assert ran(OFFERS, tmp_path) == ["True"]


ENDED = """
import numpy as np
from cubepy import kernels as K
from cubepy.backends.cpu.threads import choice as threads

a = np.ones((160, 160), np.float32)
assert (K.matmul(a, a) == 160).all()
threads.driver().alive.close()
for _ in range(5):
    assert (K.matmul(a, a) == 160).all()
print("right")
"""


@needs_pool
def test_launches_do_not_wait_for_threads_that_are_gone(tmp_path: Path) -> None:
    assert ran(ENDED, tmp_path) == ["right"]


FORKS = """
import os
import numpy as np
from cubepy import kernels as K
from cubepy.backends.cpu.threads import choice as threads

a = np.random.default_rng(0).standard_normal((160, 160), np.float32)

def right():
    return all(np.allclose(K.matmul(a, a), a @ a, atol=1e-3) for _ in range(4))

assert right()
before = threads.driver().layer
child = os.fork()
if child == 0:
    os._exit(0 if right() and threads.driver().layer == "none" else 1)
assert os.waitpid(child, 0)[1] == 0
assert right() and threads.driver().layer == before
print(before)
"""


@pytest.mark.parametrize("layer", ["default", "omp"])
@needs_pool
def test_a_forked_child_runs_launches_alone(layer: str, tmp_path: Path) -> None:
    assert ran(FORKS, tmp_path, NUMBA_THREADING_LAYER=layer) == [
        {"default": "own"}.get(layer, layer)
    ]


FIRST = """
import sys
import numpy as np
from cubepy import kernels as K
from cubepy.backends.cpu.threads import choice as threads

a = np.ones((160, 160), np.float32)
assert (K.matmul(a, a) == 160).all()
print(threads.driver().layer, "numba" in sys.modules)
"""


@needs_pool
@pytest.mark.skipif(threads.threads() < 2, reason="needs two cores")
def test_launches_on_threads_need_no_numba_in_a_second_process(tmp_path: Path) -> None:
    for numba in ("True", "False"):
        assert ran(FIRST, tmp_path, CUBEPY_CACHE_DIR=str(tmp_path / "cache")) == ["own", numba]


def ran(program: str, folder: Path, **environment: str) -> list[str]:
    """The words that a program prints in a process of its own."""
    script = folder / "script.py"
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **environment},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
