"""Maps whose results are put side by side write them there, bit by bit what they give alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import Tensor, concat, execute, record, stack, where
from cubepy.tensor.fusion.optimise import optimise
from tests.tensor.fusion.test_rows import steps_of

RNG = np.random.default_rng(0)


def some(*shape: int, dtype: str = "f32") -> Tensor:
    return cb.tensor(RNG.standard_normal(shape)).astype(dtype)


def halves(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """A rotary embedding of halves."""
    n = x.shape[-1] // 2
    a, b = x[..., :n], x[..., n:]
    return concat([a * c - b * s, b * c + a * s], axis=-1)


def neighbours(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """A rotary embedding of neighbours."""
    a, b = x[..., ::2], x[..., 1::2]
    return stack([a * c - b * s, b * c + a * s], axis=-1).reshape(*x.shape)


def rows(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """Three parts along the first axis, in another order than they are computed."""
    n = x.shape[-1] // 2
    a, b = x[..., :n] + c, x[..., n:] * s
    total = a + b
    return concat([total * 2, a.tanh(), b - a], axis=0)


def swapped(x: Tensor, c: Tensor, s: Tensor) -> list[Tensor]:
    """Parts, and a result beside them of another dtype."""
    n = x.shape[-1] // 2
    a, b = x[..., :n] * c, x[..., n:] + s
    return [concat([b * a, a + 1], axis=1), a > b]


def rotated(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """A rotary embedding of halves that are put together before they are scaled."""
    n, cosines, sines = x.shape[-1] // 2, x[0, 0], x[-1, -1]
    return x * cosines + concat([-x[..., n:], x[..., :n]], axis=-1) * sines * s[:, :1]


def bounded(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """The same with every bound of the slices written, as files have them."""
    n, cosines, sines = x.shape[-1] // 2, x[0, 0], x[-1, -1]
    turned = concat([-x[:, :, :, n : 2 * n : 1], x[:, :, :, 0:n:1]], axis=3)
    return x * cosines + turned * sines * s[:, :1]


def interleaved(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """A rotary embedding of neighbours that are stacked before they are scaled."""
    n, cosines, sines = x.shape[-1], x[0, 0], x[-1, -1]
    pair = [(-x[..., 1:n:2]).unsqueeze(-1), x[..., 0:n:2].unsqueeze(-1)]
    return x * cosines + concat(pair, axis=-1).reshape(*x.shape) * sines * s[:, :1]


def stacked_rows(x: Tensor, c: Tensor, s: Tensor) -> list[Tensor]:
    """Along the first axis, with numbers, a row of them, and a mask."""
    both = concat([x * 2, x.abs()], axis=0)
    return [where(both > 0.5, both * s[:1, :1] - 0.3, 0.0)]


CASES: dict[str, Callable[..., Any]] = {
    "halves": halves,
    "neighbours": neighbours,
    "rows": rows,
    "swapped": swapped,
    "rotated": rotated,
    "bounded": bounded,
    "interleaved": interleaved,
    "stacked_rows": stacked_rows,
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 3, 5, 34), (2, 4, 16, 64), (1, 2, 3, 8000)])
@pytest.mark.parametrize("name", CASES)
def test_parts_are_written_where_they_are(name: str, shape: tuple[int, ...], dtype: str) -> None:
    angles = (*shape[-2:-1], shape[-1] // 2)
    given = [some(*s, dtype=dtype) for s in (shape, angles, angles)]
    with record(*given) as recorder:
        found = CASES[name](*given)
    outputs = found if isinstance(found, list) else [found]
    graph = optimise(recorder.graph(*outputs))
    assert [s for s in steps_of(graph) if s not in ("slice", "reshape")] == ["joined_map"]
    for one, other in zip(execute(graph, recorder.inputs), outputs, strict=True):
        assert one.shape == other.shape and one.dtype is other.dtype
        if dtype == "bf16" and other.dtype.is_float:  # fused, what lies between is not rounded
            a, b = (t.astype("f64").numpy() for t in (one, other))
            np.testing.assert_allclose(a, b, rtol=0.05, atol=0.1)
        elif dtype != "bf16":
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_programs_repeat_them() -> None:
    given = [some(2, 4, 16, 64), some(16, 32), some(16, 32)]
    for function in (halves, neighbours, rotated, bounded, interleaved):
        program, want = cb.jit(function), function(*given).numpy()
        for _ in range(4):
            np.testing.assert_array_equal(program(*given).numpy(), want)
        assert program.explain().programs[0].launches == 1


def test_parts_that_others_read_stay_arrays() -> None:
    x, y = some(6, 40), some(6, 40)
    with record(x, y) as recorder:
        a, b = x * 0.5 + y, x - y * 0.3
        outputs = concat([a, b], axis=1), a, concat([b, b], axis=0)
    graph = optimise(recorder.graph(*outputs))
    assert "joined_map" not in steps_of(graph)
    for one, other in zip(execute(graph, recorder.inputs), outputs, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_units_of_a_gpu_write_parts() -> None:
    pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
    from tests.backends.cuda.emulator.device import emulated

    given = [some(2, 3, 5, 34), some(5, 17), some(5, 17)]
    for function in (halves, neighbours, rotated, bounded, interleaved):
        want = function(*given).numpy()
        with emulated() as gpu:
            there = [cb.tensor(t.numpy(), device=gpu) for t in given]
            with record(*there) as recorder:
                y = function(*there)
            graph = optimise(recorder.graph(y), gpu)
            assert "joined_map" in steps_of(graph)
            found = execute(graph, recorder.inputs)[0].numpy()
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)


def test_what_is_read_whole_or_is_not_even_stays_together() -> None:
    x, y = some(6, 40), some(6, 20)
    with record(x, y) as recorder:
        uneven, even = concat([x, y], axis=1), concat([x * 2, x.tanh()], axis=1)
        outputs = uneven * 2 + 1, even * 0.3 - even.sum(axis=-1, keepdims=True), even.sort(-1)[0]
    graph = optimise(recorder.graph(*outputs))
    for one, other in zip(execute(graph, recorder.inputs), outputs, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


def test_a_map_of_one_result_is_put_side_by_side_with_nothing() -> None:
    def twice(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x / (x.abs() + 1)
        return stack([stack([y])], axis=1), stack([y])

    x = some(3, 4)
    for one, other in zip(cb.jit(twice)(x), twice(x), strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_parts_that_are_broadcast_are_not_parts_of_the_whole() -> None:
    """A row in two halves: its first axis is the last one of what it is added to."""

    def sums(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (x + concat([a * 2, b * 3]) * 0.5) * 4

    def squares(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return x * concat([a, b]).tanh() + concat([b, a], axis=0).exp() * x

    for function in (sums, squares):
        for lead in ((9, 3), (4,), (2,), ()):
            given = some(*lead, 10), some(5), some(5)
            for _ in range(3):
                found, want = cb.jit(function)(*given), function(*given)
                np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
