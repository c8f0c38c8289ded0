"""What Python allows and a kernel does not, as new users write it: each says the rule, the value,
the place and a way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors

F = np.float32
X = np.arange(8, dtype=F)


def enumerates(x: cb.Array, out: cb.Array):
    for i, v in enumerate(x):
        out[i] = v


def zips(x: cb.Array, out: cb.Array):
    for a, b in zip(x, out):
        out[0] = a + b


def reads_twice(x: cb.Array, out: cb.Array):
    tmp = cb.local((2, 3), cb.f32)
    out[0] = tmp[0][1]


def stores_twice(x: cb.Array, out: cb.Array):
    tmp = cb.local((2, 3), cb.f32)
    tmp[0][1] = x[0]
    out[0] = tmp[0, 1]


def adds_twice(x: cb.Array, out: cb.Array):
    tmp = cb.local((2, 3), cb.f32)
    tmp[0][1] += x[0]


def reads_an_axis_too_many(x: cb.Array, out: cb.Array):
    out[0] = x[0][1]


def shares_what_comes_at_run_time(x: cb.Array, out: cb.Array):
    n = x.size
    tmp = cb.shared(n, cb.f32)
    out[0] = tmp[0]


def keeps_what_comes_at_run_time(x: cb.Array, out: cb.Array):
    tmp = cb.local((x.size, 3), cb.f32)
    out[0] = tmp[0, 0]


def prints_a_text(x: cb.Array, out: cb.Array):
    print(f"x is {x[0]}")


def misspells(x: cb.Array, out: cb.Array):
    out[0] = cb.sqroot(x[0])  # type: ignore[attr-defined]


def comes_from_cuda(x: cb.Array, out: cb.Array):
    out[0] = x[cb.threadIdx.x]  # type: ignore[attr-defined]


def adds_arrays(x: cb.Array, out: cb.Array):
    y = x * 2
    out[0] = y[0]


def asks_an_array(x: cb.Array, out: cb.Array):
    if x:
        out[0] = 1


@cb.struct
class Pair:
    a: cb.f32
    b: cb.f32


def adds_structs(x: cb.Array, out: cb.Array):
    both = Pair(x[0], 1.0) + Pair(2.0, x[1])
    out[0] = both.a


@cb.kernel
def launched(x: cb.Array):
    x[0] = 1


def launches(x: cb.Array, out: cb.Array):
    launched[1, 1](x)
    out[0] = x[0]


def casts_by_numpy(x: cb.Array, out: cb.Array):
    out[0] = np.float32(x[0])


CASES: list[tuple[Callable[..., None], str, str, str]] = [
    (enumerates, "enumerate goes over comptime tuples", "enumerate(x)", "x[i]"),
    (zips, "zip goes over comptime tuples", "zip(x, out)", "range(x.shape[0])"),
    (reads_twice, "tmp[0][1] indexes twice", "tmp[0][1]", "write tmp[0, 1]"),
    (stores_twice, "tmp[0][1] indexes twice", "tmp[0][1] = x", "write tmp[0, 1]"),
    (adds_twice, "tmp[0][1] indexes twice", "tmp[0][1] +=", "write tmp[0, 1]"),
    (reads_an_axis_too_many, "x[0][1] indexes twice", "x[0][1]", "as many indices as it has axes"),
    (shares_what_comes_at_run_time, "it is 'n', a runtime i32", "cb.shared", "cb.Comptime[int]"),
    (keeps_what_comes_at_run_time, "it is (a runtime i32, 3)", "cb.local", "the most"),
    (misspells, "no attribute 'sqroot'", "cb.sqroot", "did you mean 'sqrt'"),
    (comes_from_cuda, "no attribute 'threadIdx'", "cb.threadIdx", "cb.UNIT_POS_X"),
    (adds_arrays, "the array 'x' cannot be used as a number", "x * 2", "x[i]"),
    (asks_an_array, "the array 'x' cannot be a condition", "if x", "name one element"),
    (adds_structs, "a struct Pair cannot be used", "Pair(x[0], 1.0) +", "def __add__"),
    (launches, "launched is a kernel and cannot be called", "launched[1", "@cb.func"),
    (casts_by_numpy, "float32 cannot be called", "np.float32(x", "cb.f32(x)"),
    (prints_a_text, "an f-string cannot be used", 'f"x is', 'print("x is", x[i])'),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[c[0].__name__ for c in CASES])
def test_a_mistake_is_told_where_it_stands_with_what_to_do(case: Any) -> None:
    function, rule, at, hint = case
    with pytest.raises(errors.CubeError) as info:
        cb.kernel(function)[1, 1](X, X.copy())
    message = str(info.value)
    assert rule in message and hint in (info.value.hint or "")
    lines = message.splitlines()
    caret = next(n for n, line in enumerate(lines) if line.strip() == "^")
    column = lines[caret].index("^")
    assert lines[caret - 1][column:].startswith(at)


def test_lanes_of_lines_in_local_memory_are_still_indexed_after_the_line() -> None:
    @cb.kernel
    def lanes(x: cb.Array, out: cb.Array):
        tmp = cb.local(2, cb.f32, lanes=4)
        tmp[1] = x.load(0, 4)
        out[0] = tmp[1][3]

    out = np.zeros(1, F)
    lanes[1, 1](X, out)
    assert out[0] == 3


@cb.kernel
def plain(x: cb.Array, out: cb.Array):
    out[0] = x[0]


def test_a_grid_of_one_number_says_both_things_that_it_may_have_meant() -> None:
    with pytest.raises(errors.LaunchError, match="not 4") as info:
        plain[4](X, X.copy())
    assert "plain[cb.over(4)](...)" in info.value.hint
    assert "plain[4, units](...)" in info.value.hint


@cb.kernel
def applied(x: cb.Array, out: cb.Array, f: cb.Comptime):
    out[0] = f(x[0])


def test_a_lambda_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(errors.KernelTypeError, match="cannot be called") as called:
        applied[1, 1](X, X.copy(), f=lambda v: v * 2)
    assert "write a def" in called.value.hint
    for decorator in (cb.kernel, cb.func):
        with pytest.raises(errors.KernelTypeError, match="not a lambda") as info:
            decorator(lambda v: v * 2)
        assert "above a def" in info.value.hint
        assert info.value.location.file == __file__
