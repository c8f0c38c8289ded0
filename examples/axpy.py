"""alpha * x + y, eight elements at a time: the first kernel with lines."""

from __future__ import annotations

import numpy as np

import cubepy as cb


@cb.kernel
def axpy(alpha, x: cb.Array, y: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int] = 8):
    """out = alpha * x + y; a unit does `lanes` neighbours, and the last line may hang over the end."""
    i = cb.ABSOLUTE_POS * lanes
    if i < out.size:
        out.store(i, cb.fma(cb.splat(alpha, lanes), x.load(i, lanes), y.load(i, lanes)))


def main() -> None:
    """Run it and compare with NumPy."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 100_003), np.float32)
    out = np.empty_like(x)
    axpy[cb.over(out, lanes=8)](2.0, x, y, out)
    np.testing.assert_allclose(out, 2.0 * x + y, rtol=1e-6, atol=1e-6)
    print(f"axpy of {out.size} elements equals NumPy")


if __name__ == "__main__":
    main()
