"""Checks that a kernel of single elements on a CPU does without: only those that cannot fail,
whatever the sizes are.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.llvm.ranges import NOTHING, Part, Sum, constant, needs, single

F = np.float32


@cb.kernel
def blurred(x: cb.Array, w: cb.Array, out: cb.Array):
    row, column = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if row < out.shape[0] and column < out.shape[1]:
        total = cb.f32(0)
        for dy in cb.unroll(range(-1, 2)):
            for dx in range(-1, 2):
                r = cb.clamp(row + dy, 0, x.shape[0] - 1)
                c = min(max(column + dx, 0), x.shape[1] - 1)
                total += x[r, c] * w[dy + 1, dx + 1]
        out[row, column] = total


@cb.kernel
def stencil(x: cb.Array, out: cb.Array):
    row, column = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    rows, columns = x.shape[0], x.shape[1]
    if row < rows and column < columns:
        if row > 0 and row < rows - 1 and column > 0 and not column >= columns - 1:
            out[row, column] = (
                x[row - 1, column] + x[row + 1, column] - x[row, column - 1] * x[row, column + 1]
            )
        else:
            out[row, column] = x[row, column]


@cb.kernel
def wraps(x: cb.Array, out: cb.Array, n):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[(i + n) % x.size] + x[i * 1000003 + n] + x[i - n]


@cb.kernel
def outside_on_purpose(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i - 1] + x[i + 1] * 10 + x[i] * 100


@cb.kernel
def counted(x: cb.Array, out: cb.Array, first, last):
    for i in range(first, last, 3):
        out[i] = x[i] + x[last - i]
    for i in range(last, first, -2):
        out[i] = out[i] + x[i] * x[i - first]
    k = 0
    while k < out.size + 2:
        out[k] = out[k] + x[k] + x[k - 1]
        k += 1


@cb.kernel
def chosen(x: cb.Array, index: cb.Array, out: cb.Array):
    for i in range(index.size):
        k = index[i]
        out[k] = x[k + 1]
        if k >= 0:
            if k + 1 < x.size:
                out[i] = out[i] + x[k + 1] + x[k]
        k = k - 2
        out[k] = out[k] + x[k]


@cb.kernel
def changing(x: cb.Array, out: cb.Array):
    at = 0
    for i in range(out.size):
        r = i
        if x[i] > 150:
            r = i - 3
        out[i] = x[r] + x[at]
        at = i // 2 - 1
        r = r + 1
        if r < x.size:
            out[i] = out[i] + x[r] * 7


def shapes(rng: np.random.Generator) -> tuple[int, int]:
    return tuple(rng.choice([0, 1, 2, 3, 5, 9, 33], 2).tolist())


def guarded(rng: np.random.Generator, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers in the midst of others: the whole memory, and the array in it."""
    around = rng.integers(100, 200, int(np.prod(shape)) + 200).astype(F)
    return around, around[100 : len(around) - 100].reshape(shape)


