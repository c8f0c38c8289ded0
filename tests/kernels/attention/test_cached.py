"""Attention to a cache for planes: what it computes on emulated GPUs and in Python, and that it
spills nothing.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.attention.cached import cached_attention
from cubepy.kernels.attention.gpu import cached
from cubepy.runtime.device import current
from cubepy.runtime.memory.device_array import upload
from tests.tensor.program.test_caches import angles, expected, rotated

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
TOLERANCE = {BF16: 8e-3, F16: 1e-3, F32: 1e-5}
STARTS = np.array([3, 61])


class Case:
    """Numbers of a cache and what comes to it; tests.tensor.program.test_caches has the sums."""

    def __init__(
        self, dtype: Any = F32, length: int = 1, depth: int = 24, half: int = 4, room: int = 70
    ) -> None:
        rng = np.random.default_rng(length + depth)
        shapes = [(2, 4, length, depth), *[(2, 2, length, depth)] * 2, *[(2, 2, room, depth)] * 2]
        self.given = [rng.standard_normal(s).astype(F32).astype(dtype) for s in shapes]
        self.turns = angles(STARTS, length, half) if half else (None, None)

    def right(self, options: tuple[float, int, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The result and the caches afterwards, in f32 and more."""
        q, k, v, keys, values = (a.astype(F32) for a in self.given)
        if self.turns[0] is not None:
            q, k = rotated(q, *self.turns), rotated(k, *self.turns)
        length = q.shape[2]
        for b, start in enumerate(STARTS):
            keys[b, :, start : start + length] = k[b]
            values[b, :, start : start + length] = v[b]
        scale, window, cap = options
        return expected(q, keys, values, STARTS, scale=scale, window=window, cap=cap), keys, values

    def check(self, found: list[np.ndarray], options: tuple[float, int, float]) -> None:
        """Compare results and caches."""
        off = TOLERANCE[self.given[0].dtype]
        for a, b in zip(found, self.right(options), strict=True):
            np.testing.assert_allclose(a.astype(float), b, rtol=off, atol=off)


def on_device(case: Case, options: tuple[float, int, float]) -> list[np.ndarray]:
    """The library's function on the current device."""
    where = current()
    there = [upload(a, where) for a in (*case.given, STARTS)]
    turns = [None if a is None else upload(a, where) for a in case.turns]
    out = cached_attention(*there, *turns, options)
    return [out.numpy(), there[3].numpy(), there[4].numpy()]


CASES = [
    (Case(), (0.2, 0, 0.0)),
    (Case(BF16, 1, 64, 0), (0.2, 0, 0.0)),
    (Case(F16, 5, 40, 20), (0.2, 9, 0.0)),
    (Case(F32, 3, 20, 10), (0.3, 0, 5.0)),
]


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("processor", ["gfx942", "gfx1100"])
def test_planes_of_an_emulated_amd_gpu(number: int, processor: str) -> None:
    from tests.backends.hip.emulator.device import emulated

    case, options = CASES[number]
    with emulated(processor), cb.use(processor):
        case.check(on_device(case, options), options)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_planes_of_an_emulated_nvidia_gpu(number: int) -> None:
    pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
    from tests.backends.cuda.emulator.device import emulated

    case, options = CASES[number]
    with emulated() as gpu, cb.use(gpu):
        case.check(on_device(case, options), options)


