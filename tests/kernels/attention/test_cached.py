"""Attention to a cache for planes: what it computes on emulated GPUs and in Python, and that it
spills nothing.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.attention.append import GROUP, append, groups_of
from cubepy.kernels.attention.cached import cached_attention
from cubepy.kernels.attention.gpu import cached, cached_plan
from cubepy.runtime.device import current
from cubepy.runtime.memory.device_array import upload
from tests.backends.cuda.thorough import some
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
        self.rotation = self.turns if half else None

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


@pytest.mark.turns(6)
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
    plan = cached_plan.plan_for(
        q, keys, values, 2 * half, window, cap, cb.device_properties_of("python")
    )
    plan = replace(plan, units=units, keys=2)
    out = np.full(q.shape, np.nan, F32)
    batch, groups, length = k.shape[:3]
    append[batch * groups * length, 3](k, v, case.rotation, keys, values, STARTS, None, plan)
    rows = q.shape[1] // groups * length
    items = batch * groups * -(-rows // plan.rows)
    shape = (batch * groups, splits, rows, plan.stride)
    parts = None if splits == 1 else np.full(shape, np.nan, F32)
    cached.attend[(items, splits), units](
        q, case.rotation, keys, values, STARTS, None, out, parts, scale, plan
    )
    if parts is not None:
        last = replace(cached_plan.combining(plan, 1), units=units, keys=2)
        cached.combine[batch * groups * rows, units](parts, out, last)
    return [out, keys, values]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_lines_of_a_cpu(number: int) -> None:
    case, options = CASES[number]
    given = [a.copy() for a in case.given]
    out = cached_attention(*given, STARTS, *case.turns, options)
    case.check([out, *given[3:]], options)


def quantized(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales of groups, after the formula."""
    groups = groups_of(x.shape[-1])
    wide = np.zeros((*x.shape[:-1], groups * GROUP), F32)
    wide[..., : x.shape[-1]] = x
    parted = wide.reshape(*x.shape[:-1], groups, GROUP)
    largest = np.abs(parted).max(-1)
    inverse = np.divide(F32.type(127), largest, out=np.zeros_like(largest), where=largest > 0)
    codes = np.rint(parted * inverse[..., None]).astype(np.int8).reshape(wide.shape)
    return codes[..., : x.shape[-1]], largest / F32.type(127)