CALLS: dict[str, Any] = {
    "blurred": lambda r: (
        blurred, None,
        [guarded(r, *shapes(r)), guarded(r, *r.integers(0, 5, 2).tolist())], shapes(r), (),
    ),
    "stencil": lambda r: (stencil, None, [guarded(r, *shapes(r))], shapes(r), ()),
    "wraps": lambda r: (
        wraps, None, [guarded(r, shapes(r)[0])], shapes(r)[:1], (int(r.integers(-9, 9)),)
    ),
    "outside": lambda r: (outside_on_purpose, None, [guarded(r, shapes(r)[0])], shapes(r)[:1], ()),
    "counted": lambda r: (
        counted, (1, 1),
        [guarded(r, shapes(r)[0])], shapes(r)[:1], tuple(r.integers(-9, 40, 2).tolist()),
    ),
    "chosen": lambda r: (
        chosen, (1, 1),
        [guarded(r, shapes(r)[0]), (i := r.integers(-3, 40, 8, np.int32), i)], shapes(r)[:1], ()
    ),
    "changing": lambda r: (changing, (1, 1), [guarded(r, shapes(r)[0])], shapes(r)[:1], ()),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_is_outside_is_zero_and_dropped_for_all_sizes(name: str) -> None:
    """As the python backend has it, which looks at every access."""
    rng = np.random.default_rng(sum(map(ord, name)))
    for _ in range(30):
        kernel, grid, inputs, shape, scalars = CALLS[name](rng)
        around, out = guarded(rng, *shape)
        before = around.copy()
        arrays = [a for _, a in inputs]
        if grid is None:
            grid = cb.over(arrays[0]) if name == "stencil" else cb.over(out)
        found = []
        for device in ("cpu", "python"):
            around[:] = before
            kernel[grid](*arrays, out, *scalars, device=device)
            found.append(around.copy())
        np.testing.assert_array_equal(*found)


def code(kernel: Any, *args: Any, grid: Any, **keywords: Any) -> str:
    return str(kernel[grid].inspect(*args, **keywords).python)


def test_a_clamped_filter_and_a_guarded_stencil_check_nothing() -> None:
    x, w = np.zeros((9, 9), F), np.zeros((3, 3), F)
    for text in (
        code(blurred, x, w, x.copy(), grid=cb.over(x)),
        code(stencil, x, x.copy(), grid=cb.over(x)),
    ):
        assert "load_if" not in text and "below" not in text
        assert "for position_x in range(" in text, "units of cubes side by side are one loop"
        assert re.search(r"\* 32\), i64\(\w+_n1\)\)\):", text), "units without work have no turn"


@cb.kernel
def chained(x: cb.Array, out: cb.Array):
    i, j = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if 0 < i < x.shape[0] - 1 and 0 < j < x.shape[1] - 1:
        out[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]


def test_chained_comparisons_are_guards() -> None:
    x = np.zeros((9, 9), F)
    text = code(chained, x, x.copy(), grid=cb.over(x))
    assert "load_if" not in text and "* 32), i64(1))" in text, "the first unit that works"
    assert "if and_(0 <= -1 + cube_y, 0 <= -2 - cube_y + x_n0):" in text


@cb.kernel
def counted_in_a_cube(x: cb.Array, out: cb.Array, *, bins: cb.Comptime[int]):
    found = cb.shared(bins, cb.i32)
    for b in range(cb.UNIT_POS, bins, cb.CUBE_DIM):
        found[b] = 0
    cb.sync_cube()
    cb.atomic_add(found, x[cb.ABSOLUTE_POS], 1)
    cb.sync_cube()
    for b in range(cb.UNIT_POS, bins, cb.CUBE_DIM):
        cb.atomic_add(out, b, found[b])


def test_what_one_thread_touches_needs_no_atomic_instruction() -> None:
    x, out = np.random.default_rng(0).integers(0, 7, 640), np.zeros(7, np.int64)
    text = code(counted_in_a_cube, x, out, grid=(10, 64), bins=7)
    # shared memory, a copy of what is counted, and the sum of copies or what is too large for one
    assert text.count("own_rmw") == text.count("atomic_rmw") == 2
    counted_in_a_cube[10, 64](x, out, bins=7)
    assert out.tolist() == np.bincount(x, minlength=7).tolist()


def test_what_may_be_outside_is_checked() -> None:
    x = np.zeros(9, F)
    text = code(outside_on_purpose, x, x.copy(), grid=cb.over(x))
    assert text.count("load_if") == 2
    assert "0 <= (position - 1)" in text and "(position + 1) < x_n0" in text
    assert "load(x, position)" in text


def test_arrays_that_differ_in_size_get_the_checks_they_need_and_few_programs() -> None:
    @cb.kernel
    def fresh(x: cb.Array, y: cb.Array, out: cb.Array):
        i = cb.ABSOLUTE_POS
        if i < out.size:
            out[i] = x[i] + y[i]

    before = cb.stats()
    for n in (4, 9, 100):
        for m in (1, 5, 50, 300):
            for k in (2, 7, 200):
                x, y, out = np.ones(n, F), np.ones(m, F), np.zeros(k, F)
                fresh[cb.over(out)](x, y, out)
                want = np.zeros(k, F)
                want[:n] += 1
                want[:m] += 1
                np.testing.assert_array_equal(out, want)
    after = cb.stats()
    made = after.compiled + after.loaded - before.compiled - before.loaded
    assert made <= 4


def test_sums_of_parts_follow_from_guards() -> None:
    n, i = Part("n", 0, 2**31 - 1, ("x", 0)), Part("i", 0, 2**31 - 2)
    size, at = single(n), single(i)
    inside = size - at - constant(1)
    assert needs(at, []) == NOTHING and needs(inside, []) is None
    assert needs(inside, [inside]) == NOTHING
    assert needs(inside - constant(1), [inside - constant(1)]) == NOTHING
    other = single(Part("m", 0, 2**31 - 1, ("y", 0)))
    assert needs(inside, [other - at - constant(1)]) == {size - other}
    assert needs(inside, [other - at - constant(1)], {size - other}) is None
    clamp = single(Part("c", -1, 2**31 - 2, None, "min", (at, size - constant(1))))
    assert needs(clamp, []) == {size - constant(1)}
    assert needs(size - constant(1) - clamp, []) == NOTHING
    assert Sum.text(size - at - constant(2)) == "-2 - i + n"
    assert (size - constant(3)).holds({("x", 0): 3}) and not (size - constant(3)).holds(
        {("x", 0): 2}
    )
