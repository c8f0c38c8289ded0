"""Random programs with a state and a number, and how what they give is compared with what their ops
give, on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
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
DRAWN: dict[str, Any] = {
    "steps": st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)),
        min_size=1,
        max_size=12,
    ),
    "wanted": st.lists(st.integers(0, 9), min_size=1, max_size=3),
    "seed": st.integers(0, 1000),
}
"""What hypothesis draws of a program."""


def called(
    there: Callable[[Any], Tensor],
    steps: Sequence[tuple[str, int, int]],
    wanted: Sequence[int],
    rng: np.random.Generator,
    calls: int,
) -> Iterator[tuple[Any, list[Tensor], list[np.ndarray], list[np.ndarray]]]:
    """Call a program that gives some of its values, and its state another one.

    Args:
        there: an array as a tensor of the device.
        steps: the names of steps, and which of the values before they read.
        wanted: which values are results, counted from the last one.
        rng: draws the inputs.
        calls: how many calls.

    Yields:
        After each call, the program, its results, what they and the state are, and what the ops
        give for these.
    """
    kept = there(rng.standard_normal((6, 6)).astype(np.float32))

    def function(x: Tensor, y: Tensor, s: float) -> Any:
        values = [x, y, kept]
        for name, i, j in steps:
            values.append(STEPS[name](values[i % len(values)], values[j % len(values)], s))
        kept.assign_(values[-1].sin())
        return [values[-1 - w % len(values)] for w in wanted]

    program = cb.jit(function)
    for n in range(calls):
        x, y = (there(rng.standard_normal((6, 6)).astype(np.float32)) for _ in range(2))
        start = kept + 0
        given = [t.detach() for t in program(x, y, 0.5 * n)]
        ours = [t.numpy().copy() for t in (*given, kept)]
        kept.assign_(start)
        theirs = [t.numpy() for t in function(x, y, 0.5 * n)]
        yield program, given, ours, [*theirs, kept.numpy()]
        kept.assign_(ours[-1])
