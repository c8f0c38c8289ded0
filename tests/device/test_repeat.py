"""Calls of the library that are repeated: every time they do what PyTorch or NumPy does, whatever
came before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import AliasError, LaunchError
from cubepy.kernels.primitives import functions as f
from cubepy.nn import functional as F
from cubepy.runtime.replay import plan

CALLS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "map": ("float32", lambda x, y: K.map(f.add, x, y), lambda x, y: x + y),
    "map of a number": ("float16", lambda x, y: K.map(f.mul, x, 2.5), lambda x, y: x * 2.5),
    "matmul": ("float16", lambda x, y: K.matmul(x, y.t()), lambda x, y: x @ y.t()),
    "softmax": ("float16", lambda x, y: K.softmax(x), lambda x, y: x.softmax(-1)),
    "sum": ("float32", lambda x, y: K.sum(x, 1), lambda x, y: x.sum(1)),
    "transpose": ("float16", lambda x, y: K.transpose(x), lambda x, y: x.t()),
}


@pytest.mark.parametrize("name", CALLS)
def test_repeated_calls_agree_with_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype, call, expected = CALLS[name]
    own = torch.cuda.Stream()
    with torch.cuda.stream(own), cb.Stream("cuda", handle=own.cuda_stream):
        for n in range(12):
            rows, first = ((64, 96)[n % 2], (0, 0, 1)[n % 3]) if name == "map" else (64, 0)
            x, y = (torch.randn(rows, 129, device="cuda").to(getattr(torch, dtype)) for _ in "xy")
            x, y = (
                v[:, first : first + 128] if name == "map" else v[:, :128].contiguous()
                for v in (x, y)
            )
            wanted = expected(x.double(), y.double())
            found = torch.from_dlpack(call(x, y))
            own.synchronize()
            scale = max(1.0, float(wanted.abs().max()))
            assert float((found.double() - wanted).abs().max()) <= scale * (
                2e-3 if dtype == "float16" else 2e-5
            )


def test_in_place_overlap_and_gradients_are_told_apart() -> None:
    torch = pytest.importorskip("torch")
    for n in range(5):
        whole = torch.rand(4096, device="cuda")
        x, y, out = whole[:1024], whole[1024:2048], whole[2048:3072]
        expected = x + y
        torch.cuda.synchronize()
        assert K.map(f.add, x, y, out=out) is out
        cb.sync()
        assert torch.equal(out, expected)
        K.map(f.add, x, y, out=x)
        cb.sync()
        assert torch.equal(x, expected)
        with pytest.raises(AliasError):
            K.map(f.add, x, y, out=whole[n + 1 : n + 1025])
        with pytest.raises(LaunchError, match="gradient"):
            K.map(f.add, x.clone().requires_grad_(), y)
        x.resize_(512)  # the same object, another shape
        torch.cuda.synchronize()
        assert torch.equal(torch.from_dlpack(K.map(f.mul, x, x)), x * x)


def test_memory_that_was_given_back_is_not_read() -> None:
    torch = pytest.importorskip("torch")
    total, expected = torch.zeros(1 << 16, device="cuda"), torch.zeros(1 << 16, device="cuda")
    for n in range(50):
        step = torch.full((1 << 16,), float(n), device="cuda")
        expected += step
        torch.cuda.synchronize()
        total = torch.from_dlpack(K.map(f.add, total, step))
        cb.sync()
        del step
    assert torch.equal(total, expected)


def test_ops_of_tensors_are_repeated_on_any_stream() -> None:
    rng = np.random.default_rng(0)
    streams = [cb.Stream("cuda"), cb.Stream("cuda")]
    w = rng.standard_normal((64, 64)).astype(np.float32) / 8
    weight = cb.tensor(w, device="cuda")
    for n in range(12):
        x = rng.standard_normal((32, 64)).astype(np.float32)
        with streams[n % 2]:
            y = F.linear(cb.tensor(x, device="cuda"), weight, activation="relu")
        with streams[n % 3 % 2]:
            z = (y * 2.0 + y).reshape(64, 32).permute(1, 0).softmax()
        wanted = 3 * np.maximum(x.astype(np.float64) @ w.T, 0)
        wanted = np.exp(wanted.reshape(64, 32).T)
        np.testing.assert_allclose(
            z.numpy(), wanted / wanted.sum(-1, keepdims=True), rtol=1e-4, atol=1e-7
        )


def test_a_graph_takes_calls_that_would_be_repeated() -> None:
    x = cb.tensor(np.ones((64, 64), np.float32), device="cuda")
    for _ in range(4):
        (x + x).softmax()
    with cb.capture() as graph:
        y = (x + x).softmax()
    assert graph.kernels == 2
    new = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    graph.put(x, new)
    graph.replay()
    wanted = np.exp(2.0 * new)
    np.testing.assert_allclose(y.numpy(), wanted / wanted.sum(-1, keepdims=True), rtol=1e-4)


def test_something_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls above took the short way: there is one for each of them."""
    before = cb.stats().launches
    x = cb.tensor(np.ones(100, np.float32), device="cuda").storage.dense()
    texts: list[Any] = []
    write = plan.written
    monkeypatch.setattr(plan, "written", lambda *given: texts.append(given) or write(*given))  # type: ignore[func-returns-value]
    for _ in range(4):
        K.map(f.sub, x, x)
    assert len(texts) == 1 and cb.stats().launches == before + 4
