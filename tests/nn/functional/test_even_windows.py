"""Convolutions of the same size by windows that reach further to one side, and attention whose
batches broadcast: as in torch.
"""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ShapeError
from cubepy.nn import functional as F


@pytest.mark.parametrize("seed", range(24))
def test_padding_of_the_same_size(seed: int) -> None:
    """What is missing is behind the ends; strides of 1 only."""
    rng = np.random.default_rng(seed)
    axes = seed % 3 + 1
    window, dilation = (tuple(rng.integers(1, n, axes).tolist()) for n in (5, 3))
    size = rng.integers(max(window), 9, axes).tolist()
    x, w = (rng.normal(size=s) for s in ((2, 3, *size), (4, 3, *window)))
    bias, function = rng.normal(size=4), getattr(F, f"conv{axes}d")
    reach = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
    wide = np.pad(x, [(0, 0), (0, 0), *((r // 2, r - r // 2) for r in reach)])
    want = function(wide, w, bias, dilation=dilation)
    for given in (x, x[0]):
        found = function(given, w, bias, padding="same", dilation=dilation)
        assert found.shape[-axes:] == tuple(size)
        right = want if given is x else want[0]
        np.testing.assert_allclose(found.numpy(), right.numpy(), 1e-9, 1e-9)
    layer = getattr(nn, f"Conv{axes}d")(3, 4, window, padding="same", dilation=dilation).to("f64")
    layer.load_state_dict({"weight": w, "bias": bias})
    program = cb.jit(lambda x: layer(x))
    for _ in range(3):
        np.testing.assert_allclose(program(cb.tensor(x)).detach().numpy(), want.numpy(), 1e-9, 1e-9)


def test_the_same_size_needs_strides_of_1() -> None:
    x, w = cb.tensor(np.ones((1, 1, 8))), cb.tensor(np.ones((1, 1, 4)))
    with pytest.raises(ShapeError, match="needs stride 1"):
        F.conv1d(x, w, stride=2, padding="same")


@pytest.mark.parametrize("seed", range(12))
def test_batches_of_attention_broadcast(seed: int) -> None:
    rng = np.random.default_rng(seed)
    front = tuple(rng.integers(1, 4, 3).tolist())
    dtype = [np.float32, np.float64][seed % 2]

    def part(rows: int) -> np.ndarray:
        """With fewer axes in front, some of length 1."""
        lead = tuple(n if rng.random() < 0.7 else 1 for n in front[int(rng.integers(3)) :])
        return rng.normal(size=(*lead, rows, 4)).astype(dtype)

    q, k, v = part(5), part(6), part(6)
    if q.ndim == k.ndim == v.ndim:
        q = q[None]
    full = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    wide = [np.broadcast_to(t, (*full, *t.shape[-2:])) for t in (q, k, v)]
    want = F.scaled_dot_product_attention(*map(cb.tensor, map(np.ascontiguousarray, wide)))
    found = F.scaled_dot_product_attention(*map(cb.tensor, (q, k, v)))
    np.testing.assert_allclose(found.numpy(), want.numpy(), 1e-5, 1e-5)
