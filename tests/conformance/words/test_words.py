"""Words that save idioms mean the same on every backend: lines and tuples from values, coordinates,
loops kept loops.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ComptimeError, DTypeError, KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt

F = np.float32
PLAIN = [d for d in dt.ALL if not d.storage_only]
NUMBERS = [d for d in PLAIN if d.name != "bool_"]


@cb.kernel
def counted(out: cb.Array, *, lanes: cb.Comptime[int], dtype: cb.Comptime):
    out.store(0, cb.iota(lanes, dtype) + cb.iota(lanes, dtype))


@cb.kernel
def joined(x: cb.Array, y: cb.Array, out: cb.Array):
    """Numbers of two dtypes, comptime numbers, and a line of one."""
    line = cb.line(x[0], y[1], 3, x[2])
    assert line.dtype == cb.promote(x.dtype, y.dtype)
    out.store(0, line)
    out.store(4, cb.line(x[1]))
    out.store(5, cb.cast(cb.line(1, 2.5), out.dtype))


@cb.kernel
def kept(x: cb.Array, out: cb.Array, n, other, *, lanes: cb.Comptime[int], known: cb.Comptime[int]):
    v = x.load(0, lanes)
    out.store(0, cb.keep_first(v, n, cb.cast(other, x.dtype)))
    out.store(lanes, cb.keep_first(v, known, 1))
    out.store(2 * lanes, cb.keep_first(v, cb.cast(n, cb.i64), v + v))


@pytest.mark.parametrize("seed", range(1))
def test_lines_are_made_of_numbers_of_any_dtype(device: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        a, b, lanes = rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice([1, 3, 4, 16])
        out = np.zeros(lanes, a.numpy)
        counted[1, 1](out, lanes=lanes, dtype=a, device=device)
        np.testing.assert_array_equal(out, 2 * np.arange(lanes))
        x, y = (np.array([rng.randrange(100) for _ in range(16)]).astype(d.numpy) for d in (a, b))
        line = np.zeros(7, np.float64)
        joined[1, 1](x, y, line, device=device)
        assert line.tolist() == [float(v) for v in (x[0], y[1], 3, x[2], x[1], 1, 2.5)]
        n, known, other = (
            rng.randrange(-2, lanes + 2),
            rng.randrange(-1, lanes + 2),
            rng.randrange(9),
        )
        found = np.zeros(3 * lanes, a.numpy)
        kept[1, 1](x, found, n, other, lanes=lanes, known=known, device=device)
        places, v = np.arange(lanes), (x[:lanes] if lanes <= 16 else x)
        want = [np.where(places < k, v, o) for k, o in ((n, other), (known, 1), (n, v + v))]
        np.testing.assert_array_equal(found, np.concatenate(want).astype(a.numpy))


@cb.kernel
def wide_counts(x: cb.Array, out: cb.Array, n):
    out.store(0, cb.keep_first(x.load(0, 4), n, -1))


@pytest.mark.parametrize(
    "n", [np.int64(2**32 + 1), np.int64(-(2**40)), np.uint64(2**63), np.uint8(2)]
)
def test_a_count_of_any_integer_dtype_is_not_cut(device: str, n: Any) -> None:
    x, out = np.arange(4, dtype=F), np.zeros(4, F)
    wide_counts[1, 1](x, out, n, device=device)
    assert out.tolist() == [v if v < int(n) else -1 for v in range(4)]


@cb.kernel
def coordinates(out: cb.Array, shape):
    n = cb.ABSOLUTE_POS
    a, b, c = cb.unravel(n, shape)
    out[n, 0], out[n, 1], out[n, 2] = a, b, c


@cb.kernel
def known_coordinates(out: cb.Array, *, shape: cb.Comptime[tuple]):
    n = cb.ABSOLUTE_POS
    place = cb.unravel(n, shape)
    for d in cb.unroll(len(shape)):
        out[n, d] = place[d]
    (last,) = cb.unravel(17, (20,))
    out[n, len(shape)] = last + cb.unravel(17, (2, 5))[1]


def test_unravel_is_numpys(device: str) -> None:
    rng = random.Random(3)
    for _ in range(3):
        shape = tuple(rng.randrange(1, 6) for _ in range(3))
        size = int(np.prod(shape))
        want = np.stack(np.unravel_index(np.arange(size), shape), 1)
        out = np.zeros((size, 3), np.int32)
        coordinates[1, size](out, shape, device=device)
        np.testing.assert_array_equal(out, want)
        out = np.zeros((size, 4), np.int32)
        known_coordinates[1, size](out, shape=shape, device=device)
        np.testing.assert_array_equal(out[:, :3], want)
        assert (out[:, 3] == 17 + 2).all()


@cb.func
def square(v):
    return v * v


@cb.func
def counted_up(counts, v):
    counts[0] += 1
    return v + counts[0]


@cb.kernel
def comprehended(x: cb.Array, out: cb.Array, *, names: cb.Comptime[tuple]):
    i = 100
    squares = tuple(square(x[i]) for i in cb.unroll(4))
    out[0], out[1] = squares[0] + squares[3], len(squares)
    out[2] = i  # a comprehension's variable is its own
    out[3] = sum(squares)
    out[4], out[5] = max(squares), min(v - 1 for v in squares)
    odd = tuple(k for k in range(9) if k % 2)
    out[6] = cb.comptime(sum(odd))
    pairs = tuple((k, v) for k, v in enumerate(squares) if k != 1)
    out[7] = pairs[1][0] * pairs[2][1]
    table = tuple(tuple(a * b for a in range(3)) for b in cb.unroll(range(1, 3)))
    out[8] = table[1][2]
    lines = tuple(x.load(k, 2) for k in (0, 2))
    out[9] = (lines[0] * lines[1]).sum()
    out[10] = len(tuple(name for name in names if name != "b"))
    before = tuple(x[0] + cb.cast(k, cb.f32) for k in range(2))
    x[0] = 50  # read before it was written
    out[11] = before[1]
    counted = tuple(counted_up(out, v) for v in squares)
    out[12] = counted[3] - counted[0]
    total = cb.f32(0)
    for s in squares:
        total += s
    out[13] = total


def test_tuples_are_made_by_comprehension(device: str) -> None:
    x, out = np.arange(1, 5, dtype=F), np.zeros(14, F)
    comprehended[1, 1](x, out, names=("a", "b", "c"), device=device)
    want = [17 + 4, 4, 100, 30, 16, 0, 16, 2 * 16, 4, 1 * 3 + 2 * 4, 2, 2, 15 + 3, 30]
    assert out.tolist() == want


@cb.kernel
def stepped(out: cb.Array, start, stop, *, step: cb.Comptime[int]):
    turns = 0
    total = 0
    for k in cb.range(start, stop, step, unroll=False):
        if k == 4:
            continue
        if turns > 6:
            break
        for j in cb.range(2, unroll=False):
            if j == 1:
                continue
            total += k
        n = 0
        while n < 3:
            n += 1
            if n == 1:
                continue
            total += 1
        turns += 1
    out[0], out[1] = turns, total


def steps(start: int, stop: int, step: int) -> list[int]:
    """What `stepped` writes."""
    turns = total = 0
    for k in range(start, stop, step):
        if k == 4:
            continue
        if turns > 6:
            break
        total += k + 2
        turns += 1
    return [turns, total]


def test_a_loop_that_is_not_unrolled_is_the_same_loop(device: str) -> None:
    for start, stop, step in [(0, 9, 1), (0, 9, 2), (9, 0, -1), (5, 5, 1), (7, 2, 3), (-30, 60, 2)]:
        out = np.zeros(2, np.int32)
        stepped[1, 1](out, start, stop, step=step, device=device)
        assert out.tolist() == steps(start, stop, step)


@cb.kernel
def short_loop(x: cb.Array, out: cb.Array, *, unroll: cb.Comptime[bool]):
    for k in cb.range(0, 16, unroll=unroll):
        out[k] = cb.sqrt(x[k])


def test_compilers_leave_such_a_loop_alone() -> None:
    x = np.zeros(16, F)
    counts = []
    for unroll in (False, True):
        code = short_loop.inspect(x, x.copy(), unroll=unroll, grid=(1, 1), mode="unchecked")
        counts.append(code.asm.count("sqrt"))
    assert counts[0] == 1 and "for " in code.python


@cb.kernel
def stored(x: cb.Array, elements, lines, casts):
    """The numbers of x in arrays of many dtypes: stored one by one, as a line, and as one that was
    cast.
    """
    v = x.load(0, 4)
    for k in range(4):
        for out in elements:
            out[k] = x[k]
    for out in lines:
        out.store(0, v)
    for out in casts:
        out.store(0, cb.cast(v, out.dtype))


@cb.kernel
def stored_one(x: cb.Array, out: cb.Array):
    out[0] = x[0]


@pytest.mark.parametrize("source", dt.ALL, ids=lambda d: d.name)
def test_stores_convert_as_a_cast_does(device: str, source: Any) -> None:
    x = np.array(random.Random(source.name).sample([0, 1, 2, 3, 5, 7], 4)).astype(source.numpy)
    if source.is_int and source.bits > 8:
        x[0] = 1000 if source.kind == "u" else -1000  # what does not fit wraps
    targets = [t for t in dt.ALL if t.is_float or not source.is_float]
    outs = [tuple(np.zeros(4, t.numpy) for t in targets) for _ in range(3)]
    stored[1, 1](x, *outs, device=device, mode="unchecked")
    for target, element, line, cast in zip(targets, *outs, strict=True):
        for found in (element, line):
            np.testing.assert_array_equal(found.view(np.uint8), cast.view(np.uint8), str(target))
    if source.kind != "b" and not source.is_float:
        wide = outs[2][targets.index(cb.f64)]
        np.testing.assert_array_equal(wide, x.astype(np.float64))


def test_no_float_is_stored_among_integers(device: str) -> None:
    for target in dt.ALL:
        if not target.is_float:
            words = f"a float cannot be put into the array 'out' of dtype {target.name}"
            with pytest.raises(DTypeError, match=words):
                stored_one[1, 1](np.ones(1, F), np.zeros(1, target.numpy), device=device)


@cb.kernel
def runtime_iota(x: cb.Array, n):
    x.store(0, cb.iota(n))


@cb.kernel
def bool_iota(x: cb.Array, n):
    x.store(0, cb.iota(4, cb.bool_))


@cb.kernel
def long_iota(x: cb.Array, n):
    x.store(0, cb.iota(65))


@cb.kernel
def line_of_lines(x: cb.Array, n):
    x.store(0, cb.line(x.load(0, 2), 1.0))


@cb.kernel
def no_line(x: cb.Array, n):
    x.store(0, cb.line())


@cb.kernel
def keep_of_number(x: cb.Array, n):
    x[0] = cb.keep_first(x[0], 1, 0)


@cb.kernel
def keep_of_float_count(x: cb.Array, n):
    x.store(0, cb.keep_first(x.load(0, 4), x[0], 0))


@cb.kernel
def keep_of_float_other(x: cb.Array, n):
    x.store(0, cb.keep_first(cb.iota(4), n, 0.5))


@cb.kernel
def unravel_of_floats(x: cb.Array, n):
    a, b = cb.unravel(n, (2, x[0]))
    x[0] = a + b


@cb.kernel
def unravel_of_nothing(x: cb.Array, n):
    x[0] = cb.unravel(n, ())[0]


@cb.kernel
def runtime_step(x: cb.Array, n):
    for k in cb.range(0, x.size, n, unroll=False):
        x[k] = 1


@cb.kernel
def runtime_hint(x: cb.Array, n):
    for k in cb.range(0, x.size, 1, unroll=n):
        x[k] = 1


@cb.kernel
def no_step(x: cb.Array, n):
    for k in cb.range(0, x.size, 0, unroll=False):
        x[k] = 1


@cb.kernel
def unknown_keyword(x: cb.Array, n):
    for k in cb.range(0, x.size, unrolled=False):
        x[k] = 1


@cb.kernel
def runtime_comprehension(x: cb.Array, n):
    x[0] = sum(x[k] for k in range(n))


@cb.kernel
def runtime_condition(x: cb.Array, n):
    x[0] = sum(x[k] for k in range(3) if x[k] > 0)


@cb.kernel
def two_fors(x: cb.Array, n):
    x[0] = len(tuple(i * j for i in range(3) for j in range(3)))


@cb.kernel
def listed(x: cb.Array, n):
    values = [x[k] for k in range(3)]
    x[0] = values[0]


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [
        (runtime_iota, ComptimeError, "must be comptime"),
        (bool_iota, DTypeError, "a bool cannot"),
        (long_iota, KernelTypeError, "1 to 64 lanes"),
        (line_of_lines, KernelTypeError, "cb.concat"),
        (no_line, KernelTypeError, "1 to 64 numbers"),
        (keep_of_number, KernelTypeError, "needs a line"),
        (keep_of_float_count, KernelTypeError, "must be an integer"),
        (keep_of_float_other, DTypeError, "float cannot be put into lanes"),
        (unravel_of_floats, KernelTypeError, "must be an integer"),
        (unravel_of_nothing, KernelTypeError, "at least one axis"),
        (runtime_step, ComptimeError, "step of cb.range"),
        (runtime_hint, ComptimeError, "unroll= must be True or False"),
        (no_step, KernelTypeError, "not zero"),
        (unknown_keyword, KernelTypeError, "no parameter 'unrolled'"),
        (runtime_comprehension, ComptimeError, "comptime bounds"),
        (runtime_condition, ComptimeError, "condition of a comprehension must be comptime"),
        (two_fors, KernelSyntaxError, "one for"),
        (listed, KernelSyntaxError, "write tuple"),
    ],
)
def test_wrong_uses_say_what_to_do(device: str, kernel: Any, error: Any, words: str) -> None:
    with pytest.raises(error) as caught:
        kernel[1, 1](np.ones(4, F), 2, device=device)
    text = str(caught.value)
    assert words in text and "test_words.py" in text and "^" in text
