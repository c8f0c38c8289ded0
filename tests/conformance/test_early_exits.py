"""Early returns, break and continue: every backend goes where Python goes, and code grows with the
source only.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb

F = np.float32


@cb.func
def graded(v, limits, *, over: cb.Comptime[tuple]):
    """Returns out of branches that others leave by their end, and out of an unrolled loop."""
    total = v * 0
    if v > limits[0]:
        total += 1
        if v > limits[1]:
            return total, v
        total += 10
    for k in over:
        if v < k:
            total += 100
            if total > 200 + k:
                continue
            if v < -k:
                return total, v - k
            total += 3
        if total > 900:
            break
        total += k
    if total < 50:
        if v > 2:
            total = -total
            if v > 3:
                return total, v * 2
    return total + 0.5, v


@cb.kernel
def exits(x: cb.Array, limits, out: cb.Array, *, turns: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS
    if i >= out.shape[0]:
        return
    v = x[i]
    total, w = graded(v, limits, over=tuple(range(turns)))
    out[i, 0] = total
    out[i, 1] = w
    last = 7
    for last in cb.unroll(range(turns)):
        if v < last:
            if w > 1:
                out[i, 2] += last
                break
            continue
        out[i, 2] += (10, 20, 30, 40, 50)[last]
    out[i, 3] = last
    if v > 1:
        out[i, 4] = 1
        if w > 4:
            return
        out[i, 4] = 2
    elif v < -1:
        if w < -3:
            out[i, 4] = 3
            return
    for k in range(3):
        if v == k:
            return
        out[i, 5] += 1
    out[i, 4] += 10


def exits_of_python(v: float, limits: tuple[int, int], turns: int) -> list[float]:
    total, w = graded(v, limits, over=tuple(range(turns)))
    out = [total, w, 0, 0, 0, 0]
    last = 7
    for last in range(turns):
        if v < last:
            if w > 1:
                out[2] += last
                break
            continue
        out[2] += (10, 20, 30, 40, 50)[last]
    out[3] = last
    if v > 1:
        out[4] = 1
        if w > 4:
            return out
        out[4] = 2
    elif v < -1 and w < -3:
        out[4] = 3
        return out
    for k in range(3):
        if v == k:
            return out
        out[5] += 1
    out[4] += 10
    return out


@pytest.mark.parametrize("turns", [0, 1, 3, 5])
def test_every_path_goes_where_python_goes(device: str, turns: int) -> None:
    x = np.arange(-6, 7, dtype=F)
    out = np.zeros((13, 6), F)
    exits[4, 4](x, (1, 5), out, turns=turns, device=device)
    assert out.tolist() == [exits_of_python(float(v), (1, 5), turns) for v in x]


@cb.kernel
def after_loops(n, start, out: cb.Array):
    k = 5
    for k in range(n):
        pass
    out[0] = k
    for start in range(1, n):
        out[1] += start
    out[2] = start
    j = 2.5
    if n > 1:
        for j in range(n, n + 2):
            pass
    out[3] = j
    for i in range(3):
        pass
    out[4] = i
    for m in cb.unroll(range(4)):
        if m >= n:
            break
        out[5] += (1, 10, 100, 1000)[m]
    out[6] = m
    for turn in range(2):
        m = turn + 20
        for m in range(turn, n):
            pass
        out[7] += m
    for a, b in cb.unroll(((1, 2), (3, 4), (5, 6))):
        if a > n:
            break
    out[8] = a * 10 + b


@pytest.mark.parametrize("n", [0, 1, 3, 6])
def test_the_variable_of_a_loop_after_it(device: str, n: int) -> None:
    out = np.zeros(9, F)
    after_loops[1, 1](n, 9, out, device=device)
    last = n - 1
    steps = min(n, 4)
    m = min(n, 3)
    inner = sum(last if turn < n else turn + 20 for turn in range(2))
    pair = next(((a, b) for a, b in ((1, 2), (3, 4)) if a > n), (5, 6))
    assert out.tolist() == [last if n else 5, n * last / 2, last if n > 1 else 9, n + 1 if n > 1 else 2.5, 2,
                            [0, 1, 11, 111, 1111][steps], m, inner, pair[0] * 10 + pair[1]]  # fmt: skip


def loaded(folder: Path, name: str, body: list[str]) -> Callable[..., Any]:
    path = folder / f"{name}.py"
    path.write_text("import cubepy as cb\n\n@cb.kernel\ndef grown(x: cb.Array, out: cb.Array):\n    i = cb.ABSOLUTE_POS\n"
                    + "\n".join(body) + "\n    out[i] += 1\n")  # fmt: skip
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.grown  # type: ignore[no-any-return]


def nested_returns(count: int) -> list[str]:
    return [line for k in range(count) for line in (
        f"    if x[i] > {k}:", f"        out[i] += {k}", f"        if x[i + 1] > {k}:", "            return")]  # fmt: skip


def leaving_turns(count: int) -> list[str]:
    return [f"    for k in cb.unroll(range({count})):", "        if x[i] > k:", "            if x[i + 1] > k:",
            "                continue", "            out[i] += k", "            if x[i + 2] > k:",
            "                return", "        out[i] += 0.5"]  # fmt: skip


@pytest.mark.parametrize("body", [nested_returns, leaving_turns])
def test_code_grows_with_the_source(tmp_path: Path, body: Callable[[int], list[str]]) -> None:
    x, out = np.zeros(9, F), np.zeros(4, F)
    lines = []
    for count in (4, 8, 12):
        kernel: Any = loaded(tmp_path, f"grown_{body.__name__}_{count}", body(count))
        lines.append(len(kernel[1, 4].inspect(x, out, device="cpu").python.splitlines()))
    assert lines[2] - lines[1] == lines[1] - lines[0]


@pytest.mark.parametrize("body", [nested_returns, leaving_turns])
def test_many_early_returns_give_what_python_gives(
    device: str, tmp_path: Path, body: Callable[[int], list[str]]
) -> None:
    kernel: Any = loaded(tmp_path, f"many_{body.__name__}", body(12))
    x = np.random.default_rng(3).uniform(-2, 14, 66).astype(F)
    results = []
    for where in (device, "python"):
        out = np.zeros(64, F)
        kernel[4, 16](x, out, device=where)
        results.append(out)
    np.testing.assert_array_equal(*results)
    assert len(np.unique(results[0])) > 5


@cb.kernel
def barrier_between_returns(x: cb.Array, out: cb.Array, n):
    """All units or none return before the barrier; after it, each for itself."""
    i = cb.UNIT_POS
    s = cb.shared(8, cb.f32)
    if n > 2:
        if n > 4:
            out[i] = 100.0
            return
    else:
        out[i] = 1.0
    s[i] = x[i]
    cb.sync_cube()
    out[i] = s[7 - i]
    if x[i] > 3:
        if x[i] > 5:
            return
    else:
        out[i] += 10
    out[i] += 100


@pytest.mark.parametrize("n", [1, 3, 5])
def test_a_return_of_some_units_behind_a_barrier_leaves_one_of_all_before_it_uniform(
    n: int, device: str
) -> None:
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    barrier_between_returns[1, 8](x, out, n, device=device)
    after = [7.0 - v + (0 if v > 5 else 100 if v > 3 else 110) for v in range(8)]
    assert out.tolist() == ([100.0] * 8 if n > 4 else after)


@cb.kernel
def barrier_between_loops(x: cb.Array, out: cb.Array, n):
    """All units or none return from the first loop; from later ones, each for itself."""
    i = cb.UNIT_POS
    s = cb.shared(8, cb.f32)
    for k in range(3):
        for _ in range(2):
            if n > 2 + k:
                out[i] = 100.0 + k
                return
        out[i] += 1
    s[i] = x[i]
    cb.sync_cube()
    out[i] += s[7 - i]
    if n > 0:
        m = 0
        while m < 4:
            if x[i] > m + 3:
                return
            m += 1
    else:
        for k in range(3):
            if x[i] < k:
                return
    out[i] += 50


@pytest.mark.parametrize("n", [0, 1, 3, 5])
def test_a_return_of_some_units_from_a_loop_leaves_a_loop_before_the_barrier_uniform(
    n: int, device: str
) -> None:
    x, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    barrier_between_loops[1, 8](x, out, n, device=device)
    stays = [v < 4 if n > 0 else v > 1 for v in range(8)]
    after = [3 + 7.0 - v + (50 if stay else 0) for v, stay in enumerate(stays)]
    assert out.tolist() == ([100.0] * 8 if n > 2 else after)


@cb.func
def first_above(x, i, low):
    """A value on some paths only: others reach the end."""
    if x[i] > low:
        return x[i]


@cb.func
def first_in_a_row(x, n, low):
    """A value on some paths only: others meet a return without one."""
    for k in range(n):
        if x[k] < 0:
            return
        if x[k] > low:
            return x[k]
    return low


@cb.func
def noted(x, i, out):
    """Stores on all paths, and gives a value on some."""
    if x[i] > 2:
        out[i] += 1
        return x[i]
    out[i] += 2


@cb.func
def handed_on(x, i, low):
    return first_above(x, i, low)


@cb.func
def next_above(x, i, low):
    """The loop has no other end than its return."""
    while True:
        i = (i + 1) % x.size
        if x[i] > low:
            return x[i]


@cb.kernel
def stores_it(f: cb.Comptime, x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = f(x, i, 2)


@cb.kernel
def names_it(f: cb.Comptime, x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    found = f(x, i, 2)
    out[i] = 1.0
    out[i] += found


@cb.kernel
def asks_for_none(f: cb.Comptime, x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    found = f(x, i, 2)
    if found is None:
        out[i] = 1.0


@cb.kernel
def hands_it_on(f: cb.Comptime, x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = next_above(x, i, f(x, i, 2))


@cb.kernel
def carries_it_on(f: cb.Comptime, x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    found = x[i]
    for k in range(i):
        found = f(x, k, 2)
    out[i] = found


@cb.kernel
def does_without(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    noted(x, i, out)
    unused = noted(x, i, out)
    for k in range(2):
        unused = noted(x, i, out)
    out[i] += 10 * next_above(x, i, 2)


@cb.func
def noted_of_some(x, i, out, times):
    """Gives nothing at all where `times` is 0."""
    for j in range(times):
        if x[i] > j:
            out[i] += 1
            return x[i]
    out[i] += 2


@cb.kernel
def does_without_in_loops(x: cb.Array, out: cb.Array, turns):
    i = cb.ABSOLUTE_POS
    for k in cb.unroll(range(3)):
        for m in range(turns):
            for n in range(2):
                unused = noted_of_some(x, i, out, k % 2)


def test_a_value_that_nobody_uses_changes_in_loops_inside_loops(device: str) -> None:
    x, out = np.float32([0, 1, -1]), np.zeros(3, np.float32)
    does_without_in_loops[3, 1](x, out, 2, device=device)
    assert out.tolist() == [24.0, 20.0, 24.0]


@pytest.mark.parametrize("f", [first_above, first_in_a_row, handed_on])
@pytest.mark.parametrize(
    ("kernel", "place"),
    [
        (stores_it, "out[i] = f(x, i, 2)"),
        (names_it, "out[i] += found"),
        (asks_for_none, "if found is None:"),
        (hands_it_on, "out[i] = next_above(x, i, f(x, i, 2))"),
        (carries_it_on, "found = f(x, k, 2)"),
    ],
)
def test_a_value_that_some_paths_do_not_give_is_refused_where_it_is_used(
    f: Any, kernel: Any, place: str, device: str
) -> None:
    out = np.zeros(4, F)
    with pytest.raises(cb.errors.KernelTypeError, match="on some paths only") as caught:
        kernel[4, 1](f, np.arange(4, dtype=F), out, device=device)
    shown = str(caught.value)
    assert f"        {place}\n" in shown and "Hint: return a value on every path" in shown
    name = "first_above" if f is handed_on else f.__name__
    assert shown.startswith(f"{name} returns a value on some paths only")


@cb.kernel
def held_nothing(x: cb.Array, out: cb.Array, n):
    """At first its func gives none on any path, since how often its loop runs is comptime."""
    i = cb.ABSOLUTE_POS
    unused = in_turns(x, i, 0, out)
    for _ in range(n):
        unused = in_turns(x, i, n, out)
    out[i] += 10


@cb.func
def in_turns(x, i, turns, out):
    for k in range(turns):
        if x[i] > k:
            return x[i]
    out[i] += 1


def test_a_name_of_none_may_be_given_a_value_on_some_paths_in_a_loop(device: str) -> None:
    x, out = np.arange(4, dtype=F), np.zeros(4, F)
    held_nothing[4, 1](x, out, 2, device=device)
    assert out.tolist() == [13.0, 11.0, 11.0, 11.0]


def test_a_func_may_give_a_value_on_some_paths_if_nobody_uses_it(device: str) -> None:
    x, out = np.arange(4, dtype=F), np.zeros(4, F)
    does_without[4, 1](x, out, device=device)
    assert out.tolist() == [8 + 30, 8 + 30, 8 + 30, 4 + 30]
