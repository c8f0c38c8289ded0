"""Recurrences against a loop in NumPy in float64: cells, directions, lengths, dtypes, and however
cubes share a step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.recurrent import panels_cpu as panels
from cubepy.kernels.recurrent import steps_cpu
from cubepy.kernels.recurrent.problem import GATES, Recurrence
from cubepy.kernels.recurrent.products_gpu import Products
from cubepy.kernels.recurrent.recurrence import packed, packed_codes, recurrence
from cubepy.runtime.device import use
from cubepy.tensor.array import apply
from tests.staging import WHERE, moved

RNG = np.random.default_rng(0)
ON_CPUS = pytest.mark.skipif(bool(WHERE), reason="plans and panels of the CPU")


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def step(cell: str, x: Any, sums: Any, states: list[Any], holes: Any) -> list[Any]:
    """The next states of one sequence, as the papers have them; x and sums are (G, H)."""
    if cell == "lstm":
        c = states[1]
        i, f, n, o = x + sums
        i, f = i + holes[0] * c, f + holes[1] * c
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(n)
        return [sigmoid(o + holes[2] * c) * np.tanh(c), c]
    if cell == "gru":
        reset, update = sigmoid(x[0] + sums[0]), sigmoid(x[1] + sums[1])
        new = np.tanh(x[2] + reset * sums[2])
        return [(1 - update) * new + update * states[0]]
    total = x[0] + sums[0]
    return [np.tanh(total) if cell == "tanh" else np.maximum(total, 0)]


def expected(
    cell: str,
    gates: Any,
    matrix: Any,
    bias: Any,
    peepholes: Any,
    lengths: Any,
    first: tuple[Any, ...],
    reverse: bool,
) -> list[Any]:
    """What `recurrence` gives, sequence after sequence."""
    length, batch, _ = gates.shape
    directions, _, width = first[0].shape
    x = gates.astype(np.float64).reshape(length, batch, directions, GATES[cell], width)
    m = matrix.astype(np.float64).reshape(directions, -1, width, width)
    b = np.zeros(m.shape[:3]) if bias is None else bias.astype(np.float64).reshape(m.shape[:3])
    holes = np.zeros((directions, 3, width))
    if peepholes is not None:
        holes = peepholes.astype(np.float64).reshape(directions, 3, width)
    y = np.zeros((length, batch, directions, width))
    last = [s.astype(np.float64).copy() for s in first]
    for d in range(directions):
        for row in range(batch):
            count = length if lengths is None else lengths[row]
            for s in range(count):
                t = count - 1 - s if reverse or d == 1 else s
                states = [k[d, row] for k in last]
                sums = m[d] @ states[0] + b[d]
                for k, new in zip(last, step(cell, x[t, row, d], sums, states, holes[d])):
                    k[d, row] = new
                y[t, row, d] = last[0][d, row]
    return [y.reshape(length, batch, directions * width), *last]


def drawn(
    cell: str,
    sizes: tuple[int, int, int, int],
    dtype: Any = np.float32,
    bias: bool = True,
    peepholes: bool = False,
    lengths: bool = False,
) -> tuple[Any, ...]:
    """Arguments of `recurrence`, with the matrix as it is."""
    length, batch, directions, width = sizes
    rows = GATES[cell] * width

    def some(*shape: int, by: float = 1.0) -> Any:
        return (RNG.standard_normal(shape) * by).astype(dtype)

    return (
        some(length, batch, directions * rows),
        some(directions, rows, width, by=width**-0.5),
        some(directions, rows, by=0.3) if bias else None,
        some(directions, 3 * width, by=0.3) if peepholes else None,
        RNG.integers(0, length + 1, batch).astype(np.int32) if lengths else None,
        tuple(some(directions, batch, width) for _ in range(2 if cell == "lstm" else 1)),
    )


@moved
def run(cell: str, given: tuple[Any, ...], reverse: bool = False) -> list[Any]:
    gates, matrix, *rest = given
    return recurrence(cell, gates, packed(matrix, cell), *rest, reverse)


def far(cell: str, given: tuple[Any, ...], reverse: bool = False) -> float:
    """How far results are from the loop's, relative to the largest of them, or 1."""
    found, wanted = run(cell, given, reverse), expected(cell, *given, reverse)
    scale = max(1.0, *(float(np.abs(w).max(initial=0)) for w in wanted))
    pairs = zip(found, wanted, strict=True)
    return max(float(np.abs(a.astype(np.float64) - b).max(initial=0)) for a, b in pairs) / scale


@pytest.mark.turns(6)
@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (7, 2, 2, 5), (6, 3, 1, 33), (5, 8, 2, 70), (4, 1, 1, 300)]
)
def test_states_are_those_of_the_loop(cell: str, sizes: tuple[int, int, int, int]) -> None:
    for options in ({}, {"bias": False}, {"lengths": True}, {"peepholes": cell == "lstm"}):
        for reverse in (False, True):
            assert far(cell, drawn(cell, sizes, **options), reverse) < 3e-6


