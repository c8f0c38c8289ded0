"""Packed weights on a device with matrix units: where the stored numbers lie there, and how they
get there.

Files and the CPU keep the layout of `cubepy.quant.weights.packing`. On a GPU a plane takes a panel
of 16 channels and 64 inputs with one 16-byte load of each lane, and needs no shuffle: lane 4 g + t
has channels g and g + 8, and of every 32 inputs the eight from 8 t on. The four words of a lane are
inputs 0-3 and 4-7 of the first 32 and of the second 32; within a word

    bits     0-3   4-7   8-11  12-15  16-19  20-23  24-27  28-31
    channel  g     g+8   g     g+8    g      g+8    g      g+8
    input    0     0     2     2      1      1      3      3

so that shifts by 0, 4, 8 and 12 give the four registers of a 16-bit fragment, and 0 and 4 those of
an 8-bit one.

    words    u32 [blocks, panels, chunks of 64, halves, 32 lanes, 4]
    facts    u32 [blocks, panels, 8 g, groups of a block, 1 or 2]
             float16 scale (and minimum) of channels g and g + 8

Eight-bit codes are two halves: code + 128 = 16 * high + low. A block is a group, or 64 inputs where
groups are smaller. Panels of a block are neighbours, so that one address serves several; both
arrays end with room for `SLACK` panels more, which a plane may read beyond the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.quant.weights.packing import PANEL
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime import recording
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import empty

CHUNK = 64
SLACK = 8
"""Panels that may be read beyond the last block."""
GROUPS = (32, 64, 128, 256)
"""Groups that the kernels of planes take; 0 stands for none."""


@dataclass(frozen=True, eq=False)
class PlaneWeight:
    """A quantized weight in the memory of a GPU, arranged for planes.

    Attributes:
        shape: logical (N, K).
        group: inputs that share a scale; 0 for int8.
        symmetric: whether there are no minimums.
        words: the codes.
        facts: scales and minimums (int4); one word otherwise.
        scales: f32 (N padded,) in int8; as they were otherwise.
        sums: what a unit of zero point adds to each channel: i32 (int8) or f32 (int4), (N padded,).
        input_scale: f16 (K,).
        gain: what all values are multiplied with.
        none: u32 (1, 1), where a kernel reads no such array.
    """

    shape: tuple[int, int]
    group: int
    symmetric: bool
    words: Any
    facts: Any
    scales: Any
    sums: Any
    input_scale: Any
    gain: float
    none: Any

    def arrays(self) -> tuple[Any, ...]:
        """What the kernels read."""
        return self.words, self.facts, self.scales, self.sums, self.input_scale, self.none

    @property
    def panels(self) -> int:
        """Panels of 16 channels."""
        return -(-self.shape[0] // PANEL)

    @property
    def block(self) -> int:
        """Inputs of a block."""
        return max(CHUNK, self.group)

    @property
    def blocks(self) -> int:
        """Blocks of a channel."""
        return -(-self.shape[1] // self.block)


@cb.func
def interleaved(low, high):
    """Nibbles of two words, byte by byte, with the two inner bytes swapped."""
    both = (low & cb.u32(0x0F0F0F0F)) | ((high & cb.u32(0x0F0F0F0F)) << 4)
    return (
        (both & cb.u32(0xFF0000FF))
        | ((both >> 8) & cb.u32(0xFF00))
        | ((both << 8) & cb.u32(0xFF0000))
    )


@cb.kernel
def arrange_codes(codes: cb.Array, words: cb.Array, chunks, per_block, halves: cb.Comptime[int]):
    """words = codes: words of eight u4 (panels, K / 8, 16) or, with two halves, of four i8 (panels,
    K / 4, 16).

    `per_block` chunks are a block. A unit makes one word of each half.
    """
    at = cb.ABSOLUTE_POS
    position, lane, rest = at & 3, (at >> 2) & 31, at >> 7
    chunk, panel = rest % chunks, rest // chunks
    if panel < codes.shape[0]:
        g, t = lane >> 2, lane & 3
        kb, s = position >> 1, position & 1
        block = chunk // per_block
        index = ((block * codes.shape[0] + panel) * per_block + chunk % per_block) * (
            128 * halves
        ) + (at & 127)
        first, second = cb.u32(0), cb.u32(0)
        if halves == 1:
            i = chunk * 8 + kb * 4 + t
            if i < codes.shape[1]:
                shift = cb.cast(s * 4, cb.u32)
                first, second = codes[panel, i, g] >> shift, codes[panel, i, g + 8] >> shift
            words[index] = interleaved(first, second)
        else:
            i = chunk * 16 + kb * 8 + t * 2 + s
            if i < codes.shape[1]:
                first = codes[panel, i, g] ^ cb.u32(0x80808080)
                second = codes[panel, i, g + 8] ^ cb.u32(0x80808080)
            words[index] = interleaved(first >> 4, second >> 4)
            words[index + 128] = interleaved(first, second)


@cb.kernel
def arrange_facts(
    scales: cb.Array,
    minimums,
    facts: cb.Array,
    groups,
    per_block: cb.Comptime[int],
    kinds: cb.Comptime[int],
):
    """facts = scales and, with two kinds, minimums: the bits of f16 as u16, (panels, groups of the
    weight, 16).

    `groups` fill whole blocks of `per_block`; zeros stand for those that the weight does not have.
    A unit takes channels g and g + 8 of a group.
    """
    at = cb.ABSOLUTE_POS
    panels = scales.shape[0]
    g, rest = at & 7, at >> 3
    panel, group = rest % panels, rest // panels
    if group < groups:
        index = ((group // per_block * panels + panel) * 8 + g) * (
            per_block * kinds
        ) + group % per_block * kinds
        there = group < scales.shape[1]
        for kind in cb.unroll(range(kinds)):
            source = scales if kind == 0 else minimums
            low, high = cb.u32(0), cb.u32(0)
            if there:
                low = cb.cast(source[panel, group, g], cb.u32)
                high = cb.cast(source[panel, group, g + 8], cb.u32)
            facts[index + kind] = low | (high << 16)


@cb.kernel
def zeroed(x: cb.Array):
    """x = 0, of one element."""
    x[0, 0] = cb.u32(0)


def supports(weight: QuantizedWeight) -> bool:
    """Whether the kernels of planes take a weight's groups."""
    return weight.scheme.group is None or weight.scheme.group in GROUPS


