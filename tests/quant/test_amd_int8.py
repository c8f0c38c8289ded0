"""Linear layers of int8 weights and activations on emulated AMD GPUs: the CPU's results, by the
matmul of bytes. No GPU is needed.
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
from cubepy.kernels.matmul.gpu.mma_buffered import BufferedRoutine
from cubepy.kernels.primitives.epilogue import Epilogue
from cubepy.kernels.primitives.functions import gelu_erf
from cubepy.quant.linear.gpu.gemm_int8 import Matmul, finish_sums, quantize_rows
from cubepy.quant.linear.gpu.gemm_mma_int8 import ROW_UNITS
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.quant.schemes.scheme import parse_scheme
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from tests.backends.cuda.thorough import THOROUGH
from tests.backends.hip.emulator.device import emulated

F = np.float32
PRIVATE = re.compile(r"^\t(flat|scratch|buffer_(load|store))_", re.M)
EMULATED = tuple(KNOWN) if THOROUGH else ("gfx942", "gfx1100")


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.parametrize(("m", "n", "k"), [(40, 50, 130), (3, 33, 64)])
def test_results_are_those_of_the_cpu(
    name: str, m: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, products = np.random.default_rng(0), []
    launch = BufferedRoutine.launch
    monkeypatch.setattr(BufferedRoutine, "launch", lambda *a: products.append(a[2]) or launch(*a))
    values, x = rng.standard_normal((n, k)).astype(F), rng.standard_normal((m, k)).astype(F)
    bias, residual = rng.standard_normal(n).astype(F), rng.standard_normal((m, n)).astype(F)
    weight = QuantizedWeight.from_float(values, parse_scheme("int8"))
    want = quantized_linear(x, weight, bias, residual, "gelu_tanh")
    with emulated(name), cb.use(name):
        here = devices.current()
        far = weight.on(here)
        x, bias, residual = (device_array.upload(a, here) for a in (x, bias, residual))
        for _ in range(2):  # the second time the codes lie there already
            got = quantized_linear(x, far, bias, residual, "gelu_tanh").numpy()
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    assert len(products) == 2


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_launched_compiles_for_every_processor(name: str) -> None:
    x, codes, facts = np.zeros((8, 64), F), np.zeros((8, 64), np.int8), np.zeros((8, 2), F)
    code = compile_for(name, quantize_rows, ROW_UNITS, x, x[0], codes, facts, 1.0, mode="unchecked")
    assert not PRIVATE.search(code.assembly)
    sums, plan = (
        np.zeros((8, 64), np.int32),
        Epilogue(bias=True, residual=True, activation=gelu_erf),
    )
    args = (sums, facts, sums[0], x[0], x[0], x, x, plan)
    code = compile_for(name, finish_sums, 256, *args, mode="unchecked")
    assert not PRIVATE.search(code.assembly)


def problem(scheme: str, **options: Any) -> QuantizedLinear:
    weight = QuantizedWeight.from_float(np.ones((32, 64), F), parse_scheme(scheme, **options))
    return QuantizedLinear(np.ones((8, 64), F), weight)


def test_other_weights_and_devices_take_other_routines() -> None:
    from cubepy.backends.cuda.backend import offline as nvidia

    amd = offline("gfx942")
    assert Matmul().supports(problem("int8"), amd) is None
    assert "groups" in str(Matmul().supports(problem("int4"), amd))
    assert "floats" in str(Matmul().supports(problem("int8", activations="float"), amd))
    assert "MFMA" in str(Matmul().supports(problem("int8"), nvidia("sm_90a")))


def test_a_model_keeps_its_results() -> None:
    model = nn.Sequential(nn.Linear(96, 40), nn.ReLU(), nn.Linear(40, 8))
    model = cb.quant.quantize(model, "int8", measure_speed=False).model
    x = np.random.default_rng(1).standard_normal((20, 96)).astype(F)
    want = model(cb.tensor(x)).numpy()
    with emulated("gfx942"):
        far = model.clone().to("gfx942")
        got = far(cb.tensor(x).to("gfx942")).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
