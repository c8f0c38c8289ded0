"""Loops over lines, `other=` and the words beside them on a GPU: the generated text, run by the
emulator, and compiled.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cubepy as cb

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.offline import compile_for
from tests.backends.cuda.emulator import emulate
from tests.conformance.words import test_conditional_masks as masks
from tests.conformance.words import test_line_loops as loops
from tests.conformance.words import test_missing_lanes as missing
from tests.conformance.words import test_words as words

F = np.float32


@cb.kernel
def filled(x: cb.Array, out: cb.Array, at, n, other):
    out.store(0, x.load(at, 8, valid=n, other=other))


def test_loops_over_lines_do_every_element_once() -> None:
    rng = random.Random(0)
    for _ in range(4):
        lanes, size = rng.choice([1, 4, 8]), rng.randrange(30)
        start, stop = rng.randrange(size + 1), rng.randrange(size + 1)
        x, out = np.arange(size + 1, dtype=F), np.full(size + 1, 7, F)
        emulate(loops.doubled, 1, 1, x, out, start, stop, lanes=lanes)
        want = np.full(size + 1, 7, F)
        want[start:stop] = 2 * x[start:stop]
        np.testing.assert_array_equal(out, want)


def test_barriers_stand_in_loops_over_lines() -> None:
    x, out = np.arange(19, dtype=F), np.zeros(19, F)
    emulate(loops.reversed_lines, 8, 1, x, out)
    assert out.tolist() == [*range(7, -1, -1), *range(15, 7, -1), 18, 17, 16]


def test_lanes_that_are_not_there_are_what_other_says() -> None:
    x = np.arange(10, dtype=F)
    for at, n in ((0, 3), (8, 9), (4, 0)):
        out, count = np.zeros(8, F), min(n, 10 - at)
        emulate(filled, 1, 1, x, out, at, count, -1)
        np.testing.assert_array_equal(out, missing.there(x, at, 8, n, -1))


def test_words_make_lines_tuples_and_loops() -> None:
    x, out = np.arange(1, 5, dtype=F), np.zeros(14, F)
    emulate(words.comprehended, 1, 1, x, out, names=("a", "b", "c"))
    assert out[:4].tolist() == [21, 4, 100, 30]
    for start, stop, step in [(0, 9, 2), (9, 0, -1), (-30, 60, 2)]:
        count = np.zeros(2, np.int32)
        emulate(words.stepped, 1, 1, count, start, stop, step=step)
        assert count.tolist() == words.steps(start, stop, step)
    line = np.zeros(7, F)
    x[0] = 1
    emulate(words.joined, 1, 1, x, x, line)
    assert line.tolist() == [1, 2, 3, 3, 2, 1, 2.5]


def test_lanes_choose_one_side() -> None:
    x, y, out = np.array([3, 1, 4, 1], F), np.array([2, 7, 1, 8], F), np.zeros(4, F)
    emulate(masks.on_lines, 1, 1, x, y, out, lanes=4)
    assert out.tolist() == [3, 7, 4, 8]


@pytest.mark.parametrize("mode", ["checked", "unchecked", "validate"])
def test_all_of_it_compiles_for_a_gpu(mode: str) -> None:
    """As far as PTX; of strided arrays and narrow dtypes, too."""
    for dtype in (F, np.float16) if mode == "checked" else (F,):
        x = np.zeros(40, dtype)[::2]
        cases: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
            (loops.doubled, (x[:10], x, 0, 9), {"lanes": 4}),
            (missing.filled, (np.zeros(8, dtype), x, 0, 2, -1), {"lanes": 4}),
            (missing.extremes, (x, np.zeros(2, F)), {"way": "largest"}),
            (words.joined, (x, x, np.zeros(7, F)), {}),
            (masks.on_lines, (x, x, x), {"lanes": 4}),
        ]
        for kernel, args, comptime in cases:
            assert compile_for("sm_90a", kernel, 32, *args, mode=mode, **comptime).ptx


def test_neither_compiler_unrolls_a_loop_that_is_to_stay_one() -> None:
    x = np.zeros(16, F)
    counts = {}
    for unroll in (False, True):
        code = compile_for("sm_90a", words.short_loop, 32, x, x, unroll=unroll, mode="unchecked")
        counts[unroll] = code.ptx.count("ld.global"), code.sass.count("LDG")
    assert counts[False] == (1, 1) and min(counts[True]) > 1


def test_validate_says_what_a_maximum_took() -> None:
    code = compile_for(
        "sm_90a",
        missing.extremes,
        32,
        np.zeros(11, F),
        np.zeros(2, F),
        way="largest",
        mode="validate",
    )
    messages = [s.message for s in code.text.sites if s.kind == "assert"]
    assert len(messages) == 1 and "a maximum takes lanes" in messages[0]
