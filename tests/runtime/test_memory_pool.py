"""The pool of host memory: what it gives out again, what it keeps, what it gives back."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy.runtime.memory.pool import POOLED, Pool, size_class

MIB = 1 << 20


def test_a_released_buffer_is_given_out_again() -> None:
    pool = Pool()
    first = pool.empty((MIB,), np.uint8)
    place = first.__array_interface__["data"][0]
    del first
    second = pool.empty((MIB // 4 - 3,), np.float32)  # the same class of sizes
    assert second.__array_interface__["data"][0] == place and place % 64 == 0
    assert (pool.stats.allocations, pool.stats.reuses, pool.stats.reserved) == (1, 1, 0)


def test_views_keep_their_buffer() -> None:
    pool = Pool()
    part = pool.empty((MIB,), np.uint8)[10:20]
    assert pool.stats.in_use == MIB
    del part
    assert pool.stats.in_use == 0 and pool.stats.reserved == MIB


def test_sizes_that_were_used_long_ago_make_room() -> None:
    pool = Pool()
    for size in (MIB, MIB // 2, 4 * MIB, 4 * MIB, 2 * MIB, 4 * MIB):
        pool.empty((size,), np.uint8)
    assert pool.stats.reuses == 2, (
        "the large buffer is kept although smaller ones waited when it came"
    )
    assert list(pool.free) == [2 * MIB, 4 * MIB]


def test_a_small_result_beside_a_large_one_is_pooled() -> None:
    pool = Pool()
    for _ in range(5):
        pool.empty((16 * MIB,), np.uint8)
        pool.empty((MIB,), np.uint8)
    assert pool.stats.allocations == 2


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(1 << 17, 1 << 20)), max_size=60))
def test_the_books_are_right(steps: list[tuple[bool, int]]) -> None:
    pool, held = Pool(), []
    for take, number in steps:
        if take or not held:
            held.append(pool.empty((number,), np.uint8))
        else:
            held.pop(number % len(held))
        stats = pool.stats
        assert stats.in_use == sum(size_class(a.nbytes) for a in held)
        assert stats.reserved == sum(size * len(arrays) for size, arrays in pool.free.items())
        assert stats.in_use + stats.reserved <= stats.peak * 3 // 2
        assert all(arrays for arrays in pool.free.values())
    places = Counter(a.__array_interface__["data"][0] for a in held)
    assert all(n == 1 for n in places.values())


def test_the_limit_is_an_error_and_leaves_the_pool_usable() -> None:
    pool = Pool()
    with cb.config.override(memory_limit=2 * MIB):
        held = pool.empty((MIB,), np.uint8)
        with pytest.raises(cb.errors.OutOfMemoryError, match="exceed the limit"):
            pool.empty((2 * MIB,), np.uint8)
        assert pool.empty((MIB,), np.uint8).nbytes == held.nbytes


def test_buffers_begin_at_different_places_of_a_page() -> None:
    """So that no load waits for a store to another array whose address ends in the same bits."""
    pool = Pool()
    held = [pool.empty((MIB,), np.uint8) for _ in range(8)]
    places = [a.__array_interface__["data"][0] % 4096 for a in held]
    assert all(place % 64 == 0 and 512 <= place <= 3584 for place in places), places
    assert all(abs(one - two) >= 512 for one, two in pairwise(places)), places


def test_small_results_that_live_for_a_while_cost_no_page_faults_again() -> None:
    """In a process of its own, whose C library has freed nothing large before."""
    code = """
import resource
import numpy as np
from cubepy.runtime.memory.pool import host_pool

def round():
    kept = [host_pool.empty((15_000,), np.float32) for _ in range(100)]  # 6 MB
    for array in kept:
        array.fill(1)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(3):
    round()
before = faults()
for _ in range(5):
    round()
print(faults() - before)
"""
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        pytest.skip("the C library is not glibc")
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 500  # 7,300 pages


def test_threads_never_share_a_buffer() -> None:
    pool, wrong = Pool(), list[int]()

    def work(mark: int) -> None:
        for n in range(400):
            held = [pool.empty((POOLED + 4096 * (n % 3 + k),), np.uint8) for k in range(3)]
            for array in held:
                array[::4096] = mark
            if any((array[::4096] != mark).any() for array in held):
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert pool.stats.in_use == 0 and not pool.lent
    assert pool.stats.reserved == sum(size * len(pieces) for size, pieces in pool.free.items())


def test_what_comes_back_while_little_is_kept_is_gone() -> None:
    pool = Pool()
    with pool.keeping_little():
        pool.empty((4 * MIB,), np.uint8)
        assert pool.stats.reserved == 0 and not pool.free
    pool.empty((4 * MIB,), np.uint8)
    assert pool.stats.reserved == 4 * MIB
