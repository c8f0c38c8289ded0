"""Complex numbers as a struct with operators, and a Horner scheme whose length is comptime."""

from __future__ import annotations

import numpy as np

import cubepy as cb


@cb.struct
class Complex:
    """A complex number."""

    re: cb.f32
    im: cb.f32

    def __mul__(self, other):
        return Complex(
            self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re
        )

    def __add__(self, real):
        return Complex(self.re + real, self.im)


@cb.kernel
def polynomial(re: cb.Array, im: cb.Array, out: cb.Array, *, coefficients: cb.Comptime[tuple]):
    """out[i] = (real, imaginary) part of the polynomial at re[i] + im[i] * j; highest power first."""
    i = cb.ABSOLUTE_POS
    if i < re.size:
        z = Complex(re[i], im[i])
        value = Complex(0.0, 0.0)
        for c in cb.unroll(coefficients):
            value = value * z + c
        out[i, 0] = value.re
        out[i, 1] = value.im


def main() -> None:
    """Run it and compare with NumPy."""
    rng = np.random.default_rng(0)
    re, im = rng.random((2, 1000), np.float32)
    out = np.empty((1000, 2), np.float32)
    coefficients = (1.0, -2.0, 0.5, 3.0)
    polynomial[cb.over(re)](re, im, out, coefficients=coefficients)
    want = np.polyval(coefficients, re + 1j * im)
    np.testing.assert_allclose(out[:, 0] + 1j * out[:, 1], want, rtol=1e-4, atol=1e-4)
    print(f"the polynomial at {re.size} complex points equals NumPy")


if __name__ == "__main__":
    main()
