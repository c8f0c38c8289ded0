"""Softmax of every row, written as the textbook has it, and the library's own."""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy import kernels as K


@cb.kernel
def softmax(x: cb.Array, out: cb.Array):
    """out[r] = exp(x[r] - max(x[r])) / sum; one unit does one row."""
    r = cb.ABSOLUTE_POS
    if r < x.shape[0]:
        top = x[r, 0]
        for j in range(1, x.shape[1]):
            top = cb.max(top, x[r, j])
        total = cb.f32(0)
        for j in range(x.shape[1]):
            e = cb.exp(x[r, j] - top)
            out[r, j] = e
            total += e
        for j in range(x.shape[1]):
            out[r, j] = out[r, j] / total


def main() -> None:
    """Run both and compare with NumPy."""
    x = np.random.default_rng(0).standard_normal((300, 100), np.float32)
    out = np.empty_like(x)
    softmax[cb.over(x.shape[0])](x, out)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    want = e / e.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out, want, rtol=1e-5)
    np.testing.assert_allclose(K.softmax(x), want, rtol=1e-5)
    print("both softmaxes equal NumPy")


if __name__ == "__main__":
    main()
