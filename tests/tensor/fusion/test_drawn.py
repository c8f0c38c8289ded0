"""Drawn programs give what their ops give one by one, and what NumPy gives.

Programs are of all kinds of steps (`drawn/steps.py`), and run for several sizes. What every pass
makes of their graphs is also checked without running it: the shapes and dtypes that it notes are
those that its ops have, which finds more in less time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import Tensor, record
from cubepy.tensor.fusion import parted
from cubepy.tensor.fusion.joined import join_parts
from cubepy.tensor.fusion.literals import read_literals
from cubepy.tensor.fusion.matrices import as_matrices
from cubepy.tensor.fusion.optimise import fused, fused_anew
from cubepy.tensor.fusion.parted import part_maps
from cubepy.tensor.fusion.schedule import graph_of, schedule_of
from cubepy.tensor.fusion.structures import known
from cubepy.tensor.ir import ABSENT, Graph
from cubepy.tensor.ops.op import infer
from cubepy.tensor.storage import HOST
from tests.tensor.fusion.drawn.programs import Program
from tests.tensor.fusion.drawn.steps import Unfit

NARROW = ("f32", "f16", "bf16", "f64")
JOINS = ("joins", "more joins", "halves", "narrowed pairs", "lifted pairs", "maps")


@pytest.fixture(autouse=True)
def structures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small graphs have structures, too, of which none is known."""
    monkeypatch.setattr(known, "_known", {})
    monkeypatch.setattr(known, "LEAST", 1)
    yield


def cases(program: Program, many: int) -> Iterator[tuple[list[Tensor], list[np.ndarray]]]:
    """Inputs of several sizes, and what NumPy gives for them."""
    for sizes in (program.sizes, *program.others(many)):
        given = program.inputs(sizes)
        tensors = [cb.tensor(x, d) for x, d in zip(given, program.kinds, strict=True)]
        first, second = tensors[:2]
        if program.twice and (first.shape, first.dtype) == (second.shape, second.dtype):
            given[1], tensors[1] = given[0], first
        want = program.in_numpy(given)
        if want is not None:
            yield tensors, want


def gradients_of(program: Program) -> Callable[..., list[Any]] | None:
    """The gradients of a sum of all results by all floats; None where there are none."""
    floats = [n for n, kind in enumerate(program.kinds) if kind.startswith("f")]
    if not floats or not all(program.floats[n] for n in program.wanted):
        return None

    def total(*given: Any) -> Any:
        return sum((((y.sin() if k else y) * 0.7).sum() for k, y in enumerate(program(*given))))

    return cb.grad(total, floats)  # type: ignore[no-any-return]


def agree(found: Any, want: Any, limit: float) -> None:
    """Whether arrays are the same up to a part of the largest element."""
    assert found.shape == want.shape
    a, b = (x.astype("f64").numpy() if isinstance(x, Tensor) else x for x in (found, want))
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    np.testing.assert_allclose(a, b, limit, limit * scale)


@pytest.mark.parametrize("families", [(), JOINS])
@pytest.mark.parametrize("seed", range(8))
def test_what_programs_give(seed: int, families: tuple[str, ...]) -> None:
    drawn = Program(seed, ("f64",), families)
    program = cb.jit(drawn.__call__)
    for n, (given, wanted) in enumerate(cases(drawn, 3)):
        at_once = drawn(*given)
        for one, want in zip(at_once, wanted, strict=True):
            if one.dtype is cb.f64 and "i32" not in drawn.kinds:
                agree(one, want, 1e-9)
        for _ in range(2 if n else 3):
            for found, one in zip(program(*given), at_once, strict=True):
                assert found.dtype is one.dtype
                agree(found, one, 1e-9)


@pytest.mark.parametrize("seed", range(100, 108))
def test_what_programs_of_several_dtypes_give(seed: int) -> None:
    drawn = Program(seed, NARROW)
    program = cb.jit(drawn.__call__)
    for given, _ in cases(drawn, 2):
        try:
            at_once = drawn(*given)
        except Unfit:  # NumPy has no bf16, and took two dtypes for one
            return
        for _ in range(3):
            for found, one in zip(program(*given), at_once, strict=True):
                assert found.dtype is one.dtype
                agree(found, one, 4e-2)


