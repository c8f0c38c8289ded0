"""Variables that the path which was taken gave no value, and loops with a step of zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import KernelAssertionError
from cubepy.runtime.device import GPUS

X = np.array([1, -2, 3, -4, 5], np.float32)


@cb.kernel
def one_side(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        if x[i] > 0:
            v = x[i]
        out[i] = v


@cb.kernel
def matching(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        if x[i] > 0:
            v = x[i]
            n = 2
        out[i] = v if x[i] > 0 else cb.f32(-1)
        if x[i] > 0 and v > 2:
            out[i] += n
        if x[i] < 0 or v < 2:
            out[i] -= 10


@cb.kernel
def loop_that_may_not_turn(x: cb.Array, out: cb.Array, n):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        for k in range(n):
            last = x[k] + x[i]
        out[i] = last + k


@cb.kernel
def from_turn_to_turn(x: cb.Array, out: cb.Array):
    """Only the first turn gives it a value, which the others keep."""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        for k in range(x.size):
            if k == 0:
                first = x[i]
            out[i] += first * x[k]


@cb.kernel
def behind_a_barrier(x: cb.Array, out: cb.Array, *, units: cb.Comptime[int]):
    u, shared = cb.UNIT_POS, cb.shared(units, cb.f32)
    if x[u] > 0:
        pair = (x[u], u)
        low = x.load(u, 2)
    shared[u] = x[u]
    cb.sync_cube()
    if x[u] > 0:
        out[u] = pair[0] + pair[1] + shared[(u + 1) % units] + low.sum()


@cb.kernel
def with_step(out: cb.Array, step):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        total = 0
        for k in range(0, 6, step):
            total += k + 1
        out[i] = total


def launched(kernel: Any, device: str, mode: str, *arguments: object) -> np.ndarray:
    out = np.zeros(len(X), np.float32)
    with cb.use(device):
        kernel[1, len(X)](X, out, *arguments, mode=mode)
        cb.sync(device)
    return out


def test_a_variable_that_no_path_gave_a_value_is_zero(device: str) -> None:
    if device == "python":
        with pytest.raises(KernelAssertionError, match="'v' is read on a path"):
            launched(one_side, device, "checked")
        return
    assert launched(one_side, device, "checked").tolist() == [1, 0, 3, 0, 5]
    assert launched(loop_that_may_not_turn, device, "checked", 0).tolist() == [0] * 5


def test_validate_mode_names_the_variable_and_the_line(device: str) -> None:
    with pytest.raises(KernelAssertionError, match="in one_side: the variable 'v' is read") as told:
        launched(one_side, device, "validate")
    assert told.value.location is not None
    assert told.value.location.excerpt().split("\n")[0].endswith("out[i] = v")
    with pytest.raises(KernelAssertionError, match="the variable 'last' is read|variable 'k' is"):
        launched(loop_that_may_not_turn, device, "validate", 0)


@pytest.mark.parametrize("mode", ["checked", "validate"])
def test_conditions_that_go_together_are_no_fault(device: str, mode: str) -> None:
    assert launched(matching, device, mode).tolist() == [-9, -11, 5, -11, 7]
    want = (X[2] + X + 2).tolist()
    assert launched(loop_that_may_not_turn, device, mode, 3).tolist() == want
    assert launched(from_turn_to_turn, device, mode).tolist() == (X * X.sum()).tolist()


@pytest.mark.parametrize("mode", ["checked", "validate"])
def test_values_of_one_side_live_across_barriers(device: str, mode: str) -> None:
    if device.startswith(GPUS):
        pytest.skip("one plane and a part of it are the same there")
    out = np.zeros(4, np.float32)
    behind_a_barrier[1, 4](X, out, units=4, device=device, mode=mode)
    pairs = X[:4] + X[1:]
    want = np.where(X[:4] > 0, X[:4] + np.arange(4) + np.roll(X[:4], -1) + pairs, 0)
    assert out.tolist() == want.tolist()


def test_a_step_of_zero_is_told(device: str) -> None:
    for mode in ("validate",) if device != "python" else ("checked", "validate"):
        with pytest.raises(KernelAssertionError, match="in with_step: range needs a step"):
            with_step[1, 4](np.zeros(4, np.int32), 0, device=device, mode=mode)
            if device != "python":
                with cb.use(device):
                    cb.sync(device)


@pytest.mark.parametrize("step", [0, 1, 4, -1])
def test_steps_that_are_known_at_run_time(device: str, step: int) -> None:
    if device == "python" and step == 0:
        pytest.skip("it is told there in every mode")
    out = np.full(4, 7, np.int32)
    with cb.use(device):
        with_step[1, 4](out, step)
        cb.sync(device)
    want = sum(k + 1 for k in range(0, 6, step)) if step else 0
    assert out.tolist() == [want] * 4


@cb.kernel
def constant_bounds(out: cb.Array):
    for k in range(0, 6, 0):
        out[k] = 1


@cb.kernel
def runtime_stop(out: cb.Array):
    for k in range(0, out.size, 0):
        out[k] = 1


@pytest.mark.parametrize("kernel", [constant_bounds, runtime_stop])
def test_a_step_of_zero_in_the_source_is_refused(kernel: Any) -> None:
    with pytest.raises(cb.errors.CompileError, match="must not be zero|step that is not zero") as e:
        kernel[1, 1](np.zeros(4, np.int32))
    assert e.value.location is not None and "range" in e.value.location.excerpt()
