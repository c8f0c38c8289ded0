"""Barriers inside loops, branches and funcs; what lives across them; shared memory of several
kinds.
"""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb

F = np.float32


@cb.func
def cube_sum(s, t, units: cb.Comptime[int]):
    """Sum of the first `units` elements of shared memory; every unit gets it. Holds barriers."""
    step = units // 2
    while step > 0:
        cb.sync_cube()
        if t < step:
            s[t] += s[t + step]
        step //= 2
    cb.sync_cube()
    total = s[0]
    cb.sync_cube()
    return total


@cb.kernel
def normalise(x: cb.Array, out: cb.Array):
    t = cb.UNIT_POS
    s = cb.shared(cb.CUBE_DIM, cb.f32)
    value = x[cb.CUBE_POS, t]
    s[t] = value
    mean = cube_sum(s, t, cb.CUBE_DIM) / cb.CUBE_DIM
    centred = value - mean
    s[t] = centred * centred
    variance = cube_sum(s, t, cb.CUBE_DIM) / cb.CUBE_DIM
    out[cb.CUBE_POS, t] = centred / cb.sqrt(variance)


def test_funcs_with_barriers_are_called_twice(device: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(F)
    out = np.zeros_like(x)
    normalise[3, 8](x, out, device=device)
    d = x.astype(np.float64)
    np.testing.assert_allclose(
        out, (d - d.mean(1, keepdims=True)) / d.std(1, keepdims=True), rtol=1e-5, atol=1e-6
    )


@cb.kernel
def loops_around(x: cb.Array, out: cb.Array, rounds, flags: cb.Array):
    t = cb.UNIT_POS
    s = cb.shared((2, 4), cb.i32)
    mine = cb.local(3, cb.i32)
    for k in cb.unroll(range(3)):
        mine[k] = x[t] + k
    s[0, t] = x[t]
    total = 0
    side = 0
    cb.sync_cube()
    for r in range(rounds):
        if flags[r] == 2:
            continue
        if flags[r] == 3:
            break
        for inner in range(r, r + 2):
            s[1 - side, t] = s[side, (t + 1) % 4] + inner
            mine[inner % 3] += s[side, t]
            cb.sync_cube()
            side = 1 - side
        if flags[r] == 1:
            cb.sync_cube()
            total += r
    for k in range(3):
        total += mine[k] * (10 if k == 1 else 1)
    out[cb.ABSOLUTE_POS] = total + s[side, t]


def reference(x: list[int], rounds: int, flags: list[int]) -> list[int]:
    s, side = [list(x), [0] * 4], 0
    mine = [[v, v + 1, v + 2] for v in x]
    totals = [0] * 4
    for r in range(rounds):
        if flags[r] == 2:
            continue
        if flags[r] == 3:
            break
        for inner in (r, r + 1):
            for t in range(4):
                s[1 - side][t] = s[side][(t + 1) % 4] + inner
                mine[t][inner % 3] += s[side][t]
            side = 1 - side
        if flags[r] == 1:
            totals = [v + r for v in totals]
    return [totals[t] + mine[t][0] + mine[t][1] * 10 + mine[t][2] + s[side][t] for t in range(4)]


def test_loops_with_barriers_continue_break_and_nest(device: str) -> None:
    x = np.array([3, 1, 4, 1], np.int32)
    for flags in ([0, 1, 0], [2, 1, 0], [1, 2, 3], [3, 0, 0]):
        out = np.zeros(8, np.int32)
        loops_around[2, 4](x, out, 3, np.array(flags, np.int32), device=device)
        assert out.tolist() == reference(x.tolist(), 3, flags) * 2, flags


@cb.kernel
def uniform_branches(x: cb.Array, out: cb.Array, swap):
    t = cb.UNIT_POS
    s = cb.shared(4, cb.f64)
    n = cb.shared(1, cb.u8)
    s[t] = x[t]
    if t == 0:
        n[0] = 200
    if swap > 0:
        cb.sync_cube()
        other = s[3 - t]
        if swap > 1:
            cb.sync_cube()
            s[t] = other * 2
            cb.sync_cube()
            other += s[(t + 1) % 4]
    else:
        other = cb.f64(-1)
        cb.sync_cube()
    if cb.CUBE_POS > 0:
        other += 100
        cb.sync_cube()
    out[cb.ABSOLUTE_POS] = other + n[0]


def test_barriers_in_branches_that_all_units_take(device: str) -> None:
    x = np.array([1, 2, 3, 4], F)
    for swap in (0, 1, 2):
        out = np.zeros(8, F)
        uniform_branches[2, 4](x, out, swap, device=device)
        other = np.full(4, -1.0) if swap == 0 else x[::-1].astype(np.float64)
        if swap == 2:
            other = other + np.roll(other * 2, -1)
        assert out.tolist() == [*(other + 200), *(other + 300)]


@cb.kernel
def shared_atomics(x: cb.Array, out: cb.Array):
    t = cb.UNIT_POS
    counts = cb.shared((2, 4), cb.i32)
    peak = cb.shared(1, cb.f32)
    if t < 4:
        counts[0, t] = 0
        counts[1, t] = 0
    if t == 0:
        peak[0] = -1.0
    cb.sync_cube()
    v = x[cb.ABSOLUTE_POS]
    cb.atomic_add(counts, (v % 2, v // 2), 1)
    cb.atomic_max(peak, 0, cb.cast(v, cb.f32) / 2)
    cb.sync_cube()
    if t < 4:
        cb.atomic_add(out, t, counts[0, t] + counts[1, t] * 100)
    if t == 0:
        cb.atomic_max(out, 4, cb.cast(peak[0] * 2, cb.i32))


@pytest.mark.parametrize("cubes", [1, 4])
def test_atomics_on_shared_memory(device: str, cubes: int) -> None:
    x = np.random.default_rng(1).integers(0, 8, cubes * 8).astype(np.int32)
    out = np.zeros(5, np.int32)
    shared_atomics[cubes, 8](x, out, device=device)
    count = np.bincount(x, minlength=8)
    assert out.tolist() == [*(count[::2] + count[1::2] * 100), x.max()]


@cb.kernel
def staged_lines(x: cb.Array, out: cb.Array):
    t = cb.UNIT_POS
    s = cb.shared(32, cb.f32)
    acc = cb.local(2, cb.f32, lanes=4)
    line = x.load((cb.CUBE_POS, t * 8), 8)
    s.store(t * 8, line * 2)
    acc[0] = cb.slice_line(line, 0, 4)
    acc[1] = cb.slice_line(line, 4, 4)
    cb.sync_cube()
    acc[0] += s.load((3 - t) * 8, 4)
    acc[1] = acc[1] - s.load((3 - t) * 8 + 4, 4)
    cb.sync_cube()
    out.store((cb.CUBE_POS, t * 8), cb.concat(acc[0], acc[1]))


def test_lines_in_shared_and_local_memory_across_barriers(device: str) -> None:
    x = np.random.default_rng(2).integers(-9, 9, (2, 30)).astype(F)
    out = np.zeros((2, 30), F)
    staged_lines[2, 4](x, out, device=device)
    full = np.zeros((2, 32), F)
    full[:, :30] = x
    rows = full.reshape(2, 4, 2, 4)
    sign = np.array([1, -1], F)[None, None, :, None]
    np.testing.assert_array_equal(out, (rows + sign * rows[:, ::-1] * 2).reshape(2, 32)[:, :30])


@cb.kernel
def tiled(a: cb.Array, b: cb.Array, c: cb.Array, *, tile: cb.Comptime[int] = 4):
    left, right = cb.shared((tile, tile), cb.f32), cb.shared((tile, tile), cb.f32)
    ty, tx = cb.UNIT_POS_Y, cb.UNIT_POS_X
    row, col = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    acc = 0.0
    for k in range(0, a.shape[1], tile):
        left[ty, tx] = a[row, k + tx]
        right[ty, tx] = b[k + ty, col]
        cb.sync_cube()
        for j in range(tile):
            acc += left[ty, j] * right[j, tx]
        cb.sync_cube()
    c[row, col] = acc


def test_a_tiled_product_with_ragged_edges(device: str) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(-4, 5, (7, 9)).astype(F), rng.integers(-4, 5, (5, 9)).astype(F).T
    c = np.zeros((7, 5), F)
    tiled[(2, 2), (4, 4)](a, b, c, device=device)
    np.testing.assert_array_equal(c, a @ b)


@cb.kernel
def scan(x: cb.Array, out: cb.Array):
    t = cb.UNIT_POS
    s = cb.shared(cb.CUBE_DIM, cb.i64)
    s[t] = x[t]
    reach = 1
    while reach < cb.CUBE_DIM:
        cb.sync_cube()
        before = cb.i64(0)
        if t >= reach:
            before = s[t - reach]
        cb.sync_cube()
        s[t] += before
        reach *= 2
    cb.sync_cube()
    out[t] = s[cb.CUBE_DIM - 1 - t]


def test_a_scan_in_a_while_loop(device: str) -> None:
    x = np.arange(1, 14, dtype=np.int64) ** 9
    out = np.zeros(13, np.int64)
    scan[1, 13](x, out, device=device)
    np.testing.assert_array_equal(out, np.cumsum(x)[::-1])


def test_many_cubes_keep_what_lives_across_barriers_apart() -> None:
    x = np.random.default_rng(4).standard_normal((10000, 16)).astype(F)
    out = np.zeros_like(x)
    normalise[10000, 16](x, out, device="cpu")
    d = x.astype(np.float64)
    np.testing.assert_allclose(
        out, (d - d.mean(1, keepdims=True)) / d.std(1, keepdims=True), rtol=1e-3, atol=1e-5
    )


@cb.kernel
def alone(x: cb.Array, out: cb.Array, rounds):
    t = cb.UNIT_POS
    i = cb.ABSOLUTE_POS
    s = cb.shared(1, cb.f32)
    mine = cb.local(2, cb.f32)
    value = x[i]
    mine[t] = value
    s[t] = value * 2
    cb.sync_cube()
    for r in range(rounds):
        value += s[0] + mine[t] + r
        cb.sync_cube()
        if x[0] > 0:
            s[t] = value
            cb.sync_cube()
    out[i] = value


def test_a_cube_of_one_unit_keeps_what_lives_across_barriers(device: str) -> None:
    x, out = np.array([1, 2, 3], F), np.zeros(3, F)
    alone[3, 1](x, out, 2, device=device)
    assert out.tolist() == [v + (v * 2 + v) + (v * 4 + v + 1) for v in x]


@cb.kernel
def lines_across(x: cb.Array, out: cb.Array):
    v = x.load(cb.UNIT_POS * 4, 4)
    cb.sync_cube()
    out.store(cb.UNIT_POS * 4, v + cb.UNIT_POS)


@pytest.mark.parametrize("units", [1, (1, 1, 1), 2, (1, 2), (1, 1, 2), 300])
def test_lines_live_across_barriers_in_cubes_of_any_shape(
    device: str, units: int | tuple[int, ...]
) -> None:
    count = int(np.prod(units))
    x = np.arange(4 * count, dtype=F)
    out = np.zeros_like(x)
    lines_across[1, units](x, out, device=device)
    np.testing.assert_array_equal(out, x + np.repeat(np.arange(count), 4))


@cb.kernel
def prefixes(x: cb.Array, out: cb.Array, rounds):
    """Loops of one unit that it leaves at its own place, between barriers of all."""
    t = cb.UNIT_POS
    s = cb.shared(cb.CUBE_DIM, cb.f32)
    total = cb.f32(0)
    if rounds > 0:
        s[t] = x[t]
        cb.sync_cube()
        for j in range(cb.CUBE_DIM):
            if j > t:
                break
            total += s[j]
        cb.sync_cube()
    for r in range(rounds):
        s[t] = x[t] * r
        cb.sync_cube()
        if t & 1:
            for j in range(cb.CUBE_DIM):
                if j == t:
                    continue
                total += s[j]
        cb.sync_cube()
        if r * r > rounds:
            break
    turns, left = 0, rounds
    while turns < 9:
        turns += 1
        left -= 2
        if left < 0:
            break
    for r in range(turns):
        s[t] = total
        cb.sync_cube()
        total = s[(t + 1) % cb.CUBE_DIM] + r
        cb.sync_cube()
    out[t] = total


def test_units_leave_loops_of_their_own_between_barriers(device: str) -> None:
    x = np.arange(1, 7, dtype=F)
    for rounds in (0, 1, 5):
        out = np.zeros(6, F)
        prefixes[1, 6](x, out, rounds, device=device)
        want = [float(x[: t + 1].sum()) if rounds else 0.0 for t in range(6)]
        for r in range(rounds):
            want = [w + (r * (x.sum() - x[t]) if t & 1 else 0) for t, w in enumerate(want)]
            if r * r > rounds:
                break
        for r in range(rounds // 2 + 1):
            want = [want[(t + 1) % 6] + r for t in range(6)]
        assert out.tolist() == want, rounds


@cb.kernel
def meetings_of_a_plane(x: cb.Array, out: cb.Array):
    """Each unit takes its own number of turns, in some of which its plane meets."""
    u, shared = cb.UNIT_POS, cb.shared(cb.CUBE_DIM, cb.f32)
    shared[u] = x[cb.ABSOLUTE_POS]
    n = cb.cast(x[cb.ABSOLUTE_POS], cb.i32)
    total = cb.f32(0)
    while n > 0:
        total += shared[u] * n
        if n % 2 == 0:
            shared[u] = shared[u] + 1
            cb.sync_plane()
        n -= 1
    cb.sync_cube()
    out[cb.ABSOLUTE_POS] = total + shared[cb.CUBE_DIM - 1 - u]


@pytest.mark.parametrize("units", [1, 2, 3, 6])
@pytest.mark.parametrize("mode", ["checked", "validate", "unchecked"])
def test_planes_of_one_unit_meet_anywhere(units: int, mode: str) -> None:
    """On a CPU a plane is one unit, which waits for nobody."""
    x = np.array([3, 5, 1, 0, 2, 7], np.float32)
    out, want = np.zeros(6, np.float32), np.zeros(6, np.float32)
    meetings_of_a_plane[6 // units, units](x, out, mode=mode, device="cpu")
    meetings_of_a_plane[6 // units, units](x, want, device="python")
    assert out.tolist() == want.tolist()
