"""`out=` costs nothing: an array of the layout that a function would have chosen is written by the
same launches as a new result, and one of another layout by these and one copy.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from tests.kernels.by_axis import functions_of_an_axis
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="kernels of the CPU")
rng = np.random.default_rng(0)
LAST = {1: "NLC", 2: "NHWC", 3: "NDHWC"}
Call = Callable[..., Any]
CALLS: dict[str, Call] = {}


def some(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def channels_last(x: np.ndarray) -> np.ndarray:
    """The same numbers in channels-last memory, seen as channels first."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def add(name: str, function: Call, *args: Any, **options: Any) -> None:
    CALLS[name] = lambda out=None: function(*args, **options, out=out)


IMAGES = {1: some(2, 16, 40), 2: some(2, 16, 12, 20), 3: some(1, 16, 4, 6, 20)}
for axes, image in IMAGES.items():
    for memory, x in (("first", image), ("last", channels_last(image))):
        if axes != 2 and memory == "first":
            continue
        for name, *args in (
            ("max_pool", 3, 1, 1), ("adaptive_max_pool", 4), ("avg_pool", 2), ("adaptive_avg_pool", 4),
        ):  # fmt: skip
            add(f"{name}{axes}d {memory}", getattr(K, f"{name}{axes}d"), x, *args)
        window = (3,) * axes
        dense, single = some(16, 16, *window), some(16, 1, *window)
        conv, back = getattr(K, f"conv{axes}d"), getattr(K, f"conv_transpose{axes}d")
        add(f"conv{axes}d {memory}", conv, x, dense, None, 1, 1)
        add(f"conv_transpose{axes}d {memory}", back, x, dense, None, 2, 1)
        if axes == 2:
            add(f"conv2d depthwise {memory}", conv, x, single, None, 1, 1, 1, 16)
            add(f"conv_transpose2d depthwise {memory}", back, x, single, None, 2, 1, 0, 16)
    add(
        f"max_pool{axes}d without a batch",
        getattr(K, f"max_pool{axes}d"),
        channels_last(image)[0],
        3,
        1,
        1,
    )
    add(
        f"avg_pool{axes}d channels last",
        getattr(K, f"avg_pool{axes}d"),
        image,
        2,
        layout=LAST[axes],
    )
for memory, x in (("first", IMAGES[2]), ("last", channels_last(IMAGES[2]))):
    places = rng.integers(0, 16, x.shape)
    add(f"interpolate nearest {memory}", K.interpolate, x, None, 2)
    add(f"interpolate bilinear {memory}", K.interpolate, x, None, 2, "bilinear")
    add(f"batch_norm {memory}", K.batch_norm, x, np.zeros(16, np.float32), np.ones(16, np.float32))
    add(f"group_norm {memory}", K.group_norm, x, 4)
    add(f"softmax {memory}", K.softmax, x)
    add(f"softmax of channels {memory}", K.softmax, x, 1)
    add(f"log_softmax of channels {memory}", K.log_softmax, x, 1)
    add(f"layer_norm {memory}", K.layer_norm, x, 20)
    add(f"rms_norm {memory}", K.rms_norm, x, 20)
    add(f"pad {memory}", K.pad, x, (1, 1, 1, 1))
    add(f"gelu {memory}", K.gelu, x)
    add(f"copy {memory}", K.copy, x)
    add(f"transpose {memory}", K.transpose, x, (0, 2, 3, 1))
    add(f"flip {memory}", K.flip, x, 3)
    add(f"cumsum {memory}", K.cumsum, x, 1)
    add(f"sort {memory}", K.sort, x, 1)
    add(f"select {memory}", K.select, x, 1, np.arange(15, -1, -1))
    add(f"gather {memory}", K.gather, x, 1, places)
    add(f"scatter {memory}", K.scatter, x, 1, places, some(*x.shape))
    for name in ("sum", "max", "var", "argmax"):
        add(f"{name} {memory}", getattr(K, name), x, 1)
for name in ("all", "any", "argmin", "logsumexp", "mean", "min", "prod", "std"):
    add(name, getattr(K, name), some(12, 10, 20), 1)
