"""Whatever sums or multiplies f16 and bf16 does so in f32 and rounds once: every such function of
the library against itself in float64 (or f32), on random shapes, spreads and offsets.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn
from cubepy.nn import functional as F
from tests.backends.cuda.thorough import THOROUGH, some
from tests.staging import WHERE
from tests.turns import TURN

Array = np.ndarray
NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
STEP = {NARROW[0]: 2.0**-11, NARROW[1]: 2.0**-8}  # half the distance of neighbours at 1
POOLS = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
CASES: dict[str, Callable[[np.random.Generator], tuple[Callable[..., Any], tuple[Array, ...]]]] = {}


def case(name: str) -> Callable[[Any], Any]:
    """Keep a function that draws a call: a function of arrays, and the arrays in float64."""

    def keep(draw: Any) -> Any:
        CASES[name] = draw
        return draw

    return keep


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Normal numbers with a spread and an offset that f16 holds, but whose squares or sums it does
    not.
    """
    return rng.standard_normal(shape) * rng.choice([0.1, 1.0, 100.0]) + rng.choice([0.0, 1.0, 50.0])


def rows(rng: np.random.Generator) -> Array:
    return numbers(rng, *rng.permutation([int(rng.integers(1, 6)), int(rng.integers(1, 3000))]))


def _reductions() -> None:
    def reduction(function: Any) -> Any:
        def draw(rng: np.random.Generator) -> Any:
            axis = [0, 1, None][rng.integers(3)]
            return lambda x: function(x, axis=axis), (rows(rng),)

        return draw

    plain = {n: getattr(K, n) for n in ("sum", "mean", "var", "std", "logsumexp", "norm", "cumsum")}
    orders = {
        f"norm of order {p}": lambda x, axis, p=p: K.norm(x, p, axis) for p in (1, 3, 2.5, np.inf)
    }
    exclusive = {"cumsum, exclusive": lambda x, axis: K.cumsum(x, axis, exclusive=True)}
    for name, function in (plain | orders | exclusive).items():
        case(name)(reduction(function))
    for name in ("prod", "cumprod"):
        case(name)(
            lambda rng, name=name: (
                lambda x: getattr(K, name)(x, 0),
                (1 + rng.standard_normal((200, 5)) / 50,),
            )
        )
    for name in ("softmax", "log_softmax"):
        case(name)(reduction(lambda x, axis, name=name: getattr(K, name)(x, axis or 0)))
        case(f"{name} in place")(
            lambda rng, name=name: (
                lambda x: getattr(K, name)(x, out=x),
                (numbers(rng, 3, int(rng.integers(1, 9999))),),
            )
        )


_reductions()


@case("layer_norm")
def _(rng: np.random.Generator) -> Any:
    x = rows(rng)
    n = x.shape[1]
    return lambda x, w, b: K.layer_norm(x, n, w, b), (
        x,
        rng.standard_normal(n),
        rng.standard_normal(n),
    )


@case("rms_norm")
def _(rng: np.random.Generator) -> Any:
    x = rows(rng)
    return lambda x, w: K.rms_norm(x, x.shape[1], w, eps=1e-5), (x, rng.standard_normal(x.shape[1]))


def image(rng: np.random.Generator, channels: int, axes: int = 2) -> Array:
    """(N, C, ...), with channels first or last in memory."""
    x = numbers(rng, 2, channels, *rng.integers(7, 14, axes))
    return x if rng.integers(2) else np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


@case("group_norm")
def _(rng: np.random.Generator) -> Any:
    return lambda x, w, b: K.group_norm(x, 4, w, b), (
        image(rng, 8),
        rng.standard_normal(8),
        rng.standard_normal(8),
    )


@case("batch_norm")
def _(rng: np.random.Generator) -> Any:
    narrow = rng.integers(2)

    def call(x: Array, w: Array, b: Array) -> Any:
        dtype = x.dtype if narrow or x.itemsize > 2 else np.dtype(np.float32)
        mean, var = np.zeros(5, dtype), np.ones(5, dtype)
        return K.batch_norm(x, mean, var, w, b, training=True), mean, var

    return call, (image(rng, 5), rng.standard_normal(5), rng.standard_normal(5))


@case("nn.BatchNorm2d")
def _(rng: np.random.Generator) -> Any:
    def call(x: Array) -> Any:
        norm = nn.BatchNorm2d(5)
        dtype = np.float64 if x.itemsize == 8 else np.float32
        norm.running_mean, norm.running_var = (
            cb.tensor(np.zeros(5, dtype)),
            cb.tensor(np.ones(5, dtype)),
        )
        return norm(cb.tensor(x)).numpy(), norm.running_mean.numpy(), norm.running_var.numpy()

    return call, (image(rng, 5),)


