"""Random programs with a state and a number: what `cb.jit` gives is what the ops give, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy.tensor import Tensor, concat, where

STEPS: dict[str, Any] = {
    "add": lambda a, b, s: a + b,
    "scaled": lambda a, b, s: a * s - b / 2,
    "matmul": lambda a, b, s: (a @ b) / 8,
    "transposed": lambda a, b, s: a.T + b,
    "sliced": lambda a, b, s: concat([a[:3], b[3:]], axis=0),
    "reversed": lambda a, b, s: a[::-1, 1:].sum(axis=1, keepdims=True) + b,
    "reshaped": lambda a, b, s: a.reshape(3, 12).softmax().reshape(6, 6) + b,
    "mean": lambda a, b, s: a.mean() + b,
    "rows": lambda a, b, s: a.max(axis=0).expand(6, 6) * 1 + b,
    "where": lambda a, b, s: where(a > b, a, b * s),
    "relu": lambda a, b, s: a.relu() + 1,
    "tanh": lambda a, b, s: (a + b).tanh(),
    "float64": lambda a, b, s: (a.astype("f64") + 1).astype("f32") + b,
}


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=12,
    ),
    wanted=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
)
def test_a_program_with_a_state(
    steps: list[tuple[str, int, int]], wanted: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    kept = cb.tensor(rng.standard_normal((6, 6)).astype(np.float32))

    def function(x: Tensor, y: Tensor, s: float) -> Any:
        values = [x, y, kept]
        for name, i, j in steps:
            values.append(STEPS[name](values[i % len(values)], values[j % len(values)], s))
        kept.assign_(values[-1].sin())
        return [values[-1 - w % len(values)] for w in wanted]

    program = cb.jit(function)
    for n in range(4):
        x, y = (cb.tensor(rng.standard_normal((6, 6)).astype(np.float32)) for _ in range(2))
        start = kept + 0
        ours = [t.numpy().copy() for t in program(x, y, 0.5 * n)]
        after = kept.numpy().copy()
        kept.assign_(start)
        theirs = [t.numpy() for t in function(x, y, 0.5 * n)]
        for one, other in zip([*ours, after], [*theirs, kept.numpy()], strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert sum(program.traces.values()) <= 2