def floats(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return codes * np.repeat(scales, GROUP, axis=-1)[..., : codes.shape[-1]]


class Stepping:
    """Texts that go on in caches for a while, beside NumPy: rings, bytes, and both.

    Args:
        depth: of heads.
        window: positions that a query sees; 0: all.
        room: of the caches.
        bytes_of: whether they hold bytes.
    """

    def __init__(self, depth: int, window: int, room: int, bytes_of: bool, device: str) -> None:
        self.window, self.room, self.bytes_of, self.device = window, room, bytes_of, device
        self.depth, self.rng = depth, np.random.default_rng(depth + window)
        self.whole: list[list[np.ndarray]] = [[], []]  # of keys and values, all positions
        kind = np.dtype(np.int8) if bytes_of else F32
        self.caches = [np.zeros((2, 2, room, depth), kind) for _ in range(2)]
        self.scales: Any = None
        if bytes_of:
            self.scales = [np.full((2, 2, room, groups_of(depth)), np.nan, F32) for _ in range(2)]

    def drawn(self, *shape: int) -> np.ndarray:
        """Numbers of which groups differ by orders of magnitude."""
        size = 10.0 ** self.rng.integers(-2, 3, (*shape[:-1], 1))
        return (self.rng.standard_normal(shape) * size).astype(F32)

    def held(self, number: int, new: np.ndarray) -> np.ndarray:
        """All that came, as a cache has it."""
        kept = floats(*quantized(new)) if self.bytes_of else new
        self.whole[number].append(kept)
        return np.concatenate(self.whole[number], axis=2)

    def run(self, lengths: list[int]) -> None:
        """Launches of so many positions."""
        at, options = 0, (0.2, self.window, 0.0)
        for length in lengths:
            q, k, v = (self.drawn(2, n, length, self.depth) for n in (4, 2, 2))
            q = q / np.abs(q).max()
            starts = np.full(2, at)
            given = [q, k, v, *self.caches, starts]
            if self.device == "cpu":
                out = cached_attention(
                    *given, None, None, options, self.scales and tuple(self.scales)
                )
            else:
                there = [upload(a, current()) for a in (*given, *(self.scales or ()))]
                out = cached_attention(
                    *there[:6], None, None, options, tuple(there[6:]) or None
                ).numpy()
                self.caches = [a.numpy() for a in there[3:5]]
                self.scales = [a.numpy() for a in there[6:]] or None
            keys, values = self.held(0, k), self.held(1, v)
            right = expected(q, keys, values, starts, scale=0.2, window=self.window, cap=0.0)
            off = 1e-4 * max(1.0, float(np.abs(right).max()))
            np.testing.assert_allclose(out, right, rtol=1e-4, atol=off)
            at += length
        last = self.whole[0][-1].shape[2]
        for n in range(2):
            slots = np.arange(at - last, at) % self.room
            now = self.caches[n][:, :, slots]
            if self.bytes_of:
                now = floats(now, self.scales[n][:, :, slots])
            np.testing.assert_allclose(now, self.whole[n][-1], rtol=1e-6)


@pytest.mark.turns(6)
@pytest.mark.parametrize("bytes_of", [False, True], ids=["floats", "bytes"])
@pytest.mark.parametrize("depth", [24, 32, 80, 64])
def test_rings_and_bytes_on_a_cpu(depth: int, bytes_of: bool) -> None:
    rng = np.random.default_rng(depth)
    for _ in range(6):
        window, most = int(rng.integers(1, 40)), int(rng.integers(1, 30))
        lengths = [int(n) for n in rng.integers(1, most + 1, 12)]
        room = window + max(lengths) - 1 + int(rng.integers(0, 3))
        Stepping(depth, window, room, bytes_of, "cpu").run(lengths)
    Stepping(depth, 0, 300, bytes_of, "cpu").run([140, 1, 3, 1])


@pytest.mark.day(0, 2)
@pytest.mark.parametrize("processor", ["gfx942", "gfx1100"])
def test_rings_and_bytes_on_an_emulated_amd_gpu(processor: str) -> None:
    from tests.backends.hip.emulator.device import emulated

    with emulated(processor), cb.use(processor):
        Stepping(24, 7, 12, False, processor).run([5, 1, 6, 2])
        Stepping(40, 9, 12, True, processor).run([4, 1, 3])


@pytest.mark.day(1, 2)
@pytest.mark.parametrize(
    ("sizes", "lengths"), [((24, 7, 12, False), [5, 1, 6, 2]), ((40, 9, 12, True), [4, 1, 3])]
)
def test_rings_and_bytes_on_an_emulated_nvidia_gpu(sizes: Any, lengths: list[int]) -> None:
    pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
    from tests.backends.cuda.emulator.device import emulated

    with emulated() as gpu, cb.use(gpu):
        Stepping(*sizes, str(gpu)).run(lengths)


def test_numbers_that_are_none_stay_none_in_bytes() -> None:
    for wrong in (np.nan, np.inf):
        k = np.ones((1, 1, 1, 64), F32)
        k[..., 40] = wrong
        keys, values = (np.zeros((1, 1, 4, 64), np.int8) for _ in range(2))
        scales = [np.zeros((1, 1, 4, 2), F32) for _ in range(2)]
        given = (np.ones_like(k), k, k, keys, values, np.array([0]), None, None)
        out = cached_attention(*given, (1.0, 0, 0.0), tuple(scales))
        assert not np.isfinite(np.asarray(out)[..., 32:]).any()
        assert (np.asarray(keys)[..., 0, :32] == 127).all()


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("device", ["python", "cpu"])
def test_keys_in_parts(splits: int, device: str) -> None:
    """Without planes a group is one unit, so that any backend runs it."""
    case, options = Case(F32, 2, 8, 2, 66), (0.4, 50, 0.0)
    with cb.use(device):
        case.check(parts_of(case, splits, 4, options), options)


def test_parts_fill_the_device_and_are_not_empty() -> None:
    plan = cached_plan.Blueprint(128, 128, 128, 0, 0.0, 1, 8, 16, 128)
    rng = np.random.default_rng(0)
    for _ in range(300):
        items, room = int(rng.integers(1, 600)), int(rng.integers(1, 131073))
        splits = cached_plan.splits_for(items, room, 1, plan, 132)
        assert splits == 1 or room // splits >= cached_plan.LEAST_STEPS * plan.step
        if room * items > 4 * 132 * cached_plan.LEAST_STEPS * plan.step * 2:
            assert splits * items >= 132


I8 = np.dtype(np.int8)
PLANS = [(128, BF16, 1), (128, BF16, 4), (256, BF16, 4), (64, F32, 3), (80, F16, 4)]
PLANS += [(128, I8, 1), (128, I8, 4), (256, I8, 4), (64, I8, 3)]


def operands(depth: int, dtype: Any, rows: int, plan: cached_plan.Blueprint) -> tuple[Any, ...]:
    bytes_of = dtype.kind == "i"
    q = np.zeros((1, 4 * rows, 1, depth), BF16 if bytes_of else dtype)
    keys = np.zeros((1, 4, 512, depth), dtype)
    keys = keys.view(np.uint32) if bytes_of else keys
    turns = np.zeros((1, 1, depth // 2), F32)
    parts = np.zeros((4, 3, rows, plan.stride), F32)
    scales = (np.zeros((1, 4, 512, groups_of(depth)), F32),) * 2 if bytes_of else None
    held = (keys, keys, np.zeros(1, np.int64), scales)
    return (q, (turns, turns), *held, q, parts, 0.1, plan)


@pytest.mark.turns(6)
@pytest.mark.parametrize(("depth", "dtype", "rows"), PLANS)
def test_code_for_nvidia_gpus(depth: int, dtype: Any, rows: int) -> None:
    """No spills, and keys and values in lines of 16 bytes, or of 8 numbers in bytes."""
    pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")
    from cubepy.backends.cuda.codegen.disassemble import count, usage
    from cubepy.backends.cuda.offline import compile_for
    from tests.backends.cuda.disassembler import has_disassembler

    if not has_disassembler():
        pytest.skip("reading SASS needs cuobjdump")
    line = 16 // max(2, dtype.itemsize)
    group = min(32, 1 << (-(-depth // line) - 1).bit_length())
    window, words = 300 if rows == 3 else 0, dtype is I8
    fixed = (depth, depth, depth, window, 0.0, rows, line, group, 128, 8 if words else 4)
    options = {"groups": 4, "heads": rows, "single": True, "words": words}
    plan = cached_plan.Blueprint(*fixed, rolling=window > 0, **options)
    given = operands(depth, dtype, rows, plan)
    code = compile_for("sm_90a", cached.attend, plan.units, *given, mode="unchecked")
    assert count(code.sass, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert usage(code.cubin).stack == 0
    wide = "LDG.E.64" if words else "LDG.E.128"
    assert count(code.sass, wide)[wide] >= 2 * plan.keys * plan.depth_lines


AMD = [(p, t) for p in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201") for t in (BF16, I8)]


@pytest.mark.turns(6)
@pytest.mark.parametrize(("processor", "dtype"), some(AMD, 0, 2, 3, 5, 6, 7, 8))
def test_code_for_amd_gpus(processor: str, dtype: Any) -> None:
    from cubepy.backends.hip.offline import compile_for

    plane = 32 if processor.startswith("gfx1") else 64
    fixed = (128, 128, 128, 0, 0.0, 4, 8, 16, 4 * plane, 8 if dtype is I8 else 4)
    plan = cached_plan.Blueprint(*fixed, groups=4, heads=4, words=dtype is I8)
    given = operands(128, dtype, 4, plan)
    code = compile_for(processor, cached.attend, plan.units, *given, mode="unchecked")
    assert "vgpr_spill_count: 0" in code.assembly
    assert "private_segment_fixed_size: 0" in code.assembly
