"""Functions of `cubepy.tensor` beside array-api-strict: random shapes, dtypes and arguments."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy.tensor as ours

array_api_strict.set_array_api_strict_flags(api_version="2024.12")
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
NUMBERS = [*INTS, *FLOATS]
ALL = ["bool", *NUMBERS]
Draw = Callable[[Any], Any]


def shapes(low: int = 0, high: int = 4) -> Any:
    return st.lists(st.integers(0, 5), min_size=low, max_size=high).map(tuple)


def array(draw: Draw, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if dtype == "bool":
        return np.asarray(rng.random(shape) > 0.5)
    if dtype in FLOATS:
        made = rng.standard_normal(shape) * draw(st.sampled_from([0.5, 3.0]))
        special = np.asarray([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0])
        picked = rng.choice(special, shape)
        return np.asarray(np.where(rng.random(shape) < 0.1, picked, made), dtype)
    least = 0 if dtype.startswith("u") else -9
    return np.asarray(rng.integers(least, 10, shape), dtype)


def same(
    function: Callable[[Any, list[Any]], Any], given: list[np.ndarray], tolerance: Any
) -> None:
    """Ours gives what array-api-strict gives; where that raises, ours may give anything."""
    layouts = [x if x.ndim < 2 or n % 2 else np.asfortranarray(x) for n, x in enumerate(given)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # means of nothing
        want = function(array_api_strict, [array_api_strict.asarray(x) for x in given])
    found = function(ours, [ours.asarray(x) for x in layouts])
    several = isinstance(want, (tuple, list))
    for one, other in zip(*(([found], [want]) if not several else (found, want)), strict=True):
        got, expected = one.numpy(), np.asarray(other._array)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, **tolerance)


EXACT, CLOSE = {"rtol": 0, "atol": 0}, {"rtol": 3e-6, "atol": 1e-6}
UNARY: dict[str, tuple[list[str], Any]] = {
    **dict.fromkeys("abs negative positive square".split(), (NUMBERS, EXACT)),
    **dict.fromkeys("ceil floor round sign trunc".split(), (NUMBERS, EXACT)),
    **dict.fromkeys("isfinite isinf isnan".split(), (NUMBERS, EXACT)),
    **dict.fromkeys("signbit sqrt reciprocal".split(), (FLOATS, EXACT)),
    "bitwise_invert": (["bool", *INTS], EXACT),
    "logical_not": (["bool"], EXACT),
    **dict.fromkeys(
        """acos acosh asin asinh atan atanh cos cosh exp expm1 log log1p log2 log10 sin sinh tan
        tanh""".split(),
        (FLOATS, CLOSE),
    ),
}
BINARY: dict[str, tuple[list[str], Any]] = {
    **dict.fromkeys("add multiply subtract maximum minimum".split(), (NUMBERS, EXACT)),
    **dict.fromkeys("equal not_equal".split(), (ALL, EXACT)),
    **dict.fromkeys("greater greater_equal less less_equal".split(), (NUMBERS, EXACT)),
    **dict.fromkeys("bitwise_and bitwise_or bitwise_xor".split(), (["bool", *INTS], EXACT)),
    **dict.fromkeys("logical_and logical_or logical_xor".split(), (["bool"], EXACT)),
    **dict.fromkeys("copysign divide nextafter".split(), (FLOATS, EXACT)),
    **dict.fromkeys("atan2 hypot logaddexp".split(), (FLOATS, CLOSE)),
}
REDUCTIONS: dict[str, tuple[list[str], Any]] = {
    **dict.fromkeys("sum prod".split(), (NUMBERS, CLOSE)),
    **dict.fromkeys("max min".split(), (NUMBERS, EXACT)),
    **dict.fromkeys("mean var std".split(), (FLOATS, CLOSE)),
    **dict.fromkeys("any all count_nonzero".split(), (ALL, EXACT)),
}


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", UNARY)
@given(data=st.data())
def test_of_one(name: str, data: Any) -> None:
    dtypes, tolerance = UNARY[name]
    x = array(data.draw, data.draw(shapes()), data.draw(st.sampled_from(dtypes)))
    same(lambda xp, a: getattr(xp, name)(a[0]), [x], tolerance)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", BINARY)
@given(data=st.data())
def test_of_two_that_broadcast(name: str, data: Any) -> None:
    dtypes, tolerance = BINARY[name]
    shape = data.draw(shapes())
    dtype = data.draw(st.sampled_from(dtypes))
    other = data.draw(st.sampled_from([d for d in dtypes if (d in FLOATS) == (dtype in FLOATS)]))
    if "uint64" in (dtype, other) or "bool" in (dtype, other):
        other = dtype
    thin = tuple(n if data.draw(st.booleans()) else 1 for n in shape)
    thin = thin[data.draw(st.integers(0, len(shape))) :]
    given = [array(data.draw, shape, dtype), array(data.draw, thin, other)]
    if data.draw(st.booleans()):
        given.reverse()
    same(lambda xp, a: getattr(xp, name)(*a), given, tolerance)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", REDUCTIONS)
@given(data=st.data())
def test_reductions(name: str, data: Any) -> None:
    dtypes, tolerance = REDUCTIONS[name]
    shape = data.draw(shapes(0, 3).filter(lambda s: name not in ("max", "min") or 0 not in s))
    x = array(data.draw, shape, data.draw(st.sampled_from(dtypes)))
    axes = st.sets(st.integers(0, len(shape) - 1)) if shape else st.just(set())
    drawn = data.draw(axes)
    axis = tuple(d - len(shape) if data.draw(st.booleans()) else d for d in drawn) or None
    keepdims = data.draw(st.booleans())
    if name in ("mean", "var", "std", "prod", "sum"):
        x = np.where(np.isfinite(x), x, np.ones_like(x))

    def function(xp: Any, a: list[Any]) -> Any:
        return getattr(xp, name)(a[0], axis=axis, keepdims=keepdims)

    same(function, [x], tolerance)


def _axis(draw: Draw, x: np.ndarray) -> int:
    return int(draw(st.integers(-x.ndim, x.ndim - 1)))


def _reshape(draw: Draw, x: np.ndarray) -> Any:
    flat = list(x.shape) or [1]
    mixed = tuple(draw(st.permutations(flat)))
    if math.prod(mixed) and draw(st.booleans()):
        mixed = (-1, *mixed[1:])
    return lambda xp, a: xp.reshape(a[0], mixed)


def _permute(draw: Draw, x: np.ndarray) -> Any:
    order = tuple(draw(st.permutations(range(x.ndim))))
    return lambda xp, a: xp.permute_dims(a[0], order)


def _flip(draw: Draw, x: np.ndarray) -> Any:
    axis = draw(st.sampled_from([None, _axis(draw, x)]))
    return lambda xp, a: xp.flip(a[0], axis=axis)


def _roll(draw: Draw, x: np.ndarray) -> Any:
    axis, shift = draw(st.sampled_from([None, _axis(draw, x)])), draw(st.integers(-7, 7))
    return lambda xp, a: xp.roll(a[0], shift, axis=axis)


def _slice(draw: Draw, x: np.ndarray) -> Any:
    parts: list[Any] = []
    for n in x.shape:
        start, stop = (draw(st.sampled_from([None, *range(-n, n + 1)])) for _ in range(2))
        step = draw(st.sampled_from([None, 1, 2, -1, -2]))
        if step is not None and step < 0:
            start = stop = None
        parts.append(slice(start, stop, step))
        if n and draw(st.integers(0, 4)) == 0:
            parts[-1] = draw(st.integers(-n, n - 1))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return lambda xp, a: a[0][tuple(parts)]


def _take(draw: Draw, x: np.ndarray) -> Any:
    axis = _axis(draw, x)
    n = x.shape[axis]
    index = draw(st.lists(st.integers(0, n - 1), max_size=4)) if n else []
    index = np.asarray(index, np.int64)
    return lambda xp, a: xp.take(a[0], xp.asarray(index), axis=axis)


def _sort(draw: Draw, x: np.ndarray) -> Any:
    axis, descending = _axis(draw, x), draw(st.booleans())
    name = draw(st.sampled_from(["sort", "argsort"]))
    return lambda xp, a: getattr(xp, name)(a[0], axis=axis, descending=descending)


def _scan(draw: Draw, x: np.ndarray) -> Any:
    axis, initial = _axis(draw, x), draw(st.booleans())
    return lambda xp, a: xp.cumulative_sum(a[0], axis=axis, include_initial=initial)


def _concat(draw: Draw, x: np.ndarray) -> Any:
    axis = draw(st.sampled_from([None, _axis(draw, x)]))
    return lambda xp, a: xp.concat([a[0], a[0], xp.flip(a[0])], axis=axis)


def _stack(draw: Draw, x: np.ndarray) -> Any:
    axis = draw(st.integers(-x.ndim - 1, x.ndim))
    return lambda xp, a: xp.stack([a[0], a[0]], axis=axis)


def _repeat(draw: Draw, x: np.ndarray) -> Any:
    axis, times = draw(st.sampled_from([None, _axis(draw, x)])), draw(st.integers(0, 3))
    return lambda xp, a: xp.repeat(a[0], times, axis=axis)


def _tile(draw: Draw, x: np.ndarray) -> Any:
    times = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    return lambda xp, a: xp.tile(a[0], times)


def _squeeze(draw: Draw, x: np.ndarray) -> Any:
    at = draw(st.integers(0, x.ndim))
    return lambda xp, a: xp.squeeze(xp.expand_dims(a[0], axis=at), axis=at)


def _move(draw: Draw, x: np.ndarray) -> Any:
    source, destination = _axis(draw, x), _axis(draw, x)
    return lambda xp, a: xp.moveaxis(a[0], source, destination)


def _diff(draw: Draw, x: np.ndarray) -> Any:
    axis, n = _axis(draw, x), draw(st.integers(1, 2))
    return lambda xp, a: xp.diff(xp.astype(a[0], xp.int64), axis=axis, n=n)


def _triangle(draw: Draw, x: np.ndarray) -> Any:
    name, k = draw(st.sampled_from(["tril", "triu"])), draw(st.integers(-4, 4))
    return lambda xp, a: getattr(xp, name)(xp.expand_dims(a[0], axis=0), k=k)


def _unique(draw: Draw, x: np.ndarray) -> Any:
    return lambda xp, a: xp.sort(xp.astype(xp.unique_values(a[0]), xp.float64))


def _nonzero(draw: Draw, x: np.ndarray) -> Any:
    return lambda xp, a: xp.nonzero(a[0])


def _mask(draw: Draw, x: np.ndarray) -> Any:
    return lambda xp, a: a[0][a[0] == xp.flip(a[0])]


def _unstack(draw: Draw, x: np.ndarray) -> Any:
    axis = _axis(draw, x)
    return lambda xp, a: xp.unstack(a[0], axis=axis)


MOVES = {
    f.__name__[1:]: f
    for f in (
        _reshape,
        _permute,
        _flip,
        _roll,
        _slice,
        _take,
        _sort,
        _scan,
        _concat,
        _stack,
        _repeat,
        _tile,
        _squeeze,
        _move,
        _diff,
        _triangle,
        _unique,
        _nonzero,
        _mask,
        _unstack,
    )
}


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", MOVES)
@settings(max_examples=40)
@given(data=st.data())
def test_moves(name: str, data: Any) -> None:
    shape = data.draw(shapes(1, 3))
    dtype = data.draw(st.sampled_from(NUMBERS if name in ("sort", "scan", "diff") else ALL))
    x = array(data.draw, shape, dtype)
    if dtype in FLOATS and name in ("sort", "scan", "diff", "unique"):
        x = np.where(np.isfinite(x), x, np.ones_like(x))
    same(MOVES[name](data.draw, x), [x], CLOSE if name == "scan" else EXACT)


@settings(max_examples=40)
@given(data=st.data())
def test_products(data: Any) -> None:
    n, m, k = (data.draw(st.integers(0, 5)) for _ in range(3))
    batch = data.draw(shapes(0, 2))
    dtype = data.draw(st.sampled_from(["int32", "int64", "uint8", *FLOATS]))
    left, right = (*batch, n, k), (*batch[data.draw(st.integers(0, len(batch))) :], k, m)
    if data.draw(st.booleans()):
        left = (k,)
    given = [array(data.draw, left, dtype), array(data.draw, right, dtype)]
    given = [np.where(np.isfinite(x), x, np.ones_like(x)) for x in given]
    same(lambda xp, a: xp.matmul(*a), given, {"rtol": 1e-5, "atol": 1e-5})
