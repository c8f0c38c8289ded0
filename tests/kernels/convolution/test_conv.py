"""Convolutions against their definition in float64: axes, layouts, groups, windows, edges,
gradients, refusals.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from cubepy.kernels.convolution.im2col import by_columns
from cubepy.kernels.convolution.problem import Problem
from tests.backends.cuda.thorough import some
from tests.staging import DEVICES, WHERE

F = np.float32
RNG = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


def many(value: Any, axes: int) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,) * axes


def defined(
    x: np.ndarray,
    w: np.ndarray,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> np.ndarray:
    """The sum over the window, tap by tap."""
    axes = x.ndim - 2
    s, p, d = many(stride, axes), many(padding, axes), many(dilation, axes)
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((k, k) for k in p)])
    out = [(n - dd * (k - 1) - 1) // ss + 1 for n, k, ss, dd in zip(x.shape[2:], w.shape[2:], s, d)]
    parts = np.zeros((groups, x.shape[0], w.shape[0] // groups, *out))
    xs = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    ws = w.astype(np.float64).reshape(groups, -1, *w.shape[1:])
    for tap in itertools.product(*map(range, w.shape[2:])):
        at = tuple(
            slice(t * dd, t * dd + (m - 1) * ss + 1, ss) for t, dd, m, ss in zip(tap, d, out, s)
        )
        for g in range(groups):
            parts[g] += np.einsum(
                "nc...,fc->nf...", xs[(slice(None), g, slice(None), *at)], ws[(g, ..., *tap)]
            )
    return np.concatenate(list(parts), 1)


def close(got: np.ndarray, want: np.ndarray, tolerance: float = 3e-6) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(
        got, want, rtol=0, atol=tolerance * max(1.0, float(np.abs(want).max(initial=0)))
    )


CASES = [  # input, filters, stride, padding, dilation, groups
    ((1, 3, 9, 11), (5, 3, 3, 3), 1, 1, 1, 1),
    ((2, 64, 14, 14), (70, 64, 3, 3), 1, 1, 1, 1),
    ((1, 16, 20, 20), (64, 16, 1, 1), 1, 0, 1, 1),
    ((2, 3, 30, 30), (20, 3, 7, 7), 2, 3, 1, 1),
    ((1, 8, 17, 13), (12, 2, 3, 3), 2, 0, 2, 4),
    ((2, 20, 9, 9), (20, 1, 3, 3), (2, 1), 1, 1, 20),
    ((1, 1, 5, 5), (1, 1, 5, 5), 1, 0, 1, 1),
    ((1, 17, 1, 40), (17, 17, 1, 3), 1, (0, 1), 1, 1),
    ((1, 200, 4, 300), (4, 200, 3, 3), 1, 1, 1, 1),
    ((1, 16, 1, 1), (16, 1, 3, 3), 1, 1, 1, 16),
    ((1, 17, 9, 9), (17, 1, 3, 3), 1, 4, 2, 17),
    ((1, 33, 2, 9), (33, 1, 7, 3), (2, 1), 3, 1, 33),
    ((2, 5, 1, 1), (3, 5, 1, 1), 1, 0, 1, 1),
    ((1, 16, 3, 880), (17, 16, 3, 3), 1, 1, 1, 1),
    ((1, 6, 2, 3), (7, 6, 3, 3), 2, 4, (1, 3), 1),
    ((1, 920, 3, 4), (16, 920, 3, 3), 1, 1, 1, 1),  # a panel larger than a piece of the window
]


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "dilation", "groups"),
    some(CASES, 1, 2, 3, 4, 5, 6, 9, 10, 11, 15),
    ids=str,
)
def test_conv2d_in_both_layouts(
    shape: Any, filters: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    x, w, b = draw(*shape), draw(*filters), draw(filters[0])
    want = np.maximum(defined(x, w, stride, padding, dilation, groups) + b[:, None, None], 0)
    rest = (b, stride, padding, dilation, groups)
    close(K.conv2d(x, w, *rest, activation="relu"), want)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    close(K.conv2d(last, w, *rest, layout="NHWC", activation="relu").transpose(0, 3, 1, 2), want)
    if WHERE:
        return  # packed filters are for the CPU
    packed = K.prepack_filter(w, groups)
    seen = K.conv2d(
        last.transpose(0, 3, 1, 2), packed, *rest, activation="relu"
    )  # channels-last memory, NCHW view
    close(seen, want)
    assert seen.shape[1] == 1 or seen.transpose(0, 2, 3, 1).flags.c_contiguous


def test_one_and_three_axes() -> None:
    x, w = draw(2, 5, 91), draw(7, 5, 4)
    close(K.conv1d(x, w, None, 2, 1), defined(x, w, 2, 1))
    x = draw(2, 5, 45)  # as many pixels as before: the same machine code
    close(K.conv1d(x, w[:, :, :3], padding="same"), defined(x, w[:, :, :3], 1, 1))
    x, w = draw(1, 4, 5, 6, 7), draw(3, 4, 2, 3, 3)
    want = defined(x, w, 1, 1, (1, 2, 1))
    close(K.conv3d(x, w, None, 1, 1, (1, 2, 1)), want)
    close(
        K.conv3d(x.transpose(0, 2, 3, 4, 1), w, None, 1, 1, (1, 2, 1), layout="NDHWC").transpose(
            0, 4, 1, 2, 3
        ),
        want,
    )


def test_long_rows_are_cut() -> None:
    x, w = draw(1, 3, 5000), draw(5, 3, 4)
    close(K.conv1d(x, w, padding=2), defined(x, w, 1, 2))
    last = np.ascontiguousarray(x.transpose(0, 2, 1))
    close(K.conv1d(last, w, padding=2, layout="NLC").transpose(0, 2, 1), defined(x, w, 1, 2))


def test_strided_input_outputs_and_narrow_floats() -> None:
    x, w = draw(2, 6, 20, 24), draw(9, 6, 3, 3)
    view = draw(2, 6, 20, 48)[:, :, ::-1, ::2]
    close(K.conv2d(view, w, padding=1), defined(view, w, 1, 1))
    out = np.zeros((2, 9, 24, 20), F).transpose(0, 1, 3, 2)
    assert K.conv2d(x, w, padding=1, out=out) is out
    close(out, defined(x, w, 1, 1))
    h = x.astype(np.float16)
    got = K.conv2d(h, w.astype(np.float16), padding=1)
    assert got.dtype == np.float16
    close(got, defined(h, w.astype(np.float16), 1, 1), 1e-3)


def test_nan_and_infinity_reach_what_sees_them_only() -> None:
    x = np.ones((1, 16, 12, 12), F)
    x[0, 3, 0, 0], x[0, 5, 11, 11] = np.nan, np.inf
    got = K.conv2d(x, np.ones((4, 16, 3, 3), F), padding=1)
    assert np.isnan(got[0, :, :2, :2]).all() and np.isinf(got[0, :, -2:, -2:]).all()
    assert np.isfinite(got[0, :, 2:-2]).all()


def test_columns_in_memory_give_the_same() -> None:
    """The routine of GPUs runs anywhere."""
    x, w, b = draw(2, 6, 9, 8), draw(8, 3, 3, 3), draw(8)
    problem = Problem((1, 9, 8), (1, 3, 3), (1, 2, 1), (0, 1, 1), (1, 1, 1), (1, 5, 8))
    out = np.zeros((2, 8, 40), F)
    by_columns(x.transpose(0, 2, 3, 1), w, b, out, problem, 2, False, None)
    close(out.reshape(2, 8, 5, 8), defined(x, w, (2, 1), 1, 1, 2) + b[:, None, None])


def adjoint(x_shape: Any, w: np.ndarray, grad: np.ndarray, *settings: Any) -> np.ndarray:
    """The gradient by the input: the convolution is linear in it, so its transpose is found by unit
    vectors.
    """
    out = np.zeros(x_shape)
    for at in np.ndindex(*x_shape):
        unit = np.zeros(x_shape)
        unit[at] = 1
        out[at] = (defined(unit, w, *settings) * grad).sum()
    return out


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 1, 1, 1), (2, 1, 1, 2), ((1, 2), 0, 2, 1)],
    ids=str,
)
def test_gradients_are_the_adjoint(stride: Any, padding: Any, dilation: Any, groups: int) -> None:
    x, w = draw(1, 4, 7, 6), draw(6, 4 // groups, 3, 3)
    settings = (stride, padding, dilation, groups)
    grad = draw(*defined(x, w, *settings).shape)
    close(K.conv_input(x.shape, w, grad, *settings), adjoint(x.shape, w, grad, *settings))
    by_filter = np.zeros(w.shape)
    for at in np.ndindex(*w.shape):
        unit = np.zeros(w.shape)
        unit[at] = 1
        by_filter[at] = (defined(x, unit, *settings) * grad).sum()
    close(K.conv_weight(x, w.shape, grad, *settings), by_filter)


def gradients(
    x: np.ndarray, w: np.ndarray, grad: np.ndarray, *settings: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Those by the input and by the filters, tap by tap."""
    stride, padding, dilation, groups = (*settings, *(1, 0, 1, 1)[len(settings) :])
    axes = x.ndim - 2
    s, p, d = many(stride, axes), many(padding, axes), many(dilation, axes)
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((k, k) for k in p)])
    by_input, by_filter = np.zeros(wide.shape), np.zeros(w.shape)
    gs = grad.astype(np.float64).reshape(grad.shape[0], groups, -1, *grad.shape[2:])
    xs, into = (a.reshape(a.shape[0], groups, -1, *a.shape[2:]) for a in (wide, by_input))
    ws, found = (a.reshape(groups, -1, *a.shape[1:]) for a in (w.astype(np.float64), by_filter))
    for tap in itertools.product(*map(range, w.shape[2:])):
        at = tuple(
            slice(t * dd, t * dd + (m - 1) * ss + 1, ss)
            for t, dd, m, ss in zip(tap, d, grad.shape[2:], s)
        )
        seen = (slice(None), slice(None), slice(None), *at)
        into[seen] += np.einsum("ngf...,gfc->ngc...", gs, ws[(..., *tap)])
        found[(..., *tap)] = np.einsum(
            "ngfp,ngcp->gfc", *(a.reshape(*a.shape[:3], -1) for a in (gs, xs[seen]))
        )
    inner = (slice(None), slice(None), *(slice(k, k + n) for k, n in zip(p, x.shape[2:])))
    return by_input[inner], by_filter


