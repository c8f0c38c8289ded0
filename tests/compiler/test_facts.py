"""What is learned late makes void no more than what it changes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import cubepy as cb
from cubepy.compiler.facts import MAX_CHANGES, Facts
from cubepy.compiler.ir import VType
from cubepy.errors import DTypeError
from cubepy.lang import dtypes as dt

walked: Counter[str] = Counter()


def passed(place: str) -> int:
    """Called while a kernel is walked: counts how often."""
    walked[place] += 1
    return 0


@cb.func
def counted(x, n):
    k = passed("func")
    while k < n:
        if x[k] < 0:
            k = k + 2
        k = k + 1
    return k


@cb.kernel
def sum_until(x: cb.Array, out: cb.Array, n):
    zero = passed("before")
    for j in range(n):
        passed("around")
        begin = counted(x, j)
        passed("behind func")
    total = passed("total")
    last = passed("last")
    for i in range(n):
        passed("inside")
        total = total + x[i]
        last = i
    passed("behind")
    out[0] = total
    out[1] = last + zero + passed("end")


def test_a_walk_goes_back_no_further_than_where_a_fact_was_asked_for():
    walked.clear()
    out = np.zeros(2, np.float32)
    sum_until[1, 1](np.array([1, 2, 3.5], np.float32), out, 3)
    assert out.tolist() == [6.5, 2.0]
    assert walked == {
        "before": 1,
        "around": 1,
        "func": 2,
        "behind func": 1,
        "total": 2,
        "last": 3,
        "inside": 3,  # total, then last
        "behind": 1,
        "end": 1,
    }


def test_a_fact_makes_void_what_asked_for_it_first():
    facts = Facts()
    for facts.now, key in enumerate(("a", "b", "a")):
        assert not facts.is_runtime((key,))
    assert facts.make_runtime(("a",)).since == 0
    assert facts.is_runtime(("a",))
    assert facts.make_runtime(("b",)).since == 1
    assert facts.make_runtime(("c",)).since == facts.now


def test_a_part_makes_void_what_asked_for_the_whole():
    facts = Facts()
    assert not facts.parts_change(("pair",))
    facts.now = 3
    assert not facts.is_runtime(("pair", 0, "pair"))
    assert facts.make_runtime(("pair", 0, "pair")).since == 0
    assert facts.parts_change(("pair",))


def test_what_a_void_statement_asked_for_is_forgotten():
    facts = Facts()
    facts.now = 1
    assert not facts.is_runtime(("a",))
    facts.forget_since(1)
    facts.now = 2
    assert not facts.is_runtime(("a",))
    assert facts.make_runtime(("a",)).since == 2


def test_a_type_that_does_not_settle_is_an_error():
    facts = Facts()
    for n in range(MAX_CHANGES):
        facts.make_type(("x",), VType((dt.i32, dt.f32)[n % 2]))
    with pytest.raises(DTypeError, match="'x' does not settle"):
        facts.make_type(("x",), VType(dt.i32))
