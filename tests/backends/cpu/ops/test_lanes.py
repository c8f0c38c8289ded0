"""Shuffles and reductions of lines in generated CPU code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.ops.compiled_ops import FLOATS, INTS, NUMPY, run


def test_shuffles() -> None:
    a = np.arange(16, dtype=np.int32)
    out = np.zeros(512, np.int32)
    body = """a = load_line(p0, 0, 8)
b = load_line(p0, 8, 8)
s = load_line(p0, 0, 3)
store_line(p1, 0, shuffle(a, b, "0 15 3 3 8"))
store_line(p1, 16, concat(a, s))
store_line(p1, 32, slice_line(a, 2, 5))
store_line(p1, 48, interleave(a, b))
store_line(p1, 64, insert(s, 1, i32(77)))
store(p1, 80, extract(b, 7))
store_line(p1, 96, iota("i32", 64))
store_line(p1, 192, splat(i32(n0), 7))
store_line(p1, 208, concat(s, a))
store_line(p1, 224, shuffle(s, a, "2 10"))"""
    run(body, a, out, n0=-4)
    checks = {0: [0, 15, 3, 3, 8], 16: [*range(8), 0, 1, 2], 32: [2, 3, 4, 5, 6], 64: [0, 77, 2], 80: [15],
              48: [v for k in range(8) for v in (k, k + 8)], 96: list(range(64)), 192: [-4] * 7,
              208: [0, 1, 2, *range(8)], 224: [2, 7]}  # fmt: skip
    for at, want in checks.items():
        np.testing.assert_array_equal(out[at : at + len(want)], want)


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_reductions(dtype: str) -> None:
    a = (np.random.default_rng(16).standard_normal(64) * 20).astype(NUMPY[dtype])
    a[3] = 1
    widths = (1, 2, 3, 7, 8, 16, 64)
    body = []
    for k, w in enumerate(widths):
        body += [f"v = load_line(p0, 0, {w})"]
        body += [
            f"store(p1, {k * 4 + j}, line_{r}(v))"
            for j, r in enumerate(("sum", "prod", "max", "min"))
        ]
    out = np.zeros(28, NUMPY[dtype])
    run("\n".join(body), a, out)
    for k, w in enumerate(widths):
        with np.errstate(all="ignore"):
            want = [np.add.reduce(a[:w]), np.multiply.reduce(a[:w]), a[:w].max(), a[:w].min()]
        if dtype in FLOATS:
            np.testing.assert_allclose(
                out[4 * k : 4 * k + 4], want, rtol=3e-6 if dtype == "f32" else 1e-14
            )
        else:
            np.testing.assert_array_equal(
                out[4 * k : 4 * k + 4], np.array(want).astype(NUMPY[dtype])
            )


def test_reductions_of_masks_and_nan() -> None:
    out = np.zeros(32, np.bool_)
    body = []
    for k, w in enumerate((1, 3, 8, 16, 64)):
        body += [f'i = iota("i32", {w})', f"store(p0, {4 * k}, line_any(i == splat(i32({w - 1}), {w})))",
                 f"store(p0, {4 * k + 1}, line_any(i < splat(i32(0), {w})))",
                 f"store(p0, {4 * k + 2}, line_all(i >= splat(i32(0), {w})))",
                 f"store(p0, {4 * k + 3}, line_all(i < splat(i32({w - 1}), {w})))"]  # fmt: skip
    run("\n".join(body), out)
    np.testing.assert_array_equal(out[:20].reshape(5, 4), [[True, False, True, False]] * 5)
    a = np.array([np.nan, 3, 1, np.nan, 2], np.float32)
    got = np.zeros(2, np.float32)
    run(
        "store(p1, 0, line_max(load_line(p0, 0, 5)))\nstore(p1, 1, line_min(load_line(p0, 0, 5)))",
        a,
        got,
    )
    np.testing.assert_array_equal(got, [3, 1])
