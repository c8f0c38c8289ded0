"""Linear layers of int4 weights and activations in eight bits on emulated AMD GPUs: the CPU's
results, from packed codes on matrix units. No GPU is needed.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.backends.hip.backend import offline
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.backends.hip.offline import compile_for
from cubepy.kernels.primitives.functions import gelu_erf
from cubepy.quant.linear.gpu import gemm_int4
from cubepy.quant.linear.gpu.gemm_int4 import (
    TILES,
    GroupedBytes,
    GroupedMatmul,
    group_sums,
    grouped_bytes,
    plan_for,
)
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.quant.schemes.scheme import parse_scheme
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from tests.backends.cuda.thorough import THOROUGH, some
from tests.backends.hip.emulator.device import emulated

F = np.float32
EMULATED = tuple(KNOWN) if THOROUGH else ("gfx942", "gfx1100")


def packed(values: np.ndarray, **options: Any) -> QuantizedWeight:
    return QuantizedWeight.from_float(values, parse_scheme("int4", **options))


def check(name: str, x: np.ndarray, weight: QuantizedWeight, *ends: Any) -> None:
    """The CPU's result on an emulated GPU."""
    want = quantized_linear(x, weight, *ends)
    with emulated(name), cb.use(name):
        here = devices.current()
        there = lambda a: device_array.upload(a, here) if isinstance(a, np.ndarray) else a
        got = quantized_linear(there(x), weight.on(here), *map(there, ends)).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


CASES = [
    (40, 50, 128, {"group": 64, "symmetric": False}),
    (3, 48, 96, {"group": 32}),
    (35, 70, 256, {"group": 128, "symmetric": False}),
    (5, 20, 160, {"group": 32, "symmetric": False}),
    (70, 130, 192, {"group": 192}),
]


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.parametrize(("m", "n", "k", "options"), CASES, ids=str)
def test_results_are_those_of_the_cpu(
    name: str, m: int, n: int, k: int, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []
    launch = GroupedMatmul.launch
    monkeypatch.setattr(GroupedMatmul, "launch", lambda *a: taken.append(a) or launch(*a))
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(F)
    check(name, draw(m, k), packed(draw(n, k), **options), draw(n), draw(m, n), "gelu_tanh")
    assert len(taken) == 1


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
def test_every_tile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, p = np.random.default_rng(1), offline(name)
    weight, x = packed(rng.standard_normal((60, 64)).astype(F)), rng.standard_normal((33, 64))
    side = plan_for(1, 1, 64, True, p).side
    for tile in TILES[p.plane_size][:2]:
        plan = GroupedBytes(
            side, *tile, group=weight.scheme.group, symmetric=weight.minimums is None
        )
        monkeypatch.setattr(gemm_int4, "plan_for", lambda *_, plan=plan: plan)
        check(name, x.astype(F), weight)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
def test_rows_of_zeros_and_of_numbers_that_are_not_finite(name: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, 64)).astype(F)
    x[1], x[2, 5], x[3, 7] = 0, np.inf, np.nan
    check(name, x, packed(rng.standard_normal((20, 64)).astype(F), group=32))


PLANS = [
    (tile, group, symmetric)
    for tile in range(3)
    for group in (32, 64, 128)
    for symmetric in (True, False)
]


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", KNOWN)
def test_nothing_spills(name: str) -> None:
    p = offline(name)
    side = plan_for(1, 1, 64, True, p).side
    for number, group, symmetric in some(PLANS, 1, 2, 9):
        tile = TILES[p.plane_size][number]
        plan = GroupedBytes(
            side,
            *tile,
            group=group,
            symmetric=symmetric,
            whole=number > 0,
            bias=True,
            residual=True,
            activation=gelu_erf,
        )
        x, words = np.zeros((1, 256, 256), np.uint8), np.zeros((16, 32, 16), np.uint32)
        scales, out = np.zeros((16, 256 // group, 16), np.float16), np.zeros((1, 256, 256), F)
        sums = None if symmetric else np.zeros((256 // group, 256), np.int32)
        args = (x, words, scales, None if symmetric else scales, sums, out[0, :, :2], out[0, 0])
        units = tile[2] * tile[3] * p.plane_size
        code = compile_for(
            name, grouped_bytes, units, *args, out[0, 0], out, out, plan, mode="unchecked"
        )
        text = str(code.assembly)
        spilled = [int(n) for n in re.findall(r"_spill_count: *(\d+)", text)]
        assert spilled and not any(spilled), (number, group, symmetric)
        assert not re.search(r"^\t(flat|scratch|buffer_(load|store))_", text, re.M)
        products = len(re.findall(r"^\tv_(mfma|wmma)_i32", text, re.M))
        each = tile[0] // tile[2] * (tile[1] // tile[3]) * 64  # a plane's, for a stage
        m = p.matrix_instruction("i8", side)
        assert m is not None and products == each // (m.rows * m.columns * m.depth)
    codes = np.zeros((8, 64), np.int8)
    code = compile_for(
        name, group_sums, 256, codes, np.zeros((2, 8), np.int32), 32, mode="unchecked"
    )
    assert not re.search(r"^\t(flat|scratch|buffer_(load|store))_", str(code.assembly), re.M)


def test_other_weights_and_devices_take_other_routines() -> None:
    from cubepy.backends.cuda.backend import offline as nvidia

    def problem(scheme: str, **options: Any) -> QuantizedLinear:
        weight = QuantizedWeight.from_float(np.ones((32, 192), F), parse_scheme(scheme, **options))
        return QuantizedLinear(np.ones((8, 192), F), weight)

    amd, routine = offline("gfx942"), GroupedMatmul()
    for group in (32, 64, 192):
        assert routine.supports(problem("int4", group=group), amd) is None
    assert "groups of 96" in str(routine.supports(problem("int4", group=96), amd))
    assert "groups" in str(routine.supports(problem("int8"), amd))
    assert "floats" in str(routine.supports(problem("int4", activations="float"), amd))
    assert "MFMA" in str(routine.supports(problem("int4"), nvidia("sm_90a")))


def test_a_model_keeps_its_results() -> None:
    model = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 8))
    model = cb.quant.quantize(model, "int4", measure_speed=False).model
    x = np.random.default_rng(3).standard_normal((20, 96)).astype(F)
    want = model(cb.tensor(x)).numpy()
    with emulated("gfx1100"):
        far = model.clone().to("gfx1100")
        got = far(cb.tensor(x).to("gfx1100")).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
