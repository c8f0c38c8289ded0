"""What is made on the way to machine code goes as soon as nobody needs it: no search for garbage is
needed, and none happens meanwhile.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from llvmlite.ir import Instruction

import cubepy as cb
from cubepy.backends.hip.offline import compile_for
from cubepy.config import config
from cubepy.runtime.deep_stack import uncollected


@cb.kernel
def sums(x: cb.Array, out: cb.Array) -> None:
    total = 0.0
    for k in range(x.shape[1]):
        total += x[cb.ABSOLUTE_POS, k]
    out[cb.ABSOLUTE_POS] = total


@pytest.fixture
def known() -> Iterator[set[int]]:
    """LLVM's instructions from before, while no garbage is looked for; what a process makes once for
    all launches is there.
    """
    with config.override(cache=False):
        sums[cb.over(3)](np.ones((3, 4), np.float32), np.empty(3, np.float32))
    gc.collect()
    gc.disable()
    try:
        yield {id(o) for o in gc.get_objects() if issubclass(type(o), Instruction)}
    finally:
        gc.enable()


def left(known: set[int]) -> int:
    """How many instructions there are now that were not known."""
    return sum(issubclass(type(o), Instruction) and id(o) not in known for o in gc.get_objects())


def test_instructions_for_a_cpu_go_with_their_text(known: set[int]) -> None:
    with config.override(cache=False):
        sums[cb.over(3)](np.ones((3, 4)), np.empty(3))
    assert left(known) == 0


@pytest.mark.parametrize("processor", ["gfx942", "gfx1100"])
def test_instructions_for_a_gpu_go_with_their_text(known: set[int], processor: str) -> None:
    with config.override(cache=False):
        assert compile_for(processor, sums, 64, np.ones((3, 4)), np.empty(3)).binary
    assert left(known) == 0


def test_the_collector_rests_until_the_last_thread_is_through() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with uncollected():
            entered.set()
            go_on.wait()

    thread = threading.Thread(target=other)
    with uncollected():
        thread.start()
        entered.wait()
        assert not gc.isenabled()
    assert not gc.isenabled()
    go_on.set()
    thread.join()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with uncollected(), uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
