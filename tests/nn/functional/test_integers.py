"""Functions of integers that give floats are those of the floats: no difference of integers wraps
on the way.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.nn import functional as F

KINDS = ("bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")
METHODS = ("logaddexp", "logaddexp2", "nextafter", "hypot", "atan2", "dist", "cdist", "xlogy")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(F, name)
    for name in sorted(vars(F))
    if inspect.isfunction(getattr(F, name)) and "drop" not in name and "gumbel" not in name
} | {name: getattr(cb.Tensor, name) for name in METHODS}


def integers(rng: np.random.Generator, kind: str) -> np.ndarray:
    dtype = cb.as_dtype(kind).numpy
    low = 0 if dtype.kind in "bu" else -100
    return rng.integers(low, 2 if kind == "bool" else 120, (5, 5)).astype(dtype)


def both(function: Callable[..., Any], given: list[np.ndarray]) -> Iterator[Any]:
    """What a function gives of integers, and of them as floats; nothing where it takes none."""
    wide = "f64" if given[0].dtype.itemsize == 8 else "f32"
    for kind in (None, wide):
        try:
            found = function(*(cb.tensor(x, dtype=kind) for x in given))
        except (cb.errors.CubeError, TypeError):
            return
        if not isinstance(found, cb.Tensor) or not found.dtype.is_float:
            return
        yield found.numpy()


def test_functions_of_random_integers() -> None:
    rng = np.random.default_rng(8)
    compared = set()
    for name, function in FUNCTIONS.items():
        for count in (1, 2, 3):
            for kind in rng.choice(KINDS, 3, replace=False):
                given = [integers(rng, str(kind)) for _ in range(count)]
                if len(pair := tuple(both(function, given))) == 2:
                    of_integers, of_floats = pair
                    assert of_integers.dtype == of_floats.dtype, (name, kind)
                    np.testing.assert_allclose(
                        of_integers, of_floats, 2e-5, 1e-5, err_msg=f"{name} of {count} {kind}"
                    )
                    compared.add(name)
    assert compared > {"mse_loss", "cosine_similarity", "pdist", "logaddexp", "cdist", "nextafter"}


@pytest.mark.parametrize("kind", KINDS)
def test_one_hot_of_every_dtype(kind: str) -> None:
    labels = np.random.default_rng(2).integers(0, 2, 9).astype(cb.as_dtype(kind).numpy)
    x = cb.tensor(labels)
    for classes in (-1, 3, 300):
        made = F.one_hot(x, classes).numpy()
        wanted = np.eye(int(labels.max()) + 1 if classes == -1 else classes, dtype=np.int64)
        np.testing.assert_array_equal(made, wanted[labels.astype(np.int64)])
    traced = cb.jit(lambda x: F.one_hot(x, 300))(x)
    np.testing.assert_array_equal(traced.numpy(), made)
    assert F.one_hot(x[:0], 3).shape == (0, 3)


@pytest.mark.parametrize("kind", [*KINDS, "f16", "f32", "f64"])
def test_python_integers_of_any_size(kind: str) -> None:
    rng = np.random.default_rng(5)
    x = cb.tensor(np.array([1, 0]), dtype=kind)
    for _ in range(60):
        value = (1 << int(rng.integers(0, 70 if x.dtype.is_int else 1020))) + int(
            rng.integers(-2, 3)
        )
        value *= int(rng.choice([-1, 1]))
        for op in rng.choice((operator.add, operator.truediv, operator.lt, operator.mod), 1):
            for program in (op, cb.jit(lambda x, op=op, value=value: op(x, value))):
                try:
                    program(x, value) if program is op else program(x)
                except cb.errors.DTypeError as error:
                    assert "bits is beyond" in str(error)
                    assert abs(value) > 2**62
                else:
                    assert abs(value) <= (2**64 if x.dtype.is_int else 2**1024)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_adaptive_pools_of_any_number_of_axes(axes: int) -> None:
    for name in ("avg", "max"):
        for ndim in range(6):
            function = getattr(F, f"adaptive_{name}_pool{axes}d")
            if ndim in (axes + 1, axes + 2):
                assert (
                    function(cb.tensor(np.ones((2,) * ndim, np.float32)), 1).shape[-axes:]
                    == (1,) * axes
                )
            else:
                with pytest.raises(cb.errors.ShapeError):
                    function(cb.tensor(np.ones((2,) * ndim, np.float32)), 1)
