"""Order between streams, events, and captured graphs; threads that share a GPU."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import LaunchError
from cubepy.nn import functional as F
from cubepy.runtime import memory
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray, empty, upload
from tests.device.kernels import add_one, axpy, slow_add

HERE = Device("cuda")
LONG = 200_000


def one(value: float = 0.0) -> DeviceArray:
    """An array of one number."""
    return upload(np.array([value], np.float32), HERE)


def test_a_reader_on_another_stream_waits_for_the_writer() -> None:
    a, b = cb.Stream(), cb.Stream()
    for n in range(10):
        x, y, z = one(float(n)), one(), one()
        slow_add[1, 1](x, y, LONG, stream=a)
        slow_add[1, 1](y, z, 1, stream=b)
        assert z.item() == n + 2.0


def test_a_writer_on_another_stream_waits_for_the_readers() -> None:
    a, b = cb.Stream(), cb.Stream()
    for n in range(10):
        x, y = one(float(n)), one()
        slow_add[1, 1](x, y, LONG, stream=a)  # reads x at its end, too
        add_one[cb.over(1)](x, stream=b)
        assert y.item() == n + 1.0 and x.item() == n + 1.0


def test_memory_that_is_reused_waits_for_its_last_work() -> None:
    a = cb.Stream()
    x = one(1.0)
    for _ in range(10):
        y = empty((1,), np.float32, HERE)
        slow_add[1, 1](x, y, LONG, stream=a)
        del y
        z = empty((1,), np.float32, HERE)
        z[...] = 5.0
        assert z.item() == 5.0


def test_launches_that_share_nothing_overlap() -> None:
    """Four slow launches on four streams take less time than one after the other."""
    streams = [cb.Stream() for _ in range(4)]
    pairs = [(one(), one()) for _ in streams]

    def seconds(chosen: list[cb.Stream]) -> float:
        start, stop = cb.Event(), cb.Event()
        for s, (x, y) in zip(chosen, pairs, strict=True):
            slow_add[1, 1](x, y, LONG, stream=s)
        cb.sync()
        start.record(chosen[0])
        for s in chosen:
            s.wait(start)
        for s, (x, y) in zip(chosen, pairs, strict=True):
            slow_add[1, 1](x, y, LONG, stream=s)
        for s in chosen:
            chosen[0].wait(s)
        stop.record(chosen[0])
        return stop.seconds_since(start)

    assert seconds(streams) < 0.6 * seconds([streams[0]] * 4)


def test_a_stream_can_be_the_threads_own() -> None:
    s = cb.Stream()
    with s:
        x = cb.tensor([1.0, 2.0])
        y = x * 2
    assert y.tolist() == [2.0, 4.0]
    s.sync()
    assert s.done


def test_a_stream_of_another_device_is_refused() -> None:
    with pytest.raises(LaunchError, match="launched on cpu"):
        add_one[cb.over(1)](one(), stream=cb.Stream("cpu"))
    with pytest.raises(LaunchError, match="cannot take a launch"):
        add_one[cb.over(1)](one(), stream=cb.Stream("cpu"), device="cuda")


def test_events_take_the_time() -> None:
    start, stop = cb.Event(), cb.Event()
    start.record()
    slow_add[1, 1](one(), one(), LONG)
    stop.record()
    assert stop.seconds_since(start) > 1e-4 and stop.done


def test_the_profiler_takes_the_devices_time() -> None:
    x, y = one(), one()
    slow_add[1, 1](x, y, LONG)
    with cb.profile() as p:
        for _ in range(3):
            slow_add[1, 1](x, y, LONG)
    assert p.kernels["slow_add"].calls == 3 and p.kernels["slow_add"].seconds > 3e-4


def test_bound_launches_follow_the_callers_stream() -> None:
    x = one()
    launch = add_one[cb.over(1)].bind(x)
    launch()
    with cb.Stream():
        launch()
    launch()
    assert x.item() == 3.0
    alpha, y, out = 2.0, one(3.0), one()
    scaled = axpy[cb.over(1)].bind(alpha, y, y, out)
    scaled()
    assert out.item() == 9.0
    scaled(alpha=4.0)
    assert out.item() == 15.0


def test_a_graph_replays_its_launches() -> None:
    x = one()
    with cb.capture() as g:
        for _ in range(5):
            add_one[cb.over(1)](x)
    assert x.item() == 0.0 and g.kernels == 5
    for _ in range(3):
        g.replay()
    assert x.item() == 15.0


def test_a_graph_of_tensors() -> None:
    """Intermediates are memory of the graph; new inputs are written into the arrays that it read."""
    rng = np.random.default_rng(0)
    host = rng.standard_normal((8, 16), np.float32)
    x, w = cb.tensor(host), cb.tensor(rng.standard_normal((16, 16), np.float32))

    def model(x: cb.Tensor) -> cb.Tensor:
        return (F.gelu(x @ w) + 1.0).softmax(-1)

    expected = model(x).numpy()
    with cb.capture() as g:
        y = model(x)
    g.replay()
    assert np.allclose(y.numpy(), expected, atol=1e-6)
    again = rng.standard_normal((8, 16), np.float32)
    g.put(x, again)
    junk = [cb.tensor(np.full((8, 16), 9, np.float32)) for _ in range(50)]
    g.replay()
    found = y.numpy()
    assert np.allclose(found, model(cb.tensor(again)).numpy(), atol=1e-6) and not np.allclose(
        found, expected
    )
    del junk


def test_a_graph_reuses_its_memory_and_gives_it_back() -> None:
    x = cb.tensor(np.zeros(1 << 20, np.float32))
    (x + 1.0).numpy()
    gc.collect()
    before = memory.memory_stats("cuda").in_use
    with cb.capture() as g:
        y = x
        for _ in range(10):
            y = y + 1.0
    held = memory.memory_stats("cuda").in_use - before
    assert held <= 4 * x.nbytes
    g.replay()
    assert y.numpy()[0] == 10.0
    del g
    gc.collect()
    assert y.numpy()[0] == 10.0
    del y
    gc.collect()
    assert memory.memory_stats("cuda").in_use <= before + 1024


def test_a_graph_takes_other_streams_along() -> None:
    x, y, s = one(), one(), cb.Stream()
    with cb.capture() as g:
        add_one[cb.over(1)](x)
        slow_add[1, 1](x, y, 10, stream=s)
        add_one[cb.over(1)](y)
    for n in range(1, 4):
        g.replay()
        assert (x.item(), y.item()) == (float(n), n + 2.0)


def test_reading_inside_a_capture_is_refused() -> None:
    x = one(1.0)
    with pytest.raises(LaunchError, match="captured"), cb.capture():
        x.item()
    assert x.item() == 1.0
    with pytest.raises(LaunchError, match="nest"), cb.capture():
        with cb.capture():
            add_one[cb.over(1)](x)
    add_one[cb.over(1)](x)
    assert x.item() == 2.0


def test_a_graph_is_ordered_like_a_launch() -> None:
    a, x, y = cb.Stream(), one(), one()
    with cb.capture() as g:
        slow_add[1, 1](x, y, 10)
    for n in range(5):
        x[...] = float(n)
        slow_add[1, 1](x, x, LONG, stream=a)
        g.replay()
        assert y.item() == n + 2.0


def test_threads_launch_capture_replay_and_free() -> None:
    """`scripts/stress_gpu.py` for a few seconds, in a process that may crash."""
    script = Path(__file__).parents[2] / "scripts" / "stress_gpu.py"
    command = [sys.executable, str(script), "--threads", "8", "--seconds", "8", "--interval", "4"]
    command += ["--shared"] * ("PYTEST_XDIST_WORKER" in os.environ)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
