"""Gradients by many slices of one tensor, indices that NumPy picks, and tensors of nothing that no
op makes: each beside the way that ops take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.tensor as xp
from cubepy.tensor import Tensor


def drawn_index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    parts: list[Any] = []
    for n in shape[: rng.integers(0, len(shape) + 1)]:
        kind = rng.integers(5)
        if kind == 0 and n:
            parts.append(int(rng.integers(-n, n)))
        elif kind == 1:
            parts.append(slice(None, None, int(rng.choice([-2, -1, 2, 3]))))
        elif kind == 2:
            start, stop = sorted(rng.integers(-n - 1, n + 2, 2).tolist())
            parts.append(slice(start, stop, int(rng.integers(1, 3))))
        else:
            parts.append(slice(None))
        if rng.random() < 0.2:
            parts.append(None)
    if rng.random() < 0.2:
        parts.append(...)
    return tuple(parts)


@pytest.mark.parametrize("seed", range(60))
def test_gradients_by_slices_are_sums_of_what_goes_to_a_place(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, rng.integers(1, 4)).tolist())
    dtype = [np.float32, np.float64][seed % 2]
    array = rng.normal(size=shape).astype(dtype)
    x, expected = cb.tensor(array, requires_grad=True), np.zeros(shape)
    total: Any = (x * 0.0).sum() if seed % 3 else x.detach().sum()
    for _ in range(rng.integers(1, 6)):
        index = drawn_index(rng, shape)
        taken = x[index]
        weights = rng.normal(size=taken.shape).astype(dtype)
        total = total + (taken * cb.tensor(weights)).sum()
        expected[index] += weights
    axis = int(rng.integers(len(shape)))
    for k, part in enumerate(x.unbind(axis) if seed % 2 else x.split(2, axis)):
        total = total + (part * float(k)).sum()
    for k in range(shape[axis]):
        place = (slice(None),) * axis + (k,)
        expected[place] += k if seed % 2 else k // 2
    if seed % 5 == 0:
        total = total + sum((row * 2.0).sum() for row in x)
        expected += 2
    total.backward()
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-4 if dtype is np.float32 else 1e-9)


def test_gradients_by_slices_of_what_was_computed() -> None:
    x = cb.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    y = x * x
    seen: list[Tensor] = []
    y.register_hook(seen.append)
    (y[0] * 3 + y[1] + y[:, 1].sum()).sum().backward()
    assert seen[0].tolist() == [[3, 6, 3], [1, 4, 1]]
    assert x.grad.tolist() == [[0, 12, 12], [6, 32, 10]]


def test_gradients_by_slices_have_gradients() -> None:
    def first(x: Tensor) -> Tensor:
        def product(x: Tensor) -> Tensor:
            a, b = x.unbind(0)
            return (a * a * b).sum()

        return cb.grad(product)(x).sum()

    x = cb.tensor(np.arange(1.0, 7).reshape(2, 3))
    ours = x.numpy()
    expected = np.stack([2 * ours[1] + 2 * ours[0], 2 * ours[0]])
    np.testing.assert_allclose(cb.grad(first)(x).numpy(), expected)


@pytest.mark.parametrize("seed", range(40))
def test_indices_that_numpy_picks_are_those_of_ops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 6, rng.integers(1, 4)).tolist())
    array = rng.normal(size=shape)
    common = rng.integers(1, 4, 2).tolist()
    parts: list[Any] = []
    for n in shape:
        lengths = common[rng.integers(2) :]
        if rng.random() < 0.6 or not parts:
            parts.append(rng.integers(-n, n, lengths))
        else:
            parts.append([slice(None), slice(0, n, 2), 0][rng.integers(3)])
    given = tuple(cb.tensor(p) if isinstance(p, np.ndarray) else p for p in parts)
    found = cb.tensor(array)[given]
    by_ops = cb.tensor(array, requires_grad=True)[given]
    np.testing.assert_array_equal(found.numpy(), array[tuple(parts)])
    np.testing.assert_array_equal(by_ops.detach().numpy(), array[tuple(parts)])
    mask = array > 0
    assert cb.tensor(mask).nonzero().tolist() == np.argwhere(mask).tolist()
    assert [p.tolist() for p in cb.tensor(mask).nonzero(as_tuple=True)] == [
        p.tolist() for p in np.nonzero(mask)
    ]


@pytest.mark.skipif(
    cb.current_device().backend in ("cuda", "hip"), reason="indices on a GPU are not read back"
)
def test_an_index_outside_is_an_error_with_its_axis() -> None:
    with pytest.raises(cb.CubeError, match="the index 9 is outside an axis of length 3"):
        cb.tensor(np.ones((3, 2)))[cb.tensor([0, 9])]


MADE = {
    "full": lambda rng, d: xp.full((3, 2), [2, 0, 7][rng.integers(3)], dtype=d),
    "ones": lambda rng, d: xp.ones((2, 3), dtype=d),
    "zeros": lambda rng, d: xp.zeros(4, dtype=d),
    "arange": lambda rng, d: xp.arange(*rng.integers(-5, 20, 2).tolist(), 3, dtype=d),
    "arange of floats": lambda rng, d: xp.arange(0.1, float(rng.normal(5)), 0.3, dtype=d),
    "linspace": lambda rng, d: xp.linspace(
        float(rng.normal()), 2.5, int(rng.integers(0, 9)), dtype=d, endpoint=bool(rng.integers(2))
    ),
    "eye": lambda rng, d: xp.eye(
        *rng.integers(0, 6, 2).tolist(), k=int(rng.integers(-7, 8)), dtype=d
    ),
}


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64"])
@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_nothing_is_what_ops_make(name: str, dtype: str) -> None:
    for seed in range(8):
        at_once = MADE[name](np.random.default_rng(seed), dtype)
        by_ops = cb.jit(lambda seed=seed: MADE[name](np.random.default_rng(seed), dtype))()
        assert at_once.dtype is by_ops.dtype and at_once.shape == by_ops.shape
        np.testing.assert_array_equal(at_once.numpy(), by_ops.numpy())


MAPS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "by a number": lambda x, y: x * 2.5,
    "compare": lambda x, y: x > y,
    "clip": lambda x, y: x.clip(-0.5, 0.5),
    "gelu": lambda x, y: x.gelu(),
    "cast": lambda x, y: x.float(),
    "where": lambda x, y: xp.where(x > y, x, y),
    "lerp": lambda x, y: x.lerp(y, 0.3),
    "dropout": lambda x, y: cb.Generator(3).dropout(x, 0.5),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MAPS)
def test_maps_of_turned_tensors_are_those_of_copies(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, f = rng.integers(1, 6, rng.integers(2, 5)).tolist(), MAPS[name]
    axes = rng.permutation(len(shape)).tolist()
    for _ in range(5):
        a, b = rng.normal(size=shape), rng.normal(size=shape)
        x, y = cb.tensor(a).permute(*axes), cb.tensor(b).permute(*axes)
        found = f(x, y)
        expected = f(cb.tensor(x.numpy().copy()), cb.tensor(y.numpy().copy()))
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
        beside = f(x, cb.tensor(y.numpy().copy()))  # one of them turned
        np.testing.assert_array_equal(beside.numpy(), expected.numpy())
