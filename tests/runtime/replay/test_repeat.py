"""Calls that came before are repeated by machine code: they do what the long way does, or take it."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.compiler.signature import exact
from cubepy.errors import AliasError, ReadOnlyError, ShapeError
from cubepy.kernels.interpolate import grid_sample as grid
from cubepy.kernels.primitives import functions as f
from cubepy.nn import functional as F
from cubepy.runtime import memory, recording
from cubepy.runtime.replay.standing import one_tuple
from cubepy.runtime.stats import counters
from cubepy.tensor import apply

RNG = np.random.default_rng(0)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def long_way(call: Callable[[], Any]) -> Any:
    recording.detour(1)
    try:
        return call()
    finally:
        recording.detour(-1)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """New memory holds garbage, so that whatever the host would have written is missed."""
    empty = memory.Pool.empty

    def garbage(self: Any, shape: Any, dtype: Any) -> np.ndarray:
        array = empty(self, shape, dtype)
        if array.ndim:
            array.view(np.uint8)[...] = 0xA7
        return array

    monkeypatch.setattr(memory.Pool, "empty", garbage)
    yield
    recording.forget()


CALLS: dict[str, Callable[..., Any]] = {
    "map": lambda x, y, w: K.map(f.add, x, y), "map of broadcast": lambda x, y, w: K.map(f.mul, x, w),
    "map of a number": lambda x, y, w: K.map(f.sub, x, 2.5), "map of itself": lambda x, y, w: K.map(f.mul, x, x),
    "copy": lambda x, y, w: K.copy(x.swapaxes(0, 1)), "transpose": lambda x, y, w: K.transpose(x),
    "flip": lambda x, y, w: K.flip(x), "sum": lambda x, y, w: K.sum(x), "sum of rows": lambda x, y, w: K.sum(x, -1),
    "mean": lambda x, y, w: K.mean(x, axis=(0, 1)), "max": lambda x, y, w: K.max(x, 1), "prod": lambda x, y, w: K.prod(x, 0),
    "argmax": lambda x, y, w: K.argmax(x, -1), "argmin": lambda x, y, w: K.argmin(x),
    "softmax": lambda x, y, w: K.softmax(x), "softmax of columns": lambda x, y, w: K.softmax(x, 0),
    "log_softmax": lambda x, y, w: K.log_softmax(x, axis=1), "layer_norm": lambda x, y, w: K.layer_norm(x, w.shape, w, w),
    "rms_norm": lambda x, y, w: K.rms_norm(x, w.shape[0], w), "group_norm": lambda x, y, w: K.group_norm(x, 2),
    "matmul": lambda x, y, w: K.matmul(x, y.swapaxes(-1, -2)), "matmul with all": lambda x, y, w: K.matmul(
        x, x.swapaxes(-1, -2)[..., :4], bias=w[:4], activation="gelu", residual=y[..., :4] * 0 + 1 if x.shape[1] == 6 else None),
    "linear": lambda x, y, w: K.matmul(x, K.prepack(y.reshape(-1, y.shape[-1]).T)),
    "attention": lambda x, y, w: K.attention(x[None], y[None], y[None], is_causal=True),
    "conv1d": lambda x, y, w: K.conv1d(x, y[..., :3], padding=1), "conv1d, filters laid out": lambda x, y, w: K.conv1d(
        x, K.prepack_filter(y[..., :3]), w[: len(y)], padding=1, activation="relu"),
    "conv_transpose1d": lambda x, y, w: K.conv_transpose1d(x[:, : len(y)], y[..., :3], stride=2),
    "conv_input": lambda x, y, w: K.conv_input(x.shape, y[..., :3], x[:, : len(x)], padding=1),
    "conv_weight": lambda x, y, w: K.conv_weight(x, (len(y), y.shape[1], 3), y[:, : len(y)], padding=1),
    "grid_sample": lambda x, y, w: grid.grid_sample(x[None], y[None, ..., :2], "linear", "zeros", False),
    "grid_sample_grid": lambda x, y, w: grid.grid_sample_grid(x[None], y[None, ..., :2], np.broadcast_to(
        y[:, :, 2], (1, x.shape[0], *y.shape[:2])), "linear", "border", True),
    "grid_sample_image": lambda x, y, w: grid.grid_sample_image(np.broadcast_to(
        x[..., 2], (1, 3, *x.shape[:2])), y.reshape(-1)[: 2 * x[..., 0].size].reshape(1, *x.shape[:2], 2), (3, 5), "linear", "zeros", True),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_does_what_the_long_way_does(name: str, poisoned: None) -> None:
    call = CALLS[name]
    for shape in ((4, 6, 33), (2, 4, 128)):
        for turned in (False, True):
            for _ in range(5):
                x, y, w = floats(*shape), floats(*shape), floats(shape[-1])
                if turned:
                    x = floats(shape[1], shape[0], shape[2]).swapaxes(0, 1)[::-1]
                expected = long_way(lambda: call(x, y, w))
                found = call(x, y, w)
                assert type(found) is type(expected)
                np.testing.assert_array_equal(found, expected)


def test_tensors_do_what_they_did_before(poisoned: None) -> None:
    def call(x: Any, y: Any) -> Any:
        return (
            (x @ y.transpose(0, 1) + 1.0).gelu().softmax() * -0.0
            - x[:, :4].sum(axis=1, keepdims=True)
        ).reshape(-1)

    for _ in range(6):
        x, y = cb.tensor(floats(4, 9)), cb.tensor(floats(4, 9))
        np.testing.assert_array_equal(call(x, y).numpy(), long_way(lambda: call(x, y)).numpy())


def test_the_third_call_is_a_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.kernels.elementwise import map

    x = floats(31)
    for _ in range(3):
        K.map(f.add, x, floats(31)[::-1])
    monkeypatch.setattr(map, "run", None)  # what the long way comes through
    before = counters.launches
    np.testing.assert_array_equal(K.map(f.add, x, np.zeros(31, np.float32)[::-1]), x)
    assert counters.launches == before + 1
    with (
        pytest.raises(TypeError),
        cb.config.override(debug=1),
    ):  # settings may decide what is launched
        K.map(f.add, x, floats(31)[::-1])


def test_packed_matrices_of_one_shape_share_a_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[inspect.unwrap(K.matmul).__module__]
    x, bias = floats(400, 40), floats(96)
    weights = [floats(40, 96) for _ in range(5)]
    packed = [K.prepack(w) for w in weights]
    for p in packed[:3]:
        assert (
            K.matmul(x, p, bias=bias, activation="relu").nbytes > memory.POOLED
        )  # which begin at a line of the cache
    monkeypatch.setattr(module, "_launch", None)  # what the long way comes through
    for w, p in zip(weights, packed, strict=True):
        found = K.matmul(x, p, bias=bias, activation="relu")
        np.testing.assert_allclose(found, np.maximum(x @ w + bias, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_packed_matrices_whose_panels_are_alike_are_told_apart(dtype: Any) -> None:
    k_short, k = 9, 10  # as many words of pairs
    long = [K.prepack(floats(k, n, dtype=dtype)) for n in (3, 5)]
    short = K.prepack(floats(k_short, 5, dtype=dtype))
    x = floats(4, k, dtype=dtype)
    for _ in range(5):
        assert [K.matmul(x, p).shape for p in long] == [(4, 3), (4, 5)]
        assert K.matmul(x[:, :k_short], short).shape == (4, 5)
        with pytest.raises(ShapeError):
            K.matmul(x, short)


def test_numbers_are_told_apart() -> None:
    x = np.ones(5, np.float32)
    for value in (0.0, -0.0, 1, 1.0, True, 3, np.float32(2)) * 4:
        found = K.map(f.mul, x, value)
        expected = long_way(lambda v=value: K.map(f.mul, x, v))
        assert found.dtype == expected.dtype and np.array_equal(
            np.signbit(found), np.signbit(expected)
        )
        np.testing.assert_array_equal(found, expected)


def test_work_in_place_and_arrays_that_share_memory() -> None:
    whole = floats(40)
    for n in range(12):
        x, y = whole[:20].copy(), whole[20:].copy()
        expected = x + y
        assert K.map(f.add, x, y, out=x) is x
        np.testing.assert_array_equal(x, expected)
        part = whole[n : n + 20]
        np.testing.assert_array_equal(K.map(f.add, whole[:20], part), whole[:20] + part)
        np.testing.assert_array_equal(K.map(f.add, x, x), x + x)
        out = np.empty(20, np.float32)
        assert K.map(f.add, x, y, out=out) is out
        np.testing.assert_array_equal(out, x + y)


def test_what_cannot_be_written_is_refused_again() -> None:
    x, out = floats(9), np.zeros(9, np.float32)
    for _ in range(4):
        K.softmax(x, out=out)
    both = floats(10)
    with pytest.raises(AliasError):
        K.softmax(both[1:], out=both[:9])
    out.flags.writeable = False
    with pytest.raises(ReadOnlyError):
        K.softmax(x, out=out)


def test_faults_are_reported_again() -> None:
    @cb.func
    def checked(v):  # type: ignore[no-untyped-def]
        cb.debug_assert((v >= 0).all(), "negative")
        return v

    with cb.config.override(debug=1):
        x = np.ones(4, np.float32)
        for _ in range(4):
            K.map(checked, x)
        with pytest.raises(cb.errors.KernelAssertionError):
            K.map(checked, -x)
        np.testing.assert_array_equal(K.map(checked, x), x)


def test_threads_share_what_is_repeated() -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(300):
            x, y = rng.standard_normal((2, 8, 24)).astype(np.float32)
            if not np.array_equal(K.map(f.add, x, y), x + y) or abs(K.sum(x) - x.sum()) > 1e-4:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


LOOKS: dict[str, Callable[..., Any]] = {
    "gather": lambda x, i: K.gather(x, 0, i), "gather of columns": lambda x, i: K.gather(x.reshape(20, 2), 0, i.reshape(20, 2)),
    "take_along_axis": lambda x, i: K.take_along_axis(x, i, 0), "select": lambda x, i: K.select(x, 0, i),
    "select of rows": lambda x, i: K.select(x.reshape(20, 2), 0, i), "embedding": lambda x, i: K.embedding(i, x.reshape(20, 2)),
    "scatter": lambda x, i: K.scatter(x, 0, i, x), "scatter into itself": lambda x, i: K.scatter(x, 0, i, x + 1, out=x),
    "index_put": lambda x, i: K.index_put(x, (i,), x), "index_put into itself": lambda x, i: K.index_put(x, (i,), x + 1, out=x),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKS)
def test_indices_are_looked_at_in_every_repetition(name: str) -> None:
    call = LOOKS[name]
    x, index = floats(40), RNG.integers(0, 20, 40)
    want = long_way(lambda: call(x.copy(), index))
    for _ in range(5):
        np.testing.assert_array_equal(call(x.copy(), index), want)
    wrong, before = index.copy(), x.copy()
    wrong[37] = 40
    for _ in range(2):
        with pytest.raises(cb.errors.OutOfBoundsError, match="the index 40 is outside"):
            call(x, wrong)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(call(x.copy(), index), want)


def test_narrow_indices_count_from_the_end_of_long_axes() -> None:
    x, index = floats(1000), np.array([-1, 5, -128] * 4, np.int8)
    for _ in range(4):
        np.testing.assert_array_equal(K.take_along_axis(x, index, 0), x[index])
        np.testing.assert_array_equal(K.take_along_axis(x, index[:3], 0), x[index[:3]])


def test_options_that_were_freed_are_not_taken_for_others() -> None:
    x = floats(6)
    for n in range(300):
        factor = n % 7 + 0.5  # a new object in every turn
        np.testing.assert_array_equal(K.map(f.mul, x, factor), x * np.float32(factor))


def test_calls_in_place_are_known_by_their_short_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take no detour over Python's look at which arrays are the same, and look for themselves."""
    x, y = floats(160), floats(160)
    want = np.cumsum(x, 0)
    for _ in range(5):
        K.cumsum(y, 0, out=y)
    monkeypatch.setattr("cubepy.runtime.replay.calls.key_of", None)  # what the long key is made by
    y[...] = x
    assert K.cumsum(y, 0, out=y) is y
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
    monkeypatch.undo()
    for _ in range(3):  # in place and not, in turns
        other = np.zeros_like(x)
        np.testing.assert_array_equal(K.cumsum(x, 0, out=other), y)
        other = x.copy()
        np.testing.assert_array_equal(K.cumsum(other, 0, out=other), y)