@pytest.mark.parametrize("seed", range(150, 158))
def test_what_programs_give_with_inputs_that_stay(seed: int) -> None:
    """Every other input is a weight: what is made of weights alone is made once."""
    drawn = Program(seed)
    for given, _ in cases(drawn, 2):
        program = cb.jit(lambda *free, given=given: drawn(*_mixed(free, given[1::2])))
        for _ in range(3):
            for found, one in zip(program(*given[::2]), drawn(*given), strict=True):
                agree(found, one, 1e-9)


def _mixed(free: tuple[Tensor, ...], kept: list[Tensor]) -> list[Tensor]:
    """Inputs in their order."""
    found = [t for pair in zip(free, kept, strict=False) for t in pair]
    return found if len(free) == len(kept) else [*found, free[-1]]


@pytest.mark.parametrize("seed", range(200, 208))
def test_what_gradients_give(seed: int) -> None:
    drawn = Program(seed)
    gradients = gradients_of(drawn)
    if gradients is None:
        return
    program = cb.jit(lambda *given: gradients(*given))
    for given, _ in cases(drawn, 2):
        at_once = gradients(*given)
        for _ in range(3):
            for found, one in zip(program(*given), at_once, strict=True):
                agree(found, one, 1e-8)


def right_specs(graph: Graph) -> None:
    """Whether the shapes and dtypes that a graph notes are those of its ops."""
    specs = graph.values
    for node in graph.nodes:
        if node.op != "input":
            given = [None if i == ABSENT else specs[i] for i in node.inputs]
            found = infer(node.op, given, dict(node.attrs))
            assert (tuple(found) if isinstance(found, list) else (found,)) == node.results


def graph_of_drawn(function: Callable[..., Any], given: list[Tensor]) -> Graph:
    with record(*given) as recorder:
        made = function(*given)
    return recorder.graph(*made)


def passes_note_right_specs(graph: Graph) -> None:
    """Passes that others may take back are asked, too."""
    schedule = schedule_of(graph).without_repeats()
    for one in (part_maps(schedule), join_parts(schedule), read_literals(schedule)):
        right_specs(graph_of(one))
        right_specs(graph_of(as_matrices(one)))
    right_specs(fused_anew(graph, HOST, ()).graph)


@pytest.mark.parametrize("families", [(), JOINS])
def test_passes_note_the_shapes_that_ops_have(families: tuple[str, ...]) -> None:
    for seed in range(60):
        drawn = Program(seed, ("f64",), families)
        for given, _ in cases(drawn, 0):
            passes_note_right_specs(graph_of_drawn(drawn, given))


def test_passes_note_the_shapes_of_gradients() -> None:
    for seed in range(40):
        drawn = Program(seed)
        gradients = gradients_of(drawn)
        for given, _ in cases(drawn, 0) if gradients else ():
            passes_note_right_specs(graph_of_drawn(gradients, given))  # type: ignore[arg-type]


@pytest.mark.parametrize("gradient", [False, True])
def test_other_sizes_are_fused_as_they_would_be_anew(gradient: bool) -> None:
    """Sizes that become equal, 0 or 1 by chance among them."""
    for seed in range(12):
        drawn = Program(seed)
        function = gradients_of(drawn) if gradient else drawn
        for given, _ in cases(drawn, 7) if function else ():
            graph = graph_of_drawn(function, given)  # type: ignore[arg-type]
            assert fused(graph) == fused_anew(graph, HOST, ())


def test_axes_counted_from_the_wrong_end_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of arrays of lower rank than the result, whose parts are planted wrong."""

    def parts(self: Any, i: int, cut: Any, whole: Any) -> Any:
        return right(self, i, cut, self.specs.get(i, whole))

    right = parted._Parts.parts
    monkeypatch.setattr(parted._Parts, "parts", parts)
    with pytest.raises((AssertionError, IndexError, cb.CubeError)):
        test_passes_note_the_shapes_that_ops_have(JOINS)
