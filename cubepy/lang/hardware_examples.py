"""The examples of what GPUs have: planes, clusters, matrix units, asynchronous copies (see
`examples`).

They need an NVIDIA GPU, most of them a Hopper; the tests run them on an emulated one. Names that
work together share an example.
"""

from __future__ import annotations


def on_gpu(
    body: str,
    *,
    grid: str = "[1, 32]",
    first: str = "",
    shown: str = "out.numpy()",
    shows: str,
    **arguments: str,
) -> str:
    """The lines of an example: a kernel with this body, launched on a GPU, and what it leaves in
    `out`.

    Args:
        body: the lines of the kernel.
        grid: cubes and units.
        first: lines before the launch, after the arrays are made.
        shown: what is printed.
        shows: what it prints.
        arguments: the kernel's arrays: NumPy expressions, which are copied to the GPU.
    """
    moved = [f'>>> {name} = cb.tensor({value}, device="cuda")' for name, value in arguments.items()]
    return "\n".join(
        [
            ">>> import numpy as np, cubepy as cb  # with an NVIDIA GPU",
            ">>> @cb.kernel",
            f"... def run({', '.join(f'{name}: cb.Array' for name in arguments)}):",
            *(f"...     {row}" for row in body.splitlines()),
            *moved,
            *([first] if first else []),
            f">>> run{grid}({', '.join(arguments)})",
            f">>> print({shown})",
            shows,
        ]
    )


def over_plane(
    expression: str, shows: str, values: str = "np.arange(32)", to: str = "np.int32"
) -> str:
    """The lines of an example of an expression of `v`, one value for each unit of a plane; it
    prints the first four.
    """
    return on_gpu(
        f"v = x[cb.UNIT_POS]\nout[cb.UNIT_POS] = {expression}",
        x=values,
        out=f"np.zeros(32, {to})",
        shown="out.numpy()[:4]",
        shows=shows,
    )


_HALVES = on_gpu(
    "board = cb.shared(32, x.dtype)\nu = cb.UNIT_POS_PLANE\nboard[u] = x[u]\n"
    "cb.sync_plane()  # enough where one plane writes and reads\nout[u] = board[31 - u]",
    x="np.arange(32)",
    out="np.zeros(32, int)",
    shown="out.numpy()[:4]",
    shows="[31 30 29 28]",
)

PLANES = {
    "PLANE_DIM": over_plane("cb.PLANE_DIM", "[32 32 32 32]"),
    "PLANE_POS": on_gpu(
        "out[cb.UNIT_POS] = cb.PLANE_POS",
        grid="[1, 96]",
        out="np.zeros(96, np.int32)",
        shown="out.numpy()[::16]",
        shows="[0 0 1 1 2 2]",
    ),
    "UNIT_POS_PLANE": on_gpu(
        "out[cb.UNIT_POS] = cb.UNIT_POS_PLANE",
        grid="[1, 64]",
        out="np.zeros(64, np.int32)",
        shown="out.numpy()[28:36]",
        shows="[28 29 30 31  0  1  2  3]",
    ),
    "plane_sum": over_plane("cb.plane_sum(v)", "[496 496 496 496]"),
    "plane_prod": over_plane(
        "cb.plane_prod(v)",
        "[4294967296 4294967296 4294967296 4294967296]",
        "np.full(32, 2)",
        "np.int64",
    ),
    "plane_max": over_plane("cb.plane_max(v)", "[31 31 31 31]"),
    "plane_min": over_plane("cb.plane_min(v + 5)", "[5 5 5 5]"),
    "plane_all": over_plane("cb.plane_all(v > 0)", "[False False False False]", to="bool"),
    "plane_any": over_plane("cb.plane_any(v > 30)", "[ True  True  True  True]", to="bool"),
    "plane_broadcast": over_plane("cb.plane_broadcast(v, 5)", "[5 5 5 5]"),
    "plane_shuffle": over_plane("cb.plane_shuffle(v, 31 - cb.UNIT_POS_PLANE)", "[31 30 29 28]"),
    "plane_shuffle_xor": over_plane("cb.plane_shuffle_xor(v, 1)", "[1 0 3 2]"),
    "plane_shuffle_up": over_plane("cb.plane_shuffle_up(v, 1)", "[0 0 1 2]"),
    "plane_shuffle_down": over_plane("cb.plane_shuffle_down(v, 1)", "[1 2 3 4]"),
    "plane_inclusive_sum": over_plane("cb.plane_inclusive_sum(v)", "[0 1 3 6]"),
    "plane_exclusive_sum": over_plane("cb.plane_exclusive_sum(v)", "[0 0 1 3]"),
    "sync_plane": _HALVES,
}
"""Of planes of 32 units."""

