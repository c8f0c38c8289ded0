"""Blocks of four bits on a GPU: the same codes in the order of `cubepy.quant.weights.packing`,
whose kernels read them.

Scales and minimums of Q4_0 and Q4_1 stay what they are. Those of Q4_K, products of a 16-bit float
and six bits, are rounded to 16 bits, all times a power of two that leaves none of them too small.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.quant.schemes.scheme import parse_scheme
from cubepy.quant.weights.packing import PANEL, panels
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import empty, upload

FOUR_BITS = ("Q4_0", "Q4_1", "Q4_K")
GROUP = 32
LOW = 0x0F0F0F0F
"""The low halves of the bytes of a word."""
UNITS = 256
MOST = 2.0**14
"""What the largest scale or minimum of Q4_K may become."""


@cb.func
def word_at(pairs, n, at):
    """Four bytes of a row from pair `at` on."""
    low, high = cb.cast(pairs[n, at], cb.u32), cb.cast(pairs[n, at + 1], cb.u32)
    return low | (high << 16)


@cb.func
def half_of(halves, n, at):
    """A 16-bit float of a row, as f32."""
    return cb.cast(halves[n, at], cb.f32)


@cb.func
def byte_of(pairs, n, at):
    """A byte of a row, as u32."""
    return (cb.cast(pairs[n, at // 2], cb.u32) >> (cb.cast(at % 2, cb.u32) * 8)) & 255


@cb.func
def small_facts(halves, n, group, kind: cb.Comptime[str]):
    """Where the 16 bytes of a group of 32 begin, in pairs; its scale and its minimum."""
    nbytes = 18 if kind == "Q4_0" else 20
    at = group * (nbytes // 2)
    minimum = cb.f32(0.0)
    if kind == "Q4_1":
        minimum = half_of(halves, n, at + 1)
    return at + (nbytes - 16) // 2, half_of(halves, n, at), minimum


@cb.func
def large_facts(pairs, halves, n, group):
    """The same of Q4_K, whose 32 bytes hold two groups."""
    at, g = group // 8 * 72, group % 8
    first = at * 2 + 4
    if g < 4:
        scale = byte_of(pairs, n, first + g) & 63
        minimum = byte_of(pairs, n, first + g + 4) & 63
    else:
        low = byte_of(pairs, n, first + g + 4)
        scale = (low & 15) | ((byte_of(pairs, n, first + g - 4) >> 6) << 4)
        minimum = (low >> 4) | ((byte_of(pairs, n, first + g) >> 6) << 4)
    return (
        at + 8 + g // 2 * 16,
        half_of(halves, n, at) * cb.cast(scale, cb.f32),
        -half_of(halves, n, at + 1) * cb.cast(minimum, cb.f32),
    )


@cb.kernel
def repack(
    pairs: cb.Array,
    halves: cb.Array,
    codes: cb.Array,
    scales: cb.Array,
    minimums,
    inverse: cb.f32,
    kind: cb.Comptime[str],
):
    """Rows of blocks (N, bytes / 2), u16 and f16, as words (panels, K / 8, 16) of eight codes and
    facts (panels, K / 32, 16), which are multiplied by `inverse`; a unit does a group of a channel.
    """
    groups = scales.shape[1]
    at = cb.ABSOLUTE_POS
    lane, group, panel = at % 16, at // 16 % groups, at // (16 * groups)
    n = panel * 16 + lane
    if panel < scales.shape[0]:
        words = cb.local(4, cb.u32)
        for i in cb.unroll(range(4)):
            words[i] = cb.u32(0)
        scale, minimum = cb.f32(0.0), cb.f32(0.0)
        if n < pairs.shape[0]:
            if kind == "Q4_K":
                first, scale, minimum = large_facts(pairs, halves, n, group)
                shift = cb.cast(group % 2, cb.u32) * 4
                for i in cb.unroll(range(4)):
                    low = word_at(pairs, n, first + 4 * i) >> shift
                    high = word_at(pairs, n, first + 4 * i + 2) >> shift
                    words[i] = (low & LOW) | ((high & LOW) << 4)
            else:
                first, scale, minimum = small_facts(halves, n, group, kind)
                for i in cb.unroll(range(2)):
                    low = word_at(pairs, n, first + 4 * i)
                    high = word_at(pairs, n, first + 4 * i + 2)
                    words[i] = (low & LOW) | ((high & LOW) << 4)
                    words[i + 2] = ((low >> 4) & LOW) | (((high >> 4) & LOW) << 4)
        for i in cb.unroll(range(4)):
            codes[panel, group * 4 + i, lane] = words[i]
        scales[panel, group, lane] = cb.cast(scale * inverse, cb.f16)
        if minimums is not None:
            minimums[panel, group, lane] = cb.cast(minimum * inverse, cb.f16)


def gain_of(raw: np.ndarray, kind: str) -> float:
    """The power of two by which scales and minimums are divided before they are rounded.

    Example:
        >>> block = np.zeros((1, 144), np.uint8)
        >>> block.view(np.float16)[0, :2] = 2.0**-14, 2.0**-20
        >>> gain_of(block, "Q4_K"), gain_of(block, "Q4_0")
        (2.384185791015625e-07, 1.0)
    """
    if kind != "Q4_K" or not raw.size:
        return 1.0
    facts = np.abs(raw.view(np.float16).reshape(-1, 72)[:, :2].astype(np.float32))
    largest = float(facts.max()) * 64  # more than six bits say
    if not 0 < largest < np.inf:
        return 1.0
    return float(2.0 ** -int(np.floor(np.log2(MOST / largest))))


def four_bits(raw: np.ndarray, kind: str, device: Device) -> QuantizedWeight:
    """Rows of blocks of one of FOUR_BITS as a weight on a GPU that is read with float activations.

    Args:
        raw: (N, bytes of a row).
        kind: name of the block type.
        device: where it will be.
    """
    rows, elements, nbytes = len(raw), *{"Q4_0": (32, 18), "Q4_1": (32, 20)}.get(kind, (256, 144))
    columns, symmetric = raw.shape[1] // nbytes * elements, kind == "Q4_0"
    shape = (panels(rows), columns // GROUP, PANEL)
    gain = gain_of(raw, kind)
    pairs: Any = upload(raw.view(np.uint16), device)
    codes: Any = empty((shape[0], columns // 8, PANEL), np.dtype(np.uint32), device)
    scales: Any = empty(shape, np.dtype(np.float16), device)
    minimums: Any = None if symmetric else empty(shape, np.dtype(np.float16), device)
    sums: Any = upload(np.zeros((shape[0], PANEL), np.float32), device)
    factors: Any = upload(np.ones(columns, np.float16), device)
    cubes = -(-shape[0] * shape[1] * PANEL // UNITS)
    given = (pairs, pairs.view(np.float16), codes, scales, minimums, 1 / gain, kind)
    repack[cubes, UNITS](*given, mode="unchecked", device=device)
    scheme = parse_scheme("int4", group=GROUP, symmetric=symmetric, activations="float")
    codes = codes.view(np.uint8).reshape(shape[0], columns // 8, PANEL, 4)
    return QuantizedWeight((rows, columns), scheme, codes, scales, minimums, sums, factors, gain)
