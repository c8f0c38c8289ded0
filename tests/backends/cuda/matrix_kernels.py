"""Small kernels that use one feature of matrix units or asynchronous copies each; tests compile and
run them.
"""

from __future__ import annotations

import cubepy as cb


@cb.kernel
def product_of_a_plane(
    a: cb.Array, b: cb.Array, out: cb.Array, rows, *, dtype: cb.Comptime, each: cb.Comptime[int], whole: cb.Comptime,
    other: cb.Comptime = None,
):  # fmt: skip
    """out (16, 8) = a (16, k) times b (8, k) transposed, by one plane; rows of b from `rows` on
    count as zero.

    `each`: elements in 16 bytes. `whole`: the dtype of the accumulators. `other`: the dtype of b,
        if it has its own.
    """
    depth = cb.comptime(4 * each)  # two steps of 32 bytes
    sa = cb.shared((16, depth), a.dtype)
    sb = cb.shared((8, depth), b.dtype)
    unit = cb.UNIT_POS_PLANE
    for c in cb.unroll(range(2)):
        k = (unit + 32 * c) * each
        cb.copy_async(sa, k, a, k, 16)
    cb.copy_async(sb, unit * each, b, unit * each, 16, valid=unit * each // depth < rows)
    cb.copy_async_commit()
    cb.copy_async_wait(0)
    cb.sync_plane()
    acc = cb.splat(cb.cast(0, whole), 4)
    for step in cb.unroll(range(2)):
        x = cb.load_matrix(sa, (unit % 16, step * 2 * each + unit // 16 * each))
        y = cb.load_matrix(sb, (unit % 8, step * 2 * each + unit // 8 % 2 * each), count=2)
        acc = cb.mma(x, y, acc, dtype, other)
    for half in cb.unroll(range(2)):
        for k in cb.unroll(range(2)):
            out[unit // 4 + 8 * half, unit % 4 * 2 + k] = acc[2 * half + k]


@cb.kernel
def product_transposed(a: cb.Array, b: cb.Array, out: cb.Array, *, dtype: cb.Comptime):
    """out (16, 8) of 16 bits = a (16, 16) times b (16, 8), both stored row by row; results leave by
    store_matrix.
    """
    sa = cb.shared((16, 16), dtype)
    sb = cb.shared((16, 8), dtype)
    so = cb.shared((16, 8), dtype)
    unit = cb.UNIT_POS_PLANE
    cb.copy_async(sa, unit * 8, a, (unit // 2, unit % 2 * 8), 16)
    if unit < 16:
        cb.copy_async(sb, (unit, 0), b, (unit, 0), 8)
        cb.copy_async(sb, (unit, 4), b, (unit, 4), 8)
    cb.copy_async_commit()
    cb.copy_async_wait(0)
    cb.sync_plane()
    x = cb.load_matrix(sa, (unit % 16, unit // 16 * 8))
    y = cb.load_matrix(sb, (unit % 16, 0), count=2, transpose=True)
    c = cb.mma(x, y, cb.splat(cb.f32(0), 4), dtype)
    words = cb.pack(c, dtype)
    back = cb.unpack(words, dtype)
    cb.store_matrix(so, (unit % 16, 0), cb.pack(back, dtype))
    cb.sync_plane()
    out.store(unit * 4, so.load(unit * 4, 4))


@cb.kernel
def boxes(source: cb.TensorMap, target: cb.TensorMap, raw: cb.Array, y, x):
    """Load the box at (y, x), show shared memory as it lies there, and store the box at the same
    place.
    """
    tile = cb.shared(source.box, source.dtype)
    full = cb.barrier(1, 1)
    if cb.UNIT_POS == 0:
        cb.tma_prefetch(source)
        cb.barrier_expect(full, 0, source.nbytes)
        cb.tma_load(tile, 0, source, (y, x), full, 0)
    cb.barrier_wait(full, 0, 0)
    for k in range(cb.UNIT_POS, raw.size, cb.CUBE_DIM):
        raw[k] = tile[k // source.box[1], k % source.box[1]]
    if cb.UNIT_POS == 0:
        cb.tma_store(target, (y, x), tile, 0)
        cb.tma_commit()
        cb.tma_wait(0)


@cb.kernel
def volume(source: cb.TensorMap, target: cb.TensorMap, z, y, x):
    """Double the box at (z, y, x) of an array of rank 3: through shared memory that the units
    write, too.
    """
    tile = cb.shared(source.box, source.dtype)
    full = cb.barrier(1, 1)
    if cb.UNIT_POS == 0:
        cb.barrier_expect(full, 0, source.nbytes)
        cb.tma_load(tile, (0, 0, 0), source, (z, y, x), full, 0)
    cb.barrier_wait(full, 0, 0)
    n, m = cb.comptime(source.box[1]), cb.comptime(source.box[2])
    for k in range(cb.UNIT_POS, tile.size, cb.CUBE_DIM):
        tile[k // (n * m), k // m % n, k % m] *= 2
    cb.fence_async()
    cb.sync_cube()
    if cb.UNIT_POS == 0:
        cb.tma_store(target, (z, y, x), tile, (0, 0, 0))
        cb.tma_commit()
        cb.tma_wait(0, read=False)


@cb.kernel
def spread(source: cb.TensorMap, out: cb.Array):
    """Cube 0 of each cluster of two sends a box to both; cube 1 tells cube 0 when it has it; both
    write it out.
    """
    cb.cluster(2)
    tile = cb.shared(source.box, source.dtype)
    full = cb.barrier(1, 1)
    taken = cb.barrier(1, 2)
    rank = cb.CLUSTER_POS
    if cb.UNIT_POS == 0:
        cb.barrier_expect(full, 0, source.nbytes)
        if rank == 0:
            cb.tma_load(
                tile, 0, source, (cb.CUBE_POS // 2 * source.box[0], 0), full, 0, multicast=3
            )
    cb.barrier_wait(full, 0, 0)
    if cb.UNIT_POS == 0:
        cb.barrier_arrive_cluster(taken, 0, 0)
    if rank == 0:
        cb.barrier_wait(taken, 0, 0)
    for k in range(cb.UNIT_POS, tile.size, cb.CUBE_DIM):
        out[cb.CUBE_POS, k] = tile[k // source.box[1], k % source.box[1]] * 2 + rank
    cb.sync_cluster()


@cb.kernel
def swapped(x: cb.Array, out: cb.Array):
    """out = what the other cube of a cluster of two holds in shared memory, twice."""
    cb.cluster(2)
    s = cb.shared(64, x.dtype)
    at = cb.CUBE_POS * 64
    s[cb.UNIT_POS] = x[at + cb.UNIT_POS]
    cb.sync_cluster()
    out[at + cb.UNIT_POS] = cb.load_cluster(s, cb.UNIT_POS, 1 - cb.CLUSTER_POS) * 2
    cb.sync_cluster()


@cb.kernel
def given(x: cb.Array, out: cb.Array):
    """out = what the other cube of a cluster of two stores in this one's shared memory, twice."""
    cb.cluster(2)
    s = cb.shared(64, x.dtype)
    at = cb.CUBE_POS * 64
    cb.sync_cluster()
    cb.store_cluster(s, cb.UNIT_POS, x[at + cb.UNIT_POS], 1 - cb.CLUSTER_POS)
    cb.sync_cluster()
    out[at + cb.UNIT_POS] = s[cb.UNIT_POS] * 2


@cb.kernel
def pairs_fma(a: cb.Array, b: cb.Array, c: cb.Array, out: cb.Array, dtype: cb.Comptime):
    """out = a * b + c, of words that hold pairs."""
    k = cb.UNIT_POS * 2
    out.store((k,), cb.packed_fma(a.load((k,), 2), b.load((k,), 2), c.load((k,), 2), dtype))


@cb.kernel
def handed_over(x: cb.Array, out: cb.Array):
    """Add x to out: one plane brings x and goes on, the other waits for it and adds whole lines."""
    cb.resident(4)
    s = cb.shared(128, cb.f32)
    unit = cb.UNIT_POS_PLANE * 4
    if cb.PLANE_POS == 0:
        s.store(unit, x.load(unit, 4))
        cb.arrive_group(1, 64)
    else:
        cb.sync_group(1, 64)
        cb.add_line(out, unit, s.load(unit, 4))


@cb.func
def write_group(acc, out: cb.Array):
    """The accumulators of a group, 64 rows of out."""
    unit = cb.UNIT_POS
    row = unit // 32 * 16 + unit % 32 // 4
    for j in range(acc.size // 4):
        for half in cb.unroll(range(2)):
            for k in cb.unroll(range(2)):
                out[row + 8 * half, j * 8 + unit % 4 * 2 + k] = acc[j * 4 + half * 2 + k]


@cb.kernel
def product_of_a_group(
    a: cb.TensorMap,
    b: cb.TensorMap,
    out: cb.Array,
    *,
    dtype: cb.Comptime,
    whole: cb.Comptime,
    bytes_deep: cb.Comptime,
):
    """out (64, n) = a (64, k) times b (n, k) transposed, k being one row of the swizzle; both from
    shared memory.

    `bytes_deep`: bytes of k in one instruction (32).
    """
    n = cb.comptime(b.box[0])
    each = cb.comptime(bytes_deep // a.dtype.itemsize)
    sa = cb.shared(a.box, a.dtype)
    sb = cb.shared(b.box, b.dtype)
    full = cb.barrier(1, 1)
    acc = cb.local(n // 2, whole)
    if cb.UNIT_POS == 0:
        cb.barrier_expect(full, 0, a.nbytes + b.nbytes)
        cb.tma_load(sa, 0, a, (0, 0), full, 0)
        cb.tma_load(sb, 0, b, (0, 0), full, 0)
    cb.barrier_wait(full, 0, 0)
    cb.wgmma_fence(acc)
    for k in cb.unroll(range(a.box[1] // each)):
        cb.wgmma(acc, sa, k * each, sb, k * each, n, dtype, accumulate=k > 0, swizzle=a.swizzle)
    cb.wgmma_commit()
    cb.wgmma_wait(0, acc)
    write_group(acc, out)


@cb.kernel
def product_flipped(
    a: cb.TensorMap,
    b: cb.TensorMap,
    out: cb.Array,
    *,
    dtype: cb.Comptime,
    flip_a: cb.Comptime[bool],
):
    """out (64, n) = a times b (k, n), b stored row by row; a is (64, k), or (k, 64) with `flip_a`.
    k is 64.
    """
    k, n = cb.comptime(64), cb.comptime(out.ndim * 0 + 128)
    sa = cb.shared((64, 64), dtype)
    sb = cb.shared((n // 64, k, 64), dtype)
    full = cb.barrier(1, 1)
    acc = cb.local(n // 2, cb.f32)
    if cb.UNIT_POS == 0:
        cb.barrier_expect(full, 0, a.nbytes + n // 64 * b.nbytes)
        cb.tma_load(sa, 0, a, (0, 0), full, 0)
        for t in cb.unroll(range(n // 64)):
            cb.tma_load(sb, (t, 0, 0), b, (0, 64 * t), full, 0)
    cb.barrier_wait(full, 0, 0)
    cb.wgmma_fence(acc)
    for step in cb.unroll(range(k // 16)):
        at = cb.comptime(step * 16 * 64 if flip_a else step * 16)
        cb.wgmma(
            acc, sa, at, sb, (0, step * 16, 0), n, dtype, accumulate=step > 0, transpose_a=flip_a, transpose_b=True,
            b_lead=k * 64,
        )  # fmt: skip
    cb.wgmma_commit()
    cb.wgmma_wait(0, acc)
    write_group(acc, out)


@cb.kernel
def product_plain(a: cb.TensorMap, b: cb.TensorMap, out: cb.Array, *, dtype: cb.Comptime):
    """out (64, 64) = a (64, 64) times b (64, 64) transposed; shared memory without a swizzle, in
    columns of 16 bytes.
    """
    sa = cb.shared((8, 64, 8), dtype)
    sb = cb.shared((8, 64, 8), dtype)
    full = cb.barrier(1, 1)
    acc = cb.local(32, cb.f32)
    if cb.UNIT_POS == 0:
        cb.barrier_expect(full, 0, 8 * (a.nbytes + b.nbytes))
        for c in cb.unroll(range(8)):
            cb.tma_load(sa, (c, 0, 0), a, (0, 8 * c), full, 0)
            cb.tma_load(sb, (c, 0, 0), b, (0, 8 * c), full, 0)
    cb.barrier_wait(full, 0, 0)
    cb.wgmma_fence(acc)
    for step in cb.unroll(range(4)):
        cb.wgmma(
            acc, sa, (2 * step, 0, 0), sb, (2 * step, 0, 0), 64, dtype, accumulate=step > 0, swizzle=0, a_lead=512,
            a_stride=64, b_lead=512, b_stride=64,
        )  # fmt: skip
    cb.wgmma_commit()
    cb.wgmma_wait(0, acc)
    write_group(acc, out)


@cb.kernel
def product_from_registers(a: cb.Array, b: cb.TensorMap, out: cb.Array, *, dtype: cb.Comptime):
    """out (64, 64) = a (64, 64) times b (64, 64) transposed; a comes in fragments, scaled by 2 in
    registers.
    """
    sa = cb.shared((64, 64), dtype)
    sb = cb.shared((64, 64), dtype)
    full = cb.barrier(1, 1)
    acc = cb.local(32, cb.f32)
    unit = cb.UNIT_POS
    lane = cb.UNIT_POS_PLANE
    if unit == 0:
        cb.barrier_expect(full, 0, b.nbytes)
        cb.tma_load(sb, 0, b, (0, 0), full, 0)
    for k in range(unit, 64 * 64, 128):
        sa[k // 64, k % 64] = a[k // 64, k % 64]
    cb.sync_cube()
    cb.barrier_wait(full, 0, 0)
    for step in range(4):
        x = cb.load_matrix(sa, (unit // 32 * 16 + lane % 16, step * 16 + lane // 16 * 8))
        x = cb.pack(2 * cb.unpack(x, dtype), dtype)
        cb.wgmma_fence(acc)
        cb.wgmma(acc, x, 0, sb, step * 16, 64, dtype, accumulate=step > 0)
        cb.wgmma_commit()
        cb.wgmma_wait(0, acc)
    write_group(acc, out)


@cb.kernel
def matmul(a: cb.TensorMap, b: cb.TensorMap, out: cb.TensorMap, k, *, stages: cb.Comptime[int] = 3):
    """out = a times b transposed, bf16 to f32: a producer plane, two groups that multiply, clusters
    that share b.
    """
    rows, columns, depth = cb.comptime(a.box[0]), cb.comptime(2 * b.box[0]), cb.comptime(a.box[1])
    cb.cluster(1, 2)
    sa = cb.shared((stages, rows, depth), a.dtype)
    sb = cb.shared((stages, columns, depth), b.dtype)
    so = cb.shared((2, columns // 32, 64, 32), cb.f32)
    full = cb.barrier(stages, 1)
    empty = cb.barrier(stages, 4)  # two groups of two cubes
    group = cb.UNIT_POS // 128
    steps = k // depth
    rank = cb.CLUSTER_POS
    if group == 0:
        cb.set_registers(40, grow=False)
        if cb.UNIT_POS == 0:
            for t in range(steps):
                s = t % stages
                cb.barrier_wait(empty, s, t // stages % 2 ^ 1)
                cb.barrier_expect(full, s, a.nbytes + 2 * b.nbytes)
                cb.tma_load(sa, (s, 0, 0), a, (cb.CUBE_POS_Y * rows, t * depth), full, s)
                half = rank * (columns // 2)  # each cube brings one half of b for both
                cb.tma_load(
                    sb,
                    (s, half, 0),
                    b,
                    (cb.CUBE_POS_X * columns + half, t * depth),
                    full,
                    s,
                    multicast=3,
                )
    else:
        cb.set_registers(232, grow=True)
        acc = cb.local(columns // 2, cb.f32)
        for t in range(steps):
            s = t % stages
            cb.barrier_wait(full, s, t // stages % 2)
            cb.wgmma_fence(acc)
            for q in cb.unroll(range(depth // 16)):
                at = (s, (group - 1) * 64, q * 16)
                cb.wgmma(
                    acc,
                    sa,
                    at,
                    sb,
                    (s, 0, q * 16),
                    columns,
                    cb.bf16,
                    accumulate=(t > 0) if q == 0 else True,
                )
            cb.wgmma_commit()
            cb.wgmma_wait(0, acc)
            if cb.UNIT_POS % 128 == 0:
                for r in cb.unroll(range(2)):
                    cb.barrier_arrive_cluster(empty, s, r)
        unit = cb.UNIT_POS % 128
        row = unit // 32 * 16 + unit % 32 // 4
        for j in range(columns // 8):
            for half in cb.unroll(range(2)):
                for c in cb.unroll(range(2)):
                    so[group - 1, j // 4, row + 8 * half, j % 4 * 8 + unit % 4 * 2 + c] = acc[
                        j * 4 + half * 2 + c
                    ]
        cb.fence_async()
        cb.sync_group(group, 128)
        if unit == 0:
            for j in range(columns // 32):
                place = (cb.CUBE_POS_Y * rows + (group - 1) * 64, cb.CUBE_POS_X * columns + j * 32)
                cb.tma_store(out, place, so, (group - 1, j, 0, 0))
            cb.tma_commit()
            cb.tma_wait(0)
    cb.sync_cluster()


@cb.kernel
def early_layer(x: cb.Array, weight: cb.Array, out: cb.Array):
    """out = weight @ x, of 128 columns; a cube of one plane makes a channel, and may begin before x
    is there.
    """
    cb.start_next()
    row, at = cb.shared(128, cb.f32), cb.UNIT_POS * 4
    cb.copy_async(row, at, weight, (cb.CUBE_POS, at), 16)
    cb.copy_async_commit()
    cb.wait_previous()
    four = x.load(at, 4)
    cb.copy_async_wait(0)
    total = cb.plane_sum((row.load(at, 4) * four).sum())
    if cb.UNIT_POS == 0:
        out[cb.CUBE_POS] = total
