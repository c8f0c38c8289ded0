"""Masks, counts and searches against NumPy, on all kinds of devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.tensor as xp
from cubepy.kernels.scan import mask_gpu
from cubepy.tensor import Tensor, apply
from tests.backends.cuda.emulator.device import emulated as emulated_cuda
from tests.backends.hip.emulator.device import emulated as emulated_hip


@contextmanager
def on_host(name: str) -> Iterator[Any]:
    with cb.use(name):
        yield name


DEVICES: dict[str, Any] = {
    "cpu": lambda: on_host("cpu"),
    "python": lambda: on_host("python"),
    "sm_90a": emulated_cuda,
    "gfx1100": lambda: emulated_hip("gfx1100"),
    "gfx942": lambda: emulated_hip("gfx942"),
}
DTYPES = ["f32", "f64", "i64", "i32", "u8", "bool_"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    made: AbstractContextManager[Any] = DEVICES[request.param]()
    with made:
        yield request.param


def shape_of(rng: np.random.Generator, device: str) -> tuple[int, ...]:
    """Of some axes; on a GPU sometimes of several tiles."""
    most = {1: 300, 2: 20, 3: 8}
    rank = int(rng.integers(1, 4))
    shape = [int(n) for n in rng.integers(1, most[rank], rank)]
    if device not in ("cpu", "python") and not rng.integers(0, 2):
        shape[-1] = mask_gpu.TILE * int(rng.integers(1, 3)) // max(1, int(np.prod(shape[:-1]))) + 3
    return tuple(shape)


@pytest.mark.parametrize("seed", range(4))
def test_what_masks_select(device: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = shape_of(rng, device)
    mask = rng.random(shape) < rng.choice([0.0, 0.1, 0.5, 1.0])
    t = cb.tensor(mask)
    found, count = apply("mask_positions", t)
    np.testing.assert_array_equal(found.numpy()[:, : count.item()], np.nonzero(mask))
    np.testing.assert_array_equal(t.nonzero().numpy(), np.argwhere(mask))
    for one, want in zip(t.nonzero(as_tuple=True), np.nonzero(mask), strict=True):
        np.testing.assert_array_equal(one.numpy(), want)
    x = rng.standard_normal((*shape, *rng.integers(1, 4, int(rng.integers(0, 2))))).astype("f4")
    chosen, count = apply("mask_selected", cb.tensor(x), t)
    np.testing.assert_array_equal(chosen.numpy()[: count.item()], x[mask])
    np.testing.assert_array_equal(cb.tensor(x)[t].numpy(), x[mask])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("right", [False, True])
def test_searches(device: str, dtype: str, right: bool) -> None:
    rng = np.random.default_rng(len(dtype) + right)
    numpy = cb.as_dtype(dtype).numpy
    for rows, n, m in ((1, 0, 5), (1, 1, 300), (1, 37, 41), (3, 50, 7)):
        known = np.sort((rng.random((rows, n)) * 20).astype(numpy), 1)
        wanted = (rng.random((rows, m)) * 22).astype(numpy)
        if dtype in ("f32", "f64") and n > 2:
            known[:, -2:] = np.nan
            wanted[:, :2] = np.nan
        side = "right" if right else "left"
        want = [np.searchsorted(k, w, side) for k, w in zip(known, wanted, strict=True)]
        found = apply("searchsorted", cb.tensor(known), cb.tensor(wanted), right=right)
        np.testing.assert_array_equal(found.numpy(), np.reshape(want, (rows, m)))
        if rows == 1:
            several = xp.searchsorted(
                cb.tensor(known[0]), cb.tensor(wanted.reshape(m, 1, 1)), side=side
            )
            np.testing.assert_array_equal(several.numpy().reshape(-1), want[0])


@pytest.mark.parametrize("dtype", ["i64", "i32", "u8"])
@pytest.mark.parametrize("count", [1, 40, 600, 5000])
def test_counts(device: str, dtype: str, count: int) -> None:
    rng = np.random.default_rng(count)
    most = min(count + count // 8 + 1, int(np.iinfo(cb.as_dtype(dtype).numpy).max))
    x = rng.integers(0, most, 9000 if device.startswith("sm") else 700).astype(
        cb.as_dtype(dtype).numpy
    )
    if dtype != "u8":
        x[:3] = -1  # passed over, as what is too large
    found = apply("bincount", cb.tensor(x), count=count)
    want = np.bincount(x[(x >= 0) & (x < count)], minlength=count)
    np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("seed", range(3))
def test_sets(device: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 30, rng.integers(1, 12, 2))
    t = cb.tensor(x)
    made = t.unique(return_inverse=True, return_counts=True)
    want = np.unique(x, return_inverse=True, return_counts=True)
    for one, other in zip(made, want, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.reshape(one.shape))
    np.testing.assert_array_equal(t.reshape(-1).bincount().numpy(), np.bincount(x.reshape(-1)))
    np.testing.assert_array_equal(t.isin(t[0]).numpy(), np.isin(x, x[0]))
    bounds = np.unique(x)[::2]
    np.testing.assert_array_equal(
        t.bucketize(cb.tensor(bounds)).numpy(), np.searchsorted(bounds, x)
    )


def test_rows_counted_from_the_end(device: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((6, 5, 4)).astype("f4")
    for dtype in ("i64", "i32", "u8"):
        low = 0 if dtype == "u8" else -6
        rows = rng.integers(low, 6, (2, 3)).astype(cb.as_dtype(dtype).numpy)
        t: Tensor = cb.tensor(x)
        np.testing.assert_array_equal(t[cb.tensor(rows)].numpy(), x[rows])
        flat = cb.tensor(rows.reshape(-1) % 4)
        np.testing.assert_array_equal(
            t.index_select(2, flat).numpy(), x[:, :, rows.reshape(-1) % 4]
        )
        leaf = cb.tensor(x, requires_grad=True)
        leaf[cb.tensor(rows)].sum().backward()
        counts = np.bincount(rows.reshape(-1) % 6, minlength=6)
        assert leaf.grad is not None
        np.testing.assert_array_equal(
            leaf.grad.numpy(), np.broadcast_to(counts[:, None, None], x.shape)
        )
