"""The boxes of pixels that a tile of the Hopper convolution does: the best of all there are."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from cubepy.kernels.convolution.sm90.implicit_gemm_plan import SIDES, box_for

LENGTH = st.one_of(st.integers(1, 40), st.integers(1, 300), st.sampled_from(SIDES))


@settings(deadline=None, max_examples=200)
@given(
    LENGTH,
    st.tuples(st.one_of(st.just(1), LENGTH), LENGTH, LENGTH),
    st.sampled_from([64, 128, 256]),
)
def test_no_box_of_few_sides_is_better(n: int, out: tuple[int, int, int], rows: int) -> None:
    def sides(length: int) -> list[int]:
        below = [side for side in SIDES if side < length]
        return SIDES[: len(below) + 1]  # type: ignore[return-value]

    def cost(box: tuple[int, ...]) -> tuple[int, int, int]:
        i, d, h, w = box
        counts = [-(-a // b) for a, b in zip((n, *out), box, strict=True)]
        return math.prod(counts), i * (d + 2) * (h + 2) * (w + 2), -w

    every = itertools.product(*(sides(length) for length in (n, *out)))
    best = min(cost(box) for box in every if math.prod(box) <= rows)
    box, counts = box_for(n, out, rows)
    assert math.prod(box) <= rows and cost(box) == best
    assert counts == tuple(-(-a // b) for a, b in zip((n, *out), box, strict=True))