def _tensors() -> None:
    norm = lambda x: nn.RMSNorm(x.shape[-1], elementwise_affine=False, eps=1e-3)(x)
    functions = {
        "nn.RMSNorm": norm, "F.normalize": F.normalize, "F.softmax": F.softmax, "tensor.mean": lambda x: x.mean(-1),
        "F.layer_norm": lambda x: F.layer_norm(x, x.shape[-1]),
    }  # fmt: skip
    for name, function in functions.items():
        case(name)(lambda rng, f=function: (lambda x: f(cb.tensor(x)).numpy(), (rows(rng),)))


_tensors()


def _updates() -> None:
    def draw(rng: np.random.Generator, update: str, put: bool) -> Any:
        n, m, c = int(rng.integers(1, 6)), int(rng.integers(1, 900)), int(rng.choice([1, 1, 5, 40]))
        values = (
            rng.standard_normal((m, c)) / 10 + 1
            if update == "add"
            else 1 + rng.standard_normal((m, c)) / 50
        )
        into = rng.standard_normal((n, c))
        in_place = bool(rng.integers(2))
        if put:
            at = rng.integers(-n, n, m)
            return lambda x, v: K.index_put(x, (at,), v, update, out=x if in_place else None), (
                into,
                values,
            )
        at, axis = rng.integers(0, n, (m, c)), int(rng.integers(2))
        if axis:
            at, into, values = at.T.copy(), into.T.copy(), values.T.copy()
        return lambda x, v: K.scatter(x, axis, at, v, update, out=x if in_place else None), (
            into,
            values,
        )

    for update in ("add", "mul"):
        case(f"scatter, {update}")(lambda rng, u=update: draw(rng, u, False))
        case(f"index_put, {update}")(lambda rng, u=update: draw(rng, u, True))


_updates()