square, heads = some(48, 48), some(2, 4, 24, 32)
add("norm", K.norm, some(12, 10, 20), 2, 1)
add("cumprod", K.cumprod, square, 1)
add("argsort", K.argsort, square)
add("attention", K.attention, heads, some(*heads.shape), some(*heads.shape))
add("matmul", K.matmul, square, some(48, 48))
add("matmul, a product of many", K.matmul, some(3, 24, 32), some(3, 32, 40))
add("matmul, packed", K.matmul, square, K.prepack(some(48, 48)))
add("matmul, f64", K.matmul, square.astype(np.float64), square.astype(np.float64).T)
add("embedding", K.embedding, rng.integers(0, 48, 30), square)
add("take_along_axis", K.take_along_axis, square, rng.integers(0, 48, (48, 48)), 1)
add("index_put", K.index_put, square, rng.permutation(48)[:20], some(20, 48))
add("scatter of rows", K.scatter, square, 1, rng.integers(0, 48, (48, 48)), some(48, 48))
add("concat", K.concat, [square, some(10, 48)])
add("map", K.map, K.functions.add, some(96, 96), some(96, 96))
RANDOM = {
    "bernoulli": lambda out=None, generator=None: K.bernoulli(np.full((30, 40), 0.5, np.float32), out=out,
                                                              generator=generator),
    "normal": lambda out=None, generator=None: K.normal(size=(30, 40), out=out, generator=generator),
    "randint": lambda out=None, generator=None: K.randint(9, size=(30, 40), out=out, generator=generator),
    "uniform": lambda out=None, generator=None: K.uniform(size=(30, 40), out=out, generator=generator),
}  # fmt: skip
for name, draw in RANDOM.items():
    CALLS[name] = lambda out=None, draw=draw: draw(out, K.Generator(7))

listed = {name.split()[0].rstrip(",") for name in CALLS}
for name, function in functions_of_an_axis().items():
    if name not in listed and "out" in inspect.signature(function).parameters:
        add(name, function, some(12, 10, 20), 1)


class Watched(np.ndarray):
    """An array that counts the arrays which NumPy copies into it."""

    copies = 0

    def __setitem__(self, where: Any, value: Any) -> None:
        type(self).copies += isinstance(value, np.ndarray) and value.ndim > 0
        super().__setitem__(where, value)


def launches(call: Call, out: Any = None) -> Counter[str]:
    """How often each kernel was launched; `numpy` for arrays that NumPy copied to the result."""
    Watched.copies = 0
    with cb.profile() as found:
        call(out if out is None else out.view(Watched))
    return Counter({name: timing.calls for name, timing in found.kernels.items()}) + Counter(
        numpy=Watched.copies
    )


def in_order(like: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """A new array of a shape and dtype whose axes lie in memory in this order."""
    made = np.empty([like.shape[d] for d in order], like.dtype)
    return made.transpose([order.index(d) for d in range(like.ndim)])


def test_every_function_that_takes_out_is_here() -> None:
    public = {
        name for name in K.__all__
        if callable(function := getattr(K, name)) and not inspect.isclass(function)
        and "out" in inspect.signature(function).parameters
    }  # fmt: skip
    assert public - {name.split()[0].rstrip(",") for name in CALLS} == set()


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", CALLS)
def test_out_takes_the_launches_of_a_new_result_and_one_copy_where_its_layout_is_another(
    name: str,
) -> None:
    call = CALLS[name]
    fresh = call()
    known, every = launches(call), tuple(range(fresh.ndim))
    own = tuple(sorted(every, key=lambda d: -fresh.strides[d]))
    for order in dict.fromkeys(
        (own, every, every[::-1], (0, *range(2, fresh.ndim), 1)[: fresh.ndim])
    ):
        out = in_order(fresh, order)
        assert call(out) is out
        np.testing.assert_array_equal(out, fresh)
        found = launches(call, out)
        if order == own:
            assert found == known
        assert found["numpy"] == 0
        assert found.total() <= known.total() + 1


def test_a_function_of_arrays_that_lie_across_turns_as_few_as_it_can() -> None:
    a, b = some(128, 96), some(128, 96)
    plain = launches(lambda out: K.map(K.functions.add, a, b, out=out))
    assert plain == {"map_flat": 1}
    assert launches(lambda out: K.map(K.functions.add, a, b.T.copy().T, out=out)) == {
        "map_rows": 1, "transpose_tiles": 1
    }  # fmt: skip
    out = in_order(a, (1, 0))
    assert launches(lambda out: K.map(K.functions.add, a, b, out=out), out) == {
        "map_flat": 1,
        "transpose_tiles": 1,
    }
    np.testing.assert_array_equal(K.map(K.functions.add, a, b, out=out), a + b)


def test_arrays_of_many_orders_are_added_right() -> None:
    shape = (12, 18, 44)
    orders = ((0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1))
    for _ in range(40):
        xs = []
        for k in rng.integers(0, 6, 4):
            x = in_order(np.empty(shape, np.float32), orders[k])
            x[...] = rng.integers(-99, 99, shape)
            xs.append(x[:, :1] if rng.random() < 0.2 else x)
        out = in_order(np.empty(shape, np.float32), orders[rng.integers(6)])
        K.map(add_four, *xs, out=out)
        np.testing.assert_array_equal(out, xs[0] + xs[1] + xs[2] + xs[3])
        K.map(add_four, *xs[:3], out, out=out)
        np.testing.assert_array_equal(out, 2 * (xs[0] + xs[1] + xs[2]) + xs[3])


@cb.func
def add_four(a: Any, b: Any, c: Any, d: Any) -> Any:
    """a + b + c + d"""
    return a + b + c + d
