"""Kernels for GPUs are lowered without numba's front end, and their machine code is the same as
with it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cuda import offline as nvidia
from cubepy.backends.gpu.codegen import target
from cubepy.backends.hip import offline as amd

F = np.float32


@cb.kernel
def sums(x: cb.Array, out: cb.Array, n: cb.i32):
    """Loops up, by steps and down; what is set several times; ways out of a loop."""
    i = cb.ABSOLUTE_POS
    s = cb.f32(0)
    for k in range(n):
        s += x[k] * 2
    for k in range(1, n, 3):
        if x[k] < 0:
            continue
        s = s * x[k] + s
    for k in range(n - 1, -1, -2):
        if x[k] == 0:
            break
        s -= x[k] / (k + 1)
    while s > 100:
        s = s / 2
    if i < out.size:
        out[i] = s if i % 2 == 0 else -s


@cb.kernel
def turned(x: cb.Array, out: cb.Array):
    tile = cb.shared(64, cb.f32)
    tile[cb.UNIT_POS] = x[cb.ABSOLUTE_POS]
    cb.sync_cube()
    total = cb.plane_sum(tile[63 - cb.UNIT_POS])
    out[cb.ABSOLUTE_POS] = cb.sin(total) + cb.exp(x[cb.ABSOLUTE_POS])


X = np.zeros(512, F)
CALLS: dict[str, tuple[Any, ...]] = {"sums": (sums, 64, X, X, 5), "turned": (turned, 64, X, X)}
TARGETS = ["sm_90a", "gfx942", "gfx1100"]


def compiler(name: str) -> Callable[..., Any]:
    """What compiles for an architecture."""
    if name.startswith("gfx"):
        return amd.compile_for
    pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs its compiler")
    return nvidia.compile_for


def machine_code(architecture: str, call: str, **options: Any) -> bytes:
    """The machine code of a call, made now."""
    code = compiler(architecture)(architecture, *CALLS[call], **options)
    made: bytes = code.translated()
    return made


@pytest.mark.parametrize("mode", ["checked", "validate"])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("architecture", TARGETS)
def test_the_walk_and_the_front_end_of_numba_give_the_same_machine_code(
    architecture: str, call: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    front_end = target._by_numba

    def noted(*given: Any) -> Any:
        asked.append(architecture)
        return front_end(*given)

    def refuse(*_: Any) -> Any:
        raise target.Unusual("for this test")

    monkeypatch.setattr(target, "_by_numba", noted)
    straight = machine_code(architecture, call, mode=mode)
    assert not asked
    monkeypatch.setattr(target, "_straight", refuse)
    assert machine_code(architecture, call, mode=mode) == straight
    assert asked


@pytest.mark.parametrize("architecture", TARGETS)
def test_a_caller_deep_in_the_stack_may_compile_for_a_gpu(architecture: str) -> None:
    code = compiler(architecture)(architecture, *CALLS["turned"])
    wanted = code.translated()
    found: list[bytes] = []

    def deeper(frames: int) -> None:
        if frames:
            deeper(frames - 1)
        else:
            found.append(code.binary)

    def from_deep() -> None:
        deeper(sys.getrecursionlimit() - 60)

    with cb.config.override(cache=False):
        thread = threading.Thread(target=from_deep)
        thread.start()
        thread.join()
    assert found == [wanted]
