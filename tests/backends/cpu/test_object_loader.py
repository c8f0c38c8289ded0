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


def test_constants_calls_and_functions_from_outside() -> None:
    code = compiled_text(TEXT)
    for _ in range(3):
        entry = object_loader.load(code, "looked_up", address_of)
        assert entry and entry % 16 == 0
        assert [CFUNCTYPE(c_int64, c_int64)(entry)(n) for n in range(4)] == [6, 10, 14, 22]
        entry = object_loader.load(code, "sine", address_of)
        assert entry and CFUNCTYPE(c_double, c_double)(entry)(1.0) == np.sin(1.0)


def test_what_is_not_as_simple_is_left_to_llvm() -> None:
    code = compiled_text(TEXT)
    assert object_loader.load(compiled_text(WRITTEN), "counted", address_of) is None
    assert object_loader.load(code, "missing", address_of) is None
    assert object_loader.load(code, "sine", lambda name: None) is None
    entry = machine_code.load_object(compiled_text(WRITTEN), "counted")
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
        entry = object_loader.load(code, "looked_up", address_of)
        return CFUNCTYPE(c_int64, c_int64)(entry or 0)(n % 4)

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
    return CFUNCTYPE(c_int64)(object_loader.load(_compiled(text), "f", ll.address_of_symbol))
first = number(1)
child = os.fork()
mine = [number((100 if child else 200) + n) for n in range(50)]
right = first() == 1 and [f() for f in mine] == [(100 if child else 200) + n for n in range(50)]
if not child:
    os._exit(0 if right else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert right and [f() for f in mine] == [100 + n for n in range(50)]
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

    def load(*given: object) -> int | None:
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
slow = CFUNCTYPE(c_int64, c_int64)(object_loader.load(_compiled(text), "slow", ll.address_of_symbol))
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
