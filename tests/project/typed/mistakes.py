"""Calls as users write them, some of them wrong: `# error: code` says what mypy finds in a line.

What carries no such mark must pass. `tests/project/test_typing.py` compares; nothing here is run.
"""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn
from cubepy.tensor import Tensor


@cb.struct
class Scale:
    by: cb.f32
    lanes: cb.Comptime[int] = 8

    def apply(self, v):
        return v * self.by


@cb.func
def half(x):
    return x * 0.5


@cb.kernel
def right(
    x: cb.Array,
    out: cb.Array,
    scale: Scale,
    start: cb.i32,
    *,
    lanes: cb.Comptime[int] = 8,
    dtype: cb.Comptime[cb.DType] = cb.f32,
):
    board = cb.shared((4, 8), dtype)
    total, best = cb.f32(0), cb.i32(0)
    for k in range(cb.UNIT_POS, x.size, cb.CUBE_DIM):
        if x[k] > total:
            total, best = x[k], k
    for k in cb.unroll(range(4)):
        board[0, k] = total
    v = cb.fma(x.load(start, lanes), 2.0, cb.splat(total, lanes))
    v = cb.select(v > 0, half(v), 0.0) * scale.by + scale.apply(v)
    out.store(start, v, valid=3)
    out[cb.ABSOLUTE_POS, best] = cb.exp(v).sum() + cb.max(1, 2, board[0, 0]) + cb.cast(3.5, "i32")
    out[0] = cb.atomic_add(out, 0, 1) + cb.plane_shuffle_xor(total, 1)
    if dtype == cb.bf16 and x.dtype.is_float and cb.device_properties().plane_size > 1:
        cb.sync_cube()


@cb.kernel(fast_math=("contract",))
def wrong(x: cb.Array, *, lanes: cb.Comptime[int]):
    x[0] = cb.expp(x[0])  # error: attr-defined
    v = cb.splat(1.0)  # error: call-arg
    v = cb.splat(1.0, "8")  # error: arg-type
    x.store(0, v.summ())  # error: attr-defined
    x.store(v)  # error: call-arg
    x[0] = x.load(0, lanes, invalid=3)  # error: call-arg
    x[0] = cb.exp()  # error: call-overload
    x[0] = cb.cast(x[1], 3)  # error: call-overload
    x[0] = cb.shared(lanes)  # error: call-arg
    x[0] = x.sizes  # error: attr-defined
    cb.ABSOLUTE_POSITION  # error: attr-defined
    half(1, 2)  # error: call-arg
    lanes.bit_lenght()  # error: attr-defined


def host() -> None:
    """Launches, the library, tensors, models."""
    x = np.zeros(8, np.float32)
    scale = Scale(2.0)
    right[cb.over(x, lanes=8)](x, x, Scale(np.float32(2), lanes=4), 0, dtype=cb.f16)
    right[(1, 2), 32](x, x, scale, 0, mode="validate", device="cpu")
    text: str = right[1, 1].inspect(x, x, scale, 0).llvm + right.inspect(x, x, scale, 0).python
    again = right[1, 1].bind(x, x, scale, 0)
    again(start=3)
    t: Tensor = cb.tensor([1.0, 2.0], dtype=cb.f32) @ cb.tensor(x)
    with cb.tensor.record():
        t = nn.Linear(2, 3)(t).sum(axis=0)
    y: Tensor = K.softmax(t)
    z: np.ndarray = K.softmax(x)
    size: int = cb.f32.bits + cb.as_dtype("f16").itemsize
    kept = [text, y, z, size, K.matmul.explain(x, x)]

    Scale()  # error: call-arg
    Scale(1.0, lane=3)  # error: call-arg
    scale.bye  # error: attr-defined
    right.inspekt(x)  # error: attr-defined
    right[1, 1].inspect(x).lllvm  # error: attr-defined
    K.softmaxx(x)  # error: attr-defined
    K.softmax.explains(x)  # error: attr-defined
    K.softmax(x).shapes  # error: attr-defined
    cb.f32.bitss  # error: attr-defined
    cb.tensor([1.0], kind="f32")  # error: call-arg
    cb.quantise(kept)  # error: attr-defined
