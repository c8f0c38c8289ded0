"""Programs on a GPU: launches of a plan, and graphs where the same memory comes again, with effects
as on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.runtime.memory.spans import beginning
from cubepy.runtime.replay.record import Recorder
from cubepy.tensor import Tensor, apply, concat
from cubepy.tensor.exposed import untouched
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.op import Spec, define
from cubepy.tensor.program.plans import gpu
from cubepy.tensor.program.plans.operands import ProgramOperands
from cubepy.tensor.program.plans.steady import renew
from tests.backends.gpu.fake_driver import CAPTURE_INVALIDATED, FakeDriver, here
from tests.runtime.replay.gpu_calls import new, plus, same, some


@pytest.fixture
def adding() -> Iterator[str]:
    """The name of an op whose kernel the pretended driver has."""

    @define("map", {"adding": lambda dtype, x, y: plus(x, y if y.shape else y.reshape((1,)))})
    def rule(x: Spec, y: Spec) -> Spec:
        return x

    yield "adding"
    del OPS["adding"]


@pytest.fixture
def as_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few launches are graphs, too."""
    monkeypatch.setattr(gpu, "FEW", 0)


def test_a_few_launches_are_no_graph_and_read_arguments_where_they_are(
    fake: FakeDriver, adding: str
) -> None:
    """Small results are one memory of each call."""
    program = cb.jit(lambda x, y: (apply(adding, x, y), apply(adding, y, y)))
    results: list[Any] = []
    for _ in range(12):
        x, y = some(64), some(64)
        found = program(cb.tensor(new(x)), cb.tensor(new(y)))
        results += zip(found, (x + y, y + y), strict=True)
        del results[:-6]
        for one, want in results:
            same(one.storage.array, want)
    assert found[0].storage.array.owner is found[1].storage.array.owner
    ((made,),) = program.programs.values()
    assert made.plan.launches == 2 and not hasattr(made.call.__globals__["run"], "captured")
    assert not made.operands.brought and not made.operands.small


def test_a_program_is_launched_as_a_graph(fake: FakeDriver, adding: str, as_graphs: None) -> None:
    kept = cb.tensor(new(np.zeros(64, np.float32)))

    def function(x: Tensor, y: Tensor) -> Tensor:
        z = apply(adding, x, y)
        kept.assign_(apply(adding, kept, z))
        return apply(adding, z.reshape(8, 8).reshape(64), z)

    program, total, results = cb.jit(function), np.zeros(64, np.float32), []
    for _ in range(24):
        x, y = some(64), some(64)
        given = cb.tensor(new(x)), cb.tensor(new(y))
        found, total = program(*given), total + (x + y)
        assert found.device == kept.device == given[0].device
        results.append((found, (x + y) * 2))
        del results[:-3]
        for one, want in results:
            same(one.storage.array, want)
        same(kept.storage.array, total)
    ((made,),) = program.programs.values()
    assert made.plan.launches == 3
    graphs = made.call.__globals__["run"]
    assert 1 <= graphs.captured <= 8 and graphs.replayed >= 8