_TRANSPOSED = on_gpu(
    """\
u = cb.UNIT_POS_PLANE
s, t = cb.shared((8, 8), cb.f16), cb.shared((8, 8), cb.f16)
cb.copy_async(s, u * 2, x, u * 2, 4)
cb.copy_async_commit()
cb.copy_async_wait(0)
cb.sync_plane()
words = cb.load_matrix(s, (u % 8, 0), count=1)  # unit k says where row k starts
cb.store_matrix(t, (u % 8, 0), words, transpose=True)
cb.sync_plane()
out.store(u * 2, t.load(u * 2, 2))""",
    x="np.arange(64).astype(np.float16).reshape(8, 8)",
    out="np.zeros((8, 8), np.float16)",
    shown="out.numpy()[:2]",
    shows="[[ 0.  8. 16. 24. 32. 40. 48. 56.]\n [ 1.  9. 17. 25. 33. 41. 49. 57.]]",
)

_PRODUCT = on_gpu(
    """\
u = cb.UNIT_POS_PLANE
a = cb.pack(cb.splat(cb.f32(1), 8), cb.bf16)  # each unit's part of a 16x16 matrix of ones
b = cb.pack(cb.splat(cb.f32(2), 4), cb.bf16)  # and of a 16x8 matrix of twos
c = cb.mma(a, b, cb.splat(cb.f32(0.5), 4), cb.bf16)
for k in cb.unroll(range(4)):
    out[u // 4 + k // 2 * 8, u % 4 * 2 + k % 2] = c[k]""",
    out="np.zeros((16, 8), np.float32)",
    shown="out.numpy()[0]",
    shows="[32.5 32.5 32.5 32.5 32.5 32.5 32.5 32.5]",
)

_WORDS = on_gpu(
    """\
i = cb.UNIT_POS
words = cb.pack(x.load(2 * i, 2), cb.f16)  # a line of one word
more = cb.packed_fma(words, words, words, cb.f16)  # x * x + x
most = cb.packed_max(more, words, cb.f16)
out.store(2 * i, cb.unpack(most, cb.f16))""",
    grid="[1, 2]",
    x="np.array([-0.5, 1, 2, 3], np.float32)",
    out="np.zeros(4, np.float32)",
    shows="[-0.25  2.    6.   12.  ]",
)

_COPIED = on_gpu(
    """\
board = cb.shared(128, cb.f32)
i = 4 * cb.UNIT_POS
cb.copy_async(board, i, x, i, 16, valid=i < 64)  # 4 floats; zeros from 64 on
cb.copy_async_commit()
cb.copy_async_wait(0)
cb.sync_cube()
out.store(i, board.load(124 - i, 4))""",
    x="np.arange(128, dtype=np.float32)",
    out="np.zeros(128, np.float32)",
    shown="out.numpy()[60:68]",
    shows="[ 0.  0.  0.  0. 60. 61. 62. 63.]",
)

_BARRIERS = on_gpu(
    """\
board = cb.shared(32, x.dtype)
full = cb.barrier(1, 32)  # one barrier, whose phase ends with 32 arrivals
u = cb.UNIT_POS_PLANE
if cb.PLANE_POS == 0:
    board[u] = x[u]
    cb.barrier_arrive(full, 0)
else:
    cb.barrier_wait(full, 0, 0)
    out[u] = board[31 - u]""",
    grid="[1, 64]",
    x="np.arange(32)",
    out="np.zeros(32, int)",
    shown="out.numpy()[:4]",
    shows="[31 30 29 28]",
)

_BOXES = """\
>>> import numpy as np, cubepy as cb  # with an NVIDIA GPU
>>> @cb.kernel
... def double(source: cb.TensorMap, target: cb.TensorMap, y, x):
...     tile = cb.shared(source.box, source.dtype)
...     full = cb.barrier(1, 1)
...     if cb.UNIT_POS == 0:
...         cb.tma_prefetch(source)
...         cb.barrier_expect(full, 0, source.nbytes)
...         cb.tma_load(tile, 0, source, (y, x), full, 0)
...     cb.barrier_wait(full, 0, 0)
...     for k in range(cb.UNIT_POS, tile.size, cb.CUBE_DIM):
...         tile[k // 4, k % 4] *= 2
...     cb.fence_async()
...     cb.sync_cube()
...     if cb.UNIT_POS == 0:
...         cb.tma_store(target, (y, x), tile, 0)
...         cb.tma_commit()
...         cb.tma_wait(0, read=False)
>>> x = cb.tensor(np.ones((8, 8), np.float32), device="cuda")
>>> box = cb.tensor_map(x, (2, 4), swizzle=0)
>>> double[1, 32](box, box, 1, 4)
>>> print(x.numpy()[:4])
[[1. 1. 1. 1. 1. 1. 1. 1.]
 [1. 1. 1. 1. 2. 2. 2. 2.]
 [1. 1. 1. 1. 2. 2. 2. 2.]
 [1. 1. 1. 1. 1. 1. 1. 1.]]"""

