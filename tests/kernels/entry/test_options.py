"""Options that name nothing are refused: by every function, for every option, and where there is
nothing to compute.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K

NAMES = {"activation", "padding"}
"""Options that may be names, but not only; the others have the annotation of a string."""


def calls(batch: int) -> dict[str, tuple[Any, ...]]:
    """Arguments of every function that has options with names, for so many samples."""
    x, index = np.ones((batch, 4), np.float32), np.zeros((batch, 4), np.int64)
    made: dict[str, tuple[Any, ...]] = {
        "gelu": (x,), "index_put": (x, (index[:, 0],), 1.0), "matmul": (x, np.ones((4, 4), np.float32)),
        "pad": (x, (1, 1)), "scatter": (x, 1, index, x),
        "rnn": (x[:, None], np.ones((1, 3, 4), np.float32), np.ones((1, 3, 3), np.float32)),
    }  # fmt: skip
    for axes in (1, 2, 3):
        shape = (batch, 2, *(8,) * axes)
        image, half = np.ones(shape, np.float32), np.ones((batch, 2, *(4,) * axes), np.float32)
        places, filters = np.zeros(half.shape, np.int64), np.ones((2, 2, *(3,) * axes), np.float32)
        made |= {
            f"conv{axes}d": (image, filters), f"conv_transpose{axes}d": (image, filters),
            f"avg_pool{axes}d": (image, 2), f"avg_pool{axes}d_input": (shape, half, 2),
            f"max_pool{axes}d": (image, 2), f"max_pool{axes}d_input": (shape, half, places, 2),
            f"adaptive_avg_pool{axes}d": (image, 4), f"adaptive_avg_pool{axes}d_input": (shape, half),
            f"adaptive_max_pool{axes}d": (image, 4), f"adaptive_max_pool{axes}d_input": (shape, half, places),
        }  # fmt: skip
    image, half = np.ones((batch, 2, 8, 8), np.float32), np.ones((batch, 2, 4, 4), np.float32)
    grad, filters = np.ones((batch, 2, 6, 6), np.float32), np.ones((2, 2, 3, 3), np.float32)
    return made | {
        "conv_input": (image.shape, filters, grad), "conv_weight": (image, filters.shape, grad),
        "interpolate": (image, (4, 4)), "interpolate_input": (image.shape, half),
    }  # fmt: skip


def options(name: str) -> list[str]:
    """Options of a function that may be names."""
    parameters = inspect.signature(getattr(K, name)).parameters.values()
    return [p.name for p in parameters if p.annotation in ("str", "str | None") or p.name in NAMES]


def test_no_function_is_left_out() -> None:
    named = {n for n in K.__all__ if callable(getattr(K, n)) and options(n)}
    assert named == set(calls(1))


@pytest.mark.parametrize("batch", [1, 0])
@pytest.mark.parametrize("name", calls(1))
def test_a_name_of_nothing_is_refused(name: str, batch: int) -> None:
    call, given = getattr(K, name), calls(batch)[name]
    good = inspect.signature(call).bind(*given).arguments
    for option in options(name):
        with pytest.raises(cb.errors.CubeError, match="sideways"):
            call(**good | {option: "sideways"})


def test_filters_and_matrices_that_are_laid_out_take_no_other_names() -> None:
    image, filters, x = (
        np.ones((1, 2, 8, 8), np.float32),
        np.ones((2, 2, 3, 3), np.float32),
        np.ones((4, 4), np.float32),
    )
    packed, panels = K.prepack_filter(filters), K.prepack(x)
    for option in options("conv2d"):
        with pytest.raises(cb.errors.CubeError, match="sideways"):
            K.conv2d(image, packed, **{option: "sideways"})
    for option in options("matmul"):
        with pytest.raises(cb.errors.CubeError, match="sideways"):
            K.matmul(x, panels, **{option: "sideways"})
