"""`cb.lines` goes over whole lines and then the tail, and means the same on every backend."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ComptimeError, KernelSyntaxError, KernelTypeError

F = np.float32
DTYPES = (np.int8, np.uint16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32)


@cb.kernel
def doubled(x: cb.Array, out: cb.Array, start, stop, *, lanes: cb.Comptime[int]):
    """out[start : stop] = 2 * x[start : stop]"""
    for k, valid in cb.lines(start, stop, lanes):
        out.store(k, x.load(k, lanes, valid=valid) * 2, valid=valid)


@cb.kernel
def walked(out: cb.Array, start, stop, *, lanes: cb.Comptime[int]):
    """Where every line begins, how many lanes it has, and which of the two bodies did it."""
    n = 0
    for k, valid in cb.lines(start, stop, lanes):
        out[n, 0] = k
        out[n, 1] = valid
        out[n, 2] = valid == lanes
        n += 1
    out[n, 0] = -1


def places(start: int, stop: int, lanes: int) -> list[list[int]]:
    """What `walked` writes."""
    return [[k, min(lanes, stop - k), int(stop - k >= lanes)] for k in range(start, stop, lanes)]


@pytest.mark.parametrize("seed", range(2))
def test_every_element_is_done_once(device: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(3):
        dtype, lanes, size = rng.choice(DTYPES), rng.choice([1, 3, 4, 16, 64]), rng.randrange(90)
        start, stop = rng.randrange(size + 1), rng.randrange(size + 1)
        x = (np.arange(size + 1) % 50).astype(dtype)
        out = np.full(size + 1, 7).astype(dtype)
        want = out.copy()
        want[start:stop] = 2 * x[start:stop]
        mode = rng.choice(["checked", "unchecked", "validate"])
        doubled[1, 1](x, out, start, stop, lanes=lanes, device=device, mode=mode)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("index", [np.int32, np.int64, np.uint8])
def test_bounds_are_any_integers_in_any_order(device: str, index: Any) -> None:
    rng = random.Random(int(np.dtype(index).itemsize))
    low = 0 if index is np.uint8 else -20
    for start, stop in [
        (0, 0),
        (5, 3),
        *((rng.randrange(low, 20), rng.randrange(low, 20)) for _ in range(3)),
    ]:
        out = np.zeros((45, 3), np.int32)
        walked[1, 1](out, index(start), index(stop), lanes=4, device=device)
        want = places(start, stop, 4)
        assert out[: len(want)].tolist() == want and out[len(want), 0] == -1


@cb.kernel
def fixed(out: cb.Array, n: cb.Comptime[int]):
    for k, valid in cb.lines(0, n, 4):
        for j in cb.unroll(range(cb.comptime(valid))):  # known even in the tail
            out[k + j] = out[k + j] + 1


@pytest.mark.parametrize("n", [0, 3, 8, 10])
def test_of_comptime_bounds_the_tail_is_comptime_too(device: str, n: int) -> None:
    out = np.zeros(12, np.int32)
    fixed[1, 1](out, n, device=device)
    assert out.tolist() == [1] * n + [0] * (12 - n)


@cb.func
def first_equal(x, value, lanes: cb.Comptime[int]):
    for k, valid in cb.lines(0, x.size, lanes):
        if valid == lanes:
            if not (x.load(k, lanes) == value).any():
                continue
        for j in range(valid):
            if x[k + j] == value:
                return k + j
    return -1


@cb.kernel
def searches(x: cb.Array, out: cb.Array):
    for i in range(out.size):
        out[i] = first_equal(x, cb.cast(i, cb.f32), 4)


def test_a_return_leaves_the_loop_and_the_tail(device: str) -> None:
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 8], F)
    out = np.zeros(11, np.int32)
    searches[1, 1](x, out, device=device)
    assert out.tolist() == [list(x).index(v) if v in x else -1 for v in range(11)]


@cb.kernel
def jumps(out: cb.Array, n, most, skipped):
    """Break, continue, variables that change, and what the loop's own variables are at its end."""
    turns = 0
    total = 0
    k, valid = -1, -1
    for k, valid in cb.lines(0, n, 4):
        if turns == most:
            break
        turns += 1
        if k == skipped:
            continue
        total += valid
        n = 0  # the bounds were looked at once
        k += 100
    out[0], out[1], out[2], out[3] = turns, total, k, valid


def jumped(n: int, most: int, skipped: int) -> list[int]:
    """What `jumps` writes, by Python."""
    turns, total, k, valid = 0, 0, -1, -1
    for k, valid, _ in places(0, n, 4):
        if turns == most:
            break
        turns += 1
        if k == skipped:
            continue
        total += valid
        k += 100
    return [turns, total, k, valid]


