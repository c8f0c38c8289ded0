"""Results of narrow floats whose rows are laid out aligned on a GPU, beside float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.nn import functional as F
from cubepy.tensor import execute, record
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.fusion.products import aligned

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aligned, "LEAST_BYTES", 0)
    monkeypatch.setattr(aligned, "LEAST_ROW", 0)


def aligned_ops(graph: Any) -> list[str]:
    return [n.op for n in graph.nodes if dict(n.attrs).get("aligned")]


def loss_and_gradient(x: Any, w: Any, y: Any) -> Any:
    """The loss of rows, and its gradients by x and w, as a program would have them."""
    logits = F.linear(x, w).reshape(-1, w.shape[0])
    scores = logits.logsumexp(-1)
    slopes = (logits - scores.unsqueeze(1)).exp() - (
        cb.tensor(np.arange(w.shape[0])).to(x.device).unsqueeze(0) == y.unsqueeze(1)
    ).astype(x.dtype)
    return scores, slopes @ w, slopes.transpose(0, 1) @ x.reshape(-1, x.shape[-1]), slopes.sum(0)


@pytest.mark.parametrize(("rows", "words", "width"), [(6, 27, 16), (5, 131, 24)])
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_logits_and_their_gradient(rows: int, words: int, width: int, dtype: str) -> None:
    x = RNG.standard_normal((2, rows, width)).astype(np.float32)
    w = RNG.standard_normal((words, width)).astype(np.float32) / 4
    y = RNG.integers(0, words, 2 * rows)
    with emulated() as gpu:
        given = [cb.tensor(v, device=gpu).astype(dtype) for v in (x, w)]
        goals = cb.tensor(y, device=gpu)
        with record(*given, goals) as recorder:
            outputs = loss_and_gradient(*given, goals)
        graph = optimise(recorder.graph(*outputs), gpu)
        both = len(aligned_ops(graph)) == 2 and "linear" in aligned_ops(graph)
        assert both, [n.op for n in graph.nodes]
        found = [v.astype("f32").numpy() for v in execute(graph, recorder.inputs)]
        x, w = (t.astype("f32").numpy().astype(np.float64) for t in given)
    flat = x.reshape(-1, width)
    logits = flat @ w.T
    sums = np.log(np.exp(logits).sum(-1))
    slopes = np.exp(logits - sums[:, None]) - (np.arange(words) == y[:, None])
    want = sums, slopes @ w, slopes.T @ flat, slopes.sum(0)
    for one, other in zip(found, want, strict=True):
        assert np.linalg.norm(one - other) <= 2e-2 * np.linalg.norm(other)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: F.linear(x, w),  # a result of the program
        lambda x, w: F.linear(x, w).reshape(-1).cumsum(0),  # in one piece
        lambda x, w: F.linear(x, w[:24]).softmax(-1),  # aligned as they are
        lambda x, w: (x * 2 + 1).sum(0),  # no product
        lambda x, w: (w @ x[0]).reshape(3, 9).softmax(-1),  # of a vector
        lambda x, w: (w.reshape(3, 9, 8) @ x[0]).softmax(-1),
    ],
)
def test_rows_that_stay_as_they_are(function: Callable[..., Any]) -> None:
    with emulated() as gpu:
        given = [
            cb.tensor(RNG.standard_normal(s), device=gpu).astype("bf16") for s in ((6, 8), (27, 8))
        ]
        with record(*given) as recorder:
            output = function(*given)
        graph = optimise(recorder.graph(output), gpu)
        assert not aligned_ops(graph)
        (found,) = execute(graph, recorder.inputs)
        want = function(*given)
        a, b = (t.astype("f32").numpy() for t in (found, want))
        assert np.abs(a - b).max() <= 1e-2 * np.abs(b).max()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gathering_from_a_view_reads_it_where_it_is(axis: int) -> None:
    """Of a view that is no block of rows, of rows with gaps, and turned over."""
    whole = RNG.standard_normal((6, 7, 9)).astype(np.float32)
    with emulated() as gpu:
        there = cb.tensor(whole, device=gpu).storage.dense()
        for view in (
            lambda a: a[:, :, :5],
            lambda a: a[:, 1:4],
            lambda a: a.transpose(2, 0, 1),
            lambda a: a,
        ):
            x = view(whole)
            shape = [*x.shape]
            shape[axis] = 4
            index = RNG.integers(0, x.shape[axis], shape)
            positions = cb.tensor(index, device=gpu).storage.dense()
            found = K.gather(view(there), axis, positions)
            np.testing.assert_array_equal(found.numpy(), np.take_along_axis(x, index, axis))
