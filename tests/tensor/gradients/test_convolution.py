"""Convolutions as ops: values, first and second derivatives, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.tensor import Graph, apply, execute, record
from tests.kernels.convolution.test_conv import defined
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(11)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape)


def how(
    axes: int, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
) -> dict[str, Any]:
    return {
        "stride": (stride,) * axes,
        "padding": (padding,) * axes,
        "dilation": (dilation,) * axes,
        "groups": groups,
        "precision": None,
    }


CASES = {
    "1d": ((2, 3, 6), (4, 3, 3), how(1, padding=1)),
    "1d strided": ((1, 2, 8), (2, 2, 3), how(1, stride=2, dilation=2)),
    "2d": ((1, 2, 4, 5), (3, 2, 3, 2), how(2, padding=1)),
    "2d groups": ((2, 4, 4, 4), (4, 2, 2, 2), how(2, stride=2, groups=2)),
    "2d depthwise": ((1, 3, 4, 4), (3, 1, 3, 3), how(2, padding=1, groups=3)),
    "3d": ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2), how(3, stride=2, padding=1)),
}


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name: str) -> None:
    shape, filters, attrs = CASES[name]
    x, w, b = some(*shape), some(*filters), some(filters[0])
    y = apply("conv", cb.tensor(x), cb.tensor(w), cb.tensor(b), **attrs)
    rest = (attrs["stride"], attrs["padding"], attrs["dilation"], attrs["groups"])
    want = defined(x, w, *rest) + b.reshape(-1, *(1,) * (len(shape) - 2))
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-12, atol=1e-12)
    check_gradients(lambda x, w, b: apply("conv", x, w, b, **attrs), x, w, b)


@pytest.mark.parametrize("name", ["1d strided", "2d groups", "3d"])
def test_transposed_convolutions(name: str) -> None:
    shape, filters, attrs = CASES[name]
    rest = (attrs["stride"], attrs["padding"], attrs["dilation"], attrs["groups"])
    pixels = defined(np.zeros(shape), np.zeros(filters), *rest).shape
    x, w, b = some(*pixels), some(*filters), some(filters[1] * attrs["groups"])

    def transposed(x: Any, w: Any, b: Any) -> Any:
        return apply("conv_transpose", x, w, b, size=shape[2:], **attrs)

    back = some(*shape)  # <back, transposed(x)> = <conv(back), x>
    got = transposed(cb.tensor(x), cb.tensor(w), None).numpy()
    np.testing.assert_allclose((got * back).sum(), (defined(back, w, *rest) * x).sum(), 1e-11)
    check_gradients(transposed, x, w, b)


def test_gradients_of_f32_are_those_of_f64() -> None:
    x, w, b = some(2, 8, 9, 9), some(16, 8, 3, 3), some(16)

    def loss(x: Any, w: Any, b: Any) -> Any:
        return (apply("conv", x, w, b, **how(2, stride=2, padding=1)).sin()).sum()

    wide = cb.grad(loss, (0, 1, 2))(x, w, b)
    narrow = cb.grad(loss, (0, 1, 2))(*(cb.tensor(a, "f32") for a in (x, w, b)))
    for a, c in zip(wide, narrow, strict=True):
        assert c.dtype is cb.f32
        np.testing.assert_allclose(c.numpy(), a.numpy(), rtol=2e-5, atol=2e-5)


def test_a_recorded_convolution_is_run_on_other_sizes() -> None:
    x, w = cb.tensor(some(1, 2, 4, 4)), cb.tensor(some(3, 2, 3, 3))
    with record(x) as r:
        y = apply("conv", x, w, None, **how(2, padding=1))
    graph = Graph.from_json(r.graph(y).to_json())
    other = some(2, 2, 6, 5)
    (again,) = execute(graph, [other, w])
    np.testing.assert_allclose(again.numpy(), defined(other, w.numpy(), 1, 1), rtol=1e-12)


def test_shapes_that_do_not_go_together() -> None:
    x, w = cb.tensor(some(1, 4, 4, 4)), cb.tensor(some(3, 2, 3, 3))
    with pytest.raises(ShapeError, match="do not go with 4 channels"):
        apply("conv", x, w, None, **how(2))
    with pytest.raises(ShapeError, match="do not fit into"):
        apply("conv", x, cb.tensor(some(3, 4, 7, 7)), None, **how(2))
    with pytest.raises(ShapeError, match="needs 3 axes"):
        apply("conv", x, w, None, **how(1))
    with pytest.raises(ShapeError, match="does not come from"):
        apply("conv_transpose", x, cb.tensor(some(4, 1, 3, 3)), None, size=(9, 9), **how(2))
