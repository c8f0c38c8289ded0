"""Groups of reductions over leading axes and maps: errors like those of the ops alone, one step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import Tensor, execute, record, where
from cubepy.tensor.fusion.maps import fuse_maps
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.fusion.reductions.columns import fuse_columns
from cubepy.tensor.fusion.reductions.recomputed import recomputed
from cubepy.tensor.fusion.reductions.rows import fuse_rows
from cubepy.tensor.fusion.schedule import Schedule, graph_of, schedule_of
from tests.tensor.fusion.random_programs import keeps_results
from tests.tensor.fusion.test_rows import steps_of

RNG = np.random.default_rng(0)
SHAPES = [(5, 9), (1, 8), (40, 64), (700, 100), (3, 4, 65), (2, 3000), (1100, 1000)]


def leading(x: Any) -> tuple[int, ...]:
    return tuple(range(x.ndim - 1))


def of_a_bias(g: Any, z: Any, w: Any) -> Any:
    """What a bias and a ReLU before it are given back."""
    kept = g * (z > 0)
    return kept, kept.sum(axis=leading(g))


def of_a_norm(g: Any, z: Any, w: Any) -> Any:
    """Gradients of a norm's weight and bias, broadcast rows among the inputs."""
    return (g * (z - w)).sum(axis=leading(g)), g.sum(axis=leading(g), keepdims=True)


def moments(g: Any, z: Any, w: Any) -> Any:
    both = g * 0.5 + z
    return (both * both).mean(axis=leading(g)), both.max(axis=leading(g)), both.min(axis=leading(g))


CASES: dict[str, Callable[..., Any]] = {"bias": of_a_bias, "norm": of_a_norm, "moments": moments}


@pytest.mark.turns(6)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", CASES)
def test_columns_are_one_step(name: str, shape: tuple[int, ...], dtype: str) -> None:
    function = CASES[name]
    sizes = (shape, shape, shape[-1:])
    given = [cb.tensor(RNG.standard_normal(s)).astype(dtype) for s in sizes]
    with record(*given) as recorder:
        eager = function(*given)
    graph = optimise(recorder.graph(*eager))
    assert steps_of(graph) == ["fused_columns"]
    limit = {"f32": 2e-6, "f64": 1e-14, "f16": 1e-3, "bf16": 8e-3}[dtype]
    wanted = function(*(t.astype("f64").numpy() for t in given))
    for found, alone, want in zip(execute(graph, recorder.inputs), eager, wanted, strict=True):
        assert found.dtype is alone.dtype and found.shape == alone.shape
        scale = np.abs(want).max() + 1e-30
        errors = [np.abs(t.astype("f64").numpy() - want).max() / scale for t in (found, alone)]
        assert errors[0] <= max(limit, errors[1])


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int) -> None:
    keeps_results(fuse_columns, 3000 + seed)


def alone(schedule: Schedule) -> Schedule:
    """What sums down columns read done for them alone, as on a GPU."""
    found, separate = recomputed(schedule)
    return fuse_columns(fuse_rows(found, 0, separate))


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_whose_sums_read_what_rows_read(seed: int) -> None:
    keeps_results(alone, 5000 + seed)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("centred", [True, False])
def test_gradients_of_norms_store_no_products_for_their_sums(dtype: str, centred: bool) -> None:
    """Of x, g and w: only the gradient by x is as large as they are, where that moves less."""
    x, g, w = some(40, 64).astype(dtype), some(40, 64).astype(dtype), some(64).astype(dtype)
    with record(x, g, w) as recorder:
        wide, u = x.astype("f32"), g.astype("f32") * w
        seen = wide - wide.mean(axis=1, keepdims=True) if centred else wide
        scale = ((seen * seen).mean(axis=1, keepdims=True) + 1e-5).rsqrt()
        h = seen * scale
        y = (u - h * (u * h).mean(axis=1, keepdims=True)) * scale
        outputs = [y.astype(dtype), (g.astype("f32") * h).sum(axis=0)]
        outputs += [g.astype("f32").sum(axis=0)] if centred else []
    graph = graph_of(fuse_maps(alone(schedule_of(recorder.graph(*outputs)))))
    made = [s for n in graph.nodes if n.op != "input" for s in n.results]
    less = centred or dtype == "bf16"  # else x is read again instead of g h: as many bytes
    assert len([s for s in made if s.shape == (40, 64)]) == (1 if less else 2)
    for found, want in zip(execute(graph, recorder.inputs), outputs, strict=True):
        limit = 1e-5 if found.dtype is cb.f32 else 1e-2
        a, b = (t.astype("f64").numpy() for t in (found, want))
        np.testing.assert_allclose(a, b, rtol=limit, atol=limit * np.abs(b).max())


