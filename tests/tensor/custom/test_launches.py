"""Launches of kernels on tensors that are recorded: ops of graphs and programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import (
    AliasError,
    FileFormatError,
    GradientError,
    KernelTypeError,
    LaunchError,
    OutOfBoundsError,
    ReadOnlyError,
)
from cubepy.tensor import Graph, Tensor, empty_like, execute, record, zeros_like

RNG = np.random.default_rng(3)
FACTOR = 2.0


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


@cb.kernel
def scale(x: cb.Array, out: cb.Array, s: cb.f32):
    i = cb.ABSOLUTE_POS
    if i >= out.size:
        return
    out[i] = x[i] * s


@cb.kernel
def weak_scale(x: cb.Array, out: cb.Array, s):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * s


@cb.kernel
def sum_and_difference(pair, total: cb.Array, difference: cb.Array, n: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS
    if i < total.size:
        total[i] = pair[0][i] + pair[1][i] * n
        difference[i] = pair[0][i] - pair[1][i]


@cb.kernel
def add_to(x: cb.Array, total: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        total[i] = total[i] + x[i]


@cb.kernel
def first_only(x: cb.Array, out: cb.Array):
    if cb.ABSOLUTE_POS == 0:
        out[0] = x[0]


@cb.kernel
def look_up(x: cb.Array, at: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[at[i]]


@cb.func
def twice(v):
    return v * 2


@cb.kernel
def applied(x: cb.Array, out: cb.Array, function: cb.Comptime):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = function(x[i]) * FACTOR


@cb.kernel
def transposed(x: cb.Array, out: cb.Array):
    row, column = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X
    if row < x.shape[0] and column < x.shape[1]:
        out[column, row] = x[row, column]


def planned(program: Any) -> bool:
    return "one call of machine code" in program.explain()


def test_a_launch_in_a_program_is_a_step_of_its_plan() -> None:
    def function(x: Tensor) -> Tensor:
        out = empty_like(x)
        scale[cb.over(out)](x + 1, out, 3.0)
        return out - 1

    program, x = cb.jit(function), some(1000)
    for _ in range(5):
        x = some(1000)
        np.testing.assert_array_equal(program(x).numpy(), (x.numpy() + 1) * 3 - 1)
    assert planned(program)
    assert sum(program.traces.values()) == 1


def test_annotated_numbers_may_change_and_others_are_fixed() -> None:
    def run(kernel: Any) -> Any:
        def function(x: Tensor, s: float) -> Tensor:
            out = empty_like(x)
            kernel[cb.over(out)](x, out, s / 2)
            return out

        program, x = cb.jit(function), some(40)
        for s in (1.0, 2.0, 3.5, 4.0, -0.5, 6.0):
            np.testing.assert_array_equal(program(x, s).numpy(), x.numpy() * np.float32(s / 2))
        return program

    assert sum(run(scale).traces.values()) == 1
    assert planned(run(scale))
    assert sum(run(weak_scale).traces.values()) == 6


def test_several_results_tuples_and_comptime_numbers() -> None:
    def function(x: Tensor, y: Tensor, n: int) -> Any:
        a, b = empty_like(x), empty_like(x)
        sum_and_difference[cb.over(x)]((x, y), a, difference=b, n=n)
        return a * 1, b

    program = cb.jit(function)
    for n in (2, 2, 2, 5, 5, 5):
        x, y = some(70), some(70)
        a, b = program(x, y, n)
        np.testing.assert_array_equal(a.numpy(), x.numpy() + y.numpy() * n)
        np.testing.assert_array_equal(b.numpy(), x.numpy() - y.numpy())
    assert planned(program)


def test_what_is_written_is_another_value_of_the_handle() -> None:
    def function(x: Tensor, total: Tensor) -> Tensor:
        before = total
        kept, seen = total * 1, total.reshape(-1)
        add_to[cb.over(x)](x, total)
        add_to[cb.over(x)](x, before)  # the same handle
        return kept + seen

    program, total = cb.jit(function), cb.tensor([10.0, 20.0])
    for n in range(1, 6):
        was = total.numpy().copy()
        memory = total.numpy()
        found = program(cb.tensor([1.0, 2.0]), total)
        np.testing.assert_array_equal(found.numpy(), was * 2)
        np.testing.assert_array_equal(total.numpy(), [10.0 + 2 * n, 20.0 + 4 * n])
        np.testing.assert_array_equal(memory, was)
    assert planned(program)


def test_a_tensor_from_outside_is_a_state() -> None:
    total = cb.tensor([0.0, 0.0, 0.0])

    @cb.jit
    def count(x: Tensor) -> None:
        add_to[cb.over(x)](x, total)

    for n in range(1, 6):
        count(cb.tensor([1.0, 2.0, 3.0]))
        assert total.tolist() == [n * 1.0, n * 2.0, n * 3.0]


def test_elements_that_are_not_written_stay() -> None:
    def function(x: Tensor) -> Tensor:
        out = zeros_like(x)
        first_only[1, 1](x, out)
        return out

    program = cb.jit(function)
    for _ in range(4):
        x = some(5)
        assert program(x).tolist() == [x.tolist()[0], 0.0, 0.0, 0.0, 0.0]


def test_grids_of_cubes_and_of_several_axes() -> None:
    def function(x: Tensor) -> Tensor:
        out = cb.tensor.empty((x.shape[1], x.shape[0]), dtype=x.dtype)
        transposed[cb.over(x)](x, out)
        again = cb.tensor.empty(x.shape, dtype=x.dtype)
        transposed[(1, 1, 1), (8, 8)](out, again)
        return again * 1 + again

    program = cb.jit(function)
    for _ in range(4):
        x = some(5, 7)
        np.testing.assert_array_equal(program(x).numpy(), x.numpy() * 2)
    assert planned(program)


def test_numbers_of_numpy_and_tensors_without_axes() -> None:
    def function(x: Tensor, total: Tensor) -> Tensor:
        out = empty_like(x)
        weak_scale[cb.over(x)](x, out, np.float64(0.5))
        one = cb.tensor.empty((), dtype=cb.f32)
        first_only[1, 1](out, one)
        return one + total

    program = cb.jit(function)
    for _ in range(4):
        x = some(3)
        found = program(x, cb.tensor(1.0))
        assert found.item() == np.float32(np.float32(x.numpy()[0] * 0.5) + 1)


def test_a_function_as_comptime_value_and_a_global_that_changes() -> None:
    global FACTOR

    def function(x: Tensor) -> Tensor:
        out = empty_like(x)
        applied[cb.over(x)](x, out, twice)
        return out

    program, x = cb.jit(function), some(9)
    try:
        for FACTOR in (2.0, 2.0, 2.0, 3.0, 3.0, 3.0):
            np.testing.assert_array_equal(program(x).numpy(), x.numpy() * 2 * np.float32(FACTOR))
    finally:
        FACTOR = 2.0


def test_another_kernel_of_the_name_is_another_program() -> None:
    def made(by: float) -> Any:
        @cb.kernel
        def kernel(x: cb.Array, out: cb.Array):
            i = cb.ABSOLUTE_POS
            if i < out.size:
                out[i] = x[i] + by

        return kernel

    kernel = made(1.0)

    @cb.jit
    def function(x: Tensor) -> Tensor:
        out = empty_like(x)
        kernel[cb.over(x)](x, out)
        return out

    for _ in range(3):
        assert function(cb.tensor([1.0])).item() == 2.0
    kernel = made(5.0)
    for _ in range(3):
        assert function(cb.tensor([1.0])).item() == 6.0


def test_inside_branches_and_loops() -> None:
    def step(carry: Tensor, x: Tensor) -> Any:
        out = empty_like(x)
        scale[cb.over(x)](x + carry, out, 0.5)
        return out, out

    def function(x: Tensor) -> Any:
        last, all_of_them = cb.scan(step, x[0], x)

        def doubled(y: Tensor) -> Tensor:
            out = empty_like(y)
            scale[cb.over(y)](y, out, 2.0)
            return out

        return cb.cond(last.sum() > 0, doubled, lambda y: y, last), all_of_them

    program = cb.jit(function)
    for _ in range(6):
        x = some(5, 3)
        for one, other in zip(program(x), function(x), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert planned(program)


def test_a_recorded_graph_names_the_kernel() -> None:
    x = some(4)
    with record(x) as recorder:
        out = empty_like(x)
        scale[cb.over(out)](x, out, 3.0)
    graph = recorder.graph(out)
    text = graph.to_json()
    assert Graph.from_json(text) == graph
    y = some(4)
    np.testing.assert_array_equal(execute(Graph.from_json(text), [y])[0].numpy(), y.numpy() * 3)
    with pytest.raises(FileFormatError, match="names 'somewhere:scale', which is not here"):
        Graph.from_json(text.replace(f"{__name__}:", "somewhere:"))
    with pytest.raises(FileFormatError, match="is no kernel"):
        Graph.from_json(text.replace(f"{__name__}:scale", f"{__name__}:some"))


def test_outside_of_programs_a_launch_writes_memory() -> None:
    x, memory = some(4), np.zeros(4, np.float32)
    scale[cb.over(4)](x, cb.tensor(memory), 2.0)
    np.testing.assert_array_equal(memory, x.numpy() * 2)


def test_on_the_python_backend() -> None:
    with cb.use("python"):

        def function(x: Tensor) -> Tensor:
            out = empty_like(x)
            scale[cb.over(out)](x, out, 3.0)
            return out + 1

        program, x = cb.jit(function), cb.tensor([1.0, 2.0])
        for _ in range(3):
            assert program(x).tolist() == [4.0, 7.0]


# What is refused


def raised_at(error: Any, text: str) -> bool:
    return text in str(error.value)


def test_a_tensor_that_needs_a_gradient_is_refused_with_the_line() -> None:
    w = some(4).requires_grad_()

    def function(x: Tensor) -> Tensor:
        out = empty_like(x)
        scale[cb.over(out)](w, out, 3.0)  # here
        return out

    for f in (function, cb.jit(function)):
        with pytest.raises(GradientError, match="needs a gradient") as error:
            f(some(4))
        assert "cb.custom_vjp" in str(error.value)
    assert raised_at(error, "scale[cb.over(out)](w, out, 3.0)  # here")
    with cb.no_grad():
        program = cb.jit(function)
        for _ in range(3):
            np.testing.assert_array_equal(program(some(4)).numpy(), w.numpy() * 3)


def test_arrays_streams_and_other_devices_are_refused() -> None:
    memory = np.zeros(4, np.float32)

    def array(x: Tensor) -> None:
        scale[cb.over(4)](x, memory, 3.0)  # here

    def stream(x: Tensor) -> None:
        scale[cb.over(4)](x, empty_like(x), 3.0, stream=object())  # here

    def device(x: Tensor) -> None:
        scale[cb.over(4)](x, empty_like(x), 3.0, device="python")  # here

    for function, said in ((array, "'out'"), (stream, "a stream"), (device, "python")):
        with pytest.raises(LaunchError, match=said) as error:
            cb.jit(function)(some(4))
        assert raised_at(error, "# here")


def test_memory_has_the_rules_of_launches() -> None:
    def overlapping(x: Tensor) -> None:
        scale[cb.over(3)](x[:3], x[1:], 3.0)  # here

    def read_only(x: Tensor) -> None:
        scale[cb.over(4)](x, x[0].expand(4), 3.0)  # here

    def wrong(x: Tensor) -> None:
        scale[cb.over(4)](x)  # here

    for function, kind in (
        (overlapping, AliasError),
        (read_only, ReadOnlyError),
        (wrong, KernelTypeError),
    ):
        with pytest.raises(kind) as error:
            cb.jit(function)(some(4))
        assert raised_at(error, "# here")


def test_an_index_outside_names_the_line() -> None:
    def function(x: Tensor, at: Tensor) -> Tensor:
        out = cb.tensor.empty(at.shape, dtype=x.dtype)
        look_up[cb.over(out)](x, at, out, mode="validate")  # here
        return out * 2

    program, x = cb.jit(function), some(4)
    for _ in range(4):
        np.testing.assert_array_equal(program(x, cb.tensor([3, 1])).numpy(), x.numpy()[[3, 1]] * 2)
    with pytest.raises(OutOfBoundsError) as error:
        program(x, cb.tensor([3, 9]))
    assert "x[at[i]]" in str(error.value)
    np.testing.assert_array_equal(program(x, cb.tensor([0, 1])).numpy(), x.numpy()[:2] * 2)
