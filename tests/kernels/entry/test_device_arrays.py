"""Arrays on a device give what NumPy arrays give: nothing of the library touches their elements on
the host.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from cubepy.runtime.memory.device_array import DeviceArray
from tests.pretend import NAME, PretendBackend, pretend

F = np.float32
RNG = np.random.default_rng(0)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendBackend]:
    with pretend(monkeypatch) as found:
        yield found


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


X, W, INDEX = draw(4, 6, 20), draw(20), RNG.integers(0, 4, (4, 6, 20))
IMAGES, FILTERS = draw(2, 4, 9, 8), draw(6, 4, 3, 3)
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cumsum": (lambda x: K.cumsum(x, 1), (X,)),
    "cumprod": (lambda x: K.cumprod(x, exclusive=True), (X,)),
    "sort": (lambda x: K.sort(x, 0), (X,)),
    "argsort": (lambda x: K.argsort(x, descending=True), (X,)),
    "topk": (lambda x: K.topk(x, 3)[1], (X,)),
    "gather": (lambda x, i: K.gather(x, 0, i), (X, INDEX)),
    "take_along_axis": (lambda x, i: K.take_along_axis(x, i, 0), (X, INDEX)),
    "select": (lambda x, i: K.select(x, 1, i), (X, INDEX[:, 0, 0].copy())),
    "select_one": (lambda x, i: K.select(x, 2, i), (X, INDEX[:, 0, 0].copy())),
    "scatter": (lambda x, i: K.scatter(x, 0, i, 2.0, "mul"), (X, INDEX)),
    "scatter_add": (lambda x, i, s: K.scatter(x, 0, i, s, "add"), (X, INDEX, X[:, :, ::-1])),
    "index_put": (lambda x, i, v: K.index_put(x, (i, i), v), (X, INDEX[0, 0, :4].copy(), draw(20))),
    "masked_matmul": (lambda a, b, m: K.matmul(a, b, bias=b[0], mask=m, fill=-2.5), (X, X[0].T.copy(), X[0, :, :6] > 0)),
    "concat": (lambda a, b: K.concat([a, b], 1), (X, X[:, :2])),
    "flip": (lambda x: K.flip(x, (0, 2)), (X,)),
    "pad": (lambda x: K.pad(x, (1, 2, 0, 1), "reflect"), (X,)),
    "var": (lambda x: K.var(x, (0, 2)), (X,)),
    "norm": (lambda x: K.norm(x, 3, 1), (X,)),
    "logsumexp": (lambda x: K.logsumexp(x, 0, True), (X,)),
    "any": (lambda x: K.any(x, 1), (X,)),
    "log_softmax": (lambda x: K.log_softmax(x, 1), (X,)),
    "rms_norm": (lambda x, w: K.rms_norm(x, 20, w), (X, W)),
    "group_norm": (lambda x: K.group_norm(x, 2), (X,)),
    "batch_norm": (lambda x: K.batch_norm(x, None, None, training=True), (X,)),
    "conv2d": (lambda x, w: K.conv2d(x, w, None, 2, 1, activation="relu"), (IMAGES, FILTERS)),
    "conv_transpose2d": (lambda x, w: K.conv_transpose2d(x, w, None, 2, 1), (IMAGES, FILTERS.transpose(1, 0, 2, 3).copy())),
    "conv_weight": (lambda x, g: K.conv_weight(x, (6, 4, 3, 3), g, padding=1), (IMAGES, draw(2, 6, 9, 8))),
    "lstm": (lambda x, w, r: K.lstm(x, w, r)[0], (draw(5, 2, 6), draw(2, 12, 6), draw(2, 12, 3))),
    "gru": (lambda x, w, r: K.gru(x, w, r)[0], (draw(5, 2, 6), draw(1, 9, 6), draw(1, 9, 3))),
    "bernoulli": (lambda p: K.bernoulli(p, generator=K.Generator(1)), (np.full((3, 7), 0.5, F),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_numpy_arrays(backend: PretendBackend, name: str) -> None:
    function, arrays = CALLS[name]
    want = function(*arrays)
    device = devices.as_device(NAME)
    got = function(*(device_array.upload(np.ascontiguousarray(a), device) for a in arrays))
    assert isinstance(got, DeviceArray) and got.device == device
    np.testing.assert_allclose(
        got.numpy(), want, rtol=1e-5, atol=1e-5
    )  # convolutions take another route there


class ByName:
    """The library, of which every argument that has a name is given by it."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, name)
        parameters = inspect.signature(function).parameters.values()
        if isinstance(function, type) or any(p.kind is p.VAR_POSITIONAL for p in parameters):
            return function

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(**inspect.signature(function).bind(*args, **kwargs).arguments)

        return call


@pytest.mark.parametrize("name", CALLS)
def test_arrays_by_name_are_where_they_are(
    backend: PretendBackend, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(globals(), "K", ByName(K))
    test_results_are_those_of_numpy_arrays(backend, name)


def test_a_matrix_that_was_packed_elsewhere_is_refused(backend: PretendBackend) -> None:
    x, packed = device_array.upload(draw(5, 6), devices.as_device(NAME)), K.prepack(draw(6, 7))
    with pytest.raises(
        cb.errors.LaunchError, match="a is on pretend, and b was packed on the host"
    ):
        K.matmul(x, packed)
    on_device = K.prepack(device_array.upload(draw(6, 7), devices.as_device(NAME)))
    with pytest.raises(
        cb.errors.LaunchError, match="a is on the host, and b was packed on pretend"
    ):
        K.matmul(draw(5, 6), on_device)


def test_random_numbers_are_made_where_they_are_wanted(backend: PretendBackend) -> None:
    got = K.normal(size=100, generator=K.Generator(3), device=NAME)
    assert isinstance(got, DeviceArray)
    np.testing.assert_array_equal(got.numpy(), K.normal(size=100, generator=K.Generator(3)))
    with cb.use(NAME):
        assert isinstance(K.randint(5, size=3), DeviceArray)
        assert isinstance(K.uniform(out=np.zeros(3, F)), np.ndarray)


def test_calls_of_several_results_are_repeated_with_other_arrays(backend: PretendBackend) -> None:
    for _ in range(3):
        x = draw(3, 50)
        values, indices = K.topk(device_array.upload(x, devices.Device(NAME)), 4)
        order = np.argsort(-x, 1, stable=True)[:, :4]
        np.testing.assert_array_equal(indices.numpy(), order)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, order, 1))
