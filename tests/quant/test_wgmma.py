"""Packed weights by `wgmma`, emulated: schemes, odd shapes, clusters; and their machine code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.quant import QuantizedWeight, parse_scheme
from cubepy.quant.linear.gpu.blueprint import CHUNK
from cubepy.quant.linear.sm90.gemm_wgmma import Wide, permute_rows, wide_product
from cubepy.quant.linear.sm90.gemm_wgmma_plan import GAINS, MAGIC, fitted

pytest.importorskip("numba_cuda")
from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from cubepy.quant.linear.gpu import layout
from cubepy.quant.linear.gpu.blueprint import Room
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.linear.routines import QUANTIZED_LINEAR
from cubepy.quant.linear.sm90 import gemm_wgmma_plan
from cubepy.runtime.device import as_device
from cubepy.runtime.memory.device_array import DeviceArray, upload
from tests.backends.cuda.emulator.launch import emulate
from tests.backends.cuda.thorough import some
from tests.pretend import NAME, look, pretend
from tests.properties import choose_as_on
from tests.quant.test_emulated import Arranged, error, random_weight

BF16 = ml_dtypes.bfloat16
MOST_SHARED = 232448
HOPPER = {
    "plane_size": 32,
    "cores": 3,
    "max_shared_memory": MOST_SHARED,
    "features": frozenset({"mma", "copy_async", "wgmma", "tma", "cluster", "overlap"}),
}


def maps(
    words: np.ndarray, facts: np.ndarray, panels: int, chunks: int, plan: Wide
) -> tuple[Any, Any]:
    """The tensor maps of a weight."""
    blocks, pieces = chunks // plan.per_block, plan.per_block * plan.halves
    codes = words[: blocks * panels * pieces * 128].reshape(blocks, panels, pieces, 128)
    code_map = cb.tensor_map(codes, (1, plan.panels, plan.halves, 128), swizzle=0)
    if not plan.group:
        return code_map, None
    each = 8 * plan.fact_words
    lie = facts[: blocks * panels * each].reshape(blocks, panels, each)
    return code_map, cb.tensor_map(lie, (1, plan.panels, each), swizzle=0)


def wide(
    x: np.ndarray, weight: QuantizedWeight, plan: Wide, late: float, bias: Any, residual: Any
) -> np.ndarray:
    """The product, emulated."""
    w = Arranged(weight)
    inputs = w.blocks * max(CHUNK, w.group)
    rows = np.full((len(x), inputs // 2), 0xFFFFFFFF, np.uint32)
    emulate(permute_rows, 256, (-(-rows.size // 1024),), x, weight.input_scale, rows, False)
    out = np.full((len(x), weight.shape[0]), np.nan, x.dtype)
    strips = -(-len(x) // plan.columns)
    emulate(
        wide_product, plan.units, -(-w.panels // plan.panels) * strips * plan.splits,
        cb.tensor_map(rows.view(x.dtype), (plan.columns, CHUNK)), *maps(w.words, w.facts, w.panels, inputs // CHUNK, plan),
        w.scales, bias, residual, out, weight.gain * GAINS[cb.as_dtype(x.dtype).name, w.group > 0], np.uint32(MAGIC),
        inputs // CHUNK, strips, plan, late=late,
    )  # fmt: skip
    return out


# scheme, group, symmetric, dtype, splits, groups, blocks, outputs, rows, tolerance (weights are
# rounded to the dtype)
CASES = [
    ("int4", 32, False, BF16, 2, 1, 2, 136, 11, 8e-3), ("int4", 128, True, BF16, 4, 1, 1, 40, 5, 8e-3),
    ("int8", None, True, BF16, 2, 1, 1, 133, 3, 4e-3), ("int4", 64, True, np.float16, 1, 2, 1, 72, 5, 1e-3),
    ("int8", None, True, np.float16, 1, 1, 1, 40, 9, 1e-3), ("int4", 256, False, BF16, 2, 1, 1, 40, 5, 8e-3),
]  # fmt: skip


@pytest.mark.parametrize("case", some(CASES, 0, 2, 3), ids=str)
def test_groups_of_planes_multiply_packed_weights(case: tuple[Any, ...]) -> None:
    scheme, group, symmetric, dtype, splits, groups, blocks, outputs, rows, tolerance = case
    weight = random_weight(
        outputs,
        512 if splits == 4 or group == 256 else 256 if group else 233,
        scheme,
        group,
        symmetric,
    )
    rng = np.random.default_rng(rows)
    x = rng.normal(size=(rows, weight.shape[1])).astype(dtype)
    bias, residual = (
        np.arange(outputs).astype(np.float32),
        rng.normal(size=(rows, outputs)).astype(dtype),
    )
    plan = Wide(
        8,
        groups,
        blocks,
        splits,
        3,
        group or 0,
        symmetric,
        True,
        True,
        None,
        outputs % 4 == 0,
        False,
        groups > 1,
    )
    expected = (
        x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)
        + bias
        + residual.astype(np.float64)
    )
    late = 1.0 if splits > 1 else 0.5
    assert error(wide(x, weight, plan, late, bias, residual) - bias, expected - bias) < tolerance


def test_large_f16_activations_stay_finite() -> None:
    x, factors, rows = (
        np.full((1, 64), 60000, np.float16),
        np.full(64, 2, np.float16),
        np.zeros((1, 32), np.uint32),
    )
    emulate(permute_rows, 256, (1,), x, factors, rows, False)
    assert (rows.view(np.float16) == 15000).all()


PLANS = [
    (Wide(64, 2, 2, 1, 2, 32, False, early=True, split_k=True), BF16), (Wide(128, 2, 2, 1, 2, 32, False, early=True), BF16),
    (Wide(128, 2, 1, 2, 2, 0, True, early=True, split_k=True), np.float16), (Wide(32, 2, 1, 1, 2, 128, True, early=True), BF16),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "dtype"), some(PLANS, 0), ids=str)
def test_products_run_beside_the_work_on_codes(plan: Wide, dtype: Any) -> None:
    plan = fitted(plan, 64, MOST_SHARED) or plan
    x = cb.tensor_map(np.zeros((128, 512), dtype), (plan.columns, CHUNK))
    both = maps(np.zeros(1 << 20, np.uint32), np.zeros(1 << 16, np.uint32), 32, 8, plan)
    code = compile_for(
        "sm_90a", wide_product, plan.units, x, *both, np.zeros(512, np.float32), None, None, np.zeros((128, 512), dtype),
        1.0, np.uint32(1), 8, 1, plan, mode="unchecked",
    )  # fmt: skip
    assert usage(code.cubin).stack == 0 and code.text.shared_bytes <= MOST_SHARED
    assert count(code.sass, "LDL", "STL") == {"LDL": 0, "STL": 0}
    # One wait after each half of a chunk and one at the end: nothing is waited for between
    # products.
    assert count(code.sass, "HGMMA")["HGMMA"] == 4 * plan.blocks
    assert code.sass.count("WARPGROUP.DEPBAR") == 3


class Launches:
    """A kernel whose launches on the pretended device are emulated; `names` says which."""

    def __init__(self, kernel: Any, names: list[str]) -> None:
        self.kernel, self.names = kernel, names

    def __getitem__(self, grid: Any) -> Any:
        def run(*args: Any, mode: str, device: Any) -> None:
            hosts = [self.host(a) for a in args]
            self.names.append(self.kernel.__name__)
            emulate(self.kernel, grid[1], grid[0], *hosts)

        return run

    @staticmethod
    def host(value: Any) -> Any:
        """An array or a tensor map as the host sees it."""
        if isinstance(value, cb.TensorMap):
            return cb.tensor_map(look(value.array), value.box, value.swizzle)
        return look(value) if isinstance(value, DeviceArray) else value


def test_seventeen_rows_take_this_way(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    scheme = parse_scheme("int4", group=32, symmetric=True, activations="float")
    weight = QuantizedWeight.from_float(
        np.random.default_rng(1).normal(size=(40, 128)).astype(np.float32), scheme
    )
    x = np.random.default_rng(0).normal(size=(17, 128)).astype(BF16)
    with pretend(monkeypatch):
        for module, kernels in (
            (gemm_wgmma_plan, ("permute_rows", "wide_product")),
            (layout, ("arrange_codes", "arrange_facts")),
        ):
            for name in kernels:
                monkeypatch.setattr(module, name, Launches(getattr(module, name), names))
        # So small a weight would be left to planes; and plans are kept, so that no other test may
        # ask for such a device.
        monkeypatch.setattr(gemm_wgmma_plan, "microseconds", lambda *_: 0.0)
        choose_as_on(monkeypatch, QUANTIZED_LINEAR, NAME, **HOPPER)
        device = as_device(NAME)
        out = quantized_linear(upload(x, device), weight.on(device), dtype=BF16).numpy()
    assert error(out, x.astype(np.float64) @ weight.dequantize().T.astype(np.float64)) < 8e-3
    assert names == ["arrange_codes", "arrange_facts", "permute_rows", "wide_product"]


@pytest.mark.parametrize("group", [0, 32, 128])
@pytest.mark.parametrize(("outputs", "inputs"), [(14336, 4096), (4096, 14336), (40, 64), (136, 64)])
def test_every_plan_fits(outputs: int, inputs: int, group: int) -> None:
    chunks = -(-inputs // max(CHUNK, group)) * max(1, group // CHUNK)
    for rows in (17, 64, 100, 300, 2048):
        found = gemm_wgmma_plan.plan_wide(
            -(-outputs // 16),
            chunks,
            rows,
            group,
            True,
            132,
            MOST_SHARED,
            True,
            False,
            False,
            None,
            True,
        )
        assert found is not None and found[0].shared_bytes <= MOST_SHARED
        assert found[0].splits * found[0].parts <= chunks and found[0].stages >= found[0].parts
    target = Room(132, MOST_SHARED, True, True, True)
    for rows, dtype in ((16, cb.bf16), (64, cb.f32)):
        plan = gemm_wgmma_plan.plan_for(
            outputs // 16, inputs, rows, group, True, dtype, target, False, False, None, True
        )
        assert plan is None
