"""A hash table: units claim slots with one atomic step, and sum up what belongs to a key."""

from __future__ import annotations

import numpy as np

import cubepy as cb

FREE = -1


@cb.func
def mixed(key):
    """The bits of a key, well stirred."""
    bits = cb.u32(key) * 2654435761
    return bits ^ (bits >> 15)


@cb.kernel
def summed_by_key(keys: cb.Array, values: cb.Array, slots: cb.Array, sums: cb.Array):
    """sums[s] += values of the key that slots[s] holds; `slots` is larger than there are keys."""
    i = cb.ABSOLUTE_POS
    if i >= keys.size:
        return
    slot = mixed(keys[i]) % slots.size
    while True:
        held = cb.atomic_compare_exchange(slots, slot, FREE, keys[i])
        if held == FREE or held == keys[i]:  # it was free and is ours now, or was ours before
            cb.atomic_add(sums, slot, values[i])
            return
        slot = (slot + 1) % slots.size


def main() -> None:
    """Run it and compare with NumPy."""
    rng = np.random.default_rng(0)
    keys, values = rng.integers(0, 5000, 100_000), rng.integers(0, 9, 100_000)
    slots, sums = np.full(16384, FREE), np.zeros(16384, np.int64)
    summed_by_key[cb.over(keys)](keys, values, slots, sums)
    want = np.bincount(keys, values, 5000)
    np.testing.assert_array_equal(sums[slots != FREE], want[slots[slots != FREE]])
    print(f"{(slots != FREE).sum()} keys, summed as NumPy sums them")


if __name__ == "__main__":
    main()
