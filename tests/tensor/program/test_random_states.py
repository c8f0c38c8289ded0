"""Random programs with a state and a number: what `cb.jit` gives is what the ops give, bit by bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

import cubepy as cb
from tests.tensor.program.states import DRAWN, called


@settings(max_examples=20, deadline=None)
@given(**DRAWN)
def test_a_program_with_a_state(
    steps: list[tuple[str, int, int]], wanted: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    for program, _, ours, theirs in called(cb.tensor, steps, wanted, rng, 4):
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert sum(program.traces.values()) <= 2
