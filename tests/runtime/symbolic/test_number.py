"""Symbols: a function that ran on them does the same for every other number that its guards let
through."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubepy.runtime.generated import written
from cubepy.runtime.symbolic.cached import cached
from cubepy.runtime.symbolic.number import Needed, Symbol, Trace

CONSTANTS = st.sampled_from([-3, -1, 0, 1, 2, 3, 4, 7, 16, 32, 100, 1000])
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "bits": lambda a: abs(a).bit_length(),
    "round": round,
    "ceil": lambda a: math.ceil(a / 3),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b != 0 else a,
    "mod": lambda a, b: a % b if b != 0 else b,
    "divmod": lambda a, b: sum(divmod(a, b)) if b else a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shift": lambda a, b: (a << 2) >> 1 if b > a else a >> 1,
    "min": min,
    "max": max,
    "less": lambda a, b: a + 1 if a < b else b,
    "equal": lambda a, b: a if a == b else b + 2,
    "most": lambda a, b: b if a >= b else a - 1,
    "sorted": lambda a, b: sorted([a, b, 5])[1],
    "mean": lambda a, b: int(a / 4 > b),
}
STEP = st.one_of(
    st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 9)),
    st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 9), st.integers(0, 9)),
)
LENGTHS = st.tuples(st.integers(0, 300), st.integers(0, 300))


def computed(steps: Any, constants: Any, n: Any, m: Any) -> list[Any]:
    """What some operators give, one after another."""
    values = [n, m, *constants]
    for name, *operands in steps:
        given_ = [values[k % len(values)] for k in operands]
        values.append((UNARY | BINARY)[name](*given_))  # type: ignore[operator]
        if values[-1] > 1 << 40 or values[-1] < -(1 << 40):
            values[-1] = n
    return values[2 + len(constants) :]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(STEP, min_size=1, max_size=12),
    st.tuples(CONSTANTS, CONSTANTS),
    LENGTHS,
    st.lists(LENGTHS, max_size=8),
)
def test_other_numbers_give_what_the_function_gives(
    steps: Any, constants: Any, first: Any, others: Any
) -> None:
    trace = Trace()
    symbols = [trace.input(k, v) for k, v in enumerate(first)]
    found = computed(steps, constants, *symbols)
    text, scope = trace.written(found, 2)
    fit = written(text, "<test>", scope)
    assert fit(*first) == tuple(computed(steps, constants, *first)), (
        "it lets its own numbers through"
    )
    for other in others:
        again = fit(*other)
        assert again is None or again == tuple(computed(steps, constants, *other))
    for value in found:
        if type(value) is Symbol:
            assert value.low <= value.value <= value.high


@pytest.mark.parametrize(
    "need",
    [hash, int, float, str, range, lambda n: [0] * n, lambda n: [1, 2][n], lambda n: {n: 1}, math.sqrt,
     lambda n: f"{n}", lambda n: (1, 2, 3)[: n]],
)  # fmt: skip
def test_a_number_that_is_needed_says_so(need: Callable[[Any], Any]) -> None:
    n = Trace().input(0, 1)
    with pytest.raises(Needed) as error:
        need(n)
    assert error.value.key == ("in", 0)
    fixed = Trace(frozenset([("in", 0)]))
    need(fixed.input(0, 1))
    fit = written(fixed.written([7], 1)[0], "<test>", {})
    assert fit(1) == (7,) and fit(2) is None


def test_a_symbol_is_an_int_for_those_who_ask() -> None:
    n = Trace().input(0, 5)
    assert isinstance(n, int) and not isinstance(n, float) and type(n) is Symbol
    assert isinstance(n / 2, float) and not isinstance(n / 2, int)


def test_certain_answers_are_no_guards() -> None:
    trace = Trace()
    n = trace.input(0, 5)
    assert n >= 0 and n + 1 > 0 and n % 8 < 8 and n < 1 << 40 and n == n and not n < 0
    assert not trace.lines or all(name is not None for name, *_ in trace.lines)
    assert n > 3 and n > 2 and n != 0, "the first of them says the others"
    assert sum(name is None for name, *_ in trace.lines) == 1


def test_the_same_question_is_one_guard_and_the_same_number_one_symbol() -> None:
    trace = Trace()
    n = trace.input(0, 5)
    assert n * 3 is n * 3 and (n * 3 > 7) and (n * 3 > 7)
    assert len(trace.lines) == 2


def test_cached_functions_run_for_symbols() -> None:
    calls = []

    @cached
    def tiles(rows: int, tile: int) -> int:
        calls.append(rows)
        return -(-rows // tile) if rows > 16 else 1

    assert tiles(100, 64) == tiles(100, 64) == 2 and len(calls) == 1
    n = Trace().input(0, 100)
    found = tiles(n, 64)
    assert type(found) is Symbol and found.value == 2
    assert tiles(100, 64) == 2 and type(tiles(100, 64)) is int, "what is kept is plain"