def test_break_and_continue_are_those_of_one_loop(device: str) -> None:
    rng = random.Random(5)
    for n, most, skipped in [
        (11, 9, 4), (11, 2, 0), (11, 3, 8), (12, 3, 8), (3, 0, 0), (0, 1, 0),
        *((rng.randrange(14), rng.randrange(5), 4 * rng.randrange(4)) for _ in range(4)),
    ]:  # fmt: skip
        out = np.zeros(4, np.int32)
        jumps[1, 1](out, n, most, skipped, device=device)
        assert out.tolist() == jumped(n, most, skipped), (n, most, skipped)


@cb.kernel
def row_tops(x: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int]):
    """Nested in a loop of rows that is left early, two of them, and in a func."""
    for r in range(x.shape[0]):
        if x[r, 0] == 99:
            break
        top = cb.splat(cb.cast(-float("inf"), cb.f32), lanes)
        for k, valid in cb.lines(0, x.shape[1], lanes):
            if valid == lanes:
                top = cb.max(top, x.load((r, k), lanes))
            else:
                for j in range(valid):
                    top = cb.max(top, cb.splat(x[r, k + j], lanes))
        total = cb.splat(cb.f32(0), lanes)
        for k, valid in cb.lines(0, x.shape[1], lanes):
            total += x.load((r, k), lanes, valid=valid)
        out[r, 0] = top.max()
        out[r, 1] = total.sum()


def test_loops_over_lines_nest_in_others(device: str) -> None:
    rng = np.random.default_rng(1)
    for columns in (3, 8, 21):
        x = rng.integers(-50, 50, (5, columns)).astype(F)
        x[3, 0] = 99
        out = np.full((5, 2), 7, F)
        row_tops[1, 1](x, out, lanes=8, device=device)
        np.testing.assert_array_equal(out[:3], np.stack([x.max(1), x.sum(1)], 1)[:3])
        assert (out[3:] == 7).all()


@cb.kernel
def reversed_lines(x: cb.Array, out: cb.Array):
    """Units swap their elements of a line; all of them go through every line."""
    board = cb.shared(cb.CUBE_DIM, x.dtype)
    for k, valid in cb.lines(0, x.size, cb.CUBE_DIM):
        if cb.UNIT_POS < valid:
            board[cb.UNIT_POS] = x[k + cb.UNIT_POS]
        cb.sync_cube()
        if cb.UNIT_POS < valid:
            out[k + cb.UNIT_POS] = board[valid - 1 - cb.UNIT_POS]
        cb.sync_cube()


def test_barriers_stand_in_a_loop_over_lines(device: str) -> None:
    x, out = np.arange(19, dtype=F), np.zeros(19, F)
    reversed_lines[1, 8](x, out, device=device)
    assert out.tolist() == [*range(7, -1, -1), *range(15, 7, -1), 18, 17, 16]


@cb.kernel
def runtime_lanes(x: cb.Array, n):
    for k, valid in cb.lines(0, x.size, n):
        x[k] = valid


@cb.kernel
def no_lanes(x: cb.Array):
    for k, valid in cb.lines(0, x.size, 0):
        x[k] = valid


@cb.kernel
def float_bound(x: cb.Array):
    for k, valid in cb.lines(0, x[0], 4):
        x[k] = valid


@cb.kernel
def float_literal(x: cb.Array):
    for k, valid in cb.lines(0, 2.5, 4):
        x[k] = valid


@pytest.mark.parametrize(
    ("kernel", "args", "error", "words"),
    [
        (runtime_lanes, (4,), ComptimeError, "lane count of cb.lines must be comptime"),
        (no_lanes, (), KernelTypeError, "at least one lane, not 0"),
        (float_bound, (), KernelTypeError, "cb.lines needs integers"),
        (float_literal, (), KernelTypeError, "cb.lines needs integers, not 2.5"),
    ],
)
def test_wrong_bounds_and_lanes_are_refused(
    device: str, kernel: Any, args: tuple[Any, ...], error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        kernel[1, 1](np.ones(9, F), *args, device=device)


@cb.kernel
def one_name(x: cb.Array):
    for k in cb.lines(0, x.size, 4):
        x[k] = 1


@cb.kernel
def written_out(x: cb.Array):
    for k, valid in cb.unroll(cb.lines(0, x.size, 4)):
        x[k] = valid


def test_the_compiler_says_how_the_loop_is_written() -> None:
    with pytest.raises(KernelSyntaxError, match="two variables") as caught:
        one_name[1, 1](np.ones(9, F))
    assert "for k, valid in cb.lines(start, stop, lanes):" in str(caught.value)
    with pytest.raises(ComptimeError, match="cb.unroll"):
        written_out[1, 1](np.ones(9, F))


def test_whole_lines_are_read_and_written_without_a_look_at_the_count() -> None:
    x = np.zeros(19, F)
    code = doubled.inspect(x, x.copy(), 0, 19, lanes=4, grid=(1, 1), mode="unchecked").python
    assert "load_line(x, k, 4)" in code and code.count("load_line_part") == 1
    assert code.count("store_line(") == 1 and code.count("store_line_part") == 1
