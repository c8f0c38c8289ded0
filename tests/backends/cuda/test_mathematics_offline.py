"""Functions of numbers compiled for GPUs: all of NVIDIA's math library is found, and words have
instructions.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
import cubepy as cb
from cubepy import kernels as K
from cubepy.backends.cuda.offline import compile_for
from cubepy.runtime.memory.device_array import upload
from tests.accuracy import BINARY, UNARY
from tests.backends.cuda.emulator.device import emulated
from tests.conformance.test_philox import KNOWN, blocks


@cb.kernel
def apply(
    x: cb.Array,
    n: cb.Array,
    out: cb.Array,
    lanes: cb.Comptime[int],
    unary: cb.Comptime[tuple],
    binary: cb.Comptime[tuple],
):
    v = x.load(0, lanes)
    for k in cb.unroll(range(len(unary))):
        out.store(k * lanes, unary[k](v))
        out[k] = unary[k](x[k])
    for k in cb.unroll(range(len(binary))):
        out.store(k * lanes, binary[k](v, x.load(lanes, lanes)))
    out.store(0, cb.sign(v))
    out.store(lanes, cb.ldexp(v, n.load(0, lanes)))
    out.store(2 * lanes, cb.select(cb.isfinite(v), v, 0.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_functions_compile_for_a_gpu(dtype: Any) -> None:
    x, n = np.zeros(64, dtype), np.zeros(64, np.int64)
    functions = [tuple(getattr(cb, name) for name in names) for names in (UNARY, BINARY)]
    code = compile_for("sm_80", apply, 32, x, n, x, 2, *functions)
    assert not re.search(r"\.extern .func", code.ptx)
    assert len(code.cubin) > 1000


@cb.kernel
def hypotenuses(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = cb.hypot(x[i], y[i])


def test_hypot_of_doubles_takes_a_root_that_is_rounded() -> None:
    """An approximate one rounds that of the largest double up, to infinity."""
    x = np.zeros(64)
    ptx = compile_for("sm_80", hypotenuses, 32, x, x, x).ptx
    assert "sqrt.rn.f64" in ptx and "rsqrt.approx" not in ptx


@cb.kernel
def words(a: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = cb.mulhi(a[i], a[i + 1])
    out[i + 1] = cb.reverse_bits(a[i])


@pytest.mark.parametrize(
    ("dtype", "product", "turned"),
    [
        (np.uint32, r"mul\.hi\.u32", r"brev\.b32"),
        (np.int32, r"mul\.hi\.s32", r"brev\.b32"),
        (np.uint64, r"mul\.hi\.u64", r"brev\.b64"),
        (np.int64, r"mul\.hi\.s64", r"brev\.b64"),
    ],
)
def test_high_halves_and_reversed_bits_are_instructions(
    dtype: type, product: str, turned: str
) -> None:
    a = np.zeros(64, dtype)
    ptx = compile_for("sm_80", words, 32, a, a).ptx
    assert re.search(product, ptx) and re.search(turned, ptx)


def test_philox_of_a_gpu_gives_the_words_and_numbers_of_the_host() -> None:
    """The generated code, run by the emulator."""
    counter, key, known = (np.array([row[k] for row in KNOWN], np.uint32) for k in range(3))
    with emulated() as device:
        out = upload(np.zeros((3, 4), np.uint32), device)
        blocks[1, 3](upload(counter, device), upload(key, device), out)
        there = K.normal(size=400, generator=K.Generator(5)).numpy()
        np.testing.assert_array_equal(out.numpy(), known)
    np.testing.assert_array_equal(there, K.normal(size=400, generator=K.Generator(5)))
