"""Gradients of recurrences in one launch against those of their formula, in random shapes, and
however cubes share a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.recurrent import back_cpu
from cubepy.kernels.recurrent.problem import GATES
from cubepy.kernels.recurrent.recurrence import recurrence_back
from cubepy.runtime.device import use
from cubepy.tensor.array import apply
from cubepy.tensor.control import recurrence as ops
from tests.kernels.recurrent.test_recurrence import drawn, run
from tests.staging import WHERE

ON_CPUS = pytest.mark.skipif(bool(WHERE), reason="a GPU has the formula")


def gradients(
    cell: str, given: tuple[Any, ...], by: list[Any], reverse: bool, monkeypatch: Any, fast: bool
) -> list[np.ndarray]:
    """Of all floats that a recurrence is given, by results whose gradients are given, too."""
    gates, matrix, bias, _, lengths, first = given
    tensors = [
        None if x is None else cb.tensor(x, requires_grad=x.dtype.kind == "f")
        for x in (gates, matrix, bias, None, lengths, first[0], first[1] if first[1:] else None)
    ]
    with monkeypatch.context() as patch:
        if not fast:
            patch.setattr(ops, "at_once", lambda *_: False)
        made = apply("recurrence", *tensors, cell=cell, reverse=reverse)
        sums = [(m * cb.tensor(w)).sum() for m, w in zip(made, by, strict=True) if w is not None]
        total = sums[0]
        for more in sums[1:]:
            total = total + more
        total.backward()
    return [t.grad.numpy() for t in tensors if t is not None and t.requires_grad]


@ON_CPUS
@pytest.mark.turns(6)
@pytest.mark.parametrize("cell", GATES)
@pytest.mark.parametrize(("dtype", "most"), [(np.float64, 1e-12), (np.float32, 5e-5)])
def test_gradients_are_those_of_the_formula(
    cell: str, dtype: Any, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng()
    for _ in range(4):
        steps, batch, directions = (int(rng.integers(1, n)) for n in (9, 9, 3))
        width = int(rng.choice([1, 2, 7, 16, 33, 70, 130]))
        options = {"bias": bool(rng.integers(2)), "lengths": bool(rng.integers(2))}
        given = drawn(cell, (steps, batch, directions, width), dtype, **options)
        reverse = bool(rng.integers(2))
        shapes = [(steps, batch, directions * width), *(s.shape for s in given[5])]
        by = [rng.standard_normal(s).astype(dtype) if rng.random() < 0.7 else None for s in shapes]
        if all(w is None for w in by):
            by[0] = np.ones(shapes[0], dtype)
        found, wanted = (
            gradients(cell, given, by, reverse, monkeypatch, fast) for fast in (True, False)
        )
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(
                a, b, rtol=0, atol=most * max(1, np.abs(b).max(initial=0)), err_msg=str(shapes)
            )


@ON_CPUS
@pytest.mark.parametrize("cell", ["lstm", "gru", "tanh"])
@pytest.mark.parametrize("cut", [(1, 1, 2), (3, 1, 3), (2, 2, 2), (1, 4, 1)])
@pytest.mark.parametrize("threads", [1, 3])
def test_gradients_do_not_depend_on_how_cubes_share_a_step(
    cell: str, cut: tuple[int, int, int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = drawn(cell, (9, 4, 2, 300), lengths=True)
    y, *last = run(cell, given)
    gates, matrix, bias, _, lengths, first = given
    by = tuple(np.ones_like(a) for a in (y, *last))

    def back() -> list[Any]:
        return recurrence_back(cell, gates, matrix, bias, lengths, first, y, by, False)

    monkeypatch.setattr(back_cpu, "cut_of", lambda *_: (1, 1, 1))
    alone = back()
    monkeypatch.setattr(back_cpu, "cut_of", lambda *_: cut)
    with cb.config.override(num_threads=threads, serial_elements=1):
        for _ in range(3):
            for one, other in zip(back(), alone, strict=True):
                np.testing.assert_array_equal(one, other)


@ON_CPUS
@pytest.mark.parametrize("cell", GATES)
def test_no_steps_pass_the_gradient_on(cell: str) -> None:
    gates, matrix, bias, _, _, first = drawn(cell, (1, 3, 1, 6))
    y = np.empty((0, 3, 6), np.float32)
    ends = tuple(np.full_like(s, 2) for s in first)
    found = recurrence_back(cell, gates[:0], matrix, bias, None, first, y, (None, *ends), False)
    for one in found[1 : 1 + len(first)]:
        np.testing.assert_array_equal(one, ends[0])


@ON_CPUS
@pytest.mark.parametrize("cell", ["lstm", "gru", "relu"])
def test_on_the_python_backend(cell: str) -> None:
    gates, matrix, bias, _, lengths, first = drawn(cell, (3, 2, 1, 3), lengths=True)
    y, *last = run(cell, (gates, matrix, bias, None, lengths, first))
    by = (y, *last)
    wanted = recurrence_back(cell, gates, matrix, bias, lengths, first, y, by, True)
    with use("python"):
        found = recurrence_back(cell, gates, matrix, bias, lengths, first, y, by, True)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
