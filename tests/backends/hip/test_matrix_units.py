"""AMD's matrix units: the emulator against tables of AMD's documents, our fragments against the
emulator, and wrong fragments, which it has to find.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cuda.fragments import instructions as of_nvidia
from cubepy.backends.hip.backend import offline
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.errors import BackendCompileError, FeatureError
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.fragments import MatrixInstruction
from tests.backends.hip.emulator import Fault
from tests.backends.hip.test_emulator import launch, run
from tests.conformance.test_matrix import product

ROWS_OF_SUMS = {
    "cdna32": [
        [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27],
        [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31],
    ],
    "cdna": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
    "rdna3": [[0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]],
    "rdna4": [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]],
}
"""Rows of the sums that a group of 16 lanes (of 32, where there are as many rows) has in its
registers: AMD's figures of matrix D. Columns are lanes.
"""
CASES = [
    ("gfx90a", "cdna", "v_mfma_f32_16x16x16f16", np.float16, 16, 2, 4),
    ("gfx90a", "cdna", "v_mfma_i32_16x16x16i8", np.int8, 16, 1, 4),
    ("gfx942", "cdna", "v_mfma_f32_16x16x16_bf16", ml_dtypes.bfloat16, 16, 2, 4),
    ("gfx942", "cdna", "v_mfma_i32_16x16x32_i8", np.int8, 32, 2, 4),
    ("gfx950", "cdna", "v_mfma_f32_16x16x32_f16", np.float16, 32, 4, 4),
    ("gfx90a", "cdna32", "v_mfma_f32_32x32x8bf16_1k", ml_dtypes.bfloat16, 8, 2, 16),
    ("gfx942", "cdna32", "v_mfma_i32_32x32x16_i8", np.int8, 16, 2, 16),
    ("gfx950", "cdna32", "v_mfma_f32_32x32x16_f16", np.float16, 16, 4, 16),
    ("gfx950", "cdna", "v_mfma_f32_16x16x32_fp8_fp8", ml_dtypes.float8_e4m3fn, 32, 2, 4),
    ("gfx1100", "rdna3", "v_wmma_f32_16x16x16_f16", np.float16, 16, 8, 8),
    ("gfx1100", "rdna3", "v_wmma_i32_16x16x16_iu8", np.int8, 16, 4, 8),
    ("gfx1201", "rdna4", "v_wmma_f32_16x16x16_bf16", ml_dtypes.bfloat16, 16, 4, 8),
    ("gfx1201", "rdna4", "v_wmma_i32_16x16x16_iu8", np.int8, 16, 2, 8),
    ("gfx1201", "rdna4", "v_wmma_f32_16x16x16_bf8_bf8", ml_dtypes.float8_e5m2, 16, 2, 8),
]  # processor, family, instruction, elements, depth, registers of an operand and of the sums


def tile(
    name: str, mnemonic: str, a: np.ndarray, b: np.ndarray, out: np.ndarray, more: str = ""
) -> None:
    """One instruction on the words of all lanes; a, b and sums are (lanes, registers)."""
    rdna, n, m = name.startswith("gfx1"), a.shape[1], out.shape[1]
    load, store = ("b32", "b32") if rdna else ("dword", "dword")
    wide = "b64" if rdna else "dwordx2"
    lines = [f"s_load_{wide} s[{4 + 2 * k}:{5 + 2 * k}], s[0:1], {8 * k:#x}" for k in range(3)]
    for k, (at, base) in enumerate(((20, 4), (40, 6))):
        lines.append(f"v_mul_u32_u24 v{9 + k}, {4 * n}, v0")
        lines += [
            f"global_load_{load} v{at + r}, v{9 + k}, s[{base}:{base + 1}] offset:{4 * r}"
            for r in range(n)
        ]
    lines.append(f"v_mul_u32_u24 v11, {4 * m}, v0")
    left, right = (f"v[{at}:{at + n - 1}]" if n > 1 else f"v{at}" for at in (20, 40))
    lines.append(f"{mnemonic} v[60:{59 + m}], {left}, {right}, 0 {more}")
    lines += [f"global_store_{store} v11, v{60 + r}, s[8:9] offset:{4 * r}" for r in range(m)]
    run("\n".join(lines), name, a, b, out)


def words(matrix: np.ndarray, lanes: int, family: str) -> np.ndarray:
    """Registers of an operand (rows, depth): lane L has row L % rows; groups of so many lanes have
    equal parts of the depth, one after the other, but on RDNA 3 all of it.
    """
    rows = len(matrix)
    groups = 1 if family == "rdna3" else lanes // rows
    parts = matrix.reshape(rows, groups, -1)
    held = np.stack([parts[lane % rows, lane // rows % groups] for lane in range(lanes)])
    return np.ascontiguousarray(held).view(np.uint32)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[2]}")
def test_the_emulator_follows_the_documents(case: Any) -> None:
    name, family, mnemonic, dtype, depth, registers, sums = case
    lanes = 32 if name.startswith("gfx1") else 64
    side = 32 if family == "cdna32" else 16
    rng = np.random.default_rng(0)
    a, b = (
        (rng.standard_normal((side, depth)) * (50 if dtype is np.int8 else 1)).astype(dtype)
        for _ in range(2)
    )
    x, y = words(a, lanes, family), words(b, lanes, family)
    assert x.shape == (lanes, registers)
    signed = "iu8" in mnemonic
    out = np.zeros((lanes, sums), np.int32 if dtype is np.int8 else np.float32)
    tile(name, mnemonic, x, y, out, "neg_lo:[1,1,0]" if signed else "")
    want = a.astype(np.float64) @ b.astype(np.float64).T
    got = np.zeros((side, side))
    for lane in range(lanes):
        for r, row in enumerate(ROWS_OF_SUMS[family][lane // side]):
            got[row, lane % side] = out[lane, r]
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-5)
    if signed:  # without the modifiers bytes have no signs
        tile(name, mnemonic, x, y, out)
        bare = a.view(np.uint8).astype(np.int64) @ b.view(np.uint8).astype(np.int64).T
        assert out[0, 0] == bare[0, 0] and bare[0, 0] != want[0, 0]


@pytest.mark.parametrize("name", KNOWN)
def test_our_fragments_are_those_of_the_documents(name: str) -> None:
    family = {"gfx1100": "rdna3", "gfx1201": "rdna4"}.get(name, "cdna")
    properties = offline(name)
    assert ("wmma" if name.startswith("gfx1") else "mfma") in properties.features
    assert {"f16", "bf16", "i8"} <= {m.dtype for m in properties.matrix_instructions}
    for m in properties.matrix_instructions:
        side = m.rows
        table = ROWS_OF_SUMS[f"{family}32" if side == 32 else family]
        for lane in range(properties.plane_size):
            rows = [m.c.at(lane, e) for e in range(m.c.count)]
            assert rows == [(r, lane % side) for r in table[lane // side]]
            first = 0 if family == "rdna3" else m.a.count * (lane // side)
            held = [(lane % side, first + e) for e in range(m.a.count)]
            assert [m.a.at(lane, e) for e in range(m.a.count)] == held
            assert [m.b.at(lane, e) for e in range(m.b.count)] == [(k, r) for r, k in held]


def one(name: str, m: MatrixInstruction, units: int = 0, dtype: Any = np.float16) -> float:
    """The error of a product by the kernel of the conformance suite, with given fragments."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((16, 32)).astype(dtype)[:, : m.depth] for _ in range(2))
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b.T)
    c = np.zeros((16, 16), np.float32)
    args = (a.view(np.uint16), b.view(np.uint16), c)
    assembly = launch(name, product, units or offline(name).plane_size, *args, m=m, dtype=cb.f16)
    assert "mfma_f32" in assembly or "wmma_f32" in assembly
    return float(np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max())


