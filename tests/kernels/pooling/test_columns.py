"""Windows as columns and back, against slices, on all kinds of devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.nn import functional as F
from cubepy.tensor import apply
from tests.backends.hip.emulator.device import emulated


def drawn(seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Images, and windows that fit into them."""
    rng = np.random.default_rng(seed)
    how = {
        name: tuple(int(n) for n in rng.integers(low, high, 2))
        for name, low, high in (
            ("kernel_size", 1, 5),
            ("dilation", 1, 3),
            ("padding", 0, 3),
            ("stride", 1, 4),
        )
    }
    least = [(k - 1) * d + 1 for k, d in zip(how["kernel_size"], how["dilation"], strict=True)]
    size = [int(n + rng.integers(0, 9)) for n in least]
    return rng.standard_normal((*rng.integers(1, 4, 2), *size)), how


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16"])
@pytest.mark.parametrize("seed", range(8))
def test_ops_give_what_slices_give(seed: int, dtype: str) -> None:
    x, how = drawn(seed)
    given = cb.tensor(x, device="cpu").astype(dtype)
    want = F.unfold(given, **how)
    pairs = tuple(how[n] for n in ("kernel_size", "dilation", "padding", "stride"))
    counts = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, d, p, s in zip(x.shape[2:], *pairs, strict=True)
    )
    with cb.use("cpu"):
        found = apply("unfold", given, how=pairs, counts=counts)
        np.testing.assert_array_equal(found.numpy(), want.numpy())
        back = F.fold(want, x.shape[2:], **how).astype("f64").numpy()
        made = apply("fold", found, size=x.shape[2:], how=pairs, counts=counts)
        np.testing.assert_allclose(
            made.astype("f64").numpy(), back, rtol=1e-2 if dtype == "bf16" else 1e-6, atol=1e-6
        )


def test_shapes_that_are_no_images_and_no_columns() -> None:
    how = (2, 2), (1, 1), (0, 0), (1, 1)
    with pytest.raises(ShapeError, match=r"unfold takes images \(N, C, H, W\), not \(3, 4\)"):
        apply("unfold", cb.tensor(np.zeros((3, 4))), how=how, counts=(2, 3))
    for shape in ((1, 4, 5), (1, 6, 6), (4, 6)):
        with pytest.raises(ShapeError, match="are no columns of shape"):
            apply("fold", cb.tensor(np.zeros(shape)), size=(3, 4), how=how, counts=(2, 3))


@pytest.mark.parametrize("seed", range(3))
def test_on_a_gpu(seed: int) -> None:
    x, how = drawn(100 + seed)
    leaf = cb.tensor(x, "f32", device="cpu", requires_grad=True)
    want = F.unfold(leaf, **how)
    (want * want).sum().backward()
    with emulated("gfx1100"), cb.use("gfx1100"):
        there = cb.tensor(x, "f32", device="gfx1100", requires_grad=True)
        found = F.unfold(there, **how)
        (found * found).sum().backward()
        np.testing.assert_array_equal(found.detach().numpy(), want.detach().numpy())
        np.testing.assert_allclose(there.grad.numpy(), leaf.grad.numpy(), 1e-5, 1e-5)
