"""Softmax of every row, written as the textbook has it, and the library's own."""

from __future__ import annotations

import math

import numpy as np

import cubepy as cb
from cubepy import kernels as K


@cb.kernel
def softmax(x: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int]):
    """out[r] = exp(x[r] - max(x[r])) / sum; one unit does one row, line by line."""
    r, n = cb.ABSOLUTE_POS, x.shape[1]
    if r < x.shape[0]:
        tops = cb.splat(cb.f32(-math.inf), lanes)
        for k, valid in cb.lines(0, n, lanes):  # lanes behind the row's end do not count: -inf
            tops = cb.max(tops, x.load((r, k), lanes, valid=valid, other=-math.inf))
        top = tops.max()
        total = cb.splat(cb.f32(0), lanes)
        for k, valid in cb.lines(0, n, lanes):  # and exp(-inf) is 0
            e = cb.exp(x.load((r, k), lanes, valid=valid, other=-math.inf) - top)
            out.store((r, k), e, valid=valid)
            total += e
        scale = 1 / total.sum()
        for k, valid in cb.lines(0, n, lanes):
            out.store((r, k), out.load((r, k), lanes, valid=valid) * scale, valid=valid)


def main() -> None:
    """Run both and compare with NumPy."""
    lanes = cb.device_properties_of().lanes(cb.f32)
    for columns in (100, 128, 7):
        x = np.random.default_rng(0).standard_normal((300, columns), np.float32) - 50
        out = np.empty_like(x)
        softmax[cb.over(x.shape[0])](x, out, lanes=lanes)
        e = np.exp(x - x.max(axis=1, keepdims=True))
        want = e / e.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(out, want, rtol=1e-5)
        np.testing.assert_allclose(K.softmax(x), want, rtol=1e-5)
    print("both softmaxes equal NumPy")


if __name__ == "__main__":
    main()
