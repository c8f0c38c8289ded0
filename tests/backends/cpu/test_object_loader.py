"""Object code that is laid into memory without LLVM's loader."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from ctypes import CFUNCTYPE, c_double, c_int64

import llvmlite.binding as ll
import numpy as np
import pytest

import cubepy as cb
import cubepy.kernels as K
from cubepy.backends.llvm import machine_code, object_loader
from cubepy.backends.llvm.machine_code import _compiled as compiled_text

pytestmark = pytest.mark.skipif(not object_loader._state["usable"], reason="for Linux on x86-64")

TEXT = """
@table = private unnamed_addr constant [4 x i64] [i64 3, i64 5, i64 7, i64 11], align 64
declare double @sin(double)
define i64 @looked_up(i64 %n) {
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %n
  %found = load i64, ptr %at
  %more = call i64 @twice(i64 %found)
  ret i64 %more
}
define i64 @twice(i64 %n) noinline {
  %sum = add i64 %n, %n
  ret i64 %sum
}
define double @sine(double %x) {
  %y = call double @sin(double %x)
  ret double %y
}
"""
WRITTEN = """
@count = global i64 0
define i64 @counted() {
  %n = load i64, ptr @count
  %m = add i64 %n, 1
  store i64 %m, ptr @count
  ret i64 %m
}
"""


def address_of(name: str) -> int | None:
    return ll.address_of_symbol(name)


def laid(code: bytes, symbol: str) -> object_loader.Laid:
    found = object_loader.load(code, symbol, address_of)
    assert found
    return found


def numbers(code: object_loader.Laid) -> list[int]:
    return [CFUNCTYPE(c_int64, c_int64)(code.entry)(n) for n in range(4)]


def test_constants_calls_and_functions_from_outside() -> None:
    code = compiled_text(TEXT)
    for _ in range(3):
        one, other = laid(code, "looked_up"), laid(code, "sine")
        assert one.entry % 16 == 0
        assert numbers(one) == [6, 10, 14, 22]
        assert CFUNCTYPE(c_double, c_double)(other.entry)(1.0) == np.sin(1.0)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that no other code is in, and that no process was forked with."""
    monkeypatch.setattr(object_loader, "_blocks", [])


def used() -> int:
    return sum(b.size - sum(last - first for first, last in b.free) for b in object_loader._blocks)


def test_memory_of_code_that_nobody_has_is_written_again(alone: None) -> None:
    code = compiled_text(TEXT)
    one = laid(code, "looked_up")
    before, blocks = used(), len(object_loader._blocks)
    for _ in range(5000):
        other = laid(code, "looked_up")
        assert other.entry != one.entry
    assert numbers(one) == numbers(other) == [6, 10, 14, 22]
    assert used() - before <= 3 * len(code)
    assert len(object_loader._blocks) <= blocks + 1


def test_code_of_many_sizes_comes_and_goes(alone: None) -> None:
    """What is there is never written over, and what goes leaves no holes."""
    codes = []
    for n in range(24):
        table = ", ".join(f"i64 {n + k}" for k in range(4 + 97 * n))
        codes.append(
            compiled_text(
                f"@table = private constant [{4 + 97 * n} x i64] [{table}]\n"
                "define i64 @f(i64 %n) {\n"
                f"%at = getelementptr [{4 + 97 * n} x i64], ptr @table, i64 0, i64 %n\n"
                "%found = load i64, ptr %at\nret i64 %found }"
            )
        )
    rng, there = np.random.default_rng(2), dict[int, tuple[int, object_loader.Laid]]()
    first = laid(codes[0], "f")
    before = used()
    for turn in range(3000):
        n = int(rng.integers(len(codes)))
        there[int(rng.integers(60))] = n, laid(codes[n], "f")
        if turn % 100 == 0:
            for number, one in there.values():
                assert numbers(one) == [number + k for k in range(4)]
    del one
    there.clear()
    other = laid(codes[0], "f")  # a load gives back what nobody has
    assert numbers(first) == numbers(other) == [0, 1, 2, 3]
    assert used() - before <= 2 * len(codes[0])


def test_what_is_not_as_simple_is_left_to_llvm() -> None:
    code = compiled_text(TEXT)
    assert object_loader.load(compiled_text(WRITTEN), "counted", address_of) is None
    assert object_loader.load(code, "missing", address_of) is None
    assert object_loader.load(code, "sine", lambda name: None) is None
    entry = machine_code.load_object(compiled_text(WRITTEN), "counted").entry
    assert [CFUNCTYPE(c_int64)(entry)() for _ in range(2)] == [1, 2]


