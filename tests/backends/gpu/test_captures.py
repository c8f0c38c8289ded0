"""The lives of streams, events, blocks and graphs when threads share a GPU: see
docs/design/cuda-backend.md.

The driver is the one of `tests.backends.gpu.fake_driver`. It spoils captures where NVIDIA's does,
and knows no stream that is gone.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cubepy as cb
from cubepy.backends.gpu.native import memory, stream
from cubepy.backends.gpu.native.graph import Capture, NativeGraph
from cubepy.backends.gpu.native.stream import NativeStream, all_streams, thread_stream
from cubepy.errors import LaunchError
from cubepy.runtime.launch.bound import BoundLaunch
from cubepy.runtime.memory.device_array import DeviceArray
from tests.backends.gpu.fake_driver import DRIVER, GPU, FakeDriver, fake_driver, here, orders
from tests.backends.gpu.test_stream_order import Adder, add, get, new, put


@pytest.fixture(**orders(3, 2))
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """The driver, with another order of work each time."""
    gc.freeze()
    vendor, seed = request.param
    with fake_driver(monkeypatch, seed, vendor=vendor) as f:
        f.kernels["add"] = add
        yield f
        gc.collect()


def captured(work: Callable[[], None]) -> NativeGraph:
    """A graph of some work of this thread."""
    capture = Capture(DRIVER.context(0))
    capture.begin()
    try:
        work()
    except BaseException:
        capture.end(failed=True)
        raise
    graph = capture.end(failed=False)
    assert graph is not None
    return graph


def elsewhere(work: Callable[[], None]) -> None:
    """Do something in another thread, and wait; what it raises comes here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def test_a_stream_that_is_being_destroyed_is_known_to_nobody(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    adder, x = Adder(), new()
    put(x, 1)
    monkeypatch.setattr(stream, "SPARE", 0)
    destroy, found = FakeDriver.destroy_stream, []

    def during(self: FakeDriver, handle: int) -> int:
        found.append(handle in [s.handle for s in all_streams(DRIVER, 0)])
        return destroy(self, handle)

    monkeypatch.setattr(FakeDriver, "destroy_stream", during)
    for _ in range(3):
        own = NativeStream(thread_stream(DRIVER, 0).context)
        adder(x, x, new(), own, 2)
        put(x, 1)  # the stream is not among the users of x any more
        del own
        memory.pool(DRIVER, 0).trim()
        NativeStream(thread_stream(DRIVER, 0).context, blocking=False)  # what is idle goes
    assert found and not any(found)


def test_a_capture_while_a_stream_is_being_destroyed(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SPARE", 0)
    destroy, captures = FakeDriver.destroy_stream, []

    def during(self: FakeDriver, handle: int) -> int:
        code = destroy(self, handle)
        if not captures:
            captures.append(None)
            elsewhere(lambda: captures.append(captured(lambda: None)))
        return code

    own = NativeStream(thread_stream(DRIVER, 0).context)
    monkeypatch.setattr(FakeDriver, "destroy_stream", during)
    del own
    NativeStream(thread_stream(DRIVER, 0).context, blocking=False)
    assert len(captures) == 2


def test_waiting_for_all_streams_while_a_capture_begins(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits puts no event into the stream that has begun to record."""
    begin, raised, waiting = FakeDriver.begin_capture, [], []

    def wait() -> None:
        try:
            for each in all_streams(DRIVER, 0):
                each.settle()
        except LaunchError as error:
            raised.append(error)

    def during(self: FakeDriver, handle: int, mode: int) -> int:
        code = begin(self, handle, mode)
        waiting.append(threading.Thread(target=wait))
        waiting[-1].start()
        waiting[-1].join(0.2)
        return code

    x, out = new(), new()
    put(x, 3)
    monkeypatch.setattr(FakeDriver, "begin_capture", during)
    graph = captured(lambda: Adder()(x, x, out, thread_stream(DRIVER, 0), 2))
    waiting[0].join()
    graph.launch(thread_stream(DRIVER, 0))
    assert not raised and get(out) == 7


def test_streams_of_other_libraries_may_go_after_ours_did(fake: FakeDriver) -> None:
    """Their work is known by an event: memory that they used is ordered after it, given out again,
    and captured.
    """
    adder, home = Adder(), thread_stream(DRIVER, 0)
    for turn in range(6):
        theirs = NativeStream(home.context)
        x, y, z = new(), new(), new()
        put(x, turn)
        with cb.Stream(here(), handle=theirs.handle):
            for _ in range(3):
                adder(x, x, y, thread_stream(DRIVER, 0), turn % 3)
            block = new()
            adder(y, y, block, thread_stream(DRIVER, 0), 2)
            del block
        del theirs
        gc.collect()
        graph = captured(lambda y=y, z=z: adder(y, y, z, thread_stream(DRIVER, 0), 2))  # type: ignore[misc]
        graph.launch(home)
        assert get(z) == 2 * (2 * turn + 1) + 1
        kept = [new() for _ in range(4)]
        for n, k in enumerate(kept):
            put(k, n)
        assert [get(k) for k in kept] == list(range(4))
        elsewhere(lambda y=y: adder(y, y, new(), thread_stream(DRIVER, 0), 2))  # type: ignore[misc]
        memory.pool(DRIVER, 0).trim()


def test_who_waits_for_all_streams_keeps_none(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams that go while threads wait for one after the other are those that others get next."""
    home = thread_stream(DRIVER, 0)
    streams = [NativeStream(home.context) for _ in range(20)]
    handles = {s.handle for s in streams}
    settled: list[int] = []

    def settle(self: NativeStream) -> None:
        streams.clear()
        settled.append(self.handle)

    monkeypatch.setattr(type(home.context), "synchronize", lambda self: False)
    monkeypatch.setattr(NativeStream, "settle", settle)
    GPU.synchronize(0)
    assert handles <= {*settled}  # they may have work left
    again = [NativeStream(home.context) for _ in range(20)]
    assert {s.handle for s in again} == handles


def test_streams_in_circles_with_memory_work_when_it_is_given_out_again(fake: FakeDriver) -> None:
    """A destructor of memory in a circle brings the stream that used it back to life, as a key of
    the pool; its events and its native stream are still its own then.
    """
    home = thread_stream(DRIVER, 0)
    for theirs in (False, True):
        for _ in range(4):

            def work(theirs: bool = theirs) -> None:
                mine = thread_stream(DRIVER, 0)
                stream = NativeStream(mine.context, mine.handle) if theirs else mine
                block: Any = memory.pool(DRIVER, 0).take(512, stream)
                home.wait(stream)  # which makes an event of the stream
                circle: list[Any] = [block, stream]
                circle.append(circle)

            elsewhere(work)
            gc.collect()
            mine = [NativeStream(home.context) for _ in range(3)]
            assert len({s.handle for s in (*mine, home)}) == 4
            blocks = [memory.pool(DRIVER, 0).take(512, s) for s in mine]  # waits for its stream
            assert len({b.address for b in blocks}) == 3


def test_a_bound_launch_keeps_its_stream(fake: FakeDriver) -> None:
    theirs = NativeStream(thread_stream(DRIVER, 0).context)
    ours = cb.Stream(here(), handle=theirs.handle)
    native = ours.native
    launch = BoundLaunch(None, None, (), None, ours)  # type: ignore[arg-type]
    del ours
    assert native.last_event is None
    del launch
    assert native.last_event is not None


def test_an_empty_capture_is_replayed_as_nothing(fake: FakeDriver) -> None:
    with cb.capture(here()) as graph:
        pass
    assert graph.nodes == graph.kernels == 0
    for _ in range(3):
        graph.replay()
    with cb.capture(here()) as graph:
        kept = new()
    graph.replay()
    put(kept, 3)
    assert get(kept) == 3


def test_captures_of_several_threads_go_on_at_once(fake: FakeDriver) -> None:
    adder, x = Adder(), new()
    put(x, 1)
    graphs: list[NativeGraph] = []
    outs = [new() for _ in range(4)]

    def nested(n: int) -> None:
        def work() -> None:
            Adder()(x, x, outs[n], thread_stream(DRIVER, 0), 2)
            if n < 3:
                elsewhere(lambda: nested(n + 1))
            Adder()(outs[n], x, outs[n], thread_stream(DRIVER, 0), 2)

        graphs.append(captured(work))

    nested(0)
    assert [g.nodes for g in graphs] == [2] * 4
    for value in (1, 5):
        put(x, value)
        for graph in graphs:
            graph.launch(thread_stream(DRIVER, 0))
        assert [get(out) for out in outs] == [3 * value + 2] * 4
    adder(x, x, x, thread_stream(DRIVER, 0), 2)
    assert get(x) == 11


def test_others_work_and_wait_while_a_thread_captures(fake: FakeDriver) -> None:
    adder, x, y = Adder(), new(), new()
    put(x, 1)

    def others() -> None:
        a, b = new(), new()
        put(a, 4)
        adder(x, a, b, thread_stream(DRIVER, 0), 2)
        cb.sync(here())
        assert get(b) == 6
        memory.pool(DRIVER, 0).trim()

    def work() -> None:
        adder(x, x, y, thread_stream(DRIVER, 0), 2)
        elsewhere(others)
        adder(y, y, y, thread_stream(DRIVER, 0), 2)

    graph = captured(work)
    graph.launch(thread_stream(DRIVER, 0))
    assert get(y) == 7


def test_nothing_is_waited_for_inside_a_capture(fake: FakeDriver) -> None:
    x, s = new(), cb.Stream(here())
    put(x, 1)
    graph = captured(lambda: None)
    for wait in (
        lambda: cb.sync(here()),
        s.sync,
        lambda: get(x),
        lambda: graph.launch(thread_stream(DRIVER, 0)),
    ):
        adder = Adder()

        def work(wait: Any = wait, adder: Any = adder) -> None:
            with s:
                adder(x, x, new(), thread_stream(DRIVER, 0), 2)
                _ = s.done
                with pytest.raises(LaunchError, match="captured"):
                    wait()

        assert captured(work).nodes >= 1


def test_a_block_under_a_stream_is_captured(fake: FakeDriver) -> None:
    adder, x, y, s = Adder(), new(), new(), cb.Stream(here())
    put(x, 1)
    put(y, 0)

    def work() -> None:
        with s:
            adder(x, x, y, thread_stream(DRIVER, 0), 2)
        adder(y, y, y, thread_stream(DRIVER, 0), 2)

    graph = captured(work)
    assert get(y) == 0
    graph.launch(thread_stream(DRIVER, 0))
    assert get(y) == 7
    put(x, 2)
    with s:
        graph.launch(thread_stream(DRIVER, 0))
    assert get(y) == 11


def test_a_stream_is_captured_by_one_thread_alone(fake: FakeDriver) -> None:
    adder, x, y, s = Adder(), new(), new(), cb.Stream(here())
    put(x, 1)
    adder(x, x, y, s.native, 2)  # what was given before the capture is waited for by others

    def theirs() -> None:
        z = new()
        adder(y, y, z, thread_stream(DRIVER, 0), 2)
        assert get(z) == 7
        for use in (s.__enter__, lambda: s.attach(None)):
            with pytest.raises(LaunchError, match="another thread"):
                use()
            with pytest.raises(LaunchError, match="another thread"):
                captured(use)  # type: ignore[arg-type]

    def work() -> None:
        with s:
            elsewhere(theirs)

    captured(work)
    with s:
        assert get(y) == 3


def test_a_capture_that_ends_in_another_thread_gives_the_first_its_stream_back(
    fake: FakeDriver,
) -> None:
    own, capture = thread_stream(DRIVER, 0), Capture(DRIVER.context(0))
    capture.begin()
    elsewhere(lambda: [capture.end(failed=False), thread_stream(DRIVER, 0)] and None)
    assert thread_stream(DRIVER, 0) is own and own.capture is None


def test_threads_use_a_stream_in_turns(fake: FakeDriver) -> None:
    s, own, seen = cb.Stream(here()), thread_stream(DRIVER, 0), []

    def theirs(inside: threading.Event, leave: threading.Event) -> None:
        mine = thread_stream(DRIVER, 0)
        with s:
            inside.set()
            leave.wait()
        seen.append(thread_stream(DRIVER, 0) is mine)

    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=theirs, args=(inside, leave))
    with s:
        thread.start()
        inside.wait()
    assert thread_stream(DRIVER, 0) is own
    leave.set()
    thread.join()
    assert seen == [True]


def test_a_capture_that_fails_leaves_nothing(fake: FakeDriver) -> None:
    adder, x, s = Adder(), new(), cb.Stream(here())
    put(x, 1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), cb.capture(here()):
            with s:
                adder(x, x, new(), thread_stream(DRIVER, 0), 2)
            raise ZeroDivisionError
        assert (
            thread_stream(DRIVER, 0).capture is None
            and s.native.capture is None
            and not fake.capturing
        )
    assert thread_stream(DRIVER, 0).context.captures == 0
    with s:
        assert get(x) == 1
    cb.sync(here())


def test_memory_and_streams_stay_flat(fake: FakeDriver) -> None:
    """Captures, threads and streams that come and go leave neither blocks nor streams behind."""
    adder, x = Adder(), new()
    put(x, 1)

    def turn() -> None:
        def work() -> None:
            between, out = new(), new()
            adder(x, x, between, thread_stream(DRIVER, 0), 2)
            adder(between, x, out, thread_stream(DRIVER, 0), 2)

        graph = captured(work)
        graph.launch(thread_stream(DRIVER, 0))
        with cb.Stream(here()):
            adder(x, x, new(), thread_stream(DRIVER, 0), 2)
        fake.synchronize()

    for _ in range(10):
        elsewhere(turn)
    gc.collect()
    blocks = len(fake.blocks)
    for _ in range(60):
        elsewhere(turn)
    gc.collect()
    assert len(fake.blocks) <= blocks and len(fake.queues) < 40


def test_threads_launch_capture_replay_and_free_at_random(fake: FakeDriver) -> None:
    """Values are those of one piece of work after the other, and what is read by all is not given
    out again.
    """
    shared = [new() for _ in range(3)]
    for n, s in enumerate(shared):
        put(s, n)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng, adder = random.Random(seed), Adder()
        own: list[tuple[DeviceArray, int]] = []
        streams = [cb.Stream(here()) for _ in range(2)]
        try:
            for step in range(60):
                choice = rng.random()
                if choice < 0.25 or len(own) < 3:
                    own.append((new(), step))
                    put(own[-1][0], step)
                elif choice < 0.4:
                    own.pop(rng.randrange(len(own)))
                elif choice < 0.5:
                    a, value = rng.choice(own)
                    assert get(a) == value
                elif choice < 0.75:
                    k, n = rng.randrange(len(own)), rng.randrange(3)
                    adder(own[k][0], shared[n], own[k][0], rng.choice(streams).native, 2)
                    own[k] = (own[k][0], own[k][1] + n + 1)
                else:
                    k, n, out = rng.randrange(len(own)), rng.randrange(3), new()

                    def recorded(k: int = k, n: int = n, out: DeviceArray = out) -> None:
                        between = new()
                        adder(own[k][0], shared[n], between, thread_stream(DRIVER, 0), 2)
                        with rng.choice(streams):
                            adder(between, shared[n], out, thread_stream(DRIVER, 0), 2)

                    graph = captured(recorded)
                    for _ in range(2):
                        graph.launch(rng.choice(streams).native)
                    own.append((out, own[k][1] + 2 * n + 2))
                if rng.random() < 0.05:
                    streams[0] = cb.Stream(here())
                    cb.sync(here())
            assert [get(a) for a, _ in own] == [v for _, v in own]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong, wrong
    assert [get(s) for s in shared] == [0, 1, 2]
    assert GPU.stats(0).in_use >= 0 and not [
        s for s in stream.all_streams(DRIVER, 0) if s.capture is not None
    ]