GRADIENTS = [  # input, filters, stride, padding, dilation, groups; most share their machine code
    ((2, 70, 9, 11), (40, 70, 3, 3), 2, 1, 1, 1),
    ((1, 3, 22, 30), (40, 3, 7, 7), 2, 3, 1, 1),
    ((2, 70, 8, 9), (40, 70, 1, 1), 2, 0, 1, 1),
    ((2, 70, 5, 6), (40, 70, 1, 1), 1, 0, 1, 1),
    ((1, 80, 9, 8), (80, 40, 3, 2), (1, 2), 1, (2, 1), 2),
    ((1, 20, 5, 24), (20, 1, 3, 3), 2, 1, 1, 20),
    ((1, 40, 2, 1000), (40, 40, 2, 3), (1, 2), 1, 1, 1),
    ((1, 70, 9, 8), (40, 70, 2, 2), 3, 0, 2, 1),
]


@pytest.mark.parametrize("case", some(GRADIENTS, 0, 1, 2, 4, 5, 6), ids=str)
def test_gradients_in_both_layouts(case: Any) -> None:
    shape, filters, *settings = case
    x, w = draw(*shape), draw(*filters)
    grad = draw(*defined(x, w, *settings).shape)
    by_input, by_filter = gradients(x, w, grad, *settings)
    for turned in (False, True):
        if turned:
            x, w, grad = (
                np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
                for a in (x, w, grad)
            )
        for _ in range(3 if turned else 1):  # the third call repeats launches
            close(K.conv_input(x.shape, w, grad, *settings), by_input)
            close(K.conv_weight(x, w.shape, grad, *settings), by_filter)