def test_parts_of_an_argument_that_are_joined_again_are_a_view(
    fake: FakeDriver, adding: str
) -> None:
    """The program has a plan, and the result is the memory of this call's argument."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        parts = x[:20], x[20:50], x[50:]
        whole = concat([concat(parts[:2]), parts[2]])
        for n in range(24):  # each of these is looked at once
            whole = concat([whole[: n + 1], whole[n + 1 :]])
        return whole[8:].reshape(7, 8), apply(adding, x, y)

    program = cb.jit(function)
    for _ in range(8):
        x, y = some(64), some(64)
        given = cb.tensor(new(x)), cb.tensor(new(y))
        whole, total = program(*given)
        same(whole.storage.array, x[8:].reshape(7, 8))
        same(total.storage.array, x + y)
        assert whole.storage.array.address == given[0].storage.array.address + 32
    ((made,),) = program.programs.values()
    assert made.plan is not None, made.why


def test_memory_that_never_comes_again_makes_no_graph(
    fake: FakeDriver, adding: str, monkeypatch: pytest.MonkeyPatch, as_graphs: None
) -> None:
    monkeypatch.setattr(gpu, "BROUGHT", 0)

    def function(x: Tensor) -> Tensor:
        for _ in range(3):
            x = apply(adding, x, x)
        return x

    program, kept = cb.jit(function), []
    for n in range(12):
        kept.append(cb.tensor(new(np.full(16, n, np.float32))))
        same(program(kept[-1]).storage.array, np.full(16, 8 * n, np.float32))
    ((made,),) = program.programs.values()
    assert made.call.__globals__["run"].captured == 0


def test_captures_that_fail_cost_a_graph_alone(
    fake: FakeDriver, adding: str, monkeypatch: pytest.MonkeyPatch, as_graphs: None
) -> None:
    def spoiled(self: FakeDriver, handle: int, out: Any) -> int:
        end(self, handle, out)
        return CAPTURE_INVALIDATED

    end = FakeDriver.end_capture
    monkeypatch.setattr(FakeDriver, "end_capture", spoiled)
    program = cb.jit(lambda x: apply(adding, apply(adding, apply(adding, x, x), x), x))
    for n in range(8):
        found = program(cb.tensor(new(np.full(16, n, np.float32))))
        same(found.storage.array, np.full(16, 4 * n, np.float32))
    ((made,),) = program.programs.values()
    graphs = made.call.__globals__["run"]
    assert graphs.captured and not graphs.graphs and "ending a capture" in graphs.why


def test_a_program_inside_a_capture(fake: FakeDriver, adding: str) -> None:
    """It is recorded op by op, whatever it was before."""
    program = cb.jit(lambda x: apply(adding, apply(adding, apply(adding, x, x), x), x))
    x = cb.tensor(new(np.ones(16, np.float32)))
    for _ in range(6):
        same(program(x).storage.array, np.full(16, 4, np.float32))
    with cb.capture(here()) as graph:
        y = program(x)
    graph.put(x, np.full(16, 2, np.float32))
    graph.replay()
    same(y.storage.array, np.full(16, 8, np.float32))
    assert graph.kernels == 3


def test_what_is_kept_of_memory_that_a_program_writes_holds_no_more(fake: FakeDriver) -> None:
    """Weights of a convolution in another program could be a tensor that an op writes in place."""

    def run(dtype: Any, x: Any, y: Any) -> Any:
        plus(x, y, out=x)
        return plus(x, y)

    @define("map", {"adding_into": run}, writes=(0,))
    def rule(x: Spec, y: Spec) -> Spec:
        return x

    try:
        written = cb.tensor(new(np.zeros(16, np.float32)))
        program = cb.jit(lambda y: apply("adding_into", written, y))
        total = np.zeros(16, np.float32)
        for _ in range(8):
            y = some(16)
            renew()  # what programs saw has arrays, too
            held = untouched(written.storage)
            found, total = program(cb.tensor(new(y))), total + y
            same(found.storage.array, total + y)
            assert held is None or not held.holds
        ((made,),) = program.programs.values()
        assert made.plan is not None and held is not None
    finally:
        del OPS["adding_into"]


def test_what_is_computed_of_constants_is_no_step(fake: FakeDriver, adding: str) -> None:
    """Numbers of numbers, as means give to gradients, are computed on the host while a program is
    recorded.
    """

    def function(x: Tensor) -> Tensor:
        one = apply("constant", value=3.0, dtype="f32")
        return apply(adding, x, (one / 8).sqrt() * (one - 1))

    program = cb.jit(function)
    for n in range(6):
        found = program(cb.tensor(new([n])))
        want = [n + np.sqrt(3 / 8) * 2]
        np.testing.assert_allclose(found.storage.array.numpy(), want, rtol=1e-6)
    ((made,),) = program.programs.values()
    assert made.plan is not None, made.why
    assert made.plan.launches == 1


def test_results_that_no_launch_writes(fake: FakeDriver, adding: str) -> None:
    """Empty ones, and constants of the program, beside those of launches."""
    kept = cb.tensor(new([1, 2, 3]))

    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return apply(adding, x, x), x[3:], kept[1:]

    program = cb.jit(function)
    for _ in range(8):
        x = some(3)
        total, nothing, constant = program(cb.tensor(new(x)))
        same(total.storage.array, x + x)
        same(constant.storage.array, np.float32([2, 3]))
        assert nothing.shape == (0,) and nothing.device == total.device
    ((made,),) = program.programs.values()
    assert made.plan is not None, made.why


def test_an_argument_that_is_a_constant_too(fake: FakeDriver, adding: str) -> None:
    kept = cb.tensor(new([1, 2, 3]))
    program = cb.jit(lambda x: apply(adding, apply(adding, x, kept), x))
    for _ in range(6):
        same(program(kept).storage.array, np.float32([3, 6, 9]))
    ((made,),) = program.programs.values()
    assert made.plan is not None, made.why


def test_an_input_that_is_a_constant_of_a_plan_too() -> None:
    recorded, array = Recorder(), np.zeros(4, np.float32)
    recorded.constant(array)
    operands = ProgramOperands(None, recorded, [array])
    found = operands.span(beginning(array), beginning(array) + array.nbytes)
    assert found is not None and found[:2] == (beginning(array), beginning(array) + 16)
