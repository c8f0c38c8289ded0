"""Images read between pixels, and windows as columns, against what they are made of."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import LaunchError, ShapeError
from cubepy.nn import functional as F

RNG = np.random.default_rng(0)


def centers(n: int) -> np.ndarray:
    return (np.arange(n) * 2 + 1) / n - 1


def test_a_grid_of_the_pixels_gives_the_image() -> None:
    x = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
    grid = np.stack(np.meshgrid(centers(5), centers(4)), -1)[None].repeat(2, 0).astype(np.float32)
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            found = F.grid_sample(x, grid, mode, padding)
            np.testing.assert_allclose(found.numpy(), x, rtol=0, atol=1e-5)


def test_outside_of_an_image_is_what_the_padding_says() -> None:
    x = [[[[1.0, 2.0, 3.0]]]]
    grid = [[[[7 / 3, 0.0], [float("nan"), 0.0]]]]  # half an image to the right; NaN is -1
    assert F.grid_sample(x, grid, "nearest").numpy().ravel().tolist()[0] == 0
    assert F.grid_sample(x, grid, "nearest", "border").numpy().ravel().tolist() == [3, 1]
    found = F.grid_sample(x, grid, "nearest", "reflection", True).numpy().ravel()
    assert found.tolist() == [2, 1]


def test_an_affine_grid_of_nothing_moved_gives_the_image() -> None:
    x = RNG.standard_normal((1, 2, 3, 4, 5)).astype(np.float32)
    same = np.eye(3, 4, dtype=np.float32)[None]
    for align in (False, True):
        grid = F.affine_grid(same, x.shape, align)
        assert grid.shape == (1, 3, 4, 5, 3)
        found = F.grid_sample(x, grid, align_corners=align)
        np.testing.assert_allclose(found.numpy(), x, rtol=0, atol=1e-5)


def test_gradients_reach_image_and_grid() -> None:
    x = cb.tensor(RNG.standard_normal((1, 2, 4, 4)), requires_grad=True)
    grid = cb.tensor(RNG.uniform(-0.9, 0.9, (1, 2, 3, 2)), requires_grad=True)
    weight = RNG.standard_normal((1, 2, 2, 3))
    (F.grid_sample(x, grid, "bicubic") * weight).sum().backward()
    for t in (x, grid):
        assert t.grad is not None
        direction = RNG.standard_normal(t.shape)
        small = 1e-5
        ends = []
        for sign in (1, -1):
            moved = cb.tensor(t.numpy() + sign * small * direction)
            pair = (moved, grid) if t is x else (x, moved)
            ends.append((F.grid_sample(*pair, "bicubic") * weight).sum().item())
        slope = (ends[0] - ends[1]) / (2 * small)
        assert slope == pytest.approx((t.grad.numpy() * direction).sum(), rel=1e-5)


@pytest.mark.parametrize(
    "how", [((3, 3),), (2, 1, 0, 2), ((2, 3), (2, 1), (1, 2), (1, 2)), ((1, 4), 1, 0, 3)]
)
def test_columns_are_windows_and_fold_sums_them(how: tuple) -> None:
    x = RNG.standard_normal((2, 3, 6, 7))
    kernel, dilation, padding, stride = (
        (v, v) if isinstance(v, int) else v for v in (*how, *(1, 0, 1)[len(how) - 1 :])
    )
    full = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    count = [
        (full.shape[2 + a] - dilation[a] * (kernel[a] - 1) - 1) // stride[a] + 1 for a in (0, 1)
    ]
    right = np.zeros((2, 3, *kernel, *count))
    back = np.zeros_like(full)
    for i, j in np.ndindex(*count):
        rows = i * stride[0] + dilation[0] * np.arange(kernel[0])
        columns = j * stride[1] + dilation[1] * np.arange(kernel[1])
        window = full[:, :, rows[:, None], columns]
        right[..., i, j] = window
        back[:, :, rows[:, None], columns] += window
    found = F.unfold(x, *how)
    np.testing.assert_array_equal(found.numpy(), right.reshape(found.shape))
    inner = back[:, :, padding[0] : padding[0] + 6, padding[1] : padding[1] + 7]
    np.testing.assert_allclose(F.fold(found, (6, 7), *how).numpy(), inner, atol=1e-12)
    np.testing.assert_array_equal(F.unfold(x[0], *how).numpy(), found.numpy()[0])


def test_what_does_not_fit_is_refused() -> None:
    x = np.zeros((1, 1, 3, 3), np.float32)
    with pytest.raises(ShapeError, match="has no grid"):
        F.grid_sample(x, np.zeros((1, 2, 2, 3), np.float32))
    with pytest.raises(ShapeError, match="has no pixels"):
        F.grid_sample(x[:, :, :0], np.zeros((1, 2, 2, 2), np.float32))
    with pytest.raises(LaunchError, match="mode is"):
        F.grid_sample(x, np.zeros((1, 2, 2, 2), np.float32), "cubic")
    with pytest.raises(LaunchError, match="padding_mode is one of"):
        F.grid_sample(x, np.zeros((1, 2, 2, 2), np.float32), padding_mode="wrap")
    with pytest.raises(ShapeError, match="no maps of the shape"):
        F.affine_grid(np.zeros((1, 3, 4)), (1, 1, 2, 2))
    with pytest.raises(ShapeError, match="no window"):
        F.unfold(x, 4)
    with pytest.raises(ShapeError, match="4 columns of a multiple of 4"):
        F.fold(np.zeros((1, 4, 5), np.float32), 3, 2)
