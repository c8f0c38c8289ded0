"""Stages of a ring: going on one by one, several at a time, and past any number."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.primitives.pipeline import Stage


@cb.kernel
def walked(out: cb.Array, slot, phase, count, stages: cb.Comptime[int], stride: cb.Comptime[int]):
    """Slot and phase after `count` times `stride` stages, one by one, by strides, and at once."""
    one = Stage(None, None, slot, phase, stages)
    several, many = one, one.skip(count * stride)
    for _n in range(count * stride):
        one = one.advance()
    for _n in range(count):
        several = several.advance(stride)
    found = (one, several, many)
    for k in cb.unroll(range(3)):
        out[k, 0] = found[k].slot
        out[k, 1] = found[k].phase


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_all_ways_through_a_ring_meet(stages: int) -> None:
    for stride in range(1, stages + 1):
        for slot in range(stages):
            for count in (0, 1, 4, 7):
                out = np.full((3, 2), -1, np.int32)
                walked[1, 1](out, slot, 1, count, stages, stride)
                ahead = slot + count * stride
                assert out.tolist() == [[ahead % stages, (1 + ahead // stages) % 2]] * 3


@cb.kernel
def seen(out: cb.Array, slot, first: cb.Comptime):
    stage = Stage(None, None, slot, 1, 4, first)
    other = stage.beside("full", "empty")
    out[0], out[1], out[2], out[3] = stage.index(), other.index(), other.phase, stage.at(3).slot


def test_a_stage_is_counted_from_the_first_barrier_of_its_ring() -> None:
    for first in (None, 0, 8):
        out = np.zeros(4, np.int32)
        seen[1, 1](out, 2, first)
        assert out.tolist() == [2 + (first or 0), 2 + (first or 0), 1, 3]