def parts_of(case: Case, splits: int, units: int, options: tuple[float, int, float]) -> list[Any]:
    """The kernels as they are launched, with keys in so many parts."""
    from dataclasses import replace

    (q, k, v, keys, values), (scale, window, cap) = [a.copy() for a in case.given], options
    half = 0 if case.turns[0] is None else case.turns[0].shape[-1]
    plan = cached.plan_for(
        q, keys, values, 2 * half, window, cap, cb.device_properties_of("python")
    )
    plan = replace(plan, units=units, keys=2)
    out = np.full(q.shape, np.nan, F32)
    batch, groups, length = k.shape[:3]
    cached.append[batch * groups * length, 3](k, v, *case.turns, keys, values, STARTS, plan)
    rows = q.shape[1] // groups * length
    items = batch * groups * -(-rows // plan.rows)
    shape = (batch * groups, splits, rows, plan.stride)
    parts = None if splits == 1 else np.full(shape, np.nan, F32)
    cached.attend[(items, splits), units](
        q, *case.turns, keys, values, STARTS, out, parts, scale, plan
    )
    if parts is not None:
        last = replace(cached.combining(plan, 1), units=units, keys=2)
        cached.combine[batch * groups * rows, units](parts, out, last)
    return [out, keys, values]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_lines_of_a_cpu(number: int) -> None:
    case, options = CASES[number]
    given = [a.copy() for a in case.given]
    out = cached_attention(*given, STARTS, *case.turns, options)
    case.check([out, *given[3:]], options)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("device", ["python", "cpu"])
def test_keys_in_parts(splits: int, device: str) -> None:
    """Without planes a group is one unit, so that any backend runs it."""
    case, options = Case(F32, 2, 8, 2, 66), (0.4, 50, 0.0)
    with cb.use(device):
        case.check(parts_of(case, splits, 4, options), options)


def test_parts_fill_the_device_and_are_not_empty() -> None:
    plan = cached.Blueprint(128, 128, 128, 0, 0.0, 1, 8, 16, 128)
    rng = np.random.default_rng(0)
    for _ in range(300):
        items, room = int(rng.integers(1, 600)), int(rng.integers(1, 131073))
        splits = cached.splits_for(items, room, 1, plan, 132)
        assert splits == 1 or room // splits >= cached.LEAST_STEPS * plan.step
        if room * items > 4 * 132 * cached.LEAST_STEPS * plan.step * 2:
            assert splits * items >= 132


PLANS = [(128, BF16, 1), (128, BF16, 4), (256, BF16, 4), (64, F32, 3), (80, F16, 4)]


def operands(depth: int, dtype: Any, rows: int, plan: cached.Blueprint) -> tuple[Any, ...]:
    q, keys = np.zeros((1, 4 * rows, 1, depth), dtype), np.zeros((1, 4, 512, depth), dtype)
    turns = np.zeros((1, 1, depth // 2), F32)
    parts = np.zeros((4, 3, rows, plan.stride), F32)
    return (q, turns, turns, keys, keys, np.zeros(1, np.int64), q, parts, 0.1, plan)


@pytest.mark.parametrize(("depth", "dtype", "rows"), PLANS)
def test_code_for_nvidia_gpus(depth: int, dtype: Any, rows: int) -> None:
    """No spills, and keys and values in lines of 16 bytes."""
    pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")
    from cubepy.backends.cuda.codegen.disassemble import count, usage
    from cubepy.backends.cuda.offline import compile_for
    from tests.kernels.attention.test_offline import has_disassembler

    if not has_disassembler():
        pytest.skip("reading SASS needs cuobjdump")
    line = 16 // dtype.itemsize
    group = min(32, 1 << (-(-depth // line) - 1).bit_length())
    plan = cached.Blueprint(
        *(depth, depth, depth, 0, 0.0, rows, line, group, 128), groups=4, heads=rows, single=True
    )
    given = operands(depth, dtype, rows, plan)
    code = compile_for("sm_90a", cached.attend, plan.units, *given, mode="unchecked")
    assert count(code.sass, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert usage(code.cubin).stack == 0
    assert count(code.sass, "LDG.E.128")["LDG.E.128"] >= 2 * plan.keys * plan.depth_lines


@pytest.mark.parametrize("processor", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_code_for_amd_gpus(processor: str) -> None:
    from cubepy.backends.hip.offline import compile_for

    plane = 32 if processor.startswith("gfx1") else 64
    plan = cached.Blueprint(128, 128, 128, 0, 0.0, 4, 8, 16, 4 * plane, groups=4, heads=4)
    given = operands(128, BF16, 4, plan)
    code = compile_for(processor, cached.attend, plan.units, *given, mode="unchecked")
    assert "vgpr_spill_count: 0" in code.assembly
    assert "private_segment_fixed_size: 0" in code.assembly