_ADDED = on_gpu(
    "i = 4 * cb.UNIT_POS\ncb.add_line(out, i, x.load(i, 4))  # each of the three cubes",
    grid="[3, 2]",
    x="np.arange(8, dtype=np.float32)",
    out="np.zeros(8, np.float32)",
    shows="[ 0.  3.  6.  9. 12. 15. 18. 21.]",
)

_GROUP = """\
>>> import numpy as np, cubepy as cb  # with a Hopper GPU
>>> @cb.kernel
... def product(a: cb.TensorMap, b: cb.TensorMap, out: cb.Array):
...     sa, sb = cb.shared(a.box, a.dtype), cb.shared(b.box, b.dtype)
...     full = cb.barrier(1, 1)
...     acc = cb.local(4, cb.f32)  # of 64 rows and 8 columns, a unit's 4
...     if cb.UNIT_POS == 0:
...         cb.barrier_expect(full, 0, a.nbytes + b.nbytes)
...         cb.tma_load(sa, 0, a, (0, 0), full, 0)
...         cb.tma_load(sb, 0, b, (0, 0), full, 0)
...     cb.barrier_wait(full, 0, 0)
...     cb.wgmma_fence(acc)
...     for k in cb.unroll(range(4)):  # 16 deep each
...         cb.wgmma(acc, sa, 16 * k, sb, 16 * k, 8, cb.bf16, accumulate=k > 0)
...     cb.wgmma_commit()
...     cb.wgmma_wait(0, acc)
...     u = cb.UNIT_POS
...     for k in cb.unroll(range(4)):
...         out[u // 32 * 16 + u % 32 // 4 + k // 2 * 8, u % 4 * 2 + k % 2] = acc[k]
>>> a = cb.tensor(np.ones((64, 64)), cb.bf16, device="cuda")
>>> b = cb.tensor(np.eye(8, 64), cb.bf16, device="cuda")
>>> out = cb.tensor(np.zeros((64, 8), np.float32), device="cuda")
>>> product[1, 128](cb.tensor_map(a, (64, 64)), cb.tensor_map(b, (8, 64)), out)
>>> print(out.numpy()[63])
[1. 1. 1. 1. 1. 1. 1. 1.]"""

_REGISTERS = on_gpu(
    """\
if cb.UNIT_POS < 128:
    cb.set_registers(40, grow=False)  # the first four planes need few,
else:
    cb.set_registers(232, grow=True)  # so that the others may have more
    out[cb.UNIT_POS - 128] = cb.UNIT_POS""",
    grid="[1, 256]",
    out="np.zeros(128, int)",
    shown="out.numpy()[:4]",
    shows="[128 129 130 131]",
)

_HANDED = on_gpu(
    """\
board = cb.shared(32, x.dtype)
u = cb.UNIT_POS_PLANE
if cb.PLANE_POS == 0:
    board[u] = x[u]
    cb.arrive_group(1, 64)  # goes on at once
else:
    cb.sync_group(1, 64)  # waits for the other plane
    out[u] = board[31 - u]""",
    grid="[1, 64]",
    x="np.arange(32)",
    out="np.zeros(32, int)",
    shown="out.numpy()[:4]",
    shows="[31 30 29 28]",
)

_SWAPPED = on_gpu(
    """\
cb.cluster(2)
board = cb.shared(32, x.dtype)
i = cb.UNIT_POS
board[i] = x[cb.ABSOLUTE_POS]
cb.sync_cluster()
out[cb.ABSOLUTE_POS] = cb.load_cluster(board, i, 1 - cb.CLUSTER_POS)
cb.sync_cluster()  # nobody ends while it is read""",
    grid="[2, 32]",
    x="np.arange(64, dtype=np.int32)",
    out="np.zeros(64, np.int32)",
    shown="out.numpy()[[0, 31, 32, 63]]",
    shows="[32 63  0 31]",
)

_GIVEN = on_gpu(
    """\
cb.cluster(2)
board = cb.shared(32, x.dtype)
i = cb.UNIT_POS
cb.sync_cluster()  # the other cube has begun
cb.store_cluster(board, i, x[cb.ABSOLUTE_POS], 1 - cb.CLUSTER_POS)
cb.sync_cluster()
out[cb.ABSOLUTE_POS] = board[i]""",
    grid="[2, 32]",
    x="np.arange(64, dtype=np.int32)",
    out="np.zeros(64, np.int32)",
    shown="out.numpy()[[0, 31, 32, 63]]",
    shows="[32 63  0 31]",
)

