"""Pools and interpolation as ops: values, first and second derivatives, several results."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import DTypeError, ShapeError
from cubepy.tensor import Graph, apply, execute, record
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(12)
SHAPES = {1: (2, 2, 7), 2: (1, 2, 5, 6), 3: (1, 1, 4, 4, 5)}


def apart(*shape: int) -> np.ndarray:
    """Numbers whose order no small step changes."""
    size = int(np.prod(shape))
    return (RNG.permutation(size) / size * 4 - 2).reshape(shape)


def windows(axes: int, **other: Any) -> dict[str, Any]:
    usual = {"kernel": (3,) * axes, "stride": (2,) * axes, "padding": (1,) * axes}
    return {**usual, "ceil_mode": False, **other}


def of_windows(x: np.ndarray, attrs: dict[str, Any], function: Any, fill: float) -> np.ndarray:
    """A function of every window, by a loop."""
    axes = x.ndim - 2
    p, k, s = attrs["padding"], attrs["kernel"], attrs["stride"]
    wide = np.pad(x, [(0, 0), (0, 0), *((n, n) for n in p)], constant_values=fill)
    size = [(n - w) // t + 1 for n, w, t in zip(wide.shape[2:], k, s)]
    out = np.empty((*x.shape[:2], *size))
    for at in product(*map(range, size)):
        part = tuple(slice(a * t, a * t + w) for a, t, w in zip(at, s, k))
        out[(..., *at)] = function(
            wide[(slice(None), slice(None), *part)], axis=tuple(range(2, axes + 2))
        )
    return out


@pytest.mark.parametrize("axes", SHAPES)
def test_max_pools(axes: int) -> None:
    attrs = windows(axes, dilation=(1,) * axes)
    x = apart(*SHAPES[axes])
    values, indices = apply("max_pool", cb.tensor(x), **attrs, indices=True)
    want = of_windows(x, attrs, np.max, -np.inf)
    np.testing.assert_array_equal(values.numpy(), want)
    planes = x.reshape(*x.shape[:2], -1)
    spots = indices.numpy().reshape(*x.shape[:2], -1)
    np.testing.assert_array_equal(np.take_along_axis(planes, spots, 2).reshape(want.shape), want)
    alone = apply("max_pool", cb.tensor(x), **attrs, indices=False)
    np.testing.assert_array_equal(alone.numpy(), want)
    check_gradients(lambda x: apply("max_pool", x, **attrs, indices=True)[0].exp(), x)
    check_gradients(lambda x: apply("max_pool", x, **attrs, indices=False).exp(), x)


@pytest.mark.parametrize("axes", SHAPES)
def test_adaptive_max_pools(axes: int) -> None:
    x, size = apart(*SHAPES[axes]), (2,) * axes
    values, _ = apply("adaptive_max_pool", cb.tensor(x), size=size, indices=True)
    np.testing.assert_array_equal(values.numpy(), getattr(K, f"adaptive_max_pool{axes}d")(x, size))
    check_gradients(lambda x: apply("adaptive_max_pool", x, size=size, indices=True)[0].exp(), x)


def test_third_derivatives_of_largest_values() -> None:
    x = apart(1, 1, 6)
    attrs = windows(1, dilation=(1,), indices=True)

    def f(x: Any) -> Any:
        return (apply("max_pool", x, **attrs)[0] ** 4).sum()

    third = cb.grad(lambda x: cb.grad(lambda y: cb.grad(f)(y).sum())(x).sum())(cb.tensor(x))
    places, count = np.unique([np.argmax(x[0, 0, :2]), 1 + np.argmax(x[0, 0, 1:4]),
                               3 + np.argmax(x[0, 0, 3:6])], return_counts=True)  # fmt: skip
    want = np.zeros(6)
    want[places] = 24 * x[0, 0, places] * count
    np.testing.assert_allclose(third.numpy()[0, 0], want, rtol=1e-12)


@pytest.mark.parametrize("axes", SHAPES)
@pytest.mark.parametrize("divisor", [None, 5.0])
def test_avg_pools(axes: int, divisor: float | None) -> None:
    attrs = windows(axes, count_include_pad=True, divisor=divisor)
    x = apart(*SHAPES[axes])
    want = of_windows(x, attrs, np.mean if divisor is None else np.sum, 0.0) / (divisor or 1)
    np.testing.assert_allclose(
        apply("avg_pool", cb.tensor(x), **attrs).numpy(), want, rtol=1e-12, atol=1e-12
    )
    check_gradients(lambda x: apply("avg_pool", x, **attrs).exp(), x)
    up = {**attrs, "ceil_mode": True, "count_include_pad": False}
    check_gradients(lambda x: apply("avg_pool", x, **up).exp(), x, second=False)


@pytest.mark.parametrize("axes", SHAPES)
def test_adaptive_avg_pools(axes: int) -> None:
    x, size = apart(*SHAPES[axes]), (3,) * axes
    check_gradients(lambda x: apply("adaptive_avg_pool", x, size=size).exp(), x)
    one = apply("adaptive_avg_pool", cb.tensor(x), size=(1,) * axes).numpy()
    np.testing.assert_allclose(
        one, x.mean(axis=tuple(range(2, axes + 2)), keepdims=True), rtol=1e-12, atol=1e-15
    )


MODES = [
    (1, "nearest", False), (1, "linear", False), (1, "linear", True), (2, "nearest", False),
    (2, "bilinear", False), (2, "bilinear", True), (2, "bicubic", False), (2, "area", False),
    (3, "trilinear", True),
]  # fmt: skip


@pytest.mark.parametrize(("axes", "mode", "corners"), MODES)
def test_interpolation(axes: int, mode: str, corners: bool) -> None:
    x, size = apart(*SHAPES[axes]), (7, 4, 5)[:axes]
    attrs = {"size": size, "factors": None, "mode": mode, "align_corners": corners}
    y = apply("interpolate", cb.tensor(x), **attrs)
    np.testing.assert_array_equal(y.numpy(), K.interpolate(x, size, None, mode, corners))
    check_gradients(lambda x: apply("interpolate", x, **attrs).exp(), x)


def test_interpolation_by_factors_that_are_no_sizes() -> None:
    x = apart(1, 1, 5)
    attrs = {"size": (6,), "factors": (1.3,), "mode": "linear", "align_corners": False}
    y = apply("interpolate", cb.tensor(x), **attrs)
    np.testing.assert_array_equal(y.numpy(), K.interpolate(x, None, 1.3, "linear"))
    check_gradients(lambda x: apply("interpolate", x, **attrs).exp(), x)


def test_graphs_keep_values_and_positions() -> None:
    x = cb.tensor(apart(1, 2, 6, 6))
    attrs = windows(2, dilation=(1, 1), indices=True)
    with record(x) as r:
        values, indices = apply("max_pool", x, **attrs)
        back = apply(
            "max_pool_input", values, indices, size=x.shape[2:],
            **{k: v for k, v in attrs.items() if k != "indices"},
        )  # fmt: skip
    graph = Graph.from_json(r.graph(back, indices).to_json())
    assert len(graph.nodes) == 3 and len(graph.values) == 4
    again, spots = execute(graph, [x])
    np.testing.assert_array_equal(again.numpy(), back.numpy())
    np.testing.assert_array_equal(spots.numpy(), indices.numpy())


def test_what_is_refused() -> None:
    x = cb.tensor(apart(1, 1, 4, 4))
    attrs = windows(2, dilation=(1, 1), indices=False)
    with pytest.raises(ShapeError, match="more than half"):
        apply("max_pool", x, **{**attrs, "padding": (2, 2)})
    with pytest.raises(DTypeError, match="of booleans"):
        apply("max_pool", x > 0, **attrs)
    with pytest.raises(ShapeError, match="parts of"):
        apply("adaptive_avg_pool", x, size=(0, 1))
