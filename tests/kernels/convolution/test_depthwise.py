"""The GPU's depthwise convolution and its gradient by filters, which run anywhere, against float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.convolution.gpu.depthwise import by_channel_on_gpu
from cubepy.kernels.convolution.gpu.depthwise_nchw import PlanesWeight, by_planes_on_gpu
from cubepy.kernels.convolution.gpu.depthwise_weight_gradient import ChannelsWeight
from cubepy.kernels.convolution.problem import Problem, WeightGradient
from cubepy.kernels.primitives.functions import ACTIVATIONS

Three = tuple[int, int, int]
H, F = np.float16, np.float32
HERE = cb.device_properties_of()
ERRORS = {H: 4e-4, F: 1e-6}
# shape (N, C, D, H, W), filters of a channel, window, stride, padding, dilation, dtype, backend
CASES: list[tuple[Any, ...]] = [
    ((2, 16, 1, 5, 8), 1, (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1), H, "cpu"),
    ((1, 8, 1, 5, 8), 1, (1, 3, 3), (1, 2, 2), (0, 1, 1), (1, 1, 1), H, "python"),
    ((2, 3, 1, 5, 5), 2, (1, 5, 3), (1, 1, 2), (0, 2, 0), (1, 2, 1), F, "python"),
    ((1, 2, 2, 3, 8), 1, (2, 9, 8), (2, 1, 1), (1, 4, 9), (1, 1, 2), F, "python"),
]


def seen_by_taps(x: np.ndarray, problem: Problem) -> np.ndarray:
    """(taps, N, C, *out) in float64."""
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((p, p) for p in problem.pad)])
    along = list(zip(problem.dilation, problem.out, problem.stride, strict=True))
    return np.stack(
        [
            wide[
                (
                    ...,
                    *(
                        slice(t * d, t * d + (m - 1) * s + 1, s)
                        for t, (d, m, s) in zip(tap, along, strict=True)
                    ),
                )
            ]
            for tap in itertools.product(*map(range, problem.window))
        ]
    )


def close(got: np.ndarray, want: np.ndarray, dtype: Any) -> None:
    assert np.linalg.norm(got.astype(np.float64) - want) <= ERRORS[dtype] * np.linalg.norm(want)


@pytest.mark.parametrize("last", [True, False], ids=["last", "first"])
@pytest.mark.parametrize(
    ("shape", "many", "window", "stride", "pad", "dilation", "dtype", "backend"), CASES, ids=str
)
def test_every_channel_has_its_own_filters(
    shape: tuple[int, ...], many: int, window: Three, stride: Three, pad: Three, dilation: Three, dtype: Any,
    backend: str, last: bool,
) -> None:  # fmt: skip
    rng = np.random.default_rng(0)
    reach = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
    out: Any = tuple(
        (n + 2 * p - r - 1) // s + 1
        for n, p, r, s in zip(shape[2:], pad, reach, stride, strict=True)
    )
    problem = Problem(shape[2:], window, stride, pad, dilation, out)  # type: ignore[arg-type]
    filters = shape[1] * many
    x, grad = (
        rng.standard_normal(shape).astype(dtype),
        rng.standard_normal((shape[0], shape[1], *out)).astype(dtype),
    )
    w, b = (
        rng.standard_normal((filters, 1, *window)).astype(dtype),
        rng.standard_normal(filters).astype(dtype),
    )
    taps = seen_by_taps(x, problem)
    total = np.einsum("tncdhw,cmt->ncmdhw", taps, w.astype(np.float64).reshape(shape[1], many, -1))
    want = np.maximum(
        total.reshape(shape[0], filters, *out) + b.astype(np.float64)[:, None, None, None], 0
    )
    to_last = (0, 2, 3, 4, 1)
    view, to_first = x.transpose(to_last), (0, 4, 1, 2, 3)
    if last:
        view = np.ascontiguousarray(view)
    got = np.full((shape[0], *out, filters) if last else want.shape, np.nan, dtype)
    by_weight = np.full((shape[1], taps.shape[0]), np.nan, dtype)
    with cb.use(backend):
        assert by_channel_on_gpu(view, w, b, got, problem, last, ACTIVATIONS["relu"])
        if many == 1:
            by_window = by_weight.reshape(shape[1], 1, *window)
            p = WeightGradient(view.transpose(to_first), grad, by_window, problem, shape[1])
            assert ChannelsWeight().unfit(p, HERE) is None
            ChannelsWeight().launch(p, HERE)
    close(got.transpose(0, 4, 1, 2, 3) if last else got, want, dtype)
    if many == 1:
        close(by_weight, np.einsum("tncdhw,ncdhw->ct", taps, grad.astype(np.float64)), dtype)


@pytest.mark.parametrize(
    ("shape", "window", "stride", "pad", "dilation", "dtype", "backend"),
    [
        ((2, 16, 5, 6), (3, 3), (1, 1), (1, 1), (1, 1), H, "cpu"),
        ((1, 8, 7, 9), (3, 2), (2, 1), (1, 0), (1, 3), H, "python"),
        ((3, 2, 16, 20), (7, 7), (1, 1), (3, 3), (1, 1), F, "cpu"),
    ],
    ids=str,
)
def test_planes_in_shared_memory(
    shape: tuple[int, ...], window: Any, stride: Any, pad: Any, dilation: Any, dtype: Any, backend: str
) -> None:  # fmt: skip
    """Whole planes, channels first: the convolution, and its gradient by the filters."""
    rng = np.random.default_rng(0)
    out: Any = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(shape[2:], window, stride, pad, dilation, strict=True)
    )
    problem = Problem(
        (1, *shape[2:]), (1, *window), (1, *stride), (0, *pad), (1, *dilation), (1, *out)
    )  # type: ignore[arg-type]
    x, grad = (
        rng.standard_normal(shape).astype(dtype),
        rng.standard_normal((*shape[:2], *out)).astype(dtype),
    )
    w, b = (
        rng.standard_normal((shape[1], 1, *window)).astype(dtype),
        rng.standard_normal(shape[1]).astype(dtype),
    )
    taps = seen_by_taps(x[:, :, None], problem)[:, :, :, 0]
    want = (
        np.einsum("tnchw,ct->nchw", taps, w.astype(np.float64).reshape(shape[1], -1))
        + b.astype(np.float64)[:, None, None]
    )
    got, by_weight = (
        np.full(grad.shape, np.nan, dtype),
        np.full((shape[1], taps.shape[0]), np.nan, dtype),
    )
    with cb.use(backend):
        assert by_planes_on_gpu(x, w, b, got, problem, ACTIVATIONS["relu"], HERE.cores)
        by_window = by_weight.reshape(shape[1], 1, *window)
        p = WeightGradient(x, grad, by_window, problem, shape[1])
        assert PlanesWeight().unfit(p, HERE) is None
        PlanesWeight().launch(p, HERE)
    close(got, np.maximum(want, 0), dtype)
    close(by_weight, np.einsum("tnchw,nchw->ct", taps, grad.astype(np.float64)), dtype)


def test_windows_that_are_too_wide_are_left_to_others() -> None:
    problem = Problem((1, 1, 99), (1, 1, 66), (1, 1, 1), (0, 0, 0), (1, 1, 1), (1, 1, 34))
    x, w, out = np.zeros((1, 1, 99, 2), F), np.zeros((2, 1, 1, 66), F), np.zeros((1, 1, 34, 2), F)
    assert not by_channel_on_gpu(x, w, None, out, problem, True, None)
    first = (a.transpose(0, 3, 1, 2) for a in (x, out))
    p = WeightGradient(*first, np.zeros((2, 1, 66), F), problem, 2)
    assert ChannelsWeight().unfit(p, HERE) == "depthwise, windows that are not wide"
