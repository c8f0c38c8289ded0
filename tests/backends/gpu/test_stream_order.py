"""Order between streams, memory that is reused, and graphs, on a driver that runs late and out of
order.
"""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cubepy.backends.gpu.native import memory
from cubepy.backends.gpu.native.graph import Capture
from cubepy.backends.gpu.native.module import Module
from cubepy.backends.gpu.native.stream import NativeStream, thread_stream
from cubepy.backends.gpu.run import generated
from cubepy.config import config
from cubepy.errors import LaunchError, OutOfMemoryError
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.hazards import Tracked, order
from cubepy.runtime.memory.layout import layout_of
from tests.backends.gpu.fake_driver import (
    DRIVER,
    GPU,
    FakeDriver,
    fake_driver,
    here,
    kernel,
    loadable,
    orders,
    runner,
)

LAYOUT = layout_of((1,), None, np.dtype(np.int64), Device("cuda"))


@kernel(9)
def add(words: list[int]) -> None:
    """out = a + b + 1"""
    a, b, out = (ctypes.c_int64.from_address(words[k]) for k in (0, 3, 6))
    out.value = a.value + b.value + 1


@pytest.fixture(**orders(8, 4))
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver, with another order of work each time."""
    gc.freeze()  # so that tests that collect do not look at all that other tests left
    vendor, seed = request.param
    with fake_driver(monkeypatch, seed, vendor=vendor) as f:
        f.kernels["add"] = add
        yield f
        gc.collect()


class Adder:
    """`out = a + b + 1` as a prepared launch."""

    def __init__(self, ordinal: int = 0) -> None:
        arguments = [
            SimpleNamespace(mem=SimpleNamespace(name=n, kind="global"), scalar=None) for n in "abo"
        ]
        exe = SimpleNamespace(
            loadable=loadable("add"), program=SimpleNamespace(name="add", arguments=arguments, outputs={"o"}),
            units=(1, 1, 1), shared_bytes=0, cluster=None, overlap=False, sites=(), loose=0, whole=None,
        )  # fmt: skip
        self.runner = runner(exe, [new()] * 3, (1, 1, 1), ordinal)
        extents = [LAYOUT.extent] * 3
        self.quick = generated(self.runner, [(0, -1), (1, -1), (2, -1)], (2,), extents)

    def __call__(
        self, a: DeviceArray, b: DeviceArray, out: DeviceArray, s: NativeStream, how: int
    ) -> None:
        leaves = (a, b, out)
        if how == 0 or self.quick is None or not self.quick(leaves, s):
            if how == 1:
                self.runner.bound(leaves, (), s)()
            else:
                self.runner.run(leaves, (), s)


def new(ordinal: int = 0) -> DeviceArray:
    """An array of one number."""
    owner = GPU.allocate(ordinal, 8)
    return DeviceArray(
        owner.address, layout_of((1,), None, np.dtype(np.int64), here(ordinal)), owner
    )


def put(array: DeviceArray, value: int) -> None:
    """Write a number."""
    GPU.upload(array, np.array([value]))


def get(array: DeviceArray) -> int:
    """Read the number."""
    host = np.empty(1, np.int64)
    GPU.download(host, array)
    return int(host[0])


def test_any_launches_on_any_streams_give_what_their_order_gives(fake: FakeDriver) -> None:
    """Launches, copies, reads and releases at random: every value is that of one after the other."""
    rng = random.Random(fake.random.random())
    adder, streams = Adder(), [NativeStream(thread_stream(DRIVER, 0).context) for _ in range(4)]
    arrays: list[tuple[DeviceArray, int]] = []
    for turn in range(300):
        choice = rng.random()
        if choice < 0.15 or len(arrays) < 4:
            GPU.set_thread_stream(0, rng.choice(streams))
            arrays.append((new(), turn))
            put(arrays[-1][0], turn)
        elif choice < 0.3:
            arrays.pop(rng.randrange(len(arrays)))  # its memory goes to somebody else
        elif choice < 0.4:
            n = rng.randrange(len(arrays))
            assert get(arrays[n][0]) == arrays[n][1]
        else:
            i, j, k = rng.sample(range(len(arrays)), 3)
            adder(arrays[i][0], arrays[j][0], arrays[k][0], rng.choice(streams), rng.randrange(3))
            arrays[k] = (arrays[k][0], arrays[i][1] + arrays[j][1] + 1)
    assert [get(a) for a, _ in arrays] == [v for _, v in arrays]


def test_replays_are_in_order_with_launches(fake: FakeDriver) -> None:
    """Graphs with intermediates of their own, between launches on other streams."""
    adder, a, b = (
        Adder(),
        NativeStream(thread_stream(DRIVER, 0).context),
        NativeStream(thread_stream(DRIVER, 0).context),
    )
    x, y = new(), new()
    put(x, 1)
    put(y, 0)
    capture = Capture(DRIVER.context(0))
    capture.begin()
    for _ in range(3):
        between = new()
        adder(x, x, between, thread_stream(DRIVER, 0), 2)
        adder(between, y, y, thread_stream(DRIVER, 0), 2)
        del between
    graph = capture.end(failed=False)
    assert graph is not None and len(capture.arena.all) == 1, "intermediates share memory"
    expected_x, expected_y = 1, 0
    for turn in range(10):
        graph.launch(a if turn % 2 else b)
        for _ in range(3):
            expected_y += 2 * expected_x + 1 + 1
        adder(y, y, x, b, turn % 3)
        expected_x = 2 * expected_y + 1
        junk = [new() for _ in range(3)]
        for j in junk:
            put(j, -7)
        if turn % 3 == 0:
            assert (get(x), get(y)) == (expected_x % 2**64, expected_y)
        expected_x %= 2**20
        put(x, expected_x)
    assert get(y) == expected_y


def test_the_memory_of_a_graph_comes_back_with_it(fake: FakeDriver) -> None:
    adder, x = Adder(), new()
    put(x, 1)
    before = memory.pool(DRIVER, 0).stats.in_use
    capture = Capture(DRIVER.context(0))
    capture.begin()
    out = new()
    adder(x, x, out, thread_stream(DRIVER, 0), 2)
    graph = capture.end(failed=False)
    assert graph is not None
    graph.launch(thread_stream(DRIVER, 0))
    del graph, capture
    gc.collect()
    assert get(out) == 3
    del out
    gc.collect()
    assert memory.pool(DRIVER, 0).stats.in_use == before


def test_a_failed_capture_leaves_nothing(fake: FakeDriver) -> None:
    adder, x = Adder(), new()
    put(x, 1)
    capture = Capture(DRIVER.context(0))
    capture.begin()
    adder(x, x, x.view(), thread_stream(DRIVER, 0), 2)
    with pytest.raises(LaunchError, match="captured"):
        get(x)
    assert capture.end(failed=True) is None
    assert get(x) == 1


def test_out_of_memory_frees_what_waits_and_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_driver(monkeypatch, limit=1 << 20):
        big = [GPU.allocate(0, 200_000) for _ in range(4)]
        with pytest.raises(OutOfMemoryError, match="no 917504 bytes"):
            GPU.allocate(0, 900_000)
        big.clear()
        assert GPU.allocate(0, 900_000).size >= 900_000
        monkeypatch.setattr(
            FakeDriver, "load_module", lambda self, out, *rest: 2 if self.blocks else 0
        )
        assert (
            Module(b"", thread_stream(DRIVER, 0).context).handle == 0
        )  # the pool has given the block back
        held = GPU.allocate(0, 1)
        with pytest.raises(OutOfMemoryError, match="loading a module"):
            Module(b"", thread_stream(DRIVER, 0).context)
        del held
        gc.collect()


def test_a_block_of_another_stream_is_taken_before_giving_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_driver(monkeypatch, limit=1 << 20) as fake:
        other = NativeStream(thread_stream(DRIVER, 0).context)
        fake.put(other.handle, "wait", (99, 1))  # its work is not done
        block: Any = memory.pool(DRIVER, 0).take(600_000, other)
        address = block.address
        del block
        again = GPU.allocate(0, 600_000)
        assert again.address == address
        fake.reached[99] = 1
        del again
        gc.collect()


def test_every_array_has_memory_of_its_own_for_a_memory_checker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_driver(monkeypatch) as fake, config.override(memory_pool=False):
        first, second = GPU.allocate(0, 70_002), GPU.allocate(0, 1)
        assert (first.size, second.size) == (70_004, 4)
        del first
        third = GPU.allocate(0, 70_002)
        assert (
            set(fake.blocks) == {second.address, third.address}
            and memory.pool(DRIVER, 0).stats.reuses == 0
        )
        del second, third
        gc.collect()


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
@pytest.mark.parametrize("seed", range(4))
def test_two_devices(monkeypatch: pytest.MonkeyPatch, seed: int, vendor: str) -> None:
    """Launches go to their device whatever the thread's context is; copies between devices keep the
    order.
    """
    with fake_driver(monkeypatch, seed, devices=2, vendor=vendor) as fake:
        fake.kernels["add"] = add
        adders = [Adder(0), Adder(1)]
        x, y = new(0), new(1)
        put(x, 1)
        value = 1
        for turn in range(12):
            mine, there = (x, y) if turn % 2 == 0 else (y, x)
            adders[turn % 2](mine, mine, mine.view(), thread_stream(DRIVER, turn % 2), 0)
            GPU.copy(there, mine)
            value = 2 * value + 1
            assert fake.contexts == fake.contexts[:1], "the thread's context is back"
        assert (get(x), get(y)) == (value, value)
        del x, y, mine, there
        gc.collect()


def test_readers_that_come_at_once_are_all_known() -> None:
    """A call of the driver lets other threads go on: what it is in the middle of must not be lost."""

    class Slow:
        def __init__(self, meanwhile: Callable[[], None]) -> None:
            self.meanwhile = meanwhile

        def wait(self, other: Any) -> None:
            self.meanwhile()

    writer, late = Slow(lambda: None), Slow(lambda: None)
    block = Tracked(writer)
    early = Slow(lambda: order(block, late, False))
    order(block, early, False)
    assert block.streams() == {writer, early, late}
    last = Slow(lambda: order(block, Slow(lambda: None), False))
    order(block, last, True)  # no set changes while it is walked through


def test_native_streams_are_used_again(fake: FakeDriver) -> None:
    """A stream that nobody has any more serves the next one of its kind, when its work is done."""
    where = thread_stream(DRIVER, 0).context
    one = NativeStream(where)
    handle = one.handle
    del one
    assert (
        NativeStream(where, blocking=False).handle != handle
        and NativeStream(where, priority=-1).handle != handle
    )
    two = NativeStream(where)
    assert two.handle == handle
    fake.put(handle, "wait", (99, 1))
    del two
    busy = NativeStream(where)
    assert busy.handle != handle
    fake.reached[99] = 1
    fake.synchronize()
    assert NativeStream(where).handle == handle