_TAKEN = on_gpu(
    """\
cb.cluster(2)
board = cb.shared(32, x.dtype)
taken = cb.barrier(1, 32)
i = cb.UNIT_POS
board[i] = x[i]
cb.sync_cluster()
if cb.CLUSTER_POS == 0:
    out[i] = cb.load_cluster(board, i, 1)
    cb.barrier_arrive_cluster(taken, 0, 1)
else:
    cb.barrier_wait(taken, 0, 0)  # every unit of the other cube has read:
    board[i] = 0  # the memory may be used again
cb.sync_cluster()""",
    grid="[2, 32]",
    x="np.arange(32, dtype=np.int32)",
    out="np.zeros(32, np.int32)",
    shown="out.numpy()[:4]",
    shows="[0 1 2 3]",
)

_CLUSTERED = on_gpu(
    "cb.cluster(2)\nout[cb.ABSOLUTE_POS] = cb.CLUSTER_POS",
    grid="[4, 1]",
    out="np.zeros(4, int)",
    shows="[0 1 0 1]",
)

_RESIDENT = on_gpu(
    "cb.resident(4)  # registers for four cubes of 256 units on a core\n"
    "out[cb.UNIT_POS] = x[cb.UNIT_POS] * 2",
    grid="[1, 256]",
    x="np.arange(256)",
    out="np.zeros(256, int)",
    shown="out.numpy()[:4]",
    shows="[0 2 4 6]",
)

_EARLY = on_gpu(
    """\
i = cb.UNIT_POS
cb.start_next()  # the next launch may begin...
twice = 2 * weight[i]  # nobody writes the weights
cb.wait_previous()  # ...and this one now sees what the launch before wrote
x[i] = x[i] + twice""",
    x="np.zeros(32, int)",
    weight="np.arange(32)",
    first=">>> run[1, 32](x, weight)",
    shown="x.numpy()[:4]",
    shows="[ 0  4  8 12]",
)

_TILES = """\
>>> import numpy as np, cubepy as cb  # with an Intel CPU that has AMX; elsewhere with loops
>>> @cb.kernel
... def product(a: cb.Array, b: cb.Array, out: cb.Array):
...     sums = cb.local((2, 32), cb.i32)
...     if "tiles" in cb.device_properties().features:
...         cb.tile_dot(sums, 2, a, (0, 0), b, (0, 0), a.shape[1], cb.u8)
...     else:
...         for i in range(2):
...             for j in range(32):
...                 sums[i, j] = 0
...                 for k in range(4 * a.shape[1]):
...                     x, y = a[i, k // 4] >> k % 4 * 8, b[k // 4, j] >> k % 4 * 8
...                     sums[i, j] += cb.i32(x & 255) * cb.i32(cb.bitcast(cb.u8(y & 255), cb.i8))
...     for j in range(32):
...         out[0, j], out[1, j] = sums[0, j], sums[1, j]
>>> a = np.full((2, 8), 200, np.uint8).view(np.uint32)  # two rows of 8 bytes, four to a word
>>> b = np.full((2, 128), -1, np.int8).view(np.uint32)  # 8 rows of 32, four rows to a word
>>> out = np.zeros((2, 32), np.int32)
>>> product[1, 1](a, b, out)
>>> print(out[0, :4])
[-1600 -1600 -1600 -1600]"""

EXAMPLES = {
    **PLANES,
    **dict.fromkeys(("load_matrix", "store_matrix"), _TRANSPOSED),
    **dict.fromkeys(("mma", "pack"), _PRODUCT),
    **dict.fromkeys(("unpack", "packed_fma", "packed_max"), _WORDS),
    **dict.fromkeys(("copy_async", "copy_async_commit", "copy_async_wait"), _COPIED),
    **dict.fromkeys(("barrier", "barrier_arrive", "barrier_wait"), _BARRIERS),
    **dict.fromkeys(
        (
            "barrier_expect",
            "tma_load",
            "tma_store",
            "tma_commit",
            "tma_wait",
            "tma_prefetch",
            "fence_async",
        ),
        _BOXES,
    ),
    **dict.fromkeys(("wgmma", "wgmma_fence", "wgmma_commit", "wgmma_wait"), _GROUP),
    **dict.fromkeys(("sync_group", "arrive_group"), _HANDED),
    **dict.fromkeys(("sync_cluster", "load_cluster"), _SWAPPED),
    **dict.fromkeys(("cluster", "CLUSTER_POS"), _CLUSTERED),
    **dict.fromkeys(("wait_previous", "start_next"), _EARLY),
    "store_cluster": _GIVEN,
    "barrier_arrive_cluster": _TAKEN,
    "add_line": _ADDED,
    "set_registers": _REGISTERS,
    "resident": _RESIDENT,
    "tile_dot": _TILES,
}
"""Of every name that only some devices have."""