@pytest.mark.parametrize(
    ("dtype", "most"), [(np.float64, 1e-14), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("cell", ["lstm", "gru", "relu"])
def test_dtypes(cell: str, dtype: Any, most: float) -> None:
    given = drawn(cell, (5, 3, 2, 40), dtype, lengths=True)
    assert all(r.dtype == dtype for r in run(cell, given))
    assert far(cell, given) < most


@ON_CPUS
@pytest.mark.parametrize("cut", [(1, 1, 2), (3, 1, 3), (2, 2, 2), (1, 4, 1)])
@pytest.mark.parametrize("threads", [1, 3])
def test_results_do_not_depend_on_how_cubes_share_a_step(
    cut: tuple[int, int, int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = drawn("lstm", (9, 4, 2, 100), lengths=True)
    monkeypatch.setattr(steps_cpu, "cut_of", lambda *_: (1, 1, 1))
    alone = run("lstm", given)
    monkeypatch.setattr(steps_cpu, "cut_of", lambda *_: cut)
    with cb.config.override(num_threads=threads, serial_elements=1):
        for _ in range(3):
            for one, other in zip(run("lstm", given), alone, strict=True):
                np.testing.assert_array_equal(one, other)


@ON_CPUS
def test_a_large_step_is_shared_and_a_small_one_is_not() -> None:
    def cut(batch: int, directions: int, width: int, cores: int) -> tuple[int, int, int]:
        properties = cb.device_properties_of("python")
        return steps_cpu.cut_of(
            "lstm", (9, batch, directions, width), 4, type(properties)("cpu", "some", cores)
        )

    assert cut(1, 1, 64, 4)[1:] == (1, 1)
    assert cut(1, 1, 768, 4)[1:] == (1, 4)
    assert cut(1, 2, 768, 4)[1:] == (1, 2)
    assert cut(32, 1, 96, 4)[1:] == (4, 1)


def test_states_that_are_not_there_stay_what_they_are() -> None:
    given = drawn("gru", (4, 3, 1, 6), lengths=True)
    given = (*given[:4], np.array([0, 4, 2], np.int32), given[5])
    y, h = run("gru", given)
    np.testing.assert_array_equal(h[:, 0], given[5][0][:, 0])
    assert not y[:, 0].any() and not y[2:, 2].any() and y[3, 1].any()
    none = (given[0][:0], *given[1:4], None, given[5])
    y, h = run("gru", none)
    assert y.shape == (0, 3, 6)
    np.testing.assert_array_equal(h, given[5][0])


def test_nan_stays_in_its_sequence() -> None:
    given = drawn("lstm", (4, 3, 1, 20))
    given[0][1, 1, 3] = np.nan
    y, h, _ = run("lstm", given)
    assert np.isnan(h[0, 1]).any() and np.isnan(y[2:, 1]).any()
    assert np.isfinite(y[:, [0, 2]]).all() and np.isfinite(y[0]).all()


@ON_CPUS
def test_panels_hold_every_number_once() -> None:
    given = drawn("gru", (1, 1, 2, 37))[1]
    found = packed(given, "gru")
    blocks, lanes = panels.panel_of(3, 32, cb.device_properties_of("cpu"))
    wide = blocks * lanes
    back = found.reshape(2, -1, 37, 3, wide).transpose(0, 3, 1, 4, 2).reshape(2, 3, -1, 37)
    np.testing.assert_array_equal(back[:, :, :37].reshape(given.shape), given)
    assert not back[:, :, 37:].any()


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_on_the_python_backend(cell: str) -> None:
    given = drawn(cell, (3, 2, 1, 3), lengths=True, peepholes=cell == "lstm")
    with use("python"):
        assert far(cell, given) < 1e-6


@pytest.mark.parametrize("cell", GATES)
def test_a_product_for_each_step(cell: str) -> None:
    """What a GPU runs where steps fill it."""
    given = drawn(cell, (5, 3, 2, 21), lengths=True, peepholes=cell == "lstm")
    gates, matrix, bias, holes, lengths, first = given
    for reverse in (False, True):
        y, last = np.zeros((5, 3, 42), np.float32), tuple(np.zeros_like(s) for s in first)
        turned = np.ascontiguousarray(matrix.transpose(0, 2, 1))
        problem = Recurrence(cell, gates, turned, bias, holes, lengths, first, reverse, y, last)
        few = replace(cb.device_properties_of("cpu"), plane_size=8)
        Products().launch(problem, few)
        for one, other in zip((y, *last), expected(cell, *given, reverse), strict=True):
            assert np.abs(one - other).max() < 3e-6 * max(1, np.abs(other).max())


def op(*inputs: Any, cell: str = "lstm") -> Any:
    given = [None if x is None else cb.tensor(x) for x in inputs]
    return apply("recurrence", *given, cell=cell, reverse=False)


def test_shapes_that_do_not_go_together() -> None:
    gates, matrix, bias, _, _, (h, c) = drawn("lstm", (3, 2, 1, 4))
    with pytest.raises(ShapeError, match=r"need gates \(length, 2, 16\), not \(3, 2, 15\)"):
        op(gates[..., :15], matrix, bias, None, None, h, c)
    with pytest.raises(ShapeError, match=r"matrix of shape \(1, 16, 4\) expected"):
        op(gates, matrix[:, :12], bias, None, None, h, c)
    with pytest.raises(ShapeError, match=r"lengths of shape \(2,\) expected, not \(3,\)"):
        op(gates, matrix, bias, None, np.zeros(3, np.int32), h, c)
    with pytest.raises(ShapeError, match="two first states"):
        op(gates, matrix, bias, None, None, h, None)
    with pytest.raises(ShapeError, match="with 1 or 2 first"):
        op(gates, matrix, bias, None, None, h[0], c[0])
    with pytest.raises(DTypeError, match="floats of one dtype expected, not f32 and f64"):
        op(gates, matrix.astype(np.float64), bias, None, None, h, c)
    with pytest.raises(DTypeError, match="lengths are integers"):
        op(gates, matrix, bias, None, np.zeros(2, np.float32), h, c)
    with pytest.raises(ShapeError, match="there is no cell 'mgu'"):
        op(gates, matrix, bias, None, None, h, c, cell="mgu")


def codes_expected(given: tuple[Any, ...], reverse: bool, joint: bool) -> list[Any]:
    """An LSTM whose states are rounded to codes before they are multiplied."""
    gates, codes, scales, lengths, first = given
    length, batch, _ = gates.shape
    directions, width, _ = codes.shape
    x = gates.astype(np.float64).reshape(length, batch, directions, 4, width)
    y, last = np.zeros((length, batch, directions, width)), [s.astype(np.float64) for s in first]
    for d in range(directions):
        for s in range(length):
            now = last[0][d].copy()
            for row in range(batch):
                count = length if lengths is None else lengths[row]
                if s >= count:
                    continue
                among = now if joint else now[row : row + 1]
                low, high = np.float32(min(among.min(), 0)), np.float32(max(among.max(), 0))
                scale = (high - low) / np.float32(255)
                zero = np.rint(-low / scale)
                found = np.clip(np.rint(now[row].astype(np.float32) / scale) + zero, 0, 255) - zero
                sums = found @ codes[d].astype(np.float64) * scales[d] * np.float64(scale)
                t = count - 1 - s if reverse or d == 1 else s
                states = [k[d, row] for k in last]
                new = step("lstm", x[t, row, d], sums.reshape(4, width), states, np.zeros(3))
                last[0][d, row], last[1][d, row] = new[0].astype(np.float32), new[1]
                y[t, row, d] = new[0]
    return [y.reshape(length, batch, -1), *last]


@ON_CPUS
@pytest.mark.parametrize("cut", [(1, 1, 1), (2, 1, 3), (3, 2, 1)])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 4), (6, 3, 2, 70), (4, 5, 1, 130)])
def test_an_lstm_of_codes_rounds_states_by_their_range(
    sizes: tuple[int, int, int, int], cut: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps_cpu, "cut_of", lambda *_: cut)
    gates, _, _, _, lengths, first = drawn("lstm", sizes, lengths=True)
    directions, width = sizes[2:]
    codes = RNG.integers(-128, 128, (directions, width, 4 * width)).astype(np.int8)
    scales = RNG.uniform(0.5, 1, (directions, 4 * width)).astype(np.float32) / (60 * width**0.5)
    more = codes.sum(1, dtype=np.int32), scales
    for reverse in (False, True):
        for joint in (False, True):
            found = recurrence(
                "lstm",
                gates,
                packed_codes(codes, "lstm"),
                None,
                None,
                lengths,
                first,
                reverse,
                more,
                joint,
            )
            given = gates, codes, scales, lengths, first
            for one, other in zip(found, codes_expected(given, reverse, joint), strict=True):
                assert np.abs(one - other).max() < 5e-3  # a code may be the next one
                assert np.abs(one - other).mean() < 1e-5


@ON_CPUS
def test_a_slice_that_is_done_twice_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if somebody had been held up in it: others do it again."""
    given = drawn("lstm", (30, 2, 1, 100))
    monkeypatch.setattr(steps_cpu, "cut_of", lambda *_: (2, 1, 1))
    alone = run("lstm", given)
    monkeypatch.setattr(steps_cpu, "cut_of", lambda *_: (2, 1, 4))
    with cb.config.override(num_threads=4, serial_elements=1):
        for kept in (0, steps_cpu.KEPT):
            monkeypatch.setattr(steps_cpu, "KEPT", kept)
            for _ in range(5):
                for one, other in zip(run("lstm", given), alone, strict=True):
                    np.testing.assert_array_equal(one, other)
