"""Builtins for matrix units and asynchronous copies: which feature of a device each one needs.

A kernel that uses one is refused, with the line, on a device whose `features` lack it.
"""

from __future__ import annotations

FEATURES = {
    "mma": "matrix products of a plane",
    "mfma": "matrix products of a plane of 64 units, by CDNA's matrix cores",
    "wmma": "matrix products of a plane of 32 units, by RDNA's matrix cores",
    "copy_async": "copies to shared memory beside the unit's own work",
    "barrier": "barriers in shared memory that count arrivals and bytes",
    "tma": "copies of whole tiles by a copy engine",
    "wgmma": "asynchronous matrix products of four planes",
    "cluster": "clusters of cubes that reach each other's shared memory",
    "tiles": "matrix products of tiles in memory by a CPU's matrix unit",
    "resident": "registers for a number of cubes at once",
    "overlap": "launches that begin while the launch before them ends",
}
"""What the features of `DeviceProperties.features` that these builtins need stand for."""

_BY_FEATURE = {
    "mma": {
        "mma": "`mma(a, b, c, dtype, other=None)`: c plus the matrix product of the plane's "
        "fragments a (4 words) and b (2 words): 16x8x16 for f16 and bf16, 16x8x8 for f32 "
        "(as tf32), 16x8x32 for i8, u8 and fp8; `other` is the dtype of b, where that is "
        "i8 and a's u8 or the other way round. On other devices the lengths are those of "
        "`device_properties().matrix_instruction(dtype)`.",
        "load_matrix": "`load_matrix(shared, i, count=4, transpose=False)`: fragments of "
        "`count` 8x8 tiles of 16-bit elements; unit k of the plane gives the element "
        "where row k % 8 of tile k // 8 starts.",
        "pack": "`pack(v, dtype)`: a line of floats as the words of a fragment (f16, bf16, fp8; "
        "f32 is rounded to tf32), to nearest; the first lane lies lowest.",
        "packed_fma": "`packed_fma(a, b, c, dtype)`: a * b + c of lines of words that hold "
        "pairs of f16 or bf16, rounded once.",
        "packed_max": "`packed_max(a, b, dtype)`: the larger of words, or lines of them, that "
        "hold pairs of f16 or bf16; NaN if either is NaN.",
        "unpack": "`unpack(words, dtype)`: the floats that a line of words holds (f16, bf16, f32).",
    },
    "copy_async": {
        "copy_async": "`copy_async(shared, i, array, j, nbytes, valid=True)`: start copying 4, "
        "8 or 16 bytes of `array` from j on; where not valid, zeros are written and "
        "nothing is read.",
        "copy_async_commit": "`copy_async_commit()`: the copies since the last commit become "
        "one group.",
        "copy_async_wait": "`copy_async_wait(n)`: wait until at most n of this unit's groups "
        "are under way.",
    },
    "barrier": {
        "barrier": "`barrier(count, arrivals)`: `count` barriers in shared memory, each for so "
        "many arrivals a phase (comptime); ready before the kernel's first statement.",
        "barrier_arrive": "`barrier_arrive(bar, i)`: one arrival at bar[i].",
        "barrier_expect": "`barrier_expect(bar, i, nbytes)`: one arrival, and so many bytes of "
        "copies to wait for.",
        "barrier_wait": "`barrier_wait(bar, i, parity)`: wait for the end of the phase of this "
        "parity; the first phase has parity 0, and waiting for parity 1 of a new barrier "
        "returns at once.",
    },
    "tma": {
        "store_matrix": "`store_matrix(shared, i, words, transpose=False)`: the inverse of "
        "`load_matrix`.",
        "tma_load": "`tma_load(shared, i, map, coords, bar, b, multicast=None)`: one unit "
        "starts copying the map's box at coords (the innermost last) to shared[i]; its "
        "bytes arrive at bar[b]. Beyond the array zeros are written. The innermost coordinate is "
        "a multiple of 16 bytes. With a mask, to the same place of each of these cubes of the "
        "cluster.",
        "tma_store": "`tma_store(map, coords, shared, i)`: one unit starts copying a box to the "
        "array; what lies beyond the array's end is left out. The coordinates are not "
        "negative, the innermost one is a multiple of 16 bytes.",
        "tma_commit": "`tma_commit()`: the stores since the last commit become one group.",
        "tma_wait": "`tma_wait(n, read=True)`: wait until at most n groups of stores are under "
        "way; with `read`, only until they have read shared memory.",
        "add_line": "`add_line(array, i, line)`: add a line of 2 or 4 f32 to array[i], array[i "
        "+ 1]... in the device's second-level cache; atomic for each element, nothing "
        "comes back. The place is a multiple of the line.",
        "tma_prefetch": "`tma_prefetch(map)`: bring the description of the map's array near.",
        "fence_async": "`fence_async()`: what this unit wrote to shared memory is seen by "
        "copies and matrix units.",
    },
    "wgmma": {
        "wgmma": "`wgmma(acc, a, ai, b, bi, n, dtype, accumulate=True, ...)`: start acc += a * "
        "b for four planes: a has 64 rows and is shared memory from element ai on, or a "
        "line of 4 words; b has n columns, stored as rows of neighbours along the depth; "
        "acc is local memory of n // 2 elements.",
        "wgmma_fence": "`wgmma_fence(*accs)`: before the first product, and after accumulators "
        "were written.",
        "wgmma_commit": "`wgmma_commit()`: the products since the last commit become one group.",
        "wgmma_wait": "`wgmma_wait(n, *accs)`: wait until at most n groups are under way; name "
        "the accumulators that are read next.",
        "set_registers": "`set_registers(n, grow)`: these four planes take more registers "
        "(`grow`) or give some back, to n a unit.",
        "sync_group": "`sync_group(id, units)`: barrier number id (1 to 15) of so many units, "
        "in whole planes.",
        "arrive_group": "`arrive_group(id, units)`: count as arrived at barrier number id "
        "without waiting there.",
    },
    "cluster": {
        "cluster": "`cluster(x, y=1, z=1)`: the cubes of a launch are grouped into clusters of "
        "this size (comptime).",
        "sync_cluster": "`sync_cluster()`: every unit of every cube of the cluster arrives "
        "before any goes on.",
        "barrier_arrive_cluster": "`barrier_arrive_cluster(bar, i, rank)`: one arrival at "
        "bar[i] of another cube of the cluster.",
        "load_cluster": "`load_cluster(shared, i, rank)`: element i of the same shared memory "
        "of another cube of the cluster; between `sync_cluster()` after it was written "
        "and before that cube ends.",
        "store_cluster": "`store_cluster(shared, i, value, rank)`: set element i of the same "
        "shared memory of another cube of the cluster; between a `sync_cluster()`, so "
        "that it has begun, and one before it is read there.",
    },
    "tiles": {
        "tile_dot": "`tile_dot(sums, rows, a, i, b, j, words, dtype)`: sums = `rows` rows of a "
        "from a[i] on times 32 columns of b from b[j] on. Words (u32) hold two bf16 or "
        "four bytes that are neighbours along the depth: a has rows of `words` of them, b "
        "has `words` rows of 32. dtype is that of a (bf16, i8, u8); bytes of b have the "
        "other sign. sums is local memory, rows of 32 f32 or i32, zeros where words is 0. For cubes "
        "of one unit."
    },
    "resident": {
        "resident": "`resident(cubes)`: registers are given out so that so many cubes of this "
        "kernel fit on a core at once (comptime)."
    },
    "overlap": {
        "wait_previous": "`wait_previous()`: wait for the launches before this one on its "
        "stream, and see what they wrote. A kernel that has it may begin before they "
        "end, and touches nothing of theirs until then.",
        "start_next": "`start_next()`: as far as this cube is concerned the next launch, if it "
        "has `wait_previous`, may begin.",
    },
}

HARDWARE = {name: doc for group in _BY_FEATURE.values() for name, doc in group.items()}
NEEDS = {name: feature for feature, group in _BY_FEATURE.items() for name in group}
"""The feature that each builtin needs."""
NEEDS["sync_group"] = NEEDS["arrive_group"] = "barrier"
NEEDS["CLUSTER_POS"] = "cluster"
