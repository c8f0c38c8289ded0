"""Errors of kernels and of the device: typed, with the kernel's line and the launch site."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import (
    DeviceError,
    KernelAssertionError,
    LaunchError,
    OutOfBoundsError,
    SharedMemoryError,
)
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray, empty, upload
from tests.device.kernels import add_one, beyond, positive

HERE = Device("cuda")
ROOT = Path(__file__).resolve().parents[2]


def pair(n: int = 8) -> tuple[DeviceArray, DeviceArray]:
    """An input of ones and an output."""
    return upload(np.ones(n, np.float32), HERE), empty((n,), np.float32, HERE)


def test_out_of_bounds_surfaces_at_sync() -> None:
    x, out = pair()
    beyond[1, 8](x, out, mode="validate")
    with pytest.raises(OutOfBoundsError, match="index 8 of 'x', whose length is 8") as caught:
        cb.sync()
    assert "tests/device/test_faults.py" in str(caught.value), "the launch site"
    assert caught.value.location is not None and caught.value.location.file.endswith("kernels.py")
    cb.sync()


def test_out_of_bounds_surfaces_at_a_read() -> None:
    x, out = pair()
    beyond[1, 8](x, out, mode="validate")
    with pytest.raises(OutOfBoundsError):
        out.numpy()
    add_one[cb.over(x)](x)
    assert x.numpy()[0] == 2.0


def test_an_error_on_another_stream_surfaces_at_a_read() -> None:
    x, out = pair()
    s = cb.Stream()
    beyond[1, 8](x, out, mode="validate", stream=s)
    with pytest.raises(OutOfBoundsError):
        out.numpy()


def test_each_launch_reports_for_itself() -> None:
    x, out = pair()
    big = upload(np.ones(64, np.float32), HERE)
    for _ in range(2000):
        beyond[1, 8](big, out, mode="validate")
    cb.sync()
    beyond[1, 8](x, out, mode="validate")
    with pytest.raises(OutOfBoundsError):
        cb.sync()


def test_an_assertion_of_a_kernel() -> None:
    x, out = pair()
    x[3] = -1.0
    with cb.config.override(debug=1):
        positive[cb.over(x)](x, out)
        with pytest.raises(KernelAssertionError, match="x must be positive"):
            cb.sync()


def test_an_error_in_a_graph() -> None:
    x, out = pair()
    with cb.capture() as g:
        beyond[1, 8](x, out, mode="validate")
    for _ in range(2):
        g.replay()
        with pytest.raises(OutOfBoundsError):
            cb.sync()


def test_a_checked_launch_reads_zero_beyond() -> None:
    x, out = pair()
    beyond[1, 8](x, out)
    assert out.tolist() == [1.0] * 7 + [0.0]


@cb.kernel
def hungry(out: cb.Array, size: cb.Comptime[int]):
    """Takes shared memory."""
    mine = cb.shared(size, cb.f32)
    mine[cb.UNIT_POS] = 1.0
    cb.sync_cube()
    out[cb.UNIT_POS] = mine[cb.UNIT_POS]


def test_launches_beyond_the_limits() -> None:
    x, out = pair(32)
    with pytest.raises(LaunchError, match="allows 1024"):
        add_one[1, 2048](x)
    with pytest.raises(LaunchError, match="along y"):
        add_one[(1, 70000), 1](x)
    with pytest.raises(SharedMemoryError):
        hungry[1, 32](out, 100_000)
    hungry[1, 32](out, 50_000)
    assert out.tolist() == [1.0] * 32


def test_host_and_device_do_not_mix() -> None:
    x, _ = pair()
    with pytest.raises(LaunchError, match=r'cb\.tensor\(x, device="cuda"\)'):
        add_one[cb.over(8)](np.zeros(8, np.float32))
    with pytest.raises(LaunchError, match="launched on cpu"):
        add_one[cb.over(8)](x, device="cpu")
    with pytest.raises(DeviceError, match="does not exist"):
        add_one[cb.over(8)](x, device="cuda:99")
    with pytest.raises(DeviceError, match=r"\.to\("):
        cb.tensor([1.0]) + cb.tensor([1.0], device="cpu")


def python(text: str) -> str:
    """What a new process prints."""
    env = dict(
        os.environ, PYTHONPATH=os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    )
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
        check=False,
    )
    return run.stdout + run.stderr


def test_a_lost_context_says_what_to_do() -> None:
    out = python("""
        import numpy as np, cubepy as cb
        from cubepy.runtime.device import Device
        from cubepy.runtime.memory.device_array import DeviceArray, empty
        from tests.device.kernels import add_one
        x = empty((8,), np.float32, Device("cuda"))
        bad = DeviceArray(1 << 46, x.layout, x.owner)
        add_one[cb.over(8)](bad)
        for _ in range(2):
            try:
                cb.sync()
            except cb.errors.DeviceError as error:
                print("said:", error)
    """)
    assert (
        out.count("said:") == 2 and "start a new process" in out and "does not belong to it" in out
    )


def test_a_forked_child_is_told() -> None:
    x, _ = pair()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            add_one[cb.over(8)](x)
            said = "nothing"
        except DeviceError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    said = os.read(read, 4096).decode()
    assert "forked" in said and "spawn" in said
