"""Recurrences of cells that are not the usual ones: other activations, clipped sums, coupled gates,
and states that are weighed before they meet the matrix. Against their formula in ops, in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.recurrent import steps_cpu
from cubepy.kernels.recurrent.problem import GATES, USUAL, Cell, cell_of
from cubepy.tensor.control.recurrence import ACTIVATIONS, formula, recur, serves
from tests.staging import WHERE

ON_CPUS = pytest.mark.skipif(bool(WHERE), reason="a launch of CPUs: GPUs take steps")


def drawn_cell(rng: np.random.Generator, kind: str) -> str:
    names = [str(rng.choice([*ACTIVATIONS])) for _ in USUAL.get(kind, (kind,))]
    numbers = [(round(rng.uniform(0.1, 1.2), 2), round(rng.uniform(0, 1), 2)) for _ in names]
    functions = tuple((name, a, b) for name, (a, b) in zip(names, numbers, strict=True))
    clip = float(rng.choice([0, 0.5, 2]))
    coupled, before = bool(rng.integers(2)), bool(rng.integers(2))
    return Cell(kind, functions, clip, kind == "lstm" and coupled, kind == "gru" and before).text


def drawn(rng: np.random.Generator, kind: str) -> tuple[list[Any], bool]:
    """Gates, matrix, bias, peepholes, first states, lengths, and whether it goes back."""
    steps, batch = int(rng.choice([1, 3, 8])), int(rng.integers(1, 8))
    ways, width = int(rng.integers(1, 3)), int(rng.choice([1, 5, 16, 33, 70]))

    def some(*shape: int, there: bool = True) -> Any:
        return rng.standard_normal(shape) * width**-0.5 if there else None

    rows = ways, GATES[kind] * width
    bias = some(*rows, there=bool(rng.integers(2)))
    holes = some(ways, 3 * width, there=kind == "lstm" and bool(rng.integers(2)))
    first = [some(ways, batch, width) for _ in range(2 if kind == "lstm" else 1)]
    lengths = rng.integers(1, steps + 1, batch) if rng.integers(2) else None
    gates = rng.standard_normal((steps, batch, ways * rows[1]))
    given = [gates, some(*rows, width), bias, holes, *first, *[None] * (2 - len(first)), lengths]
    return given, bool(rng.integers(2))


def tensors(given: list[Any], dtype: Any) -> list[Any]:
    floats = [None if a is None else cb.tensor(a.astype(dtype)) for a in given[:-1]]
    return [*floats, None if given[-1] is None else cb.tensor(given[-1])]


def of_launch(cell: str, given: list[Any], dtype: Any, reverse: bool) -> list[Any]:
    gates, matrix, bias, holes, h, c, lengths = tensors(given, dtype)
    first = (h,) if c is None else (h, c)
    return recur(cell, gates, matrix, first, bias, holes, lengths, reverse)


def far(cell: str, given: list[Any], dtype: Any, reverse: bool) -> float:
    """How far one launch is from the formula."""
    wanted = formula(*tensors(given, np.float64), cell, reverse)
    found = of_launch(cell, given, dtype, reverse)
    pairs = [(a.numpy(), b.numpy()) for a, b in zip(found, wanted, strict=True)]
    return max(float(np.abs(a - b).max() / (1 + np.abs(b).max())) for a, b in pairs)


@ON_CPUS
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("seed", range(3))
def test_launches_are_formulas(kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    for _ in range(3):
        cell, (given, reverse) = drawn_cell(rng, kind), drawn(rng, kind)
        assert far(cell, given, np.float32, reverse) < 1e-5, cell
        assert far(cell, given, np.float64, reverse) < 1e-12, cell


@ON_CPUS
@pytest.mark.parametrize(
    "cell",
    [
        "gru sigmoid:0.0:0.0,tanh:0.0:0.0 0.0 0 1",
        "lstm hardsigmoid:0.2:0.5,tanh:0:0,softsign:0:0 1.5 0 0",
    ],
)
def test_cubes_that_share_steps(cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of states, of which both halves of a step are shared."""
    rng = np.random.default_rng(4)
    kind, width = cell_of(cell).kind, 96
    gates = rng.standard_normal((9, 3, 2 * GATES[kind] * width))
    matrix = rng.standard_normal((2, GATES[kind] * width, width)) * 0.1
    first = [rng.standard_normal((2, 3, width)) for _ in range(2 if kind == "lstm" else 1)]
    given = [gates, matrix, None, None, *first, *[None] * (2 - len(first)), np.array([9, 4, 7])]
    assert far(cell, given, np.float32, False) < 1e-5
    alone = [t.numpy() for t in of_launch(cell, given, np.float32, False)]
    for slices in (2, 3):
        monkeypatch.setattr(steps_cpu, "cut_of", lambda *_, n=slices: (3, 1, n))
        shared = of_launch(cell, given, np.float32, False)
        assert all(np.array_equal(a, b.numpy()) for a, b in zip(alone, shared, strict=True))


@ON_CPUS
def test_programs_of_them_have_a_plan() -> None:
    rng = np.random.default_rng(3)
    for kind in ("lstm", "gru", "gru", "tanh"):
        cell, width = drawn_cell(rng, kind), 16
        matrix = cb.tensor(rng.standard_normal((1, GATES[kind] * width, width)).astype(np.float32))
        first = tuple(
            cb.tensor(np.zeros((1, 1, width), np.float32))
            for _ in range(2 if kind == "lstm" else 1)
        )
        program = cb.jit(lambda g, c=cell, m=matrix, f=first: recur(c, g, m, f)[0] * 1)
        gates = cb.tensor(rng.standard_normal((5, 1, GATES[kind] * width)).astype(np.float32))
        for _ in range(9):
            program(gates)
        (made,) = (one for found in program.programs.values() for one in found)
        assert made.plan is not None, (cell, made.why)


@ON_CPUS
@pytest.mark.parametrize("kind", ["lstm", "gru", "tanh"])
def test_gradients_are_those_of_the_formula(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    cell, (given, reverse) = drawn_cell(rng, kind), drawn(rng, kind)
    found = []
    for run in (recur, formula):
        gates, matrix, bias, holes, h, c, lengths = tensors(given, np.float64)
        learns = [t for t in (gates, matrix, bias, holes, h, c) if t is not None]
        for t in learns:
            t.requires_grad_()
        if run is recur:
            assert serves(*learns)
            made = recur(
                cell, gates, matrix, (h,) if c is None else (h, c), bias, holes, lengths, reverse
            )
        else:
            made = formula(gates, matrix, bias, holes, h, c, lengths, cell, reverse)
        sum((t * t).sum() for t in made).backward()
        found.append([t.grad.numpy() for t in learns])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_texts_of_cells() -> None:
    rng = np.random.default_rng(0)
    for kind in GATES:
        assert cell_of(kind).text == kind
        text = drawn_cell(rng, kind)
        assert cell_of(text).text == text
        clipped = cell_of(kind)._replace(clip=1.0)
        assert cell_of(clipped.text) == clipped
