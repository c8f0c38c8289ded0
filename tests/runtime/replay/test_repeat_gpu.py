"""Calls on a GPU that came before are repeated by machine code: they do what the long way does, or
take it.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import AliasError, DeviceError, LaunchError, ReadOnlyError
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.stats import counters
from tests.backends.gpu.fake_driver import FakeDriver, here
from tests.runtime.replay.gpu_calls import Repetitions, much, new, plus, same, some, start


def test_the_second_call_is_a_repetition(fake: FakeDriver, repetitions: Repetitions) -> None:
    for _ in range(6):
        x, y = some(), some()
        before = counters.launches
        same(plus(new(x), new(y)), x + y)
        assert counters.launches == before + 1 and repetitions.long == 1


def test_scratch_constants_copies_and_fills_are_repeated(
    fake: FakeDriver, repetitions: Repetitions
) -> None:
    for _ in range(8):
        x, y = some(), some()
        same(much(new(x), new(y), 2), ((x + y) + y) + 2)
        out = new(some())
        assert much(new(x), new(y), out=out) is out
        same(out, (((x + y) + y) + y) + 2)
    assert repetitions.long == 2


def test_results_that_are_dropped_and_used_in_turn(fake: FakeDriver) -> None:
    x, y = some(), some()
    sums, expected = new(x), x
    step = new(y)
    for _ in range(40):
        sums, expected = plus(sums, step), expected + y
        plus(step, sums)
    same(sums, expected)


def test_options_and_layouts_are_told_apart(fake: FakeDriver) -> None:
    whole = some(40)
    for times in (1, 2, 1, 2, 1, 2, True):
        for part in (slice(0, 10), slice(0, 20, 2), slice(9, None, -1), slice(3, 13)):
            x, y = new(whole)[part], new(whole)[10:20]
            same(plus(x, y), whole[part] + whole[10:20])
        expected = whole[3:13]
        for _ in range(times):
            expected = expected + whole[10:20]
        same(much(new(whole)[3:13], y, times), expected + 2)


def test_work_in_place_and_arrays_that_share_memory(fake: FakeDriver) -> None:
    whole = some(40)
    for n in range(12):
        held = new(whole)
        part = slice(n, n + 20)
        same(plus(held[:20], held[part]), whole[:20] + whole[part])
        same(plus(held[:20], held[20:]), whole[:20] + whole[20:])
        x, y = new(whole[:20]), new(whole[20:])
        assert plus(x, y, out=x) is x
        same(x, whole[:20] + whole[20:])
        same(plus(y, y), 2 * whole[20:])
        same(plus(y, y, out=y), 2 * whole[20:])
        with pytest.raises(AliasError):
            plus(held[:20], new(whole[:20]), out=held[7:27])
        fixed = new(whole[:20])
        fixed.writeable = False
        with pytest.raises(ReadOnlyError):
            plus(held[:20], held[20:], out=fixed)


def test_work_in_place_is_repeated(fake: FakeDriver, repetitions: Repetitions) -> None:
    for _ in range(6):
        x, y = some(), some()
        a, b = new(x), new(y)
        assert plus(a, b, out=a) is a and plus(b, b, out=b) is b
        c = new(x)
        assert plus(a, b, out=c) is c  # the same layouts, but not in place
        same(a, x + y)
        same(b, y + y)
        same(c, (x + y) + (y + y))
    assert repetitions.long == 3
    fixed = new(x)
    fixed.writeable = False
    with pytest.raises(ReadOnlyError):
        plus(DeviceArray(fixed.address, fixed.layout, fixed.owner), b, out=fixed)


def test_other_streams_come_after_what_they_need(fake: FakeDriver) -> None:
    streams = [cb.Stream(here()) for _ in range(3)]
    x, y = some(), some()
    sums, step, expected = new(x), new(y), x
    for n in range(30):
        with streams[n % 3]:
            sums, expected = plus(sums, step), expected + y
            if n % 4 == 0:
                same(much(sums, step, 1), expected + y + 2)
            if n % 5 == 0:
                step, y = plus(step, step), y + y
    same(sums, expected)


def test_a_graph_records_what_would_be_repeated(fake: FakeDriver, repetitions: Repetitions) -> None:
    x, y = new(some()), new(some())
    for _ in range(4):
        plus(x, y)
    long = repetitions.long
    with cb.capture(here()) as graph:
        found = plus(plus(x, y), y)
    assert repetitions.long == long + 2
    for _ in range(3):
        a, b = some(), some()
        graph.put(x, a)
        graph.put(y, b)
        graph.replay()
        same(found, a + b + b)
    for _ in range(3):
        same(plus(x, y), a + b)


def test_a_setting_that_changes_is_heeded(fake: FakeDriver, repetitions: Repetitions) -> None:
    x, y = new(some()), new(some())
    for _ in range(4):
        plus(x, y)
    before = repetitions.long
    plus(x, y)
    assert repetitions.long == before
    with cb.config.override(deterministic=not cb.config.deterministic):
        plus(x, y)
    assert repetitions.long == before + 1


def test_a_launch_that_fails_raises(fake: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = new(some()), new(some())
    for _ in range(4):
        plus(x, y)
    monkeypatch.setattr(FakeDriver, "launch", lambda self, *given: 719)
    with pytest.raises(DeviceError, match="add_arrays"):
        plus(x, y)


def test_a_thread_that_works_in_another_context(fake: FakeDriver, repetitions: Repetitions) -> None:
    x, y = some(), some()
    a, b = new(x), new(y)
    for _ in range(4):
        plus(a, b)
    fake.set_current(0x999)  # another library's
    before = repetitions.long
    same(plus(a, b), x + y)
    assert fake.contexts[-1] == 0x999 and repetitions.long == before
    fake.contexts.pop()


def test_several_devices(monkeypatch: pytest.MonkeyPatch, repetitions: Repetitions) -> None:
    for _ in start(monkeypatch, 1, devices=2):
        for _ in range(5):
            for ordinal in (0, 1):
                x, y = some(), some()
                found = plus(new(x, ordinal), new(y, ordinal))
                assert found.device.ordinal == ordinal
                same(found, x + y)
        assert repetitions.long == 2, "the context of the thread does not matter"
        with pytest.raises(LaunchError):
            plus(new(x, 0), new(y, 1))


def test_threads_share_what_is_repeated(fake: FakeDriver) -> None:
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            x, y = some(), some()
            if not np.array_equal(plus(new(x), new(y)).numpy(), x + y):
                wrong.append((x, y))

    for _ in range(3):
        plus(new(some()), new(some()))
    thread = threading.Thread(target=work)  # the driver of the test is for one thread at a time
    thread.start()
    thread.join()
    work()
    assert not wrong
