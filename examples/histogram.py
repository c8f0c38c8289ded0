"""A histogram: counts in shared memory, so that few atomics reach the output."""

from __future__ import annotations

import numpy as np

import cubepy as cb


@cb.kernel
def histogram(x: cb.Array, counts: cb.Array, *, bins: cb.Comptime[int]):
    """counts[b] += how many values of x are b; a cube counts for itself first."""
    mine = cb.shared(bins, cb.i32)
    for b in range(cb.UNIT_POS, bins, cb.CUBE_DIM):
        mine[b] = 0
    cb.sync_cube()
    for i in range(cb.ABSOLUTE_POS, x.size, cb.CUBE_COUNT * cb.CUBE_DIM):
        cb.atomic_add(mine, cb.cast(x[i], cb.i32), 1)
    cb.sync_cube()
    for b in range(cb.UNIT_POS, bins, cb.CUBE_DIM):
        cb.atomic_add(counts, b, mine[b])


def main() -> None:
    """Run it and compare with NumPy."""
    x = np.random.default_rng(0).integers(0, 256, 100_000, dtype=np.uint8)
    counts = np.zeros(256, np.int32)
    histogram[8, 64](x, counts, bins=256)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))
    print(f"{counts.sum()} bytes counted, as NumPy counts them")


if __name__ == "__main__":
    main()
