"""What the machine code of lines and loops looks like."""

from __future__ import annotations

import platform

import numpy as np
import pytest

import cubepy as cb

numba = pytest.importorskip("numba")

from tests.backends.cpu.ops.compiled_ops import compiled


def assembly(body: str, *dtypes: str) -> str:
    kernel = compiled(body, list(dtypes))
    kernel.compile((numba.types.int64,) * (len(dtypes) + 2))
    return next(iter(kernel.inspect_asm().values()))


def _has_avx512() -> bool:
    from numba.core.registry import cpu_target

    return "+avx512f" in cpu_target.target_context.codegen().magic_tuple()[2]


@pytest.mark.skipif(not _has_avx512(), reason="needs AVX-512")
def test_lines_use_whole_registers_and_tiles_stay_in_them() -> None:
    body = """c = stack("f32", 16, 8)
for j in range(8):
    store(c, j, splat(f32(0), 16))
for k in range(n0):
    v = load_line(p1, k * 16, 16)
    for j in range(8):
        store(c, j, fma(splat(load(p0, k * 8 + j), 16), v, load(c, j)))
for j in range(8):
    store_line(p2, j * 16, load(c, j))"""
    text = assembly(body, "f32", "f32", "f32")
    assert sum("vfmadd" in line and "zmm" in line for line in text.splitlines()) >= 8
    assert not [
        line for line in text.splitlines() if "zmm" in line and ("(%rsp" in line or "(%rbp" in line)
    ]


@pytest.mark.skipif(not _has_avx512(), reason="needs AVX-512")
def test_loops_of_scalar_math_are_vectorised() -> None:
    body = "for i in range(n0):\n    store(p1, i, tanh(load(p0, i)) * exp(load(p0, i)))"
    text = assembly(body, "f32", "f32")
    assert any("vfmadd" in line and ("zmm" in line or "ymm" in line) for line in text.splitlines())


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="needs x86")
@pytest.mark.parametrize("op", ["dot_i8", "dot_i7"])
def test_dot_products_of_bytes_are_instructions(op: str) -> None:
    body = (
        f"store_line(p2, 0, {op}(load_line(p2, 0, 8), load_line(p0, 0, 32), load_line(p1, 0, 32)))"
    )
    text = assembly(body, "u8", "i8", "i32")
    pairs = ("pmaddwd", "pmaddwd") if op == "dot_i8" else ("pmaddubsw", "pmaddwd")
    assert "vpdpbusd" in text or all(text.count(p) >= pairs.count(p) for p in pairs)
    assert "pmulld" not in text and ("pmaddubsw" not in text or op == "dot_i7")


@cb.kernel
def turned_about(x: cb.Array, out: cb.Array):
    """More lines than there are registers, all of which are needed in the end: some are kept on the
    stack.
    """
    held = cb.local((40,), cb.f32, lanes=8)
    for j in cb.unroll(range(40)):
        held[j] = x.load((j * 8,), 8)
    for j in cb.unroll(range(40)):
        out.store((j * 8,), held[39 - j] * held[(j * 7) % 40] + held[(j * 11) % 40])


@pytest.mark.parametrize("op", ["floor", "ceil", "trunc", "rint"])
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names its instructions")
def test_integral_values_of_halves_are_not_found_lane_by_lane(op: str) -> None:
    """LLVM would narrow them to f16 between two conversions."""
    body = f"store_line(p1, 0, {op}(load_line(p0, 0, 16)))"
    text = assembly(body, "f16", "f16")
    assert any(
        f"{word}\t" in text for word in ("roundps", "vroundps", "vrndscaleps", "vrndscaleph")
    )
    words = "vroundss", "roundss", "vrndscaless"
    assert not any(f"{word}\t" in text for word in words), text


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="needs x86")
def test_lines_on_the_stack_lie_in_one_line_of_the_cache() -> None:
    x = np.arange(320, dtype=np.float32)
    text = turned_about[1, 1].inspect(x, np.empty_like(x), mode="unchecked").asm
    assert "andq\t$-64, %rsp" in text
