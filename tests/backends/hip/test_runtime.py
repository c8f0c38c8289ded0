"""The backend as a program uses it, `device="hip"`, on a driver whose kernels the emulator runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import LaunchError, OutOfBoundsError
from tests.backends.hip.emulator.driver import EmulatedDriver, emulated_hip

F = np.float32


@pytest.fixture(params=["gfx942", "gfx1100"])
def hip(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmulatedDriver]:
    """The driver; a GPU of a processor is the current device."""
    with emulated_hip(monkeypatch, request.param) as fake:
        yield fake


def some(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


@cb.kernel
def axpy(a, x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cb.kernel
def beyond(x: cb.Array, out: cb.Array):
    out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS + 1]


def test_a_kernel_is_compiled_loaded_and_launched(hip: EmulatedDriver) -> None:
    x, y = some(300), some(300, seed=1)
    before = hip.launched
    a, b, out = cb.tensor(x), cb.tensor(y), cb.tensor(np.zeros(300, F))
    for turn in range(4):  # the general path, then the short one, then machine code
        axpy[cb.over(300)](float(turn), a, b, out)
        np.testing.assert_array_equal(out.numpy(), F(turn) * x + y)
    assert hip.launched == before + 4
    bound = axpy[cb.over(300)].bind(2.0, a, b, out)
    bound()
    np.testing.assert_array_equal(out.numpy(), 2 * x + y)


def test_the_device_is_one_of_the_processor(hip: EmulatedDriver) -> None:
    here = cb.device_properties_of(str(cb.current_device()))
    assert here.backend == "hip" and here.architecture in here.name
    assert here.plane_size == (64 if here.architecture == "gfx942" else 32)
    assert here in cb.devices()


def test_functions_of_the_library(hip: EmulatedDriver) -> None:
    x, y = some(5, 70), some(70, 9, seed=1)
    a, b = cb.tensor(x), cb.tensor(y)
    np.testing.assert_allclose(K.sum(a, 1).numpy(), x.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(K.sort(a).numpy(), np.sort(x))
    np.testing.assert_allclose(K.matmul(a, b).numpy(), x @ y, rtol=1e-4, atol=1e-4)
    for _ in range(3):  # what was called before is repeated by machine code
        np.testing.assert_array_equal((a + a).numpy(), x + x)


def test_a_graph_is_captured_and_replayed(hip: EmulatedDriver) -> None:
    x = cb.tensor(some(64))
    (x + x).numpy()
    with cb.capture() as graph:
        y = x + x
    for k in range(3):
        graph.put(x, some(64, seed=k))
        graph.replay()
        np.testing.assert_array_equal(y.numpy(), 2 * some(64, seed=k))
    with pytest.raises(LaunchError), cb.capture():
        y.numpy()


def test_streams_are_ordered_by_what_they_touch(hip: EmulatedDriver) -> None:
    x, y = some(100), some(100, seed=1)
    one, two = cb.Stream(), cb.Stream()
    a, b, out = cb.tensor(x), cb.tensor(y), cb.tensor(np.zeros(100, F))
    for turn in range(6):
        with one if turn % 2 else two:
            axpy[cb.over(100)](1.0, a, out, out)
    cb.sync()
    expected = np.zeros(100, F)
    for _ in range(6):
        expected = x + expected
    np.testing.assert_array_equal(out.numpy(), expected)
    assert b.numpy()[0] == y[0]


def test_what_a_kernel_finds_surfaces_where_somebody_waits(hip: EmulatedDriver) -> None:
    x, out = cb.tensor(some(8)), cb.tensor(np.zeros(8, F))
    beyond[1, 8](x, out, mode="validate")
    with pytest.raises(OutOfBoundsError, match="index 8 of 'x', whose length is 8"):
        out.numpy()


def test_a_program_runs_as_one(hip: EmulatedDriver) -> None:
    @cb.jit
    def step(x: cb.Tensor, w: cb.Tensor) -> cb.Tensor:
        return (x @ w).softmax(-1)

    x, w = some(4, 24), some(24, 12, seed=1)
    z = x @ w
    wanted = np.exp(z - z.max(-1, keepdims=True))
    wanted /= wanted.sum(-1, keepdims=True)
    for _ in range(4):
        found = step(cb.tensor(x), cb.tensor(w))
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)
