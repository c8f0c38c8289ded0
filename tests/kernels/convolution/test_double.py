"""Convolutions in f64: to the last digits, forward, back by input and filters, called again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels as K
from tests.kernels.convolution.test_conv import defined

RNG = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


CASES = [  # input, filters, stride, padding, dilation, groups
    ((2, 3, 9, 11), (5, 3, 3, 3), 1, 1, 1, 1),
    ((1, 8, 10, 7), (6, 4, 3, 2), (2, 1), 1, (1, 2), 2),
    ((2, 4, 6, 6), (4, 1, 3, 3), 2, 0, 1, 4),
    ((1, 3, 12), (4, 3, 5), 3, 2, 1, 1),
    ((1, 2, 4, 5, 6), (3, 2, 2, 2, 3), 2, 1, 1, 1),
]


@pytest.mark.parametrize(("shape", "filters", "stride", "padding", "dilation", "groups"), CASES)
def test_forward_and_back(
    shape: Any, filters: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    how = (stride, padding, dilation, groups)
    conv = {3: K.conv1d, 4: K.conv2d, 5: K.conv3d}[len(shape)]
    for _ in range(4):  # repetitions do launches alone
        x, w, b = draw(*shape), draw(*filters), draw(filters[0])
        want = defined(x, w, *how)
        plain = conv(x, w, None, *how)
        np.testing.assert_allclose(plain, want, rtol=1e-12, atol=1e-12)
        more = draw(*want.shape)
        along = b.reshape(-1, *(1,) * (len(shape) - 2))
        full = conv(x, w, b, *how, activation="relu", add=more)
        np.testing.assert_allclose(full, np.maximum(want + along + more, 0), rtol=1e-12, atol=1e-12)
        g = draw(*want.shape)
        by_input, by_weight = K.conv_input(x.shape, w, g, *how), K.conv_weight(x, w.shape, g, *how)
        dx, dw = draw(*shape), draw(*filters)
        np.testing.assert_allclose((by_input * dx).sum(), (g * defined(dx, w, *how)).sum(), 1e-11)
        np.testing.assert_allclose((by_weight * dw).sum(), (g * defined(x, dw, *how)).sum(), 1e-11)


def test_channels_last() -> None:
    x, w = draw(2, 5, 6, 3), draw(4, 3, 3, 3)
    want = defined(x.transpose(0, 3, 1, 2), w, 1, 1)
    got = K.conv2d(x, w, padding=1, layout="NHWC")
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, rtol=1e-12, atol=1e-12)
    seen = K.conv2d(x.transpose(0, 3, 1, 2), w, padding=1)
    np.testing.assert_allclose(seen, want, rtol=1e-12, atol=1e-12)


def test_transposed() -> None:
    for _ in range(4):
        x, w = draw(2, 4, 5, 3), draw(4, 3, 3, 2)
        got = K.conv_transpose2d(x, w, None, 2, 1, 1)
        back = draw(*got.shape)
        want = (x * defined(back, w, 2, 1)).sum()
        np.testing.assert_allclose((got * back).sum(), want, rtol=1e-11)