def test_damaged_files_are_refused_or_laid_out() -> None:
    """Nothing of them runs."""
    code = compiled_text(TEXT)
    for size in range(0, len(code), 7):
        assert object_loader.load(code[:size], "looked_up", address_of) is None
    rng = np.random.default_rng(0)
    for _ in range(3000):
        damaged = bytearray(code)
        for at in rng.integers(0, len(code), rng.integers(1, 4)):
            damaged[at] = rng.integers(256)
        object_loader.load(bytes(damaged), "looked_up", address_of)
    test_constants_calls_and_functions_from_outside()


def test_threads_load_at_once() -> None:
    code = compiled_text(TEXT)

    def run(n: int) -> int:
        found = laid(code, "looked_up")
        return numbers(found)[n % 4]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(400))) == [6, 10, 14, 22] * 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_lays_its_code_elsewhere() -> None:
    """Parent and child see the blocks that were there before."""
    program = """
import os
from ctypes import CFUNCTYPE, c_int64
import llvmlite.binding as ll
from cubepy.backends.llvm import object_loader
from cubepy.backends.llvm.machine_code import _compiled
def number(n):
    text = "define i64 @f() { ret i64 %d }" % n
    laid = object_loader.load(_compiled(text), "f", ll.address_of_symbol)
    return laid, CFUNCTYPE(c_int64)(laid.entry)
first, both = number(1), [number(300 + n) for n in range(50)]
gone = [number(400 + n) for n in range(50)]
del gone
ours, theirs = os.pipe(), os.pipe()
child = os.fork()
mine = [number((100 if child else 200) + n) for n in range(50)]
if child:  # lets go of what the child has, and lays other code
    del both
    mine += [number(150 + n) for n in range(50)]
    os.write(ours[1], b"x")
    os.read(theirs[0], 1)
    right = all(f() == 100 + n for n, (_, f) in enumerate(mine))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert right and first[1]() == 1 and all(f() == 100 + n for n, (_, f) in enumerate(mine))
else:
    os.read(ours[0], 1)
    right = first[1]() == 1 and all(f() == 200 + n for n, (_, f) in enumerate(mine))
    right = right and all(f() == 300 + n for n, (_, f) in enumerate(both))
    mine = [number(500 + n) for n in range(50)]
    os.write(theirs[1], b"x")
    os._exit(0 if right and all(f() == 500 + n for n, (_, f) in enumerate(mine)) else 1)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@cb.kernel
def scaled(out: cb.Array, x: cb.Array) -> None:
    if cb.ABSOLUTE_POS < out.size:
        out[cb.ABSOLUTE_POS] = cb.sin(x[cb.ABSOLUTE_POS]) * 2


def test_kernels_are_loaded_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    real = object_loader.load

    def load(*given: object) -> object_loader.Laid | None:
        found.append(real(*given))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(object_loader, "load", load)
    x = np.arange(300, dtype=np.float64)
    out = np.zeros_like(x)
    scaled[cb.over(300)](out, x)
    np.testing.assert_allclose(out, np.sin(x) * 2, rtol=1e-14, atol=1e-15)
    assert found and all(found)
    assert K.sum(x) == x.sum()


def test_a_thread_may_run_code_while_python_ends() -> None:
    program = """
import threading
from ctypes import CFUNCTYPE, c_int64
import llvmlite.binding as ll
from cubepy.backends.llvm import object_loader
from cubepy.backends.llvm.machine_code import _compiled
text = '''
define i64 @slow(i64 %n) {
entry:
  br label %more
more:
  %i = phi i64 [0, %entry], [%j, %more]
  %j = add i64 %i, 1
  call void asm sideeffect "", ""()
  %on = icmp slt i64 %j, %n
  br i1 %on, label %more, label %out
out:
  ret i64 %j
}
'''
laid = object_loader.load(_compiled(text), "slow", ll.address_of_symbol)
slow = CFUNCTYPE(c_int64, c_int64)(laid.entry)
begun = threading.Event()
def run():
    begun.set()
    while True:
        slow(1 << 28)
threading.Thread(target=run, daemon=True).start()
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
