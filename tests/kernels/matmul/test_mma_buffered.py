"""The matmul by AMD's matrix units: right on emulated GPUs, its instructions and registers for
every processor, and how it meets the banks of shared memory. No GPU is needed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.backends.hip.backend import offline
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.backends.hip.offline import compile_for
from cubepy.kernels.matmul.gpu.gemv import FewRoutine
from cubepy.kernels.matmul.gpu.mma_buffered import Buffered, BufferedRoutine, mma_buffered, roomy
from cubepy.kernels.matmul.gpu.simt import SimtRoutine
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.kernels.primitives.functions_half import gelu_narrow
from cubepy.lang.dtypes import as_dtype
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.schemes.scheme import parse_scheme
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from cubepy.tune import force
from tests.backends.cuda.thorough import THOROUGH, by_turns
from tests.backends.hip.emulator.banks import met_banks
from tests.backends.hip.emulator.device import emulated
from tests.kernels.matmul.matrices import laid_out

BF16 = ml_dtypes.bfloat16
DTYPES = {"f16": np.float16, "bf16": BF16, "i8": np.int8}
EMULATED = tuple(KNOWN) if THOROUGH else ("gfx942", "gfx1100")
SIDES = {name: 16 if name.startswith("gfx1") else 32 for name in KNOWN}
"""Rows of the instruction that is chosen."""
WORDS = {1: np.uint8, 2: np.uint16}


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2))


def there(x: np.ndarray) -> Any:
    """An array on the current device, with the same axis contiguous."""
    flipped = x.ndim == 2 and not x.flags.c_contiguous
    moved = device_array.upload(np.ascontiguousarray(x.T if flipped else x), devices.current())
    return moved.transpose(1, 0) if flipped else moved


def check(a: np.ndarray, b: np.ndarray, name: str, **options: Any) -> None:
    """The product on an emulated GPU, against f64."""
    integers = a.dtype.kind == "i"
    want = a.astype(np.float64) @ b.astype(np.float64)
    if options:
        bias, residual = options["bias"].astype(F64), options["residual"].astype(F64)
        want = gelu(want * options["alpha"] + bias) + residual
    with emulated(name), cb.use(name), force("matmul", "mma_buffered"):
        moved = {k: there(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        dtype = np.int32 if integers else None if options else np.float32
        got = K.matmul(there(a), there(b), dtype=dtype, **moved).numpy()
    if integers:
        np.testing.assert_array_equal(got, want)
    else:
        off = 1e-2 if options else 1e-5
        np.testing.assert_allclose(got.astype(F64), want, rtol=off, atol=off)


F64 = np.float64
SHAPES = [(33, 70, 50), (130, 40, 129), (64, 96, 64), (5, 17, 150)]
LAYOUTS = [("rows", "rows"), ("rows", "columns"), ("columns", "rows"), ("columns", "columns")]
CASES = [
    (dtype, SHAPES[(k + n) % len(SHAPES)], layouts)
    for k, dtype in enumerate(DTYPES)
    for n, layouts in enumerate(LAYOUTS)
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[1]} {c[2]}")
def test_products_of_any_shape_and_layout(case: Any) -> None:
    dtype, (m, k, n), (of_a, of_b) = case
    rng = np.random.default_rng(0)
    a, b = (laid_out(rng, (m, k), DTYPES[dtype], of_a), laid_out(rng, (k, n), DTYPES[dtype], of_b))
    turn = CASES.index(case) + list(DTYPES).index(dtype)
    for name in by_turns(EMULATED, turn, len(EMULATED)):
        check(a, b, name)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
def test_large_tiles(name: str) -> None:
    """And the smaller instruction."""
    rng = np.random.default_rng(1)
    for (m, k, n), layout in (((140, 72, 136), "rows"), ((128, 96, 128), "columns")):
        a, b = rng.standard_normal((m, k)), laid_out(rng, (k, n), np.float16, layout)
        with force("matmul", "mma_buffered", rows=128, columns=128, high=2, side=16):
            want = a.astype(np.float16).astype(F64) @ b.astype(F64)
            with emulated(name), cb.use(name):
                x = there(a.astype(np.float16))
                got = K.matmul(x, there(b), dtype=np.float32).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
def test_fused_epilogues(name: str) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((37, 40), (40, 70)))
    bias, residual = (rng.standard_normal(s).astype(np.float16) for s in ((70,), (37, 70)))
    check(a, b, name, bias=bias, residual=residual, activation="gelu", alpha=0.5)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
def test_batches(name: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((3, 20, 40), (3, 40, 24)))
    with emulated(name), cb.use(name), force("matmul", "mma_buffered"):
        got = K.matmul(there(a), there(b), dtype=np.float32).numpy()
    np.testing.assert_allclose(got, a.astype(F64) @ b.astype(F64), rtol=1e-5, atol=1e-5)


def test_numbers_beyond_the_end_of_k_do_not_count() -> None:
    """A view whose memory goes on with NaN."""
    whole = np.full((64, 64), np.nan, np.float16)
    rng = np.random.default_rng(4)
    whole[:, :40] = rng.standard_normal((64, 40))
    with emulated("gfx942"), cb.use("gfx942"), force("matmul", "mma_buffered"):
        x = there(whole)[:, :40]
        got = K.matmul(x, x.transpose(1, 0), dtype=np.float32).numpy()
    part = whole[:, :40].astype(F64)
    np.testing.assert_allclose(got, part @ part.T, rtol=1e-5, atol=1e-5)


def compiled(name: str, plan: Buffered, out: Any, epilogue: bool = False) -> str:
    """The assembly of a blueprint, as it is launched."""
    p = offline(name)
    plan = roomy(plan, p)
    a = np.zeros((1, 256, 256), WORDS[plan.dtype.itemsize])
    c = np.zeros((1, 256, 256), out)
    more = (c[0, 0], c) if epilogue else (None, None)
    units = plan.high * plan.wide * p.plane_size
    args = (a, a, c, *more, 1.0, 8, plan)
    whole = plan.a_whole
    code = compile_for(name, mma_buffered, units, *args, mode="unchecked", aligned=whole)
    assert code.text.shared_bytes <= min(p.max_shared_memory, 65536)
    return str(code.assembly)


WHOLE = {"a_whole": True, "b_whole": True, "k_whole": True}
ACROSS = {"a_along_k": False, "b_along_k": False}
FUSED = {"bias": True, "residual": True, "activation": gelu_narrow, "scaled": True}
PLANS = [
    {"rows": r, "columns": r, **whole, **across, **fused}
    for r in (128, 64)
    for whole in (WHOLE, {})
    for across in ({}, ACROSS)
    for fused in ({}, FUSED)
]


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "i8"])
def test_nothing_spills(name: str, dtype: str) -> None:
    p, kind = offline(name), as_dtype(dtype)
    plans = [x for x in PLANS if dtype != "i8" or not {"bias", "a_along_k"} & x.keys()]
    turn = list(KNOWN).index(name)
    turns = len(KNOWN) if dtype == "f16" else len(plans)
    for plan in by_turns(plans, turn, turns):
        high = 64 // p.plane_size if plan["rows"] == 64 else 2
        out = np.int32 if kind.is_int else kind.numpy
        text = compiled(
            name, Buffered(dtype=kind, side=SIDES[name], high=high, **plan), out, "bias" in plan
        )
        spilled = [int(n) for n in re.findall(r"_spill_count: *(\d+)", text)]
        assert spilled and not any(spilled), plan
        assert not re.search(r"^\t(flat|scratch|buffer_(load|store))_", text, re.M), plan


COUNTS = {
    "gfx90a": ("v_mfma_f32_32x32x8f16", 16, "ds_read_b128", 8, "ds_write_b128", 4, 4),
    "gfx942": ("v_mfma_f32_32x32x8_f16", 16, "ds_read_b128", 8, "ds_write_b128", 4, 4),
    "gfx950": ("v_mfma_f32_32x32x16_f16", 8, "ds_read_b128", 8, "ds_write_b128", 4, 4),
    "gfx1100": ("v_wmma_f32_16x16x16_f16", 32, "ds_load_b128", 32, "ds_store_b128", 8, 8),
    "gfx1201": ("v_wmma_f32_16x16x16_f16", 32, "ds_load_b128", 16, "ds_store_b128", 8, 8),
}
"""Of a plane, for a step of K: matrix instructions, reads and writes of shared memory, loads."""


@pytest.mark.parametrize("name", KNOWN)
def test_instructions_of_a_step(name: str) -> None:
    product, products, read, reads, write, writes, loads = COUNTS[name]
    text = compiled(name, Buffered(side=SIDES[name], **WHOLE), np.float16)
    found = Counter(re.findall(r"^\t([a-z]\w+)", text, re.M))
    wide = "global_load_b128" if name.startswith("gfx1") else "global_load_dwordx4"
    assert found[product] == products
    assert (found[read], found[write]) == (reads, writes)
    assert found[wide] == 2 * loads  # and as many of the first stage
    memory = {i for i in found if i.startswith(("ds_", "global_load"))}
    assert memory == {read, write, wide}


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
@pytest.mark.parametrize("layout", ["along K", "across K"])
def test_no_bank_is_met_twice(name: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met = met_banks(monkeypatch)
    rng = np.random.default_rng(5)
    a = laid_out(rng, (64, 64), np.float16, "rows" if layout == "along K" else "columns")
    b = laid_out(rng, (64, 64), np.float16, "columns" if layout == "along K" else "rows")
    check(a, b, name)
    assert len(met) > 100 and set(met) == {1}


@pytest.mark.parametrize(
    ("problem", "routine"),
    [
        (Product("hip", 300, 4096, 4096, 1, "bf16", "bf16", "columns"), BufferedRoutine),
        (Product("hip", 30, 31, 33, 1, "f16", "f16", "rows"), BufferedRoutine),
        (Product("hip", 300, 400, 500, 1, "i8", "i8", out="i32"), BufferedRoutine),
        (Product("hip", 300, 400, 500, 1, "u8", "i8", out="i32"), SimtRoutine),
        (Product("hip", 300, 400, 500, 1, "f32", "f32"), SimtRoutine),
        (Product("hip", 1, 4096, 4096, 1, "f16", "f16", "columns"), FewRoutine),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", KNOWN)
def test_the_routine_follows_from_dtypes_and_sizes(
    name: str, problem: Product, routine: type
) -> None:
    properties = offline(name)
    fits = [r for r in MATMUL.routines if not r.supports(problem, properties)]
    assert type(max(fits, key=lambda r: r.group(problem))) is routine


@pytest.mark.parametrize("scheme", ["int4", "int8"])
def test_packed_weights_meet_matrix_units(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By way of a dense copy, where activations are of 16 bits."""
    rng, products = np.random.default_rng(6), []
    launch = BufferedRoutine.launch
    monkeypatch.setattr(BufferedRoutine, "launch", lambda *a: products.append(a[2]) or launch(*a))
    values, x = (rng.standard_normal(s).astype(np.float32) for s in ((48, 128), (40, 128)))
    x = x.astype(np.float16)
    weight = QuantizedWeight.from_float(values, parse_scheme(scheme, activations="float"))
    want = x.astype(F64) @ weight.dequantize().astype(F64).T
    with emulated("gfx942"), cb.use("gfx942"):
        far = weight.on(devices.current())
        with cb.config.override(exact_weights=False):
            got = quantized_linear(there(x), far, dtype=np.float32).numpy()
    assert len(products) == 1
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=5e-2)


def test_nvidia_keeps_its_own() -> None:
    from cubepy.backends.cuda.backend import offline as nvidia

    problem = Product("cuda", 300, 400, 500, 1, "f16", "f16")
    assert BufferedRoutine().supports(problem, nvidia("sm_90a"))
