"""Arguments that make no sense: every function of the library says so in an error of its own, never in one from inside."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K

X, INDEX = np.ones((3, 4), np.float32), np.zeros((3, 4), np.int64)
IMAGE, FILTERS = np.ones((1, 2, 8, 8), np.float32), np.ones((2, 2, 3, 3), np.float32)
ONES = np.ones(4, np.float32)
WRONG: tuple[Any, ...] = (
    None, "abc", object(), 3.7, -5, 9, (1, 2, 3, 4, 5), {}, np.array(["a"]), np.array([None]), np.ones((2, 3, 4)),
    np.zeros(0, np.float32), float("nan"), X.astype(complex), X.astype(np.int64), [[1], [1, 2]],
)  # fmt: skip
CALLS: dict[str, tuple[Any, ...]] = {
    "adaptive_avg_pool2d": (IMAGE, 2), "adaptive_max_pool2d": (IMAGE, 2), "any": (X, 1), "argmax": (X, 1),
    "argsort": (X, 1), "attention": (IMAGE, IMAGE, IMAGE), "avg_pool2d": (IMAGE, 2, 2, 0),
    "batch_norm": (IMAGE, np.zeros(2, np.float32), np.ones(2, np.float32)), "bernoulli": (0.5, (2,)),
    "concat": ([X, X], 0), "conv2d": (IMAGE, FILTERS, None, 1, 0, 1, 1),
    "conv_input": ((1, 2, 8, 8), FILTERS, np.ones((1, 2, 6, 6), np.float32)), "copy": (X,), "cumprod": (X, 1),
    "cumsum": (X, 1), "embedding": (INDEX, X), "flip": (X, 1), "gather": (X, 1, INDEX), "gelu": (X,),
    "group_norm": (IMAGE, 2), "index_put": (X, (np.array([0]),), 1.0), "interpolate": (IMAGE, (4, 4)),
    "layer_norm": (X, 4, ONES, ONES, 1e-5), "log_softmax": (X, -1), "logsumexp": (X, 1),
    "map": (K.functions.add, X, X), "matmul": (X, X.T), "max": (X, 1), "max_pool2d": (IMAGE, 2, 2, 0, 1),
    "mean": (X, 1), "norm": (X, 2, 1), "normal": (0.0, 1.0, (2, 3)), "pad": (X, (1, 1)), "prepack": (X,),
    "randint": (0, 5, (2,)), "rms_norm": (X, 4, ONES), "scatter": (X, 1, INDEX, X, "add"),
    "select": (X, 1, np.array([0])), "softmax": (X, -1), "sort": (X, 1), "sum": (X, 1),
    "take_along_axis": (X, INDEX, 1), "topk": (X, 2, 1), "transpose": (X, (1, 0)), "uniform": (0.0, 1.0, (2, 3)),
    "var": (X, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_makes_no_sense_is_refused_or_has_a_meaning(name: str) -> None:
    call, good = getattr(K, name), CALLS[name]
    call(*good)
    refused = 0
    for n in range(len(good)):
        for value in WRONG:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a complex number becomes a real one
                try:
                    call(*good[:n], value, *good[n + 1 :])
                except cb.errors.CubeError as error:
                    refused += 1
                    assert str(error).strip()
    assert refused >= 4


def test_the_messages_name_the_argument() -> None:
    with pytest.raises(cb.errors.ArgumentError, match=r"axis must be an int, not 'rows'"):
        K.softmax(X, "rows")
    with pytest.raises(cb.errors.ArgumentError, match=r"pad\[0\] must be an int, not \(1, 1\)"):
        K.pad(X, ((1, 1), (0, 0)))
    with pytest.raises(
        cb.errors.ShapeError, match=r"stride must be an int of at least 1 or 2 of them, not \(1, 2, 3\)"
    ):
        K.conv2d(IMAGE, FILTERS, stride=(1, 2, 3))
    with pytest.raises(TypeError, match="std must be a number, not an array of shape"):
        K.normal(0.0, X, 3)
