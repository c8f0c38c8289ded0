"""Mistakes that code for PyTorch makes here: the error names the function, what came and what is
expected.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.tensor as xp
from cubepy import nn
from cubepy.errors import ArgumentError, CubeError, DeviceError, DTypeError, ShapeError
from cubepy.nn import functional as F

X = cb.tensor(np.ones((2, 3)))
MISTAKES: list[tuple[Any, type[CubeError], str]] = [
    (lambda: X.to("gpu"), DTypeError, "'gpu' is neither a device nor a dtype"),
    (lambda: nn.Linear(1, 1).to("f23"), DTypeError, "'f23' is neither a device nor a dtype"),
    (lambda: X.to(device="gpu"), DeviceError, "there is no device 'gpu'"),
    (lambda: X + None, DTypeError, "a tensor holds numbers, not None"),
    (lambda: X + "a", DTypeError, "a tensor holds numbers, not texts"),
    (lambda: cb.tensor(1j), DTypeError, "a tensor holds numbers, not complex numbers"),
    (lambda: cb.tensor([object()]), DTypeError, "a tensor holds numbers, not objects"),
    (lambda: cb.tensor({"output": X}), DTypeError, "not a dict\n  Hint: take one of its values"),
    (lambda: X + cb.TensorSpec((2, 3)), DTypeError, "a tensor holds numbers, not a TensorSpec"),
    (lambda: cb.profile(X), ArgumentError, "cb.profile takes a function, not Tensor"),
    (lambda: xp.stack([X, X[0]]), ShapeError, "stack takes tensors of one shape, not (2, 3), (3,)"),
    (lambda: xp.stack([]), ShapeError, "stack needs at least one tensor"),
    (lambda: F.cross_entropy(X, [0, 1, 1]), ShapeError, "has a target of shape (2,), not (3,)"),
    (lambda: nn.Module().register_parameter("a.b", None), ArgumentError, "a text without dots"),
    (lambda: nn.Module().add_module("", nn.ReLU()), ArgumentError, "a text without dots"),
    (lambda: X.scatter(0, [[0]]), ArgumentError, "scatter takes src, elements, or value"),
    (lambda: X.scatter(0, [[0]], 1, reduce="mean"), ArgumentError, "reduce is add or multiply"),
    (lambda: cb.Tensor([1.0]), ArgumentError, "cb.tensor(data) makes one"),
    (lambda: cb.Tensor(2, 3), ArgumentError, "cb.tensor(data) makes one"),
    (lambda: cb.exp(X), CubeError, "of a tensor x it is x.exp(...)"),
    (lambda: cb.max(X), CubeError, "of a tensor x it is x.max(...)"),
    (lambda: cb.save(nn.Linear(1, 1), "a.pt"), ArgumentError, "nn.save_safetensors"),
    (lambda: bool(X > 0), ShapeError, "the truth of a tensor of shape (2, 3) is not defined"),
]


@pytest.mark.parametrize("n", range(len(MISTAKES)))
def test_a_mistake_is_explained(n: int) -> None:
    call, error, text = MISTAKES[n]
    with pytest.raises(error, match=re.escape(text)):
        call()


@pytest.mark.skipif(
    cb.current_device().backend in ("cuda", "hip"), reason="indices on a GPU are not read back"
)
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_classes_that_are_not_there(loss: Any) -> None:
    with pytest.raises(IndexError, match="classes are 0 to 2 or -100: gather: the index 5"):
        loss(X, cb.tensor([0, 5]))


@pytest.mark.parametrize("number", [0, 1, 3, -7, 1 << 40])
def test_booleans_and_integers_are_integers_as_those_of_tensors(number: int) -> None:
    """i64, as `cb.tensor(number)` is and torch has it; floats of Python are f32."""
    a = np.array([True, False, True])
    x = cb.tensor(a)
    pairs: list[tuple[Any, Any]] = [
        (x + number, a + number),
        (number - x.astype("i64"), number - a.astype(np.int64)),
        (x * number, a * number),
        (number * x, number * a),
        (cb.jit(lambda x: x * number + (x == 0))(x), a * number + (a == 0)),
        (xp.where(x, number, 5), np.where(a, number, 5)),
    ]
    for found, want in pairs:
        assert found.dtype is cb.i64
        np.testing.assert_array_equal(found.numpy(), want)
    assert (x * 0.5).dtype is cb.f32 and (x & True).dtype is cb.bool_


@pytest.mark.parametrize("seed", range(16))
def test_means_of_counts_are_quotients(seed: int) -> None:
    """Of 20 answers 13 right ones are 0.65, not 0.65000004: the sum is divided by the number, not
    multiplied with one over it; at once and in programs, whose sums of integers are exact.
    """
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 30, rng.integers(1, 4)).tolist())
    a, b = rng.integers(0, 2, (2, *shape))
    axes: list[Any] = [None, *range(len(shape)), tuple(range(len(shape)))[-2:]]
    for dtype in (np.float32, np.float64):
        for axis in axes:

            def right(x: Any, y: Any, axis: Any = axis, dtype: Any = dtype) -> Any:
                return (x == y).astype(cb.as_dtype(dtype)).mean(axis)

            exact = np.asarray((a == b).sum(axis)).astype(dtype)
            want = exact / dtype(a.size // max(exact.size, 1))
            x, y = cb.tensor(a), cb.tensor(b)
            for found in (right(x, y), cb.jit(right)(x, y)):
                np.testing.assert_array_equal(found.numpy(), want)