@pytest.mark.parametrize("name", KNOWN)
def test_wrong_fragments_are_found(name: str) -> None:
    m = offline(name).matrix_instruction("f16")
    assert m is not None and one(name, m) < 1e-5
    lanes = (m.c.lanes[4:] + m.c.elements)[::-1]
    groups = len(m.c.lanes) - 4
    other = dataclasses.replace(m.c, lanes=m.c.lanes[:4] + lanes[:groups], elements=lanes[groups:])
    assert one(name, dataclasses.replace(m, c=other)) > 0.5
    across = dataclasses.replace(m.a, elements=m.a.elements[::-1])
    assert one(name, dataclasses.replace(m, a=across)) > 0.5


def test_lanes_that_do_not_repeat_the_others_are_a_fault() -> None:
    m = offline("gfx1100").matrix_instruction("f16")
    assert m is not None
    moved = dataclasses.replace(m.a, lanes=(*m.a.lanes[:3], (0, 0), (8, 0)))
    with pytest.raises(Fault, match="do not repeat"):
        one("gfx1100", dataclasses.replace(m, a=moved))


@pytest.mark.parametrize("name", ["gfx942", "gfx1201"])
def test_a_plane_that_is_not_whole_is_a_fault(name: str) -> None:
    m = offline(name).matrix_instruction("f16")
    assert m is not None
    with pytest.raises(Fault, match="not all lanes"):
        one(name, m, offline(name).plane_size // 2)


F8 = {"fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("dtype", F8)
@pytest.mark.parametrize("name", ["gfx950", "gfx1201"])
def test_bytes_of_f8_are_those_of_the_open_standard(name: str, dtype: str) -> None:
    """Every byte, times one: -0 is a number, and the last codes are NaN (and infinity of e5m2).
    FNUZ, the encoding of gfx942, has NaN in the place of -0 and halves of these numbers.
    """
    m = offline(name).matrix_instruction(dtype)
    assert m is not None and m.rows == m.columns == 16 <= m.depth
    kind, codes = F8[dtype], np.arange(256, dtype=np.uint8)
    finite = np.isfinite(codes.view(kind).astype(np.float32))
    numbers, others = codes * finite, codes[~finite]
    a, b = np.zeros((2, 16, m.depth), np.uint8), np.zeros((2, m.depth, 16), kind)
    a[0, :, :16], b[0, :16] = numbers.reshape(16, 16), np.eye(16)
    a[1, : len(others), 0], b[1, 0] = others, 1  # beside zeros: they would spread along a row
    wanted = a[0, :, :16], np.repeat(a[1, :, :1], 16, 1)
    for x, y, want in zip(a, b, wanted, strict=True):
        c = np.zeros((16, 16), np.float32)
        units = offline(name).plane_size
        launch(name, product, units, x, y.view(np.uint8), c, m=m, dtype=as_dtype(dtype))
        np.testing.assert_array_equal(c, want.view(kind).astype(np.float32))


@cb.kernel
def of_bytes(out: cb.Array, dtype: cb.Comptime):
    words = cb.splat(cb.u32(0), 2)
    total = cb.mma(words, words, cb.splat(cb.f32(0), 4), dtype)
    out[cb.UNIT_POS] = total[0]


@pytest.mark.parametrize("dtype", F8)
@pytest.mark.parametrize("name", ["gfx90a", "gfx942", "gfx1100"])
def test_f8_is_not_offered_where_it_is_missing_or_encoded_otherwise(name: str, dtype: str) -> None:
    assert offline(name).matrix_instruction(dtype) is None
    with pytest.raises(FeatureError, match=f"has no matrix units for {dtype}"):
        launch(name, of_bytes, 64, np.zeros(64, np.float32), dtype=as_dtype(dtype))


@cb.kernel
def under_a_condition(out: cb.Array, m: cb.Comptime):
    words, total = cb.splat(cb.u32(0), m.lengths[0]), cb.splat(cb.f32(0), m.lengths[2])
    if cb.UNIT_POS < 16:
        total = cb.mma(words, words, total, cb.f16)
    out[cb.UNIT_POS] = total[0]


@pytest.mark.parametrize("name", ["gfx942", "gfx1201"])
def test_planes_multiply_together(name: str) -> None:
    p = offline(name)
    m = p.matrix_instruction("f16")
    rule = f"reached by all {p.plane_size} units"
    with pytest.raises(cb.errors.BarrierError, match=rule):
        launch(name, under_a_condition, p.plane_size, np.zeros(64, np.float32), m=m)


def test_intrinsics_of_other_processors_are_refused() -> None:
    from cubepy.backends.hip.codegen import machine
    from cubepy.backends.hip.codegen.architecture import Architecture

    four, half = "<4 x float>", "<8 x half>"
    call = (
        f"@llvm.amdgcn.mfma.f32.16x16x32.f16({half} %a, {half} %a, {four} %c, i32 0, i32 0, i32 0)"
    )
    text = (
        f"declare {four} @llvm.amdgcn.mfma.f32.16x16x32.f16("
        f"{half}, {half}, {four}, i32, i32, i32)\n"
        f"define amdgpu_kernel void @k(ptr addrspace(1) %p, {half} %a, {four} %c) {{\n"
        f"  %d = call {four} {call}\n  store {four} %d, ptr addrspace(1) %p\n  ret void\n}}\n"
    )
    machine.optimised(text, Architecture("gfx950"))
    with pytest.raises(BackendCompileError, match="mfma"):
        machine.optimised(text, Architecture("gfx90a"))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i8", "u8"])
def test_fragments_of_nvidia_are_those_of_its_emulator(dtype: str) -> None:
    pytest.importorskip("numba_cuda")
    from tests.backends.cuda.emulator.matrices import mma

    m = next(x for x in of_nvidia(frozenset({"mma", "tma"})) if x.dtype == dtype)
    kind = as_dtype(dtype).numpy
    rng = np.random.default_rng(0)
    high = 100 if m.sums == "i32" else 3
    a, b = (rng.integers(0, high, s).astype(kind) for s in ((16, m.depth), (m.depth, 8)))

    def held(matrix: np.ndarray, fragment: Any, unit: int) -> np.ndarray:
        line = [matrix[fragment.at(unit, e)] for e in range(fragment.count)]
        return np.array(line, kind).view(np.uint32)

    zero = np.zeros(4, as_dtype(m.sums).numpy)
    calls = [[held(a, m.a, u), held(b, m.b, u), zero, dtype] for u in range(32)]
    assert [len(x) for x in calls[0][:3]] == list(m.lengths)
    got = np.zeros((16, 8))
    for u, sums in enumerate(mma(calls)):
        for e in range(4):
            got[m.c.at(u, e)] = sums[e]
    np.testing.assert_array_equal(got, a.astype(np.float64) @ b.astype(np.float64))
