"""Elements in the middle, counts and sets: what the host finds by itself is what ops find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb

RNG = np.random.default_rng(5)


def line(n: int, dtype: str) -> np.ndarray:
    """Numbers of which many are equal; of floats some may be none."""
    values = RNG.integers(-9, 9, n)
    if not dtype.startswith("f"):
        return values.astype({"i32": np.int32, "i64": np.int64}[dtype])
    found = (values / 4).astype({"f32": np.float32, "f64": np.float64, "f16": np.float16}[dtype])
    if RNG.random() < 0.4:
        found[RNG.random(n) < 0.2] = np.nan
    return found


def place(x: np.ndarray, k: int, spread: bool) -> int:
    """Where the k-th element of a stable sort is; the first NaN where one is and `spread`."""
    missing = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    if spread and missing.any():
        return int(missing.argmax())
    return int(np.argsort(x, kind="stable")[k])


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "i32", "i64"])
def test_an_element_in_order_and_its_gradient(dtype: str) -> None:
    for n in (1, int(RNG.integers(2, 60)), int(RNG.integers(1025, 3000))):
        x = line(n, dtype)
        k = int(RNG.integers(1, n + 1))
        asked: list[tuple[int, Any]] = [
            (place(x, (n - 1) // 2, True), lambda t: t.median(0)),
            (place(x, k - 1, False), lambda t, k=k: t.kthvalue(k)),
            (place(x, k - 1, False), lambda t, k=k: t.reshape(1, -1).kthvalue(k, keepdim=True)),
        ]
        for at, function in asked:
            for _ in range(3):  # then it is a program
                value, index = function(cb.tensor(x))
                assert index.item() == at
                np.testing.assert_array_equal(value.numpy().ravel(), x[at : at + 1])
            if dtype.startswith("f"):
                leaf = cb.tensor(x, requires_grad=True)
                function(leaf)[0].sum().backward()
                assert leaf.grad is not None
                np.testing.assert_array_equal(leaf.grad.numpy(), np.arange(n) == at)
        np.testing.assert_array_equal(
            cb.tensor(x).median().numpy(), x[place(x, (n - 1) // 2, True)]
        )


def test_rows_of_medians_with_gradients_are_those_of_each_row() -> None:
    for shape in ((3, 7), (40, 40)):  # found again for the gradient, and kept
        x = np.stack([line(shape[1], "f32") for _ in range(shape[0])])
        at = [place(row, (shape[1] - 1) // 2, True) for row in x]
        leaf = cb.tensor(x, requires_grad=True)
        value, index = leaf.median(1)
        (value * cb.tensor(np.arange(1, shape[0] + 1, dtype=np.float32))).sum().backward()
        np.testing.assert_array_equal(index.numpy(), at)
        expected = np.zeros(shape)
        expected[range(shape[0]), at] = np.arange(1, shape[0] + 1)
        assert leaf.grad is not None
        np.testing.assert_array_equal(leaf.grad.numpy(), expected)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "i64"])
def test_sets_of_few_elements_are_those_of_many(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cubepy.tensor.methods import torch_order

    for n in (0, 1, int(RNG.integers(2, 300))):
        x = cb.tensor(line(n, dtype)).reshape(-1, 1)
        few = [*x.unique(True, True, True), x.unique(), *x.unique(return_counts=True)]
        with monkeypatch.context() as patch:
            patch.setattr(torch_order, "SMALL", -1)
            many = [*x.unique(True, True, True), x.unique(), *x.unique(return_counts=True)]
        for one, other in zip(few, many, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_counts_are_those_of_sums_of_ones() -> None:
    for dtype in (np.int32, np.int64, np.uint8, np.uint64):
        for n in (0, 1, 500):
            x, least = RNG.integers(0, 40, n).astype(dtype), int(RNG.integers(0, 60))
            found = cb.tensor(x).bincount(minlength=least)
            weighed = cb.tensor(x).bincount(cb.tensor(np.ones(n, np.float32)), least)
            assert found.dtype == cb.i64
            np.testing.assert_array_equal(found.numpy(), weighed.numpy())
            np.testing.assert_array_equal(
                found.numpy(), np.bincount(x.astype(int), minlength=least)
            )
    with pytest.raises(cb.errors.ArgumentError, match="below 0"):
        cb.tensor(np.array([1, -1])).bincount()


def test_halves_of_matrices_with_gradients() -> None:
    for _ in range(4):
        shape = (*RNG.integers(1, 4, RNG.integers(0, 2)), *RNG.integers(1, 9, 2))
        x, diagonal = RNG.standard_normal(shape), int(RNG.integers(-9, 10))
        for name in ("tril", "triu"):
            expected = getattr(np, name)(x, diagonal)
            for _ in range(4):
                leaf = cb.tensor(x, requires_grad=True)
                found = getattr(leaf, name)(diagonal)
                np.testing.assert_array_equal(found.detach().numpy(), expected)
                np.testing.assert_array_equal(
                    getattr(leaf.detach(), name)(diagonal).numpy(), expected
                )
            found.sum().backward()
            assert leaf.grad is not None
            np.testing.assert_array_equal(
                leaf.grad.numpy(), getattr(np, name)(np.ones(shape), diagonal)
            )
