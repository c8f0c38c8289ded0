"""Images read at positions that are data, and the gradients of that, against the formula in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.nn import functional as F
from cubepy.tensor import apply
from cubepy.tensor.control.sampled import grid_sampled

ROUNDED = {"f64": 1e-12, "f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2}


def drawn(seed: int) -> tuple[list[cb.Tensor], dict[str, Any]]:
    """Images, positions, a gradient by the result, and how they are read."""
    rng = np.random.default_rng(seed)
    axes = 3 if seed % 4 == 3 else 2
    longest = 40 if seed % 2 else 7
    size, out = (tuple(rng.integers(1, longest, axes)) for _ in range(2))
    n, c = rng.integers(1, 4), rng.integers(1, 20)
    padding = str(rng.choice(["zeros", "border", "reflection"]))
    grid = rng.uniform(-1, 1, (n, *out, axes)) * rng.choice([0.9, 1.2, 9.0])
    strange = [np.nan, 1e9] if padding == "reflection" else [np.nan, np.inf, -np.inf, 1e9, -1e30]
    some = rng.random(grid.shape) < 0.05
    grid[some] = rng.choice(strange, int(some.sum()))
    dtype = ("f32", "f64", "bf16", "f32", "f16", "f32")[seed % 6]
    at = "f64" if dtype == "f64" else "f32"
    x = cb.tensor(rng.standard_normal((n, c, *size)), dtype)
    if seed % 3 == 0:
        x = cb.tensor(rng.standard_normal((*size, n, c)), dtype).permute(
            axes, axes + 1, *range(axes)
        )
    tensors = [x, cb.tensor(grid, at), cb.tensor(rng.standard_normal((n, c, *out)), dtype)]
    mode = "nearest" if seed % 5 == 4 else "linear"
    return tensors, {"mode": mode, "padding": padding, "align": bool(rng.integers(2))}


def gradients(function: Any, x: cb.Tensor, grid: cb.Tensor, g: cb.Tensor) -> list[np.ndarray]:
    """The result, and the gradients by image and grid; zeros where there is none."""
    x, grid = x.detach().requires_grad_(), grid.detach().requires_grad_()
    y = function(x, grid)
    found = cb.grad_of(y, [x, grid], g, allow_unused=True)
    return [
        np.zeros(t.shape) if f is None else f.astype("f64").numpy()
        for t, f in zip((y, x, grid), (y.detach(), *found), strict=True)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_kernels_do_what_the_formula_does(seed: int) -> None:
    (x, grid, g), how = drawn(seed)
    found = gradients(lambda a, b: apply("grid_sample", a, b, **how), x, grid, g)
    wide = x.astype("f64"), grid, g.astype("f64")
    with np.errstate(all="ignore"):
        expected = gradients(lambda a, b: grid_sampled(a, b, **how), *wide)
    close = ROUNDED[x.dtype.name]
    for name, one, other in zip(("result", "image", "grid"), found, expected, strict=True):
        room = close * max(1.0, np.abs(other).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=close, atol=4 * room, err_msg=f"{name} {how}")


def test_what_is_outside_is_not_read() -> None:
    """An infinite pixel beside the image's edge has no part in what lies on the other side."""
    x = np.full((1, 1, 2, 20), 1.0, np.float32)
    x[..., 0, 0] = x[..., -1, -1] = np.inf
    grid = np.full((1, 1, 20, 2), 3.0, np.float32)  # right and below
    grid[:, :, ::2] = -3.0
    image, positions = (cb.tensor(a, requires_grad=True) for a in (x, grid))
    y = F.grid_sample(image, positions)
    y.backward(cb.tensor(np.full(y.shape, np.inf, np.float32)))
    assert image.grad is not None and positions.grad is not None
    for t in (y.detach(), image.grad):
        np.testing.assert_array_equal(t.numpy(), 0)


def test_sums_are_the_same_on_any_number_of_threads() -> None:
    (x, grid, g), how = drawn(1)
    several = []
    for threads in (1, 2):
        with cb.config.override(num_threads=threads), cb.use("cpu"):
            several.append(
                apply("grid_sample_input", g, grid, size=x.shape[2:], **how).numpy().tobytes()
            )
    assert several[0] == several[1]
