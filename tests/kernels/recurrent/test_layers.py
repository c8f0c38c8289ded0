"""`lstm`, `gru` and `rnn` of random sizes, dtypes, layouts and lengths against a loop in NumPy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.recurrent.problem import GATES
from tests.kernels.recurrent.test_recurrence import expected

MOST = {"float32": 3e-6, "float64": 1e-13, "float16": 4e-3, "bfloat16": 4e-2}


def laid_out(a: Any, rng: np.random.Generator) -> Any:
    """The same numbers, some other way in memory."""
    kind = rng.integers(4)
    if kind == 0 and a.ndim > 1:
        return np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1)
    if kind == 1:
        wide = np.full((*a.shape[:-1], 2 * a.shape[-1] + 1), 99).astype(a.dtype)
        wide[..., 1::2] = a
        return wide[..., 1::2]
    if kind == 2:
        raw = np.empty(a.nbytes + a.itemsize, np.uint8)
        view = raw[a.itemsize :].view(a.dtype).reshape(a.shape)
        view[...] = a
        return view
    return a


def called(cell: str, given: dict[str, Any], **how: Any) -> list[Any]:
    if cell in ("tanh", "relu"):
        return list(K.rnn(**given, nonlinearity=cell, **how))
    return list(getattr(K, cell)(**given, **how))


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cell", GATES)
def test_layers_are_those_of_the_loop(cell: str, seed: int) -> None:
    rng = np.random.default_rng([seed, *cell.encode()])
    for _ in range(6):
        dtype = np.dtype(rng.choice([np.float32, np.float64, np.float16, ml_dtypes.bfloat16]))
        t, b = int(rng.choice([0, 1, 2, 7])), int(rng.choice([0, 1, 2, 5, 13]))
        i, h, d = int(rng.choice([0, 1, 9])), int(rng.choice([1, 5, 17, 64])), rng.integers(1, 3)
        rows = GATES[cell] * h

        def some(*shape: Any, by: float = h**-0.5, dtype: Any = dtype) -> Any:
            return (rng.standard_normal(shape) * by).astype(dtype)

        given = {"x": some(t, b, i, by=1.0), "w_ih": some(d, rows, i), "w_hh": some(d, rows, h)}
        for name in ("b_ih", "b_hh"):
            if rng.random() < 0.6:
                given[name] = some(d, rows)
        for name in "hc" if cell == "lstm" else "h":
            if rng.random() < 0.6:
                given[name] = some(d, b, h)
        lengths = rng.integers(0, t + 1, b) if rng.random() < 0.4 else None
        reverse = bool(rng.integers(2))

        wide = {k: v.astype(np.float64) for k, v in given.items()}
        none, zero = np.zeros((d, rows)), np.zeros((d, b, h))
        gates = wide["x"] @ wide["w_ih"].reshape(d * rows, i).T + wide.get("b_ih", none).reshape(-1)
        first = tuple(wide.get(n, zero) for n in ("hc" if cell == "lstm" else "h"))
        want = expected(cell, gates, wide["w_hh"], wide.get("b_hh"), None, lengths, first, reverse)
        for turn in (given, {k: laid_out(v, rng) for k, v in given.items()}):
            found = called(cell, turn, lengths=lengths, reverse=reverse)
            for one, other in zip(found, want, strict=True):
                assert one.dtype == dtype and one.shape == other.shape
                scale = max(1.0, float(np.abs(other).max(initial=0)))
                away = np.abs(one.astype(np.float64) - other).max(initial=0)
                assert away < 4 * MOST[dtype.name] * scale


def test_calls_that_repeat_give_the_same_from_two_threads() -> None:
    rng = np.random.default_rng(0)
    given = [
        {
            "x": rng.standard_normal((12, 3, 40)).astype(np.float32),
            "w_ih": rng.standard_normal((2, 400, 40)).astype(np.float32),
            "w_hh": rng.standard_normal((2, 400, 100)).astype(np.float32) / 10,
        }
        for _ in range(2)
    ]
    want = [K.lstm(**g) for g in given]
    device = cb.current_device()  # each thread has its own

    def work(n: int) -> bool:
        with cb.use(device):
            return all(
                np.array_equal(one, other)
                for _ in range(8)
                for one, other in zip(K.lstm(**given[n]), want[n], strict=True)
            )

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(work, range(2)))


def test_what_does_not_go_together() -> None:
    x, w, v = np.ones((2, 3, 4)), np.ones((1, 20, 4)), np.ones((1, 20, 5))
    with pytest.raises(ShapeError, match=r"lstm: x is \(length, batch, features\), not \(2, 3\)"):
        K.lstm(x[..., 0], w, v)
    with pytest.raises(ShapeError, match=r"lstm: w_ih of shape \(1, 20, 4\) expected"):
        K.lstm(x, w[:, :15], v)
    with pytest.raises(ShapeError, match=r"lstm: h of shape \(1, 3, 5\) expected, not \(3, 5\)"):
        K.lstm(x, w, v, h=np.ones((3, 5)))
    with pytest.raises(DTypeError, match="lstm: w_hh is float32, but x is float64"):
        K.lstm(x, w, v.astype(np.float32))
    with pytest.raises(DTypeError, match="lstm: lengths are 3 integers"):
        K.lstm(x, w, v, lengths=np.ones(3))
    with pytest.raises(cb.errors.ArgumentError, match='nonlinearity is "tanh" or "relu"'):
        K.rnn(x, w[:, :5], v[:, :5], nonlinearity="elu")
