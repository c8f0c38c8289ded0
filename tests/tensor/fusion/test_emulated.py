"""Fused steps on an emulated GPU."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.fused import rows_gpu
from cubepy.tensor import apply, execute, record, where
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.fusion.reductions import opened

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.tensor.fusion.test_rows import norm, numpy_norm, numpy_softmax, softmax, steps_of

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 33), (2, 1030)])
def test_rows_are_shared_by_units(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in (shape, shape[-1:], shape[-1:]))
    with emulated() as gpu:
        given = [cb.tensor(v, device=gpu) for v in (x, w, b)]
        with record(*given) as recorder:
            y = norm(*given)
            outputs = softmax(y), y.max(axis=-1)
        graph = optimise(recorder.graph(*outputs), gpu)
        assert steps_of(graph) == ["fused_rows"]
        found = [t.numpy() for t in execute(graph, recorder.inputs)]
    want = numpy_norm(*(v.astype(np.float64) for v in (x, w, b)))
    np.testing.assert_allclose(found[0], numpy_softmax(want), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[1], want.max(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("longest", [0, 200])
def test_norms_beside_maps_up_to_a_length_of_rows(
    longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One launch with the residual and both results, or two beside each other."""
    monkeypatch.setattr(opened, "LONGEST_ON_GPU", dict.fromkeys(opened.LONGEST_ON_GPU, longest))
    for columns in (130, 300):
        shapes = (5, columns), (5, columns), (columns,)
        x, y, w = (RNG.standard_normal(s).astype(np.float32) for s in shapes)
        with emulated() as gpu:
            given = [cb.tensor(v, device=gpu) for v in (x, y, w)]
            with record(*given) as recorder:
                z = given[0] + given[1]
                size = {"normalized_shape": (columns,), "eps": 1e-5}
                outputs = z, apply("layer_norm", z, given[2], given[2], **size), z.softmax(-1)
            graph = optimise(recorder.graph(*outputs), gpu)
            short = columns <= longest
            assert (steps_of(graph) == ["fused_rows"]) == short, steps_of(graph)
            found = [v.numpy() for v in execute(graph, recorder.inputs)]
        want = x.astype(np.float64) + y
        np.testing.assert_allclose(found[0], want, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found[1], numpy_norm(want, w, w), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[2], numpy_softmax(want), rtol=1e-5, atol=1e-7)


def test_several_results_of_the_same_elements() -> None:
    x = np.random.default_rng(0).standard_normal((5, 130)).astype(np.float32)
    with emulated() as gpu:
        t = cb.tensor(x, device=gpu)
        row = cb.tensor(x[0], device=gpu)
        with record(t, row) as recorder:
            outputs = (t * 2 - row), where(t > row, t, row).astype("f16"), t > 0
        graph = optimise(recorder.graph(*outputs), gpu)
        assert steps_of(graph) == ["fused_map"]
        found = [v.numpy() for v in execute(graph, recorder.inputs)]
    np.testing.assert_array_equal(found[0], x * 2 - x[0])
    np.testing.assert_array_equal(found[1], np.maximum(x, x[0]).astype(np.float16))
    np.testing.assert_array_equal(found[2], x > 0)


@pytest.mark.parametrize("shape", [(3, 9), (2, 35, 40), (700, 64)])
def test_columns_are_shared_by_units(shape: tuple[int, ...]) -> None:
    """In one launch, or where there are many rows in pieces that another one joins."""
    x, y = (RNG.standard_normal(s).astype(np.float32) for s in (shape, shape[-1:]))
    axes = tuple(range(len(shape) - 1))
    with emulated() as gpu:
        t, row = cb.tensor(x, device=gpu), cb.tensor(y, device=gpu)
        with record(t, row) as recorder:
            both = t * 2 + row
            outputs = both, both.mean(axis=axes), (both * t).max(axis=axes)
        graph = optimise(recorder.graph(*outputs), gpu)
        assert steps_of(graph) == ["fused_columns"]
        found = [v.numpy() for v in execute(graph, recorder.inputs)]
    want = x.astype(np.float64) * 2 + y
    np.testing.assert_allclose(found[0], want, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[1], want.mean(axes), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2], (want * x).max(axes), rtol=1e-5, atol=1e-6)


