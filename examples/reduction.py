"""The sum of an array: shared memory, barriers, and one atomic a cube."""

from __future__ import annotations

import numpy as np

import cubepy as cb


@cb.kernel
def total(x: cb.Array, out: cb.Array, *, units: cb.Comptime[int]):
    """out[0] += sum(x); the units of a cube halve their number until one holds the cube's sum."""
    partial = cb.shared(units, cb.f32)
    u = cb.UNIT_POS
    mine = cb.f32(0)
    for i in range(cb.ABSOLUTE_POS, x.size, cb.CUBE_COUNT * units):
        mine += x[i]
    partial[u] = mine
    cb.sync_cube()
    step = units // 2
    while step > 0:
        if u < step:
            partial[u] += partial[u + step]
        cb.sync_cube()
        step //= 2
    if u == 0:
        cb.atomic_add(out, 0, partial[0])


def main() -> None:
    """Run it and compare with NumPy."""
    x = np.random.default_rng(0).random(200_000, np.float32)
    out = np.zeros(1, np.float32)
    total[16, 128](x, out, units=128)
    np.testing.assert_allclose(out[0], x.sum(dtype=np.float64), rtol=1e-5)
    print(f"the sum of {x.size} numbers is {out[0]:.1f}, as NumPy says")


if __name__ == "__main__":
    main()
