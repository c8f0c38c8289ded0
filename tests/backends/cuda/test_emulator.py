"""The emulator finds what it is for: kernels that wait too little, meet in vain, or reach outside
their arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")

from cubepy.runtime.device import current
from cubepy.runtime.memory import device_array
from tests.backends.cuda import matrix_kernels as M
from tests.backends.cuda.emulator.device import emulated
from tests.backends.cuda.emulator.launch import emulate
from tests.backends.cuda.recording import recording

UNITS = 64


@cb.kernel
def mirrored(x: cb.Array, out: cb.Array, meets: cb.Comptime[str]):
    """out[k] = x[63 - k], through shared memory."""
    board = cb.shared(64, x.dtype)
    board[cb.UNIT_POS] = x[cb.UNIT_POS]
    if meets == "cube":
        cb.sync_cube()
    elif meets == "plane":
        cb.sync_plane()
    out[cb.UNIT_POS] = board[63 - cb.UNIT_POS]


@cb.kernel
def copied(x: cb.Array, out: cb.Array, waits: cb.Comptime[bool]):
    """out = x, by copies that run beside the units' work."""
    board = cb.shared(256, x.dtype)
    cb.copy_async(board, cb.UNIT_POS * 4, x, cb.UNIT_POS * 4, 16)
    cb.copy_async_commit()
    if waits:
        cb.copy_async_wait(0)
    for k in range(4):
        out[cb.UNIT_POS * 4 + k] = board[cb.UNIT_POS * 4 + k]


@cb.kernel
def counted(out: cb.Array, phase: cb.Comptime[int]):
    """Everyone waits for a phase of a barrier that ends once."""
    bar = cb.barrier(1, 64)
    cb.barrier_arrive(bar, 0)
    cb.barrier_wait(bar, 0, phase)
    out[cb.UNIT_POS] = 1.0


@cb.kernel
def beyond(out: cb.Array, at):
    out[cb.UNIT_POS + at] = 1.0


def test_units_that_do_not_meet_read_what_is_not_there_yet() -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    emulate(mirrored, UNITS, 1, x, out, "cube")
    np.testing.assert_array_equal(out, x[::-1])
    emulate(mirrored, UNITS, 1, x, out, "nobody")
    assert np.isnan(out).any()


def test_planes_that_do_not_meet_are_not_at_the_same_place() -> None:
    x, found = np.arange(64, dtype=np.float32), []
    for seed in range(8):
        out = np.zeros(64, np.float32)
        emulate(mirrored, UNITS, 1, x, out, "plane", seed=seed)
        found.append(np.isnan(out).any())
    assert any(found)


@pytest.mark.parametrize("late", [0.0, 0.5, 1.0])
def test_copies_that_nobody_waits_for_come_late(late: float) -> None:
    x, out = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    emulate(copied, UNITS, 1, x, out, True, late=late)
    np.testing.assert_array_equal(out, x)
    emulate(copied, UNITS, 1, x, out, False, late=late)
    assert np.isnan(out).any() == (late > 0)


def test_a_phase_too_many_is_waited_for_in_vain() -> None:
    out = np.zeros(64, np.float32)
    emulate(counted, UNITS, 1, out, 0)
    assert out.all()
    with pytest.raises(RuntimeError, match="units wait for ever: .* at barriers"):
        emulate(counted, UNITS, 1, out, 1)


def test_an_access_outside_an_array_is_found() -> None:
    with pytest.raises(AssertionError, match="elements 64 to 65 of 64"):
        emulate(beyond, UNITS, 1, np.zeros(64, np.float32), 1)


@pytest.mark.parametrize("dtype", ["f4", "u4", "f8", "i8"])
@pytest.mark.parametrize("kernel", [M.swapped, M.given])
def test_cubes_of_a_cluster_reach_each_others_shared_memory(kernel: Any, dtype: str) -> None:
    x = np.arange(256, dtype=dtype)
    out = np.zeros_like(x)
    emulate(kernel, UNITS, 4, x, out)
    np.testing.assert_array_equal(out, 2 * x.reshape(2, 2, 64)[:, ::-1].reshape(-1))


def test_what_only_notes_a_launch_is_not_run_by_the_emulator_later() -> None:
    """Launchers keep prepared launches by device: a noted one has a device of its own."""
    x = np.arange(64, dtype=np.float32)

    def call() -> np.ndarray:
        there, out = (device_array.upload(a, current()) for a in (x, np.zeros_like(x)))
        mirrored[1, UNITS](there, out, "cube")
        return out.numpy()

    for _ in range(2):
        with recording("sm_90a") as launches:
            assert not call().any() and len(launches) == 1
        with emulated():
            np.testing.assert_array_equal(call(), x[::-1])
