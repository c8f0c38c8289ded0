"""Quantized layers on a pretended device with matrix units: the launches of the host, with emulated
kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.quant import QuantizedWeight, parse_scheme
from cubepy.quant.linear.gpu import dequantize, gemm_mma_plan, gemv, layout
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.linear.routines import QUANTIZED_LINEAR
from cubepy.runtime.device import as_device
from cubepy.runtime.memory.device_array import DeviceArray, upload
from tests.pretend import NAME, look, pretend
from tests.properties import choose_as_on

pytest.importorskip("numba_cuda")
from tests.backends.cuda.emulator.launch import emulate

GPU = {
    "plane_size": 32,
    "cores": 2,
    "max_shared_memory": 100_000,
    "features": frozenset({"mma", "copy_async"}),
}


class Emulated:
    """A kernel whose launches are emulated."""

    def __init__(self, kernel: Any, seen: list[str]) -> None:
        self.kernel, self.seen = kernel, seen

    def __getitem__(self, grid: Any) -> Any:
        cubes, units = grid

        def run(*args: Any, mode: str, device: Any) -> None:
            assert mode == "unchecked" and str(device) == NAME
            hosts = [look(a) if isinstance(a, DeviceArray) else a for a in args]
            assert not any(isinstance(a, np.ndarray) for a in args), (
                "a host array reached the device"
            )
            self.seen.append(self.kernel.__name__)
            emulate(self.kernel, units, cubes, *hosts)

        return run


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The device, and the kernels that were launched on it."""
    names: list[str] = []
    with pretend(monkeypatch):
        for module, kernels in (
            (gemv, ("few_product",)),
            (
                gemm_mma_plan,
                (
                    "arrange_rows",
                    "plane_product",
                    "plane_product_bytes",
                    "quantize_rows_for_planes",
                ),
            ),
            (layout, ("arrange_codes", "arrange_facts")),
        ):
            for name in kernels:
                monkeypatch.setattr(module, name, Emulated(getattr(module, name), names))
        choose_as_on(monkeypatch, QUANTIZED_LINEAR, NAME, **GPU)
        yield names


def layer(scheme: str, **options: Any) -> tuple[nn.Module, nn.Module]:
    model = nn.Sequential(nn.Linear(128, 40))
    result = cb.quant.quantize(model, scheme, measure_speed=False, **options)
    return result.model, result.model.clone().to(NAME)


@pytest.mark.parametrize(("scheme", "options"), [
    ("int8", {}), ("int4", {}), ("int4", {"group": 64, "symmetric": True}), ("int4", {"activations": "float"}),
    ("int8", {"activations": "float"}),
])  # fmt: skip
@pytest.mark.parametrize("rows", [1, 10])
def test_a_layer_gives_what_it_gives_on_the_cpu(
    seen: list[str], scheme: str, options: dict[str, Any], rows: int
) -> None:
    here, there = layer(scheme, **options)
    x = np.random.default_rng(0).normal(size=(rows, 128)).astype(np.float32)
    expected = here(cb.tensor(x)).numpy()
    got = there(cb.tensor(x).to(NAME)).numpy()
    assert np.allclose(got, expected, rtol=2e-5, atol=2e-5)
    floats = "few_product" if rows == 1 else "plane_product"
    product = floats if options.get("activations") == "float" else "plane_product_bytes"
    assert seen.count("arrange_codes") == 1 and seen[-1] == product
    there(cb.tensor(x).to(NAME))
    assert seen.count("arrange_codes") == 1, "a weight is arranged once"


@pytest.mark.parametrize("rows", [10, 1030])
def test_rows_of_bf16_meet_exact_weights_if_asked_for(seen: list[str], rows: int) -> None:
    values = np.random.default_rng(1).normal(size=(40, 128)).astype(np.float32)
    weight = QuantizedWeight.from_float(values, parse_scheme("int4", activations="float"))
    x = np.random.default_rng(0).normal(size=(rows, 128)).astype(ml_dtypes.bfloat16)
    expected = x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
    there = as_device(NAME)
    moved, far = upload(x, there), weight.on(there)
    for exact in (True, False):
        with cb.config.override(exact_weights=exact):
            got = quantized_linear(moved, far, dtype=np.float32)  # type: ignore[arg-type]
        apart = np.linalg.norm(look(got) - expected) / np.linalg.norm(expected)
        assert (apart < 1e-4) == exact


def test_many_rows_and_other_groups_meet_a_dense_copy(
    seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []
    dense = dequantize.dense_copy
    monkeypatch.setattr(
        dequantize, "dense_copy", lambda *a, **k: copies.append(a) or dense(*a, **k)
    )
    x = np.random.default_rng(1).normal(size=(130, 128)).astype(np.float32)
    for options in ({"activations": "float"}, {"group": 16}):
        here, there = layer("int4", **options)
        expected = here(cb.tensor(x)).numpy()
        assert np.allclose(there(cb.tensor(x).to(NAME)).numpy(), expected, rtol=2e-5, atol=2e-5)
    assert len(copies) == 2 and not seen
