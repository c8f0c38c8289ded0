"""Random numbers of a state in memory: seed, high half of the counter, first block (see
`distributions`). A launch that is repeated reads what the state is then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.random.distributions import block_of, fill
from cubepy.kernels.random.philox import counters, weave
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory, recording
from cubepy.tune import Op, Routine

UNITS = 128  # of a cube, where units work in planes
STEPS = 64  # lines of a unit on a CPU


@cb.kernel
def fill_blocks(
    out: cb.Array, state: cb.Array, a, b, kind: cb.Comptime[str], each: cb.Comptime[int]
):
    """out[i] = the element that its block gives; a unit makes one block of `each` elements."""
    block = cb.ABSOLUTE_POS
    count = state[2] + cb.cast(block, cb.u64)
    line = block_of(kind, out.dtype, state[0], state[1], count, block * each, a, b, None)
    if block * each < out.size:
        out.store(block * each, line, valid=out.size - block * each)


@cb.kernel
def drop(x: cb.Array, out: cb.Array, state: cb.Array, keep, scale, lanes: cb.Comptime[int], steps):
    """out[i] = x[i] * scale where its number in [0, 1) is below `keep`, else 0; a unit does `steps`
    lines of 4 * lanes elements.
    """
    seed, high, first = state[0], state[1], state[2]
    k0, k1 = cb.cast(seed, cb.u32), cb.cast(seed >> 32, cb.u32)
    s0, s1 = cb.splat(cb.cast(high, cb.u32), lanes), cb.splat(cb.cast(high >> 32, cb.u32), lanes)
    for step in range(steps):
        block = ((cb.CUBE_POS * steps + step) * cb.CUBE_DIM + cb.UNIT_POS) * lanes
        at = block * 4
        if at < out.size:
            count = counters(first + cb.cast(block, cb.u64), lanes)
            w = cb.philox((cb.cast(count, cb.u32), cb.cast(count >> 32, cb.u32), s0, s1), (k0, k1))
            u = weave(*(cb.to_uniform(word, cb.f32) for word in w))
            v = x.load(at, 4 * lanes, valid=x.size - at)
            out.store(
                at, cb.cast(cb.select(u < keep, v * scale, 0.0), out.dtype), valid=out.size - at
            )


class Draw(NamedTuple):
    """Numbers of a kind (see `distributions.draws`) for an array of rank 1."""

    out: Any
    state: Any
    kind: str
    a: Any
    b: Any
    each: int


class Blocks(Routine):
    """Every element from the counter of its block."""

    name = "blocks"

    def launch(self, p: Draw, properties: cb.DeviceProperties) -> None:
        """Lines of several blocks on a CPU, a block for each unit of planes."""
        blocks = -(-p.out.size // p.each)
        if properties.plane_size > 1:
            fill_blocks[-(-blocks // UNITS), UNITS](
                p.out, p.state, p.a, p.b, p.kind, p.each, mode="unchecked"
            )
            return
        ends = np.array((p.a, p.b), p.a.dtype)
        if recording.active and (recorder := recording.current()) is not None:
            recorder.constant(ends)
        lanes = properties.register_bytes // 4
        steps = max(1, min(STEPS, -(-blocks // (2 * lanes))))
        fill[-(-blocks // (lanes * steps)), 1](
            p.out, None, p.state, ends, p.kind, p.each, lanes, steps, mode="checked"
        )


class Dropping(NamedTuple):
    """Elements to keep with a probability, for contiguous arrays of rank 1."""

    x: Any
    out: Any
    state: Any
    keep: float


class DropLines(Routine):
    """The mask is computed where it is used, and never stored."""

    name = "lines"

    def launch(self, p: Dropping, properties: cb.DeviceProperties) -> None:
        """Lines of several blocks on a CPU, a block for each unit of planes."""
        planes = properties.plane_size > 1
        lanes = 1 if planes else properties.register_bytes // 4
        units, steps = (UNITS, 1) if planes else (1, STEPS)
        cubes = -(-p.x.size // (4 * lanes * units * steps))
        scale = 1 / p.keep if p.keep else 0.0
        drop[cubes, units](p.x, p.out, p.state, p.keep, scale, lanes, steps, mode="checked")


DRAW = Op("draw", [Blocks()])
DROP = Op("drop", [DropLines()])


def drawn(state: Any, shape: tuple[int, ...], kind: str, low: Any, high: Any, dtype: Any) -> Any:
    """A new array of random numbers on the current device.

    Args:
        state: array of u64: seed, high half of the counter, first block.
        shape: of the result.
        kind: "uniform", "normal", "integers" or "bernoulli".
        low, high: ends; of "normal" mean and deviation; of "bernoulli" the probability is `low`.
        dtype: of the result.
    """
    out = memory.empty(shape, dtype)
    if out.size:
        each = elements_of_a_block(kind, dtype)
        a: Any
        b: Any
        if kind == "integers":
            few = high - low < 1 << 32
            a, b = np.uint64(low % (1 << 64)), np.uint64(high - low)
            kind = "few integers" if few else kind
        else:
            wide = as_dtype(dtype) is cb.f64 and kind != "bernoulli"
            scalar: Any = np.float64 if wide else np.float32
            a, b = scalar(low), scalar(high)
        DRAW.run(Draw(out.reshape(-1), state, kind, a, b, each))
    return out


def elements_of_a_block(kind: str, dtype: Any) -> int:
    """How many numbers the four words of a block give."""
    wide = as_dtype(dtype) is cb.f64 and kind != "bernoulli"
    return 2 if kind == "integers" or wide else 4


def dropped(x: Any, state: Any, p: float) -> Any:
    """x with elements set to 0 with probability p, and the others divided by 1 - p."""
    source = contiguous(x)
    out = memory.empty(x.shape, x.dtype)
    if out.size:
        DROP.run(Dropping(source.reshape(-1), out.reshape(-1), state, 1.0 - p))
    return out
