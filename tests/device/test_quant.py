"""Quantized linear layers on a GPU against float64 and against the CPU: all schemes, dtypes and odd
shapes.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.quant import Quantized, QuantizedWeight, parse_scheme
from cubepy.quant.linear.gpu.blueprint import Room
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.linear.sm90 import gemm_wgmma_plan
from cubepy.runtime.device import as_device, device_properties
from cubepy.runtime.memory.device_array import upload

SCHEMES: list[dict[str, Any]] = [
    {"scheme": "int8"}, {"scheme": "int4"}, {"scheme": "int4", "symmetric": True}, {"scheme": "int4", "group": 64},
    {"scheme": "int4", "group": 128, "symmetric": True}, {"scheme": "int4", "group": 256}, {"scheme": "int4", "group": 16},
]  # fmt: skip
TOLERANCE = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 6e-3}


def by_cpu(x: np.ndarray, weight: QuantizedWeight, *options: Any) -> np.ndarray:
    with cb.use("cpu"):
        return quantized_linear(x, weight, *options).astype(np.float64)


def weight_of(rows: int, columns: int, activations: str, **options: Any) -> QuantizedWeight:
    rng = np.random.default_rng(rows * columns)
    values = rng.normal(size=(rows, columns)).astype(np.float32) * np.exp(
        rng.normal(size=columns)
    ).astype(np.float32)
    return QuantizedWeight.from_float(values, parse_scheme(**options, activations=activations))


def on_gpu(x: np.ndarray, weight: QuantizedWeight, **options: Any) -> np.ndarray:
    gpu = as_device("cuda")
    moved = {k: upload(v, gpu) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    result = quantized_linear(upload(x, gpu), weight.on(gpu), **moved)  # type: ignore[arg-type]
    return result.numpy()  # type: ignore[attr-defined, no-any-return]


def error(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("rows", [2048, 2049, 65_536, 70_001])
@pytest.mark.parametrize("options", [{"scheme": "int4"}, {"scheme": "int8"}], ids=str)
def test_any_number_of_rows_gives_each_row_its_own(options: dict[str, Any], rows: int) -> None:
    """Long prompts of many texts at once: first, middle and last rows beside the CPU's."""
    weight = weight_of(208, 512, "float", **options)
    x = np.random.default_rng(rows).normal(size=(rows, 512)).astype(ml_dtypes.bfloat16)
    got = on_gpu(x, weight)
    for some in (slice(0, 40), slice(rows // 2, rows // 2 + 40), slice(rows - 40, rows)):
        want = by_cpu(x[some].astype(np.float32), weight)
        assert error(got[some], want) < TOLERANCE["bfloat16"], some


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8, 16, 33, 64, 100, 200])
@pytest.mark.parametrize("options", SCHEMES, ids=str)
def test_float_activations_meet_dequantized_weights(
    options: dict[str, Any], rows: int, dtype: Any
) -> None:
    weight = weight_of(200, 768, "float", **options)
    x = np.random.default_rng(rows).normal(size=(rows, 768)).astype(dtype)
    got = on_gpu(x, weight, dtype=dtype)
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    assert error(got, expected) < TOLERANCE[np.dtype(dtype).name]