def test_steps_of_small_parameters_are_one_launch() -> None:
    shapes = [(3, 5), (300,), (2, 40), (1,)]
    numbers = RNG.uniform(0.1, 1, 10).astype(np.float32)
    given = [[RNG.uniform(0.1, 1, s).astype(np.float32) for _ in range(4)] for s in shapes]
    want = [
        t.numpy() for each in given for t in apply("adam_step", *map(cb.tensor, (numbers, *each)))
    ]
    with emulated() as gpu:
        rates = cb.tensor(numbers, device=gpu)
        there = [[cb.tensor(v, device=gpu) for v in each] for each in given]
        with record(rates, *(t for each in there for t in each)) as recorder:
            outputs = [t for each in there for t in apply("adam_step", rates, *each)]
        graph = optimise(recorder.graph(*outputs), gpu)
        assert steps_of(graph) == ["bundled_map"]
        found = [v.numpy() for v in execute(graph, recorder.inputs)]
    for one, other in zip(found, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(1, 128), (37, 130), (300, 257)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_sums_down_columns_of_several_arrays_are_one_launch(
    rows: int, columns: int, dtype: str
) -> None:
    rng = np.random.default_rng(rows)
    shapes = [(rows, columns)] * 2 + [(rows, 1, columns), (1, rows, columns), (rows, columns + 1)]
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    with emulated() as gpu:
        given = [cb.tensor(a, device=gpu).astype(dtype) for a in arrays]
        with record(*given) as recorder:
            a, b, c, d, other = given
            four = a.sum(0), b.sum(0, keepdim=True), c.sum((0, 1)), d.sum((0, 1))
            outputs = *four, other.sum(0)
        graph = optimise(recorder.graph(*outputs), gpu)
        assert sorted(steps_of(graph)) == ["bundled_sums", "sum"]
        found = [v.astype("f32").numpy() for v in execute(graph, recorder.inputs)]
        given = [t.astype("f32").numpy() for t in given]
    for one, x in zip(found, given, strict=True):
        want = x.reshape(rows, -1).sum(0, dtype=np.float64)
        assert one.shape[-1] == want.size
        size = np.abs(x.reshape(rows, -1)).sum(0, dtype=np.float64)
        assert (np.abs(one.reshape(-1) - want) <= (1e-6 if dtype == "f32" else 4e-3) * size).all()


def test_sums_that_wait_for_each_other_are_no_bundle() -> None:
    x = RNG.standard_normal((9, 130)).astype(np.float32)
    with emulated() as gpu:
        t = cb.tensor(x, device=gpu)
        with record(t) as recorder:
            first = t.sum(0, keepdim=True)
            outputs = (t @ t.transpose(0, 1) @ (t * first)).sum(0), first
        graph = optimise(recorder.graph(*outputs), gpu)
        assert "bundled_sums" not in steps_of(graph)
        found = [v.numpy() for v in execute(graph, recorder.inputs)]
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found[1], wide.sum(0, keepdims=True), rtol=1e-5, atol=1e-5)
    want = (wide @ wide.T @ (wide * wide.sum(0))).sum(0)
    np.testing.assert_allclose(found[0], want, rtol=1e-4, atol=1e-3 * np.abs(want).max())


def test_parts_that_lie_side_by_side_are_joined_without_a_copy() -> None:
    x = RNG.standard_normal((4, 7, 6)).astype(np.float32)
    with emulated() as gpu:
        t = cb.tensor(x, device=gpu)
        for axis, cuts in ((2, (2, 3)), (0, (1, 2)), (1, (4, 6))):
            ends = (0, *cuts, x.shape[axis])
            at = [(slice(None),) * axis + (slice(*e),) for e in pairwise(ends)]
            parts = [t[i] for i in at]
            whole = apply("concat", *parts, axis=axis)
            np.testing.assert_array_equal(whole.numpy(), x)
            assert whole.storage.dense().address == t.storage.dense().address
            for others in (parts[::-1], [parts[0], *parts[:0:-1]], [parts[0], parts[0]]):
                turned = apply("concat", *others, axis=axis)
                want = np.concatenate([p.numpy() for p in others], axis)
                np.testing.assert_array_equal(turned.numpy(), want)


@pytest.mark.parametrize(("rows", "columns"), [(3, 7), (9, 256), (5, 1000), (4, 1028), (2, 2051)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_are_held_or_read_again(rows: int, columns: int, dtype: str) -> None:
    """Lines that end within a row or behind it, several rows to a cube, rows too long to hold."""
    x, y = (RNG.standard_normal((rows, columns)).astype(np.float32) for _ in range(2))
    found = []
    for room in (rows_gpu.ROOM, 0):
        with pytest.MonkeyPatch.context() as patch, emulated() as gpu:
            patch.setattr(rows_gpu, "ROOM", room)
            given = [cb.tensor(v, device=gpu).astype(dtype) for v in (x, y)]
            with record(*given) as recorder:
                a, b = given
                z = a * 2 + b
                outputs = norm(z, a, b), z - z.max(axis=-1, keepdims=True), (z * z).sum(-1)
            graph = optimise(recorder.graph(*outputs), gpu)
            assert steps_of(graph) == ["fused_rows"]
            found.append([v.astype("f32").numpy() for v in execute(graph, recorder.inputs)])
            wide = [t.astype("f32").numpy().astype(np.float64) for t in given]
    z = wide[0] * 2 + wide[1]
    want = numpy_norm(z, *wide), z - z.max(-1, keepdims=True), (z * z).sum(-1)
    bound = 1e-5 if dtype == "f32" else 2e-2
    for kind in found:
        for one, other in zip(kind, want, strict=True):
            assert np.abs(one - other).max() <= bound * max(1, np.abs(other).max())


def test_rows_of_one_number_are_no_wide_input() -> None:
    x = RNG.standard_normal((5, 1)).astype(np.float32)
    with emulated() as gpu:
        t = cb.tensor(x, device=gpu)
        with record(t) as recorder:
            output = (t.expand(5, 40) * 2).softmax(-1)
        graph = optimise(recorder.graph(output), gpu)
        (found,) = execute(graph, recorder.inputs)
        np.testing.assert_allclose(found.numpy(), np.full((5, 40), 1 / 40), rtol=1e-5)
