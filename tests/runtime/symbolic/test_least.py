"""The least of several costs: as `min` says, and a guard that says no more than that."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cubepy.runtime.generated import written
from cubepy.runtime.symbolic.least import least
from cubepy.runtime.symbolic.number import Trace

CHOICES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=5
)


@settings(deadline=None, max_examples=200)
@given(CHOICES, st.integers(0, 9), st.booleans())
def test_it_is_the_least_wherever_the_guards_hold(choices: Any, now: int, pairs: bool) -> None:
    def cost(choice: Any, n: Any) -> Any:
        one = choice[0] * n + choice[1]
        return (one, choice[2] * n, choice[1]) if pairs else one

    trace = Trace()
    n = trace.input(0, now)
    found = least(range(len(choices)), lambda k: cost(choices[k], n))
    fit = written(trace.written([found], 1)[0], "<test>", {})
    assert fit(now) == (found,)
    for other in range(10):
        best = min(range(len(choices)), key=lambda k: cost(choices[k], other))
        if fit(other) is not None:
            assert cost(choices[found], other) == cost(choices[best], other)
            assert found == best


def test_how_the_others_compare_does_not_matter() -> None:
    trace = Trace()
    n = trace.input(0, 3)
    assert least([n + 9, 2 * n + 5, n], lambda cost: cost) is n
    fit = written(trace.written([n], 1)[0], "<test>", {})
    assert fit(5) == (5,), "2 n + 5 is the second for 3, n + 9 for 5"