@pytest.mark.parametrize(("options", "n", "rows", "dtype", "tolerance"), [
    ({"scheme": "int4"}, 4102, 40, ml_dtypes.bfloat16, 8e-3), ({"scheme": "int8"}, 4102, 33, np.float16, 1e-3),
    ({"scheme": "int4", "group": 128, "symmetric": True}, 4104, 100, np.float16, 1e-3),
    ({"scheme": "int4", "group": 64}, 4100, 300, ml_dtypes.bfloat16, 8e-3),
], ids=str)  # fmt: skip
def test_groups_of_planes_take_many_rows(
    options: dict[str, Any],
    n: int,
    rows: int,
    dtype: Any,
    tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scales and minimums are rounded to bf16 there, and weights: hence more than the rounding of
    results.
    """
    if not Room.of(device_properties("cuda")).groups:
        pytest.skip("a GPU without wgmma")
    monkeypatch.setattr(
        gemm_wgmma_plan, "microseconds", lambda *_: 0.0
    )  # whatever is faster for this size
    gemm_wgmma_plan.plan_for.cache_clear()
    gemm_wgmma_plan.plan_wide.cache_clear()
    try:
        weight = weight_of(n, 1024, "float", **options)
        rng = np.random.default_rng(rows)
        x, bias = rng.normal(size=(rows, 1024)).astype(dtype), rng.normal(size=n).astype(np.float32)
        expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64) + bias
        assert error(on_gpu(x, weight, bias=bias, dtype=dtype), expected) < tolerance
    finally:
        gemm_wgmma_plan.plan_for.cache_clear()
        gemm_wgmma_plan.plan_wide.cache_clear()


@pytest.mark.parametrize(("n", "k"), [(1, 32), (17, 96), (4096, 1024), (130, 4096), (2048, 14336)])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("activations", ["float", "int8"])
def test_any_shape(n: int, k: int, rows: int, activations: str) -> None:
    weight = weight_of(n, k, activations, scheme="int4")
    x = np.random.default_rng(n).normal(size=(rows, k)).astype(np.float32)
    expected = by_cpu(x, weight)
    assert error(on_gpu(x, weight), expected) < 2e-5


@pytest.mark.parametrize("rows", [1, 9, 40, 300])
@pytest.mark.parametrize("options", SCHEMES, ids=str)
def test_bytes_give_what_the_cpu_gives(options: dict[str, Any], rows: int) -> None:
    weight = weight_of(72, 768, "int8", **options)
    x = np.random.default_rng(rows).normal(size=(rows, 768)).astype(np.float32)
    assert error(on_gpu(x, weight), by_cpu(x, weight)) < 5e-6


def test_int8_takes_any_number_of_inputs() -> None:
    weight = weight_of(33, 201, "int8", scheme="int8")
    x = np.random.default_rng(0).normal(size=(3, 201)).astype(np.float32)
    assert error(on_gpu(x, weight), by_cpu(x, weight)) < 5e-6


@pytest.mark.parametrize("activations", ["float", "int8"])
@pytest.mark.parametrize("rows", [1, 12])
def test_bias_activation_and_residual_are_fused(rows: int, activations: str) -> None:
    weight = weight_of(48, 256, activations, scheme="int4")
    rng = np.random.default_rng(2)
    x, bias = (
        rng.normal(size=(rows, 256)).astype(np.float32),
        rng.normal(size=48).astype(np.float32),
    )
    residual = rng.normal(size=(rows, 48)).astype(np.float32)
    for name in (None, *ACTIVATIONS):
        expected = by_cpu(x, weight, bias, residual, name)
        assert (
            error(on_gpu(x, weight, bias=bias, residual=residual, activation=name), expected) < 2e-5
        )


def test_the_same_call_gives_the_same_bits() -> None:
    weight = weight_of(512, 4096, "float", scheme="int4")
    x = np.random.default_rng(3).normal(size=(1, 4096)).astype(np.float32)
    first = on_gpu(x, weight)
    assert all(np.array_equal(first, on_gpu(x, weight)) for _ in range(5))


def test_a_row_that_is_not_finite_spoils_itself_alone() -> None:
    x = np.ones((3, 64), np.float32)
    x[1, 7] = np.inf
    got = on_gpu(x, weight_of(16, 64, "int8", scheme="int8"))
    assert np.isnan(got[1]).all() and np.isfinite(got[[0, 2]]).all()


@pytest.mark.parametrize("options", SCHEMES, ids=str)
def test_a_quantized_model_moves(options: dict[str, Any]) -> None:
    hidden = 96 if options.get("group", 32) <= 32 else 256
    with cb.use("cpu"):
        model = nn.Sequential(nn.Linear(256, hidden), nn.GELU(), nn.Linear(hidden, 40))
        here = cb.quant.quantize(model, measure_speed=False, **options).model
    there = here.clone().to("cuda")
    assert isinstance(there[0].weight.storage, Quantized) and str(there[0].weight.device) == "cuda"
    x = np.random.default_rng(4).normal(size=(5, 256)).astype(np.float32)
    expected = here(cb.tensor(x, device="cpu")).numpy()
    got = there(cb.tensor(x, device="cuda")).numpy()
    # A last bit of the first layer may move a byte of the second one's activations.
    assert error(got, expected.astype(np.float64)) < 3e-3
    assert np.array_equal(there[0].weight[16:32].numpy(), here[0].weight[16:32].numpy())
