"""`cb.mma` with whatever fragments a device has: one kernel, whose units find their elements by the
device's own description of its instruction.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import FeatureError, KernelTypeError
from cubepy.kernels.primitives.fragments import coordinates
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.device import backend_named
from cubepy.runtime.fragments import MatrixInstruction

BYTES = (np.int8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
DTYPES = (np.float16, ml_dtypes.bfloat16, *BYTES)


@cb.func
def gathered(x, fragment):
    """A unit's words of a matrix, element by element."""
    lane, lanes = cb.UNIT_POS_PLANE, cb.iota(fragment.count)
    line = cb.splat(x[coordinates(fragment, lane)], fragment.count)
    for e in cb.unroll(range(1, fragment.count)):
        line = cb.select(lanes == e, x[coordinates(fragment, lane, e)], line)
    return cb.bitcast(line, cb.u32)


@cb.kernel
def product(a: cb.Array, b: cb.Array, c: cb.Array, m: cb.Comptime, dtype: cb.Comptime):
    """c += a @ b, both as integers of as many bits."""
    lane = cb.UNIT_POS_PLANE
    sums = cb.splat(c[coordinates(m.c, lane)], m.c.count)
    for e in cb.unroll(range(1, m.c.count)):
        sums = cb.select(cb.iota(m.c.count) == e, c[coordinates(m.c, lane, e)], sums)
    sums = cb.mma(gathered(a, m.a), gathered(b, m.b), sums, dtype)
    for e in cb.unroll(range(m.c.count)):
        c[coordinates(m.c, lane, e)] = sums[e]


def there(device: str, dtype: Any) -> list[MatrixInstruction]:
    """The device's products of a dtype."""
    known = backend_named(device).properties(0).matrix_instructions
    found = [m for m in known if m.dtype == as_dtype(dtype).name]
    if not found:
        pytest.skip(f"{device} does not multiply matrices of {as_dtype(dtype).name}")
    return found


def drawn(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * (40 if dtype is np.int8 else 1)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: as_dtype(d).name)
def test_products_of_a_plane(device: str, dtype: Any) -> None:
    for m in there(device, dtype):
        multiply(device, m, dtype)


def multiply(device: str, m: MatrixInstruction, dtype: Any) -> None:
    """One product by an instruction, against f64."""
    a, b = drawn((m.rows, m.depth), dtype, 1), drawn((m.depth, m.columns), dtype, 2)
    c = drawn((m.rows, m.columns), as_dtype(m.sums).numpy, 3)
    want = c + a.astype(np.float64) @ b.astype(np.float64)
    words = np.uint16 if m.bits == 16 else np.uint8
    units = backend_named(device).properties(0).plane_size
    with cb.use(device):
        x, y, z = (cb.tensor(v) for v in (a.view(words), b.view(words), c))
        product[1, units](x, y, z, m, as_dtype(dtype))
        got = z.numpy()
    if m.sums == "i32":
        np.testing.assert_array_equal(got, want)
    else:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: as_dtype(d).name)
def test_every_element_is_held(device: str, dtype: Any) -> None:
    """Sums are held once; operands are, or by all units of a group alike."""
    units = backend_named(device).properties(0).plane_size
    for m in there(device, dtype):
        for f in (m.a, m.b, m.c):
            assert 1 << len(f.lanes) == units
            held = [f.at(u, e) for u in range(units) for e in range(f.count)]
            rows, columns = f.shape
            assert set(held) == {(r, k) for r in range(rows) for k in range(columns)}
            assert len(held) == rows * columns or (f is not m.c and (0, 0) in f.lanes)
        assert m.a.shape == (m.rows, m.depth) and m.b.shape == (m.depth, m.columns)
        line = [m.rows_in_order.c.at(0, e) for e in range(m.c.count)]
        if all(column == 0 for _, column in m.c.elements):
            assert line == [(e, 0) for e in range(m.c.count)]


@cb.kernel
def there_and_back(x: cb.Array, words: cb.Array, out: cb.Array, dtype: cb.Comptime):
    packed = cb.pack(x.load(0, 8), dtype)
    words.store(0, packed)
    out.store(0, cb.unpack(packed, dtype))


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=lambda d: as_dtype(d).name)
def test_floats_become_words_of_fragments(device: str, dtype: Any) -> None:
    there(device, dtype)
    x = np.array([1, -0.0, 1 / 3, 1e5, -7e-8, np.inf, -np.inf, np.nan], np.float32)
    with cb.use(device):
        words, out = cb.tensor(np.zeros(4, np.uint32)), cb.tensor(np.zeros(8, np.float32))
        there_and_back[1, 1](cb.tensor(x), words, out, as_dtype(dtype))
        got, back = words.numpy(), out.numpy()
    with np.errstate(over="ignore"):
        want = x.astype(dtype)
    np.testing.assert_array_equal(got[:3], want[:6].view(np.uint32))
    np.testing.assert_array_equal(back, want.astype(np.float32))


@cb.kernel
def too_long(out: cb.Array, dtype: cb.Comptime):
    w = cb.splat(cb.u32(0), 16)
    out[0] = cb.mma(w, w, cb.splat(cb.f32(0), 32), dtype)[0]


def test_other_lengths_and_dtypes_are_refused(device: str) -> None:
    units = backend_named(device).properties(0).plane_size
    with cb.use(device):
        out = cb.tensor(np.zeros(1, np.float32))
        if not backend_named(device).properties(0).matrix_instructions:
            with pytest.raises(FeatureError, match=r"cb\.mma needs the feature 'mma'"):
                too_long[1, units](out, cb.f16)
            return
        with pytest.raises(KernelTypeError, match="the fragment a of cb.mma must be a line of"):
            too_long[1, units](out, cb.f16)
        if backend_named(device).properties(0).matrix_instruction("f32") is None:
            with pytest.raises(FeatureError, match="has no matrix units for f32"):
                too_long[1, units](out, cb.f32)
