"""Stores of a few lanes touch those lanes only, whatever LLVM makes of a mask that turns out to be
a constant.
"""

from __future__ import annotations

import platform
import re
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K

numba = pytest.importorskip("numba")

from tests.backends.cpu.ops.compiled_ops import NUMPY, compiled, run

X86 = platform.machine().lower() in ("x86_64", "amd64")
NARROWER = [
    ("i32", "i16"), ("i32", "u8"), ("i64", "i32"), ("i64", "i16"), ("i64", "i8"), ("u16", "u8"), ("i16", "i8"),
    ("f32", "bf16"), ("f64", "bf16"), ("f32", "f16"), ("f64", "f16"), ("f32", "fp8_e4m3"), ("f32", "fp8_e5m2"),
    ("f64", "f32"), ("i32", "int4"),
]  # fmt: skip
KNOWN = "store_line_part(p1, 8, load_line(p0, 0, {w}), {n})"
INFERRED = "if n0 * 2 == {n} * 2:\n    store_line_part(p1, 8, load_line(p0, 0, {w}), n0)"
UNROLLED = """for k in range({n} // {w} + 1):
    store_line_part(p1, 8 + k * {w}, load_line(p0, k * {w}, {w}), {n} - k * {w})"""


def width(dtype: str) -> int:
    """Lanes that fill a register of AVX-512."""
    return 8 if dtype.endswith("64") else 16


def values(dtype: str) -> np.ndarray:
    """Numbers all of whose bytes differ from 0, so that a neighbour that is overwritten shows."""
    if dtype[0] == "f":
        return np.random.default_rng(3).standard_normal(64).astype(NUMPY[dtype])
    return (
        np.random.default_rng(3).integers(1, 120, 64 * 8, np.uint8).view(NUMPY[dtype])[:64].copy()
    )


@pytest.mark.parametrize("src, dst", NARROWER)
def test_a_count_that_is_constant_in_the_end_stores_that_many_lanes(src: str, dst: str) -> None:
    x = values(src)
    for n in (1, 2, 8, 15, 17):
        for form in (KNOWN, INFERRED, UNROLLED):
            count = min(n, width(src)) if form is not UNROLLED else n
            out = np.full(64, 0x5A, np.uint8).repeat(np.dtype(NUMPY[dst]).itemsize).view(NUMPY[dst])
            want = out.copy()
            stored = x[:count].astype(np.int8) & 15 if dst == "int4" else x[:count]
            want.view(np.uint8 if dst == "int4" else want.dtype)[8 : 8 + count] = stored.astype(
                np.uint8 if dst == "int4" else want.dtype
            )
            run(form.format(n=n, w=width(src)), x, out, n0=n)
            np.testing.assert_array_equal(
                out.view(np.uint8), want.view(np.uint8), err_msg=f"{form} {n}"
            )


@pytest.mark.skipif(not X86, reason="needs x86")
@pytest.mark.parametrize("cpu", ["znver4", "skylake-avx512", "haswell"])
@pytest.mark.parametrize(
    "src, dst", [("i32", "i16"), ("i64", "i32"), ("i64", "i8"), ("f32", "bf16")]
)
def test_one_lane_is_stored_by_an_instruction_of_its_width(cpu: str, src: str, dst: str) -> None:
    import llvmlite.binding as ll

    kernel = compiled(INFERRED.format(n=1, w=width(src)), [src, dst])
    kernel.compile((numba.types.int64,) * 4)
    text = next(iter(kernel.inspect_llvm().values()))
    target = ll.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(cpu=cpu, opt=3)
    module = ll.parse_assembly(re.sub(r'"target-(cpu|features)"="[^"]*"', "", text))
    assembly = target.emit_assembly(module)
    place = 8 * np.dtype(NUMPY[dst]).itemsize
    stores = [
        line.split()[0]
        for line in assembly.splitlines()
        if re.search(rf"\s{place}\(%r\w+\)$", line)
    ]
    narrow = {1: {"movb", "vpextrb"}, 2: {"movw", "vpextrw"}, 4: {"movl", "vmovss", "vmovd"}}
    assert stores and set(stores) <= narrow[np.dtype(NUMPY[dst]).itemsize], assembly


@cb.kernel
def put(
    x: cb.Array,
    out: cb.Array,
    n,
    known: cb.Comptime[int],
    lanes: cb.Comptime[int],
    where: cb.Comptime[str],
    dtype: cb.Comptime,
):
    """A line of x to the middle of out, or of memory like it, with a count that is known or tested
    for.
    """
    line = cb.cast(x.load(0, lanes), dtype)
    memory = out
    if where == "shared":
        memory = cb.shared(48, dtype)
    if where == "local":
        memory = cb.local(48, dtype)
    if where != "global":
        for k in range(out.size):
            memory[k] = out[k]
    if known > 0:
        memory.store(16, line, valid=known)
    elif n == 1:
        memory.store(16, line, valid=n)
    if where != "global":
        for k in range(out.size):
            out[k] = memory[k]


FOR_KERNELS = [("i32", "i16", "global"), ("i64", "i8", "global"), ("f32", "bf16", "global"), ("f64", "f16", "global"),
               ("f32", "fp8_e4m3", "global"), ("i32", "i16", "shared"), ("i32", "i16", "local"),
               ("f32", "bf16", "shared"), ("f32", "f16", "local")]  # fmt: skip


@pytest.mark.parametrize("src, dst, where", FOR_KERNELS)
def test_a_line_of_which_one_lane_is_valid_changes_one_element(
    src: str, dst: str, where: str
) -> None:
    x = (np.arange(16) * 97 + 300).astype(NUMPY[src])
    dtype: Any = getattr(cb, dst)
    for n, known in ((1, 1), (1, 0), (5, 5)):
        out = np.ones(48, NUMPY[dst])
        put[1, 1](
            x,
            out,
            n,
            known,
            width(src),
            where,
            dtype if where != "global" else dtype.compute,
            mode="unchecked",
        )
        want = np.ones(48, NUMPY[dst])
        want[16 : 16 + n] = x[:n].astype(NUMPY[dst])
        np.testing.assert_array_equal(out.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("wide", [1, 17])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_attention_writes_its_values_and_nothing_behind_them(wide: int, dtype: str) -> None:
    rng = np.random.default_rng(5)
    q, k = (rng.standard_normal((1, 3, 20, 16)).astype(NUMPY[dtype]) for _ in range(2))
    v = rng.standard_normal((1, 3, 20, wide)).astype(NUMPY[dtype])
    frame = np.full((1, 5, 20, wide), 77, NUMPY[dtype])
    K.attention(q, k, v, out=frame[:, 1:4])
    q, k, v = [a.astype(np.float64) for a in (q, k, v)]
    scores = q @ k.swapaxes(-1, -2) / 4
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(frame[:, 1:4].astype(np.float64), want, atol=0.03)
    assert (frame[:, [0, 4]].astype(np.float32) == 77).all()
