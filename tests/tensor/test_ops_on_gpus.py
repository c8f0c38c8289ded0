"""Ops on a GPU that runs nothing: they stay on the device, with the shapes of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.tensor as xp
from cubepy.runtime.device import gpu_of

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from tests.backends.cuda.recording import recording

X = np.zeros((4, 6), np.float32)
I = np.zeros((2, 3), np.int64)


def written(x: Any, index: Any, value: Any) -> Any:
    y = x * 1
    y[index] = value
    return y


CALLS: dict[str, Callable[..., Any]] = {
    "sort": lambda x, i: x.sort(0)[0],
    "topk": lambda x, i: x.topk(2)[1],
    "cumsum": lambda x, i: x.cumsum(1),
    "take": lambda x, i: x[i],
    "take_two": lambda x, i: x[i, i],
    "take_apart": lambda x, i: x.unsqueeze(1)[i, :, i],
    "put": lambda x, i: written(x, i, 1.0),
    "put_values": lambda x, i: written(x, (slice(None), i), x[:, i]),
    "put_slice": lambda x, i: written(x, (slice(1, None), 0), 2),
    "put_mask": lambda x, i: written(x, x > 0, 2),
    "nonzero": lambda x, i: x.nonzero(),
    "mask": lambda x, i: x[x > 0],
    "gather": lambda x, i: x.gather(0, i),
    "take_along": lambda x, i: x[:2].take_along_dim(i, 1),
    "scatter": lambda x, i: x.scatter(0, i, x),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x),
    "var": lambda x, i: x.var(axis=0),
    "norm": lambda x, i: x.norm(),
    "logsumexp": lambda x, i: x.logsumexp(1),
    "any": lambda x, i: x.any(0),
    "clip": lambda x, i: x.clip(0, 1),
    "roll": lambda x, i: x.roll(1, 0).flip(0).repeat(2, 1),
    "pad": lambda x, i: xp.apply("pad", x, widths=(1, 1), mode="reflect", value=0),
    "tril": lambda x, i: x.tril(),
    "clone": lambda x, i: x.T.clone(),
    "einsum": lambda x, i: xp.einsum("ij,kj->ik", x, x),
    "searchsorted": lambda x, i: xp.searchsorted(x[0], x),
    "unique": lambda x, i: xp.unique_values(x[:1, :1]),
    "gcd": lambda x, i: i.gcd(i + 4) + i.lcm(6),
    "bitcast": lambda x, i: x.view("u16").view("f32"),
    "mode": lambda x, i: i.mode(1)[1],
    "searchsorted rows": lambda x, i: xp.searchsorted(x, x),
    "erfinv": lambda x, i: x.erfinv() + x.astype("f64").erfinv(),
    "logaddexp": lambda x, i: x.logaddexp(x),
    "shift": lambda x, i: ~(i << 1),
    "arange": lambda x, i: xp.arange(5, device=x.device),
    "eye": lambda x, i: xp.eye(3, device=x.device),
    "zeros": lambda x, i: xp.zeros_like(x),
    "full": lambda x, i: xp.full((2, 3), 5, device=x.device),
    "linspace": lambda x, i: xp.linspace(0, 1, 5, device=x.device),
    "random": lambda x, i: cb.Generator(1, x.device).normal((2, 3)),
    "integers": lambda x, i: cb.Generator(1, x.device).integers(0, 5, (2, 3)),
    "permutation": lambda x, i: cb.Generator(1, x.device).permutation(x),
    "dropout": lambda x, i: cb.Generator(1, x.device).dropout(x, 0.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_ops_stay_on_the_device(name: str) -> None:
    want = CALLS[name](cb.tensor(X), cb.tensor(I))
    with recording("sm_90a"):
        device = cb.current_device()
        for _ in range(3):
            got = CALLS[name](cb.tensor(X, device=device), cb.tensor(I, device=device))
            assert gpu_of(got.device) is not None
            assert got.dtype is want.dtype
            if name not in ("nonzero", "mask", "unique"):  # memory stays zero there
                assert got.shape == want.shape


@pytest.mark.parametrize("name", ["sort", "take", "put", "gather", "scatter", "dropout", "pad"])
def test_gradients_stay_on_the_device(name: str) -> None:
    with recording("sm_90a"):
        device = cb.current_device()
        x = cb.tensor(X, device=device, requires_grad=True)
        y = CALLS[name](x, cb.tensor(I, device=device))
        y.sum().backward()
        assert x.grad is not None and x.grad.shape == X.shape and x.grad.device == x.device