def test_equal_options_of_other_types_are_each_one_object() -> None:
    groups = [(2, 2), (2.0, 2.0), (True, 2), (0.0,), (-0.0,), ((1, 2.0), 3)]
    first = [one_tuple(g) for g in groups]
    for g, one in zip(groups, first, strict=True):
        made = tuple(list(g))
        assert made is not g and one_tuple(made) is one
        assert exact(one) == exact(g)


IMAGE = floats(2, 4, 8, 8)
STEPS: dict[str, Callable[[Any], Any]] = {
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "group norm": lambda x: F.group_norm(x, 2),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    **{
        f"{kind} pool {n}": lambda x, n=n, kind=kind: getattr(F, f"{kind}_pool2d")(x, n)
        for kind in ("max", "avg", "adaptive_avg", "adaptive_max")
        for n in (2, 4)
    },
}
"""Of an image; each has a gradient."""


@pytest.mark.parametrize("name", STEPS)
def test_ops_that_came_before_take_the_shortest_way_both_ways(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step() -> tuple[np.ndarray, np.ndarray]:
        x = cb.tensor(IMAGE, requires_grad=True)
        y = STEPS[name](x)
        y.backward(np.ones(y.shape, np.float32))
        return y.numpy(), x.grad.numpy()

    with cb.use("cpu"):
        for _ in range(60):  # long enough that what becomes a program is one
            want = step()
        monkeypatch.setattr("cubepy.tensor.replay._perform", None)  # the longer way
        for got, wanted in zip(step(), want, strict=True):
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("n", [4, 20, 21, 22, 24, 26, 28, 32])
def test_several_small_results_begin_anywhere(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is recorded once, not again for each place that NumPy's allocator has for results."""
    x = cb.tensor(floats(2, 16, n, n))
    with cb.use("cpu"):
        for _ in range(12):
            want = apply("batch_norm", x, None, None, eps=1e-5)
        monkeypatch.setattr("cubepy.runtime.replay.calls.Calls.long_way", None)
        kept = []
        for _ in range(50):
            kept.append(apply("batch_norm", x, None, None, eps=1e-5))
            for got, wanted in zip(kept[-1], want, strict=True):
                np.testing.assert_array_equal(got.numpy(), wanted.numpy())
