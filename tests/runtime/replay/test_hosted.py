"""Tensors given to functions of the library: their calls are repeated as those of arrays are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import GradientError
from cubepy.kernels.pooling import avg_pool
from tests.runtime.replay.test_repeat import floats, long_way

CALLS: dict[str, Callable[[Any], Any]] = {
    "mean pool": lambda x: K.avg_pool2d(x, 3, 1, 1),
    "max pool": lambda x: K.max_pool2d(x, (2, 1)),
    "max pool with positions": lambda x: K.max_pool2d(x, 2, return_indices=True),
    "adaptive mean pool": lambda x: K.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive max pool": lambda x: K.adaptive_max_pool2d(x, 2),
    "interpolation": lambda x: K.interpolate(x, None, 2.0, "bilinear"),
    "softmax": lambda x: K.softmax(x, axis=1),
    "layer norm": lambda x: K.layer_norm(x, (10,)),
    "sum": lambda x: K.sum(x),
    "mean of axes": lambda x: K.mean(x, axis=(2, 3)),
    "index of the largest": lambda x: K.argmax(x, axis=1),
    "sort": lambda x: K.sort(x, axis=2),
    "topk": lambda x: K.topk(x, 3),
    "transpose": lambda x: K.transpose(x, (0, 2, 3, 1)),
    "pad": lambda x: K.pad(x, (1, 1, 2, 0)),
    "scan": lambda x: K.cumsum(x, axis=3),
    "map": lambda x: K.gelu(x),
}
"""Of an image."""


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("view", ["plain", "channels last", "every other"])
def test_they_give_tensors_of_what_arrays_give(name: str, view: str) -> None:
    call = CALLS[name]
    for _ in range(4):
        array = floats(2, 8, 6, 10)
        if view == "channels last":
            array = floats(2, 6, 10, 8).transpose(0, 3, 1, 2)
        if view == "every other":
            array = floats(2, 8, 6, 20)[..., ::2]
        x = cb.tensor(array)
        found, wanted = call(x), long_way(lambda array=array: call(array))  # type: ignore[misc]
        assert type(found) is type(wanted) or not isinstance(found, (tuple, list))
        for ours, theirs in zip(parts(found), parts(wanted), strict=True):
            assert type(ours) is cb.Tensor
            assert ours.dtype.numpy == np.asarray(theirs).dtype
            assert np.array_equal(ours.numpy(), theirs)


def test_they_go_through_the_plan_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    x = floats(1, 4, 9, 9)
    for _ in range(3):
        wanted = K.avg_pool2d(x, 3, 2)
    monkeypatch.setattr(avg_pool, "mapped", None)  # what the long way needs
    assert np.array_equal(K.avg_pool2d(cb.tensor(x), 3, 2).numpy(), wanted)


def test_gradients_still_go_their_own_way() -> None:
    x = cb.tensor(floats(1, 4, 8, 8), requires_grad=True)
    for _ in range(4):
        assert K.avg_pool2d(x, 2).requires_grad
        with cb.no_grad():
            assert not K.avg_pool2d(x, 2).requires_grad
        assert not K.avg_pool2d(x.detach(), 2).requires_grad
    with pytest.raises(GradientError):
        K.sum(x, out=np.zeros((), np.float32))


def test_out_is_the_tensor_or_array_that_was_given() -> None:
    x, out = cb.tensor(floats(3, 5)), np.zeros((3, 5), np.float32)
    for _ in range(4):
        out[:] = 0
        assert K.softmax(x, out=out) is out
        assert np.allclose(out.sum(-1), 1)