def somewhere(device: str) -> Any:
    """The host, or a GPU that is emulated."""
    if device == "cpu":
        return contextlib.nullcontext("cpu")
    pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
    from tests.backends.cuda.emulator.device import emulated

    return emulated()


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def fused(*outputs: Tensor, of: Any) -> tuple[list[str], list[Tensor]]:
    graph = optimise(of.graph(*outputs))
    return steps_of(graph), execute(graph, of.inputs)


def test_nan_and_infinities_pass_through_extremes() -> None:
    x = RNG.standard_normal((70, 33)).astype(np.float32)
    x[1, 3], x[2, 32], x[3, 0] = np.nan, np.inf, -np.inf
    t = cb.tensor(x)
    with record(t) as recorder:
        y = (t * 2).max(axis=0), (t * 3).min(axis=0), (t + t).sum(axis=0)
    steps, found = fused(*y, of=recorder)
    assert steps == ["fused_columns"]
    for one, other in zip(found[:2], y[:2], strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    np.testing.assert_array_equal(np.isfinite(found[2].numpy()), np.isfinite(y[2].numpy()))


def test_what_reads_totals_comes_after() -> None:
    """A variance: its second reduction waits for the first."""
    x = some(30, 40)
    with record(x) as recorder:
        double = x * 2
        centred = double - double.mean(axis=0)
        y = (centred * centred).mean(axis=0)
    steps, found = fused(y, of=recorder)
    assert steps == ["fused_columns", "fused_columns"]
    np.testing.assert_allclose(found[0].numpy(), y.numpy(), rtol=1e-5)


def test_a_reduction_between_others_is_not_surrounded() -> None:
    x = some(30, 40)
    with record(x) as recorder:
        y = x * 2 + 1
        z = (y * y.sum(axis=-1, keepdims=True)).sum(axis=0) + y.sum(axis=0)
    _, found = fused(z, of=recorder)
    np.testing.assert_allclose(found[0].numpy(), z.numpy(), rtol=1e-4, atol=1e-3)


def test_rows_and_matrices_that_are_repeated_are_read_as_they_are() -> None:
    x, row, number, matrix = some(4, 6, 40), some(40), some(6, 1), some(6, 40)
    with record(x, row, number, matrix) as recorder:
        y = ((x + row) * number - matrix).sum(axis=(0, 1))
    steps, found = fused(y, of=recorder)
    assert steps == ["fused_columns"]
    np.testing.assert_allclose(found[0].numpy(), y.numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_masks_and_integers_are_inputs(device: str) -> None:
    numbers = RNG.standard_normal((20, 17)).astype(np.float32)
    given = [numbers, numbers > 0, RNG.integers(0, 9, (20, 17)).astype(np.int64)]
    with somewhere(device) as home:
        x, mask, counts = (cb.tensor(v, device=home) for v in given)
        with record(mask, counts, x) as recorder:
            kept = where(mask, x * counts, 0.0)
            outputs = kept.sum(axis=0), where(mask, 1.0, 2.0).mean(axis=0)
        graph = optimise(recorder.graph(*outputs), x.device)
        assert steps_of(graph) == ["fused_columns"]
        found = [t.numpy() for t in execute(graph, recorder.inputs)]
    want = np.where(given[1], numbers * given[2], 0)
    np.testing.assert_allclose(found[0], want.sum(0), rtol=1e-5)
    np.testing.assert_allclose(found[1], np.where(given[1], 1, 2).mean(0), rtol=1e-6)


def test_few_columns_and_lone_sums_stay_with_the_library() -> None:
    narrow, wide = some(50, 3), some(50, 30)
    with record(narrow, wide) as recorder:
        outputs = (narrow * 2).sum(axis=0), wide.sum(axis=0)
    assert "fused_columns" not in fused(*outputs, of=recorder)[0]
