"""Fused steps on an emulated GPU."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import execute, record, where
from cubepy.tensor.fusion.optimise import optimise

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.tensor.fusion.test_rows import norm, numpy_norm, numpy_softmax, softmax, steps_of


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
