"""Ops beyond arithmetic: order, indices, statistics, movement, mathematics, against NumPy and finite
differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import DTypeError, OutOfBoundsError, ShapeError
from cubepy.nn import functional as F
from cubepy.tensor import apply, where
from cubepy.testing import gradcheck
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(11)


def some(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    return RNG.uniform(low, high, shape)


def op(name: str, **attrs: Any) -> Callable[..., Any]:
    return lambda *xs: apply(name, *xs, **attrs)


ONE: dict[str, tuple[Callable[..., Any], float, float]] = {
    **{n: (op(n), -0.8, 0.8) for n in ("tan", "asin", "acos", "atan", "atanh", "exp2")},
    **{n: (op(n), -1.5, 1.5) for n in ("sinh", "cosh", "asinh", "erfc", "square", "cube")},
    **{n: (op(n), 1.2, 3.0) for n in ("acosh", "log2", "log10", "cbrt", "reciprocal")},
    "sort": (op("sort", axis=-1, descending=False), -2, 2),
    "sort_0": (op("sort", axis=0, descending=True), -2, 2),
    "topk": (lambda x: apply("topk", x, k=2, axis=1, largest=True)[0], -2, 2),
    "topk_0": (lambda x: apply("topk", x, k=2, axis=0, largest=False)[0].exp(), -2, 2),
    "cumsum": (op("cumsum", axis=1, exclusive=False), -2, 2),
    "cumsum_0": (op("cumsum", axis=0, exclusive=True), -2, 2),
    "cumprod": (op("cumprod", axis=1, exclusive=False), 0.5, 2),
    "cumprod_0": (op("cumprod", axis=-2, exclusive=True), 0.5, 2),
    "var": (op("var", axis=1, correction=1, keepdims=False), -2, 2),
    "std": (op("std", axis=None, correction=0, keepdims=False), -2, 2),
    "logsumexp": (op("logsumexp", axis=0, keepdims=True), -2, 2),
    "norm": (op("norm", ord=2, axis=1, keepdims=False), 0.3, 2),
    "norm_1": (op("norm", ord=1, axis=None, keepdims=False), 0.3, 2),
    "norm_3": (op("norm", ord=3, axis=0, keepdims=False), 0.3, 2),
    "norm_inf": (op("norm", ord=float("inf"), axis=1, keepdims=False), 0.3, 2),
    "pad": (op("pad", widths=(1, 2, 0, 1), mode="constant", value=3.0), -2, 2),
    "cut": (op("pad", widths=(-1, 2), mode="constant", value=0), -2, 2),
    "reflect": (op("pad", widths=(2, 1, 1, 2), mode="reflect", value=0), -2, 2),
    "replicate": (op("pad", widths=(2, 1, 0, 3), mode="replicate", value=0), -2, 2),
}


@pytest.mark.parametrize("name", ONE)
def test_gradients_of_one(name: str) -> None:
    function, low, high = ONE[name]
    check_gradients(lambda x: function(x) * function(x), some(3, 4, low=low, high=high))


TWO: dict[str, Callable[..., Any]] = {
    **{n: op(n) for n in ("atan2", "hypot", "fmod", "logaddexp")},
    "copysign": lambda a, b: apply("copysign", a, b.detach() - 1),
    "clip": lambda a, b: apply("clip", a, b, b + 0.3),
    "clip_low": lambda a, b: apply("clip", a, b, None).exp(),
    "clip_high": lambda a, b: apply("clip", a, None, b).exp(),
}


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((2, 1, 4), (3, 1)), ((), (5,))])
@pytest.mark.parametrize("name", TWO)
def test_gradients_of_two(name: str, shapes: Any) -> None:
    check_gradients(TWO[name], *(some(*s, low=0.4, high=2.0) for s in shapes))


INDEX = np.array([[2, 0, 2, 1], [0, 0, 1, 2]])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradients_of_takes(axis: int) -> None:
    index = cb.tensor(INDEX)
    check_gradients(lambda x: apply("take", x, index, axis=axis).exp(), some(4, 5))


@pytest.mark.parametrize("update", ["assign", "add"])
@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_of_puts(update: str, axis: int) -> None:
    index = cb.tensor(np.array([2, 0]))
    values = (2, 4) if axis == 0 else (3, 2)
    check_gradients(
        lambda x, v: apply("put", x * x, index, v.exp(), axis=axis, update=update).sin(),
        some(3, 4),
        some(*values),
    )


@pytest.mark.parametrize("update", ["assign", "add", "mul", "min", "max"])
def test_gradients_of_scatters(update: str) -> None:
    index = cb.tensor(np.array([[2, 0, 1], [0, 1, 2]]))
    check_gradients(
        lambda x, v: apply("scatter", x * x, index, v.exp(), axis=0, update=update).sin(),
        some(3, 4, low=0.5),
        some(2, 4, low=0.5),
        second=update in ("assign", "add", "mul"),
    )


def test_gradients_of_gathers() -> None:
    index = cb.tensor(INDEX)
    check_gradients(lambda x: apply("gather", x, index, axis=0).exp(), some(3, 4))
    last = cb.tensor(np.array([[-1, 0], [1, 1], [2, -3]]))
    check_gradients(lambda x: apply("take_along_axis", x, last, axis=1).exp(), some(3, 4))


def test_gradients_of_running_products_with_zeros() -> None:
    x = some(4, 5)
    x[1, 2] = x[2, 0] = x[2, 3] = x[3, 4] = 0
    for exclusive in (False, True):
        check_gradients(op("cumprod", axis=1, exclusive=exclusive), x, second=False)


def test_results_are_those_of_numpy() -> None:
    x = some(3, 5)
    t = cb.tensor(x)
    assert (apply("sort", t, axis=0, descending=False).numpy() == np.sort(x, 0)).all()
    assert (apply("argsort", t, axis=1, descending=True).numpy() == np.argsort(-x, 1)).all()
    values, where = apply("topk", t, k=2, axis=1, largest=True)
    assert (values.numpy() == -np.sort(-x, 1)[:, :2]).all() and where.dtype == cb.i64
    np.testing.assert_allclose(apply("cumsum", t, axis=1, exclusive=False).numpy(), x.cumsum(1))
    np.testing.assert_allclose(
        apply("var", t, axis=(0, 1), correction=1, keepdims=True).numpy(), [[x.var(ddof=1)]]
    )
    assert apply("any", t > 1.9, axis=None, keepdims=False).numpy() == (x > 1.9).any()
    assert (apply("all", t > -1, axis=1, keepdims=False).numpy() == (x > -1).all(1)).all()
    i = np.array([[-1, 0], [1, -5]])
    flat = apply("flat_index", cb.tensor(np.array([-1, 2])), cb.tensor(i), lengths=(3, 5))
    assert flat.tolist() == [[14, 10], [11, 10]]
    assert (apply("take", t, cb.tensor(i % 3), axis=0).numpy() == x[i % 3]).all()
    new = apply("put", t, cb.tensor(i % 5), cb.tensor(7), axis=1, update="assign").numpy()
    assert (new[:, [4, 0, 1, 0]] == 7).all() and (new[:, 2:4] == x[:, 2:4]).all()
    mask = x > 0
    found, count = apply("mask_positions", cb.tensor(mask))
    assert (found.numpy()[:, : count.item()] == np.stack(np.nonzero(mask))).all()
    chosen, count = apply("mask_selected", t, cb.tensor(mask[:, 0]))
    assert (chosen.numpy()[: count.item()] == x[mask[:, 0]]).all()
    known, wanted = cb.tensor(np.sort(x, 1)), cb.tensor(x - 0.1)
    for right, side in ((False, "left"), (True, "right")):
        want = [np.searchsorted(np.sort(r), r - 0.1, side) for r in x]
        assert (apply("searchsorted", known, wanted, right=right).numpy() == want).all()
    numbers = np.array([3, 0, 3, 9, -1])
    assert apply("bincount", cb.tensor(numbers), count=5).tolist() == [1, 0, 0, 2, 0]


def test_ops_are_the_same_when_repeated() -> None:
    """The first call is computed, the second recorded, later ones repeat its launches."""
    index = cb.tensor(np.array([-1, 2, 0]))
    calls: list[Callable[..., Any]] = [
        op("flat_index", lengths=(5,)),
        lambda i: apply("mask_positions", i > 0)[1],
    ]
    for call in calls:
        first = call(index).tolist()
        assert [call(index).tolist() for _ in range(4)] == [first] * 4
    for name in ("sort", "topk", "take", "put", "scatter", "pad"):
        for n in range(5):
            x = some(4, 5)
            t = cb.tensor(x)
            if name == "sort":
                got, want = apply("sort", t, axis=0, descending=False), np.sort(x, 0)
            elif name == "topk":
                got = apply("topk", t, k=3, axis=1, largest=False)[n % 2]
                want = (np.sort(x, 1) if n % 2 == 0 else np.argsort(x, 1))[:, :3]
            elif name == "take":
                got, want = apply("take", t, cb.tensor([n % 5, 1]), axis=1), x[:, [n % 5, 1]]
            elif name == "put":
                got = apply("put", t, cb.tensor([n % 5]), cb.tensor([2.0]), axis=1, update="assign")
                want = x.copy()
                want[:, n % 5] = 2
            elif name == "scatter":
                at = np.full((1, 5), n % 4)
                got = apply("scatter", t, cb.tensor(at), t, axis=0, update="add")
                want = x.copy()
                want[n % 4] += x[0]
            else:
                got = apply("pad", t, widths=(1, 1), mode="constant", value=0)
                want = np.pad(x, ((0, 0), (1, 1)))
            assert (got.numpy() == want).all(), (name, n)


def test_wrong_indices_are_told() -> None:
    x = cb.tensor(some(3, 4))
    with pytest.raises(OutOfBoundsError, match="index 4"):
        apply("flat_index", cb.tensor([0, 4]), lengths=(4,))
    with pytest.raises(OutOfBoundsError, match="index -5"):
        apply("flat_index", cb.tensor([0, -5]), lengths=(4,))
    with pytest.raises(OutOfBoundsError, match="index 3"):
        apply("take", x, cb.tensor([3]), axis=0)
    with pytest.raises(DTypeError, match="integer"):
        apply("take", x, cb.tensor([0.5]), axis=0)
    with pytest.raises(ShapeError, match="an update is one of"):
        apply("put", x, cb.tensor([0]), x[:1], axis=0, update="xor")
    with pytest.raises(ShapeError, match="do not broadcast"):
        apply("put", x, cb.tensor([0]), cb.tensor([1.0, 2.0]), axis=0, update="add")


def test_bits_and_tests_of_floats() -> None:
    n = np.array([1, -2, 3, 100], np.int32)
    t = cb.tensor(n)
    assert apply("invert", t).tolist() == (~n).tolist()
    assert apply("lshift", t, cb.tensor([1])).tolist() == (n << 1).tolist()
    assert apply("rshift", t, cb.tensor([1])).tolist() == (n >> 1).tolist()
    x = np.array([0.0, -0.0, 1.0, -np.inf, np.nan, 3e-310])
    f = cb.tensor(x)
    for name in ("isnan", "isinf", "isfinite", "signbit"):
        assert (apply(name, f).numpy() == getattr(np, name)(x)).all()
    assert np.array_equal(apply("trunc", f).numpy(), np.trunc(x), equal_nan=True)
    for dtype in (np.float32, np.float64):
        a = np.array([0, -0.0, 1, -1, 5, np.inf, 2.5, np.nan], dtype)
        b = np.array([1, -1, -3, 4, 5, 0, np.inf, 1], dtype)
        got = apply("nextafter", cb.tensor(a), cb.tensor(b)).numpy()
        assert np.array_equal(got, np.nextafter(a, b), equal_nan=True)
    with pytest.raises(DTypeError, match="look at floats"):
        apply("isnan", t)
    with pytest.raises(DTypeError, match="work on integers"):
        apply("lshift", t, f[:4])


def test_digamma_and_trigamma() -> None:
    """Beside values of Abramowitz and Stegun, the recurrence, reflection, and differences."""
    euler, pi = 0.57721566490153286, np.pi
    x = cb.tensor(np.array([1.0, 0.5, 2.0, 1.0 / 3]))
    want = [-euler, -euler - 2 * np.log(2), 1 - euler, -euler - pi / 12**0.5 - 1.5 * np.log(3)]
    np.testing.assert_allclose(x.digamma().numpy(), want, rtol=2e-15)
    second = apply("trigamma", x[:3]).numpy()
    np.testing.assert_allclose(second, [pi**2 / 6, pi**2 / 2, pi**2 / 6 - 1], rtol=2e-15)
    y = cb.tensor(np.linspace(-7.7, 25.3, 101))
    for op, step in (("digamma", 1 / y), ("trigamma", -1 / (y * y))):
        near = apply(op, y).numpy()
        np.testing.assert_allclose(apply(op, y + 1).numpy(), near + step.numpy(), 1e-11, 1e-11)
    ends = cb.tensor([0.0, -0.0, -3.0, np.inf, np.nan]).digamma().numpy()
    np.testing.assert_array_equal(ends, [-np.inf, np.inf, np.nan, np.inf, np.nan])
    np.testing.assert_array_equal(
        apply("trigamma", cb.tensor([0.0, -2.0, np.inf])).numpy(), [np.inf, np.inf, 0.0]
    )
    x = cb.tensor([0.3, 1.7, -0.4], "f64", requires_grad=True)
    assert gradcheck(lambda x: x.digamma(), x)
    assert cb.tensor([1, 2]).digamma().dtype.is_float
    assert cb.tensor([3.0], "f16").digamma().item() == np.float16(0.9227843)


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_erfinv_is_what_erf_and_erfc_undo(device: str) -> None:
    """Their gap over the slope is how far a result is off."""
    rng = np.random.default_rng(3)
    count = 4000 if device == "cpu" else 80
    x = np.concatenate(
        [
            rng.uniform(-1, 1, count),
            1 - 10.0 ** rng.uniform(-15.9, -0.3, count),
            10.0 ** rng.uniform(-300, 0, count) * rng.choice([-1, 1], count),
            0.85 + rng.normal(size=count) * 1e-3,
            1 - np.exp(-25 + rng.normal(size=count) * 0.1) * 2,  # the far quotient begins there
        ]
    )
    x = x[(x != 0) & (abs(x) < 1)]

    def gap(x: float, y: float) -> float:
        near = (
            math.erf(y) - x
            if abs(x) < 0.5
            else math.copysign(1, y) * (1 - abs(x)) - (math.copysign(1, y) * math.erfc(abs(y)))
        )
        return near / y * math.exp(y * y) * math.sqrt(math.pi) / 2

    found = cb.tensor(x).to(device).erfinv().numpy()
    assert max(abs(gap(*pair)) for pair in zip(x, found, strict=True)) < 1e-15
    for dtype, limit in (("f32", 2.3), ("f16", 0.51), ("bf16", 0.51)):
        given = cb.tensor(x[abs(x) > 1e-4]).astype(dtype)
        wide = given.astype("f64")
        given, wide = given[wide.abs() < 1], wide[wide.abs() < 1]
        got, want = (t.to(device).erfinv().astype("f64").numpy() for t in (given, wide))
        digits = {"f32": 24, "f16": 11, "bf16": 8}[dtype]
        unit = np.ldexp(1.0, np.frexp(want)[1] - digits)
        assert (abs(got - want) / unit).max() <= limit
    ends = cb.tensor([1.0, -1.0, 0.0, -0.0, 1.5, -np.inf, np.nan]).to(device).erfinv().numpy()
    np.testing.assert_array_equal(ends, [np.inf, -np.inf, 0, 0, *[np.nan] * 3])
    assert np.signbit(ends[2:4]).tolist() == [False, True]


def test_erfinv_has_gradients() -> None:
    x = cb.tensor([0.3, -0.97, 0.0], "f64", requires_grad=True)
    assert gradcheck(lambda x: x.erfinv(), x)
    assert cb.tensor([0, 1]).erfinv().tolist() == [0, math.inf]


NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda x, s: x * s, "quotient": lambda x, s: s / x, "power": lambda x, s: x**s,
    "remainder": lambda x, s: x % s, "order": lambda x, s: (x > s).astype("f32"),
    "limits": lambda x, s: x.clip(-s, s).maximum(s), "choice": lambda x, s: where(x > s, s, 0.0),
    "both": lambda x, s: where(x > 1, s, s), "filled": lambda x, s: x.masked_fill(x > 1, s) + x.new_full((4,), s),
    "in place": lambda x, s: x.clone().add_(s).fill_(s), "padded": lambda x, s: F.pad(x, (1, 1), value=s),
    "activation": lambda x, s: F.elu(x, s) + F.softplus(x, s, s) + F.threshold(x, s, s),
    "loss": lambda x, s: F.huber_loss(x, x * 2, delta=s) + F.smooth_l1_loss(x, x * 2, beta=s),
}  # fmt: skip


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.int32])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_numpy_are_numbers(name: str, kind: Any) -> None:
    """At once and in programs, from outside and as arguments; a float64 is a Python float."""
    function, x = NUMBERS[name], cb.tensor([1.0, 2.0, 3.0, 0.5])
    program = cb.jit(function)
    for value in (1, 2, 3):
        s = kind(value)
        want = function(x, float(s)).numpy()
        inside = cb.jit(lambda x, s=s: function(x, s))
        for found in (function(x, s), inside(x), inside(x), program(x, s)):
            np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)
    if kind is np.float64:
        program(x, 4.0)
        looked = name in ("padded", "filled", "activation", "loss")  # attributes of ops
        assert looked or sum(program.traces.values()) == 1


@pytest.mark.parametrize("sign", "+ - * / ** % // < <= > >= == !=".split())
def test_a_number_on_either_side_is_read_at_each_call(sign: str) -> None:
    x = cb.tensor([1.0, 2.0, 3.0, 0.5])
    for text in (f"x {sign} s", f"s {sign} x"):
        function = eval(f"lambda x, s: {text}")
        program = cb.jit(function)
        for s in (1.0, 2.5, 0.5, 3.0):
            np.testing.assert_array_equal(program(x, s).numpy(), function(x, s).numpy())
        assert sum(program.traces.values()) == 1, text
