"""Sorting, scans, gathers, scatters and random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers import jax_module, jitted, torch_module
from benchmarks.work import Work, draw
from cubepy import kernels as K

LONG = ("1000000", "10000000")
MIDDLE = ("10000", "100000")
ROWS = ("4096x4096",)


def _one(*shape: int) -> tuple[np.ndarray, ...]:
    return (draw(*shape),)


def _places(m: int, n: int) -> tuple[np.ndarray, ...]:
    return draw(m, n), np.random.default_rng(1).integers(0, n, (m, n))


def _updates(m: int, n: int) -> tuple[np.ndarray, ...]:
    return np.zeros((m, n), np.float32), np.random.default_rng(1).integers(0, n, (m, n)), draw(m, n)


def _scattered(x: np.ndarray, places: np.ndarray, src: np.ndarray) -> np.ndarray:
    out = x.copy()
    np.add.at(out, (np.arange(len(x))[:, None], places), src)
    return out


def _looked_up(entries: int, width: int, count: int) -> tuple[np.ndarray, ...]:
    return draw(entries, width), np.random.default_rng(1).integers(0, entries, count)


def _element(n: int) -> tuple[np.ndarray, ...]:
    return draw(n), np.random.default_rng(1).integers(0, n, n)


def _assigned(x: np.ndarray, places: np.ndarray) -> Any:
    def run() -> np.ndarray:
        out = x.copy()
        out[places] = x
        return out

    return run


def _normal(x: np.ndarray) -> Any:
    rng = np.random.default_rng(0)
    return lambda: rng.standard_normal(out=x, dtype=np.float32)


def _uniform(x: np.ndarray) -> Any:
    rng = np.random.default_rng(0)
    return lambda: rng.random(out=x, dtype=np.float32)


WORKS = {
    "sort": Work(
        (*MIDDLE, *LONG, *ROWS), _one, lambda x: lambda: K.sort(x), lambda x: lambda: np.sort(x),
        lambda x: lambda: torch_module().sort(x)[0], jax=jitted(lambda x: jax_module().numpy.sort(x)),
    ),
    "argsort": Work(
        LONG, _one, lambda x: lambda: K.argsort(x), lambda x: lambda: np.argsort(x, stable=True),
        lambda x: lambda: torch_module().argsort(x, stable=True),
    ),
    "topk": Work(
        (*LONG, *ROWS), _one, lambda x: lambda: K.topk(x, 100)[0], None, lambda x: lambda: x.topk(100)[0],
        exact=lambda x: -np.sort(-x)[..., :100],
    ),
    "cumsum": Work(
        (*LONG, *ROWS), _one, lambda x: lambda: K.cumsum(x, -1), lambda x: lambda: np.cumsum(x, -1),
        lambda x: lambda: x.cumsum(-1), jax=jitted(lambda x: x.cumsum(-1)),
    ),
    "gather": Work(
        ROWS, _places, lambda x, i: lambda: K.gather(x, 1, i), lambda x, i: lambda: np.take_along_axis(x, i, 1),
        lambda x, i: lambda: x.gather(1, i),
    ),
    "scatter_add": Work(
        ("2048x2048",), _updates, lambda x, i, s: lambda: K.scatter(x, 1, i, s, "add"), None,
        lambda x, i, s: lambda: x.scatter_add(1, i, s), exact=_scattered,
    ),
    "take": Work(
        MIDDLE, _element, lambda x, i: lambda: K.select(x, 0, i), lambda x, i: lambda: x[i],
        lambda x, i: lambda: x.index_select(0, i),
    ),
    "index_put": Work(
        MIDDLE, _element, lambda x, i: lambda: K.index_put(x, (i,), x), _assigned,
        lambda x, i: lambda: x.index_put((i,), x),
    ),
    "embedding": Work(
        ("30000x384x4096",), _looked_up, lambda x, i: lambda: K.embedding(i, x), lambda x, i: lambda: x[i],
        lambda x, i: lambda: torch_module().nn.functional.embedding(i, x),
    ),
    "topk_rows": Work(
        ("1024x1024",), _one, lambda x: lambda: K.topk(x, 8)[0], None, lambda x: lambda: x.topk(8)[0],
        exact=lambda x: -np.sort(-x)[..., :8],
    ),
    "var_columns": Work(
        ("1024x1024",), _one, lambda x: lambda: K.var(x, 0), lambda x: lambda: x.var(0),
        lambda x: lambda: x.var(0, unbiased=False),
    ),
    "any": Work(("1000000",), lambda n: (np.zeros(n, np.float32),), lambda x: lambda: K.any(x), None,
                lambda x: lambda: x.any()),
    "normal": Work(LONG, _one, lambda x: lambda: K.normal(out=x), _normal, lambda x: x.normal_, random=True),
    "uniform": Work(LONG, _one, lambda x: lambda: K.uniform(out=x), _uniform, lambda x: x.uniform_, random=True),
}  # fmt: skip