def _windows() -> None:
    def average(rng: np.random.Generator, d: int) -> Any:
        x, window = image(rng, 3, d), int(rng.integers(2, 8))
        stride, layout = int(rng.integers(1, 3)), POOLS[d]
        pool, back = getattr(K, f"avg_pool{d}d"), getattr(K, f"avg_pool{d}d_input")
        grad = numbers(rng, *pool(x.astype(np.float32), window, stride, window // 2).shape)
        return lambda x, g: (
            pool(x, window, stride, window // 2, layout=layout), back(x.shape, g, window, stride, window // 2)
        ), (x, grad)  # fmt: skip

    def adaptive(rng: np.random.Generator, d: int) -> Any:
        x, to = image(rng, 3, d), int(rng.integers(1, 7))
        pool, back = (
            getattr(K, f"adaptive_avg_pool{d}d"),
            getattr(K, f"adaptive_avg_pool{d}d_input"),
        )
        return lambda x, g: (pool(x, to), back(x.shape, g)), (x, numbers(rng, 2, 3, *(to,) * d))

    def largest(rng: np.random.Generator, d: int) -> Any:
        x, window = image(rng, 3, d), int(rng.integers(2, 8))
        pool, back = getattr(K, f"max_pool{d}d"), getattr(K, f"max_pool{d}d_input")
        _, at = pool(x.astype(np.float32), window, 1, window // 2, return_indices=True)
        near, where = (
            getattr(K, f"adaptive_max_pool{d}d"),
            getattr(K, f"adaptive_max_pool{d}d_input"),
        )
        _, chosen = near(x.astype(np.float32), 6, return_indices=True)
        grads = numbers(rng, *at.shape), numbers(rng, *chosen.shape)
        return lambda g, h: (
            back(x.shape, g, at, window, 1, window // 2),
            where(x.shape, h, chosen),
        ), grads

    def resample(rng: np.random.Generator, d: int) -> Any:
        modes = [
            "nearest",
            "area",
            ("linear", "bilinear", "trilinear")[d - 1],
            "bicubic" if d == 2 else "area",
        ]
        x, mode, to = (
            image(rng, 3, d),
            str(rng.choice(modes)),
            tuple(map(int, rng.integers(2, 30, d))),
        )
        return lambda x, g: (
            K.interpolate(x, to, mode=mode, layout=POOLS[d]),
            K.interpolate_input(x.shape, g, mode=mode, layout=POOLS[d]),
        ), (x, numbers(rng, 2, 3, *to))

    def convolution(rng: np.random.Generator, d: int) -> Any:
        x, (groups, filters) = image(rng, 16, d), [(1, 12), (4, 8), (16, 16)][rng.integers(3)]
        k, stride = int(rng.choice([1, 3, 5])), int(rng.integers(1, 3))
        rest = stride, k // 2, 1, groups
        w, back = (
            numbers(rng, filters, 16 // groups, *(k,) * d),
            numbers(rng, 16, filters // groups, *(k,) * d),
        )
        forward, turned = getattr(K, f"conv{d}d"), getattr(K, f"conv_transpose{d}d")
        grad = numbers(rng, *forward(x.astype(np.float32), w.astype(np.float32), None, *rest).shape)
        return lambda x, w, g, back: (
            forward(x, w, None, *rest), K.conv_input(x.shape, w, g, *rest), K.conv_weight(x, w.shape, g, *rest),
            turned(x, back, None, stride, k // 2, 0, groups),
        ), (x, w, grad, back)  # fmt: skip

    draws = {"avg_pool": average, "adaptive_avg_pool": adaptive, "max_pool_input": largest, "interpolate": resample,
             "convolution": convolution}  # fmt: skip
    for d in some((1, 2, 3), 1):
        for name, draw in draws.items():
            case(f"{name} in {d} axes")(lambda rng, draw=draw, d=d: draw(rng, d))


_windows()


@case("matmul")
def _(rng: np.random.Generator) -> Any:
    m, k, n = (int(v) for v in rng.integers(1, 300, 3))
    return lambda a, b: (K.matmul(a, b), K.matmul(a, b, dtype=cb.f32 if a.itemsize == 2 else None)), (
        numbers(rng, m, k), numbers(rng, k, n),
    )  # fmt: skip


@case("matmul with a packed matrix")
def _(rng: np.random.Generator) -> Any:
    m, k, n = (int(v) for v in rng.integers(1, 300, 3))
    bias, residual = numbers(rng, n), numbers(rng, m, n)
    return lambda a, b, c, r: K.matmul(a, K.prepack(b), bias=c, residual=r, activation="relu"), (
        numbers(rng, m, k), numbers(rng, k, n), bias, residual,
    )  # fmt: skip


@case("attention")
def _(rng: np.random.Generator) -> Any:
    length, keys, depth = (
        int(rng.integers(1, 150)),
        int(rng.integers(1, 300)),
        int(rng.choice([16, 32, 48])),
    )
    q, k = rng.standard_normal((2, 2, length, depth)), rng.standard_normal((2, 2, keys, depth))
    causal = bool(rng.integers(2))
    return lambda q, k, v: K.attention(q, k, v, is_causal=causal), (
        q,
        k,
        numbers(rng, 2, 2, keys, depth),
    )


def widened(call: Callable[..., Any], given: tuple[Array, ...]) -> tuple[Any, ...]:
    """What a call gives in float64, or in f32 where it knows no float64."""
    for dtype in (np.float64, np.float32):
        with contextlib.suppress(cb.errors.DTypeError):
            return results(call(*(a.astype(dtype) for a in given)))
    raise AssertionError("neither f64 nor f32")


def results(found: Any) -> tuple[Any, ...]:
    return tuple(map(np.array, found)) if isinstance(found, tuple) else (np.array(found),)


def slack(name: str, call: Callable[..., Any], given: tuple[Array, ...]) -> Any:
    """What matrix units add: attention's weights are rounded before they multiply values."""
    if name != "attention" or not WHERE:
        return 0.0
    *rest, values = given
    return STEP[values.dtype] * widened(call, (*rest, np.abs(values)))[0].astype(np.float64)


def wrong(got: Array, want: Array, more: Any) -> int:
    """How many elements are neither the rounded value nor a neighbour, as far as sums in f32 tell;
    by `more` they may be farther off.
    """
    wide, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        size = np.abs(want).max(initial=0, where=np.isfinite(want))
        allowed = 1.05 * STEP.get(got.dtype, 1e-6) * np.abs(want) + 2e-5 * size + 1e-7 + more
        same = (wide == want.astype(got.dtype)) | (np.isnan(wide) & np.isnan(want))
        return int(np.count_nonzero(~(same | (np.abs(wide - want) <= allowed))))


DRAWS = 2
"""Of which one is computed today, the next when it is the case's turn again."""


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", CASES)
def test_narrow_floats_are_rounded_once(name: str) -> None:
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    today = None if THOROUGH or WHERE else 0 if "convolution" in name else TURN // 2 % DRAWS
    for attempt in range(3 * DRAWS if today is None else today + 1):
        call, arrays = CASES[name](rng)
        if today is not None and attempt != today:
            continue
        for dtype in NARROW:
            given = tuple(_like(a, a.astype(dtype)) for a in arrays)
            wanted, more = widened(call, given), slack(name, call, given)
            for k, (got, want) in enumerate(zip(results(call(*given)), wanted, strict=True)):
                bad = wrong(got, want, more)
                shapes = [a.shape for a in given]
                assert not bad, (
                    f"{name} {dtype}, draw {attempt}, result {k}: {bad} of {got.size} wrong for {shapes}"
                )


def _like(a: Array, b: Array) -> Array:
    """b with its axes in memory as those of a."""
    order = np.argsort([-s for s in a.strides], kind="stable")
    return np.ascontiguousarray(b.transpose(order)).transpose(np.argsort(order))