def planes_of(weight: QuantizedWeight) -> PlaneWeight:
    """The weight as the kernels of planes take it: arranged at the first use, and kept with the
    weight.

    Args:
        weight: on a GPU, and with groups that `supports` accepts.
    """
    found = arranged_of(weight)
    if found is None:
        recording.spoil()  # a repetition of what is recorded now would arrange it again
        device: Any = weight.codes.device
        found = weight.__dict__["_planes"] = _arranged(weight, device)
    return found


def arranged_of(weight: QuantizedWeight) -> PlaneWeight | None:
    """The weight as it was arranged before, if it was."""
    return weight.__dict__.get("_planes")


def _arranged(weight: QuantizedWeight, device: Device) -> PlaneWeight:
    group, panels = weight.scheme.group or 0, weight.codes.shape[0]
    halves = 1 if group else 2
    block = max(CHUNK, group)
    chunks = -(-weight.shape[1] // block) * (block // CHUNK)
    source = weight.codes.view(np.uint32).reshape(panels, -1, PANEL)
    words = empty(((panels * chunks + SLACK * block // CHUNK) * halves * 128,), np.uint32, device)
    total = panels * chunks * 128
    arrange_codes[-(-total // 256), 256](
        source, words, chunks, block // CHUNK, halves, mode="unchecked", device=device
    )
    facts = weight_facts(weight, group, block, device) if group else empty((1,), np.uint32, device)
    # A product that overlaps the launch before it fetches weights at once: that launch must not be
    # the one that made them, so another one comes between.
    none = empty((1, 1), np.uint32, device)
    zeroed[1, 1](none, mode="checked", device=device)
    return PlaneWeight(
        weight.shape,
        group,
        weight.scheme.symmetric,
        words,
        facts,
        weight.scales if group else weight.scales.reshape(-1),
        weight.sums.reshape(-1),
        weight.input_scale,
        weight.gain,
        none,
    )


def weight_facts(weight: QuantizedWeight, group: int, block: int, device: Device) -> Any:
    """Scales and minimums of an int4 weight, arranged."""
    panels, per_block = weight.codes.shape[0], block // group
    kinds = 1 if weight.minimums is None else 2
    groups = -(-weight.shape[1] // block) * per_block
    facts = empty(((panels * groups + SLACK * per_block) * 8 * kinds,), np.uint32, device)
    least = None if weight.minimums is None else weight.minimums.view(np.uint16)
    arrange_facts[-(-panels * groups * 8 // 256), 256](
        weight.scales.view(np.uint16),
        least,
        facts,
        groups,
        per_block,
        kinds,
        mode="unchecked",
        device=device,
    )
    return facts
