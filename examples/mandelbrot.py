"""The Mandelbrot set on a grid of two axes: a loop that every pixel leaves when it likes."""

from __future__ import annotations

import numpy as np

import cubepy as cb

SHADES = " .:-=+*#%@"


@cb.kernel
def mandelbrot(counts: cb.Array, left, top, step, *, limit: cb.Comptime[int]):
    """counts[row, column] = turns of z = z^2 + c that stay within radius 2, at most `limit`."""
    row, column = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if row < counts.shape[0] and column < counts.shape[1]:
        cx = left + step * column
        cy = top + step * row
        x = cb.f64(0)
        y = cb.f64(0)
        n = 0
        while n < limit and x * x + y * y <= 4.0:
            x, y = x * x - y * y + cx, 2.0 * x * y + cy
            n += 1
        counts[row, column] = n


def reference(
    shape: tuple[int, int], left: float, top: float, step: float, limit: int
) -> np.ndarray:
    """The same with NumPy."""
    c = (left + step * np.arange(shape[1])) + 1j * (top + step * np.arange(shape[0]))[:, None]
    z, counts = np.zeros_like(c), np.zeros(shape, np.int32)
    for _ in range(limit):
        inside = np.abs(z) <= 2
        counts += inside
        z = np.where(inside, z * z + c, z)
    return counts


def main() -> None:
    """Run it, compare with NumPy, and draw it."""
    counts = np.zeros((24, 72), np.int32)
    place = (-2.2, -1.2, 0.043)
    cubes = (-(-counts.shape[1] // 16), -(-counts.shape[0] // 16))
    mandelbrot[cubes, (16, 16)](counts, *place, limit=50)
    same = (counts == reference(counts.shape, *place, 50)).mean()
    assert same > 0.99, f"only {same:.1%} of the pixels are as NumPy has them"
    for line in counts:
        print("".join(SHADES[n * (len(SHADES) - 1) // 50] for n in line))


if __name__ == "__main__":
    main()
