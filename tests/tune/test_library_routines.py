"""Operations of which several routines can do a problem: they agree, and `explain` names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cubepy import kernels as K
from cubepy import tune

RNG = np.random.default_rng(0)
LINES = RNG.standard_normal((30, 40), np.float32)
PLACES = RNG.integers(0, 30, (30, 40))
IMAGE = RNG.standard_normal((2, 8, 9, 20), np.float32)
FILTERS = RNG.standard_normal((8, 4, 3, 3), np.float32)

CALLS: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "windows of channels": ("banded_map", "direct", lambda: K.avg_pool2d(IMAGE, 2, layout="NHWC")),
    "windows of planes": ("banded_map", "separable", lambda: K.avg_pool2d(IMAGE, 3, 2, 1)),
    "means": ("banded_map", "sums", lambda: K.adaptive_avg_pool2d(IMAGE, 1)),
    "volumes": ("banded_map", "depth", lambda: K.avg_pool3d(IMAGE[None], 2)),
    "elements by index": ("gather", "lines", lambda: K.gather(LINES, 1, PLACES)),
    "columns by index": ("gather", "lines", lambda: K.gather(LINES, 0, PLACES)),
    "rows by index": ("select", "slices", lambda: K.embedding(PLACES, LINES)),
    "one column by index": ("select", "one_column", lambda: K.select(LINES, 1, PLACES[0])),
    "updates of rows": ("scatter", "copied", lambda: K.scatter(LINES, 1, PLACES, PLACES, "add")),
    "updates by lists": (
        "index_put",
        "lines",
        lambda: K.index_put(LINES, (PLACES[:, 0],), LINES, "max"),
    ),
    "gradients by filters": (
        "conv_weight",
        "pixels",
        lambda: K.conv_weight(IMAGE, (4, 8, 3, 3), IMAGE[:, :4, 1:-1, 1:-1]),
    ),
    "gradients by filters of their own": (
        "conv_weight",
        "channels",
        lambda: K.conv_weight(IMAGE, (8, 1, 3, 3), IMAGE[:, :, 1:-1, 1:-1], groups=8),
    ),
    "gradients by the input": (
        "conv_transpose",
        "phases",
        lambda: K.conv_transpose2d(IMAGE, FILTERS, stride=2, padding=1),
    ),
    "gradients by the input without a stride": (
        "conv_transpose",
        "convolution",
        lambda: K.conv_transpose2d(IMAGE, FILTERS),
    ),
    "neighbours": ("banded_map", "nearest", lambda: K.interpolate(IMAGE, (16, 27))),
}
"""The operation, its routine, and a call."""


@pytest.mark.parametrize("name", CALLS)
def test_all_routines_that_can_agree(name: str) -> None:
    op, routine, call = CALLS[name]
    choice = next(c for c in tune.explain(call).choices if c.op == op)
    assert (choice.routine, choice.how) == (routine, "inferred")
    assert {routine, *(o.routine for o in choice.others)} == {r.name for r in tune.OPS[op].routines}
    want = call()
    others = [o.routine for o in choice.others if o.reason.startswith("it can")]
    assert others, "nothing is compared"
    for other in others:
        with tune.force(op, other):
            found = call()
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_random_numbers_say_who_makes_them() -> None:
    (choice,) = K.uniform.explain(size=10).choices
    assert (choice.op, choice.routine) == ("random", "lines")
    assert [(o.routine, o.reason) for o in choice.others] == [("blocks", "for GPUs")]


def test_gradients_of_attention_say_who_makes_them() -> None:
    q = RNG.standard_normal((1, 2, 5, 8), np.float32)
    result, lse = K.attention_forward(q, q, q)
    found = K.attention_gradients.explain(q, q, q, q, result, lse)
    choice = next(c for c in found.choices if c.op == "attention_gradients")
    assert choice.routine == "short"
    assert {o.routine: o.reason for o in choice.others} == {
        "hopper": "for GPUs",
        "matrices": "for GPUs",
        "lines": "it can, and comes later in the order",
    }