@pytest.mark.parametrize("device", DEVICES)
def test_small_gradients_everywhere(device: str) -> None:
    with cb.use(device):
        for groups in (1, 4):
            x, w, grad = draw(1, 4, 5, 3), draw(4, 4 // groups, 3, 2), draw(1, 4, 3, 2)
            by_input, by_filter = gradients(x, w, grad, 2, 1, 1, groups)
            close(K.conv_input(x.shape, w, grad, 2, 1, 1, groups), by_input)
            close(K.conv_weight(x, w.shape, grad, 2, 1, 1, groups), by_filter)


def test_gradients_of_narrow_floats_volumes_and_nothing() -> None:
    x, w, grad = draw(2, 5, 9), draw(7, 5, 3), draw(2, 7, 5)
    by_input, by_filter = gradients(x, w, grad, 2, 1)
    h, v, g = (a.astype(np.float16) for a in (x, w, grad))
    assert K.conv_weight(h, w.shape, g, 2, 1).dtype == np.float16
    close(K.conv_weight(h, w.shape, g, 2, 1), by_filter, 1e-3)
    close(K.conv_input(h.shape, v, g, 2, 1), by_input, 1e-3)
    x, w, grad = draw(1, 3, 4, 5, 6), draw(6, 3, 2, 3, 3), draw(1, 6, 2, 3, 3)
    by_input, by_filter = gradients(x, w, grad, 2, (0, 1, 1))
    close(K.conv_input(x.shape, w, grad, 2, (0, 1, 1)), by_input)
    close(K.conv_weight(x, w.shape, grad, 2, (0, 1, 1)), by_filter)
    assert not K.conv_weight(
        np.zeros((0, 4, 5, 5), F), (6, 4, 3, 3), np.zeros((0, 6, 3, 3), F)
    ).any()
    assert K.conv_input(
        (0, 4, 5, 5), np.zeros((6, 4, 3, 3), F), np.zeros((0, 6, 3, 3), F)
    ).shape == (0, 4, 5, 5)


def test_gradients_keep_nan_and_infinity_to_what_they_reach() -> None:
    x, grad = np.ones((1, 40, 6, 6), F), np.ones((1, 40, 6, 6), F)
    grad[0, 3, 0, 0] = np.inf
    got = K.conv_weight(x, (40, 40, 3, 3), grad, padding=1)
    assert np.isinf(got[3, :, 1:, 1:]).all() and np.isfinite(got[4]).all()
    beyond = got[3, :, 0]  # taps with which infinity meets the padding: a GPU multiplies it by zero
    assert (np.isnan(beyond) if WHERE else np.isfinite(beyond)).all()
    grad[0, 3, 0, 0] = np.nan
    got = K.conv_transpose2d(grad, np.ones((40, 40, 3, 3), F), stride=2)
    assert np.isnan(got[0, :, :3, :3]).all() and np.isfinite(got[0, :, 3:]).all()


def test_transposed_convolution() -> None:
    x, w, b = draw(1, 4, 5, 4), draw(4, 3, 3, 3), draw(6)
    want = adjoint((1, 6, 10, 8), w, x, 2, 1, 1, 2) + b[:, None, None]
    close(K.conv_transpose2d(x, w, b, 2, 1, 1, 2), want)
    last = K.conv_transpose2d(x.transpose(0, 2, 3, 1), w, b, 2, 1, 1, 2, layout="NHWC")
    close(last.transpose(0, 3, 1, 2), want)
    out = np.zeros((1, 10, 8, 6), F).transpose(0, 3, 1, 2)
    assert K.conv_transpose2d(x, w, b, 2, 1, 1, 2, out=out) is out
    close(out, want)
    x, w = draw(2, 3, 6), draw(3, 2, 4)
    close(K.conv_transpose1d(x, w, None, 3), adjoint((2, 2, 19), w, x, 3))
    assert K.conv_transpose3d(draw(1, 2, 3, 3, 3), draw(2, 1, 2, 2, 2), stride=2).shape == (
        1,
        1,
        6,
        6,
        6,
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_no_images_make_none(layout: str) -> None:
    """Also where zeros are put between the elements of an image of other layouts."""
    x, w = np.zeros((0, 4, 8, 4), F), draw(4, 3, 3, 5)
    for stride in (1, (2, 1), (1, 3)):
        for filters in (w, w.transpose(2, 0, 1, 3).copy().transpose(1, 2, 0, 3)):
            got = K.conv_transpose2d(x, filters, stride=stride, dilation=(1, 2), layout=layout)
            assert got.shape[0] == got.size == 0
    grad = np.zeros((0, 1, 6, 8), F)
    assert K.conv_input((0, 1, 12, 24), draw(1, 1, 3, 2), grad, (2, 3), (1, 0)).shape[0] == 0


def test_what_makes_no_sense_is_refused() -> None:
    x, w = draw(1, 4, 5, 5), draw(6, 4, 3, 3)
    with pytest.raises(errors.ShapeError, match="do not go with 4 channels"):
        K.conv2d(x, w, groups=2)
    with pytest.raises(errors.ShapeError, match="does not fit"):
        K.conv2d(x, w, dilation=3)
    with pytest.raises(errors.ShapeError, match="needs 4 axes"):
        K.conv2d(x[0], w)
    with pytest.raises(errors.ShapeError, match="layout is"):
        K.conv2d(x, w, layout="CHWN")
    with pytest.raises(errors.ShapeError, match="bias has shape"):
        K.conv2d(x, w, draw(3))
    with pytest.raises(errors.ShapeError, match="add has shape"):
        K.conv2d(x, w, add=draw(1, 6, 3, 1))
    with pytest.raises(errors.ShapeError, match="stride must be"):
        K.conv2d(x, w, stride=0)
    with pytest.raises(errors.ShapeError, match="do not go with"):
        K.conv_weight(x, (6, 4, 3, 3), draw(1, 6, 4, 3))
    with pytest.raises(errors.ShapeError, match="does not come from"):
        K.conv_input((1, 4, 4, 5), w, draw(1, 6, 3, 3))
    with pytest.raises(errors.ShapeError, match="has no place"):
        K.conv_transpose2d(draw(1, 6, 1, 1), w, stride=2, padding=2)
    with pytest.raises(errors.DTypeError, match="not for f64"):
        K.conv2d(x.astype(np.float64), K.prepack_filter(w))
    assert K.conv2d(np.zeros((0, 4, 5, 5), F), w).shape == (0, 6, 3, 3)


@pytest.mark.skipif(
    bool(WHERE), reason="a GPU adds in a pass over the rounded result, as the docs say"
)
@pytest.mark.parametrize("groups, activation", [(3, None), (1, "tanh")])
def test_what_is_added_to_narrow_floats_is_rounded_with_the_sum(
    groups: int, activation: str | None
) -> None:
    """Few filters of a group, and long activations, are no work of the convolution's own kernel."""
    rng = np.random.default_rng(0)
    shapes = (2, 3 * groups, 40), (24, 3, 5), (24,), (2, 24, 36)
    x, w, b, more = (rng.standard_normal(s).astype(np.float16) for s in shapes)
    options: dict[str, Any] = {"groups": groups, "activation": activation}
    got = K.conv1d(x, w, b, add=more, **options)
    want = K.conv1d(
        *(v.astype(np.float32) for v in (x, w, b)), add=more.astype(np.float32), **options
    )
    assert np.mean(got != want.astype(np.float16)) < 0.01
