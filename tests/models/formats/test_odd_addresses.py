"""Weights at addresses that kernels cannot read stay in the file until somebody reads them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import quant
from cubepy.models.onnx import OnnxModel, load
from cubepy.tensor.storage import Dense, Unaligned
from tests.models.onnx.writer import field, graph, model, node, tensor


@pytest.fixture(autouse=True)
def on_the_host() -> Iterator[None]:
    """A GPU gets copies when a file is opened."""
    with cb.use("cpu"):
        yield


def drawn(seed: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    """A file with a filler that moves what follows by some bytes, its input, and its output."""
    rng = np.random.default_rng(seed)
    k, n = (int(v) for v in rng.integers(2, 40, 2))
    w, b, s = rng.standard_normal((k, n)), rng.standard_normal(n), rng.standard_normal(k)
    w, b, s = (v.astype(np.float32) for v in (w, b, s))
    filler = field(3, "-" * int(rng.integers(0, 9)))
    nodes = [node("Mul", "x s", "h"), node("MatMul", "h w", "m"), node("Add", "m b", "y")]
    weights = {"w": w, "b": b, "s": s}
    names = list(rng.permutation(list(weights)))
    whole = graph(nodes, ["x"], ["y"], [tensor(name, weights[name]) for name in names])
    x = rng.standard_normal((3, k)).astype(np.float32)
    return model(whole, more=filler), x, (x * s).astype(np.float64) @ w.astype(np.float64) + b


def late(net: OnnxModel) -> list[Any]:
    return [p for p in net.parameters() if type(p.storage) is Unaligned]


def found(net: OnnxModel, x: np.ndarray) -> np.ndarray:
    return np.asarray(net(x)["y"].numpy())


def close(got: np.ndarray, want: np.ndarray) -> bool:
    return float(np.abs(got - want).max()) <= 1e-5 * float(np.abs(want).max())


def test_weights_stay_in_the_file_until_the_model_is_called(tmp_path: Path) -> None:
    seen = 0
    for seed in range(12):
        data, x, want = drawn(seed)
        path = tmp_path / f"{seed}.onnx"
        path.write_bytes(data)
        net = load(path)
        odd = late(net)
        seen += len(odd)
        for _ in range(3):
            assert close(found(net, x), want)
        assert not late(net)
        assert all(type(p.storage) is Dense for p in odd)
    assert seen > 6, "files with odd addresses were drawn"


@pytest.mark.parametrize(
    "use",
    [
        lambda net: copy.deepcopy(net),
        lambda net: pickle.loads(pickle.dumps(net)),
        lambda net: net.load_state_dict({k: v + 0 for k, v in net.state_dict().items()}) and net,
        lambda net: net.to("cpu"),
        lambda net: [p.numpy() for p in net.parameters()] and net,
        lambda net: (quant.quantize(net, "int8"), net)[1],
        lambda net: (cb.explain(net, np.zeros((3, net.width), np.float32)), net)[1],
    ],
)
def test_whatever_reads_them_first(use: Callable[[Any], Any]) -> None:
    for seed in range(3):
        data, x, want = drawn(seed)
        net = load(data)
        net.__dict__["width"] = x.shape[1]
        got = use(net)
        assert close(found(net if got is None else got, x), want)


def test_threads_that_read_a_weight_at_once_get_the_same_memory() -> None:
    buffer = np.zeros(4 * 100_000 + 1, np.uint8)
    source = buffer[1:].view(np.float32)
    source[:] = np.arange(100_000)
    assert not source.flags.aligned
    for _ in range(20):
        store = Unaligned(source.reshape(100, 1000), cb.Device("cpu"))
        assert store.nbytes == source.nbytes
        with ThreadPoolExecutor(8) as pool:
            arrays = list(pool.map(lambda _: store.array, range(8)))
        assert len({a.ctypes.data for a in arrays}) == 1
        assert type(store) is Dense
        assert arrays[0].flags.aligned
        assert np.array_equal(arrays[0].reshape(-1), source)


def test_a_turned_matrix_is_as_late_as_the_matrix() -> None:
    source = np.zeros(4 * 6 + 1, np.uint8)[1:].view(np.float32).reshape(2, 3)
    source[:] = np.arange(6).reshape(2, 3)
    store = Unaligned(source, cb.Device("cpu"))
    turned = store.turned()
    assert type(turned) is type(store) is Unaligned
    assert np.array_equal(turned.array, source.T)
    assert turned.array.strides == source.T.strides, "as the copy of the matrix would be"
    assert np.array_equal(store.array, source)
    assert np.array_equal(store.dense(), source)
