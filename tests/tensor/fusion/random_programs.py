"""Random programs of tensors: maps of several dtypes and shapes, with reductions between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.tensor import Tensor, full_like, record, where, zeros_like
from cubepy.tensor.fusion.schedule import Schedule, schedule_of

UNARY: list[Callable[[Any], Any]] = [
    lambda x: -x, lambda x: x.tanh(), lambda x: x.sigmoid(), lambda x: x * 0.3, lambda x: 1 - x,
    lambda x: abs(x) + 2, lambda x: x.gelu(), lambda x: x.floor(), lambda x: (x * 0.1).exp(),
    lambda x: x.astype("f64"), lambda x: x.astype("f32"), lambda x: x.sin() * 2, lambda x: x / 3,
    lambda x: x.astype("i32").astype("f32"), lambda x: x.relu(), lambda x: x * x,
    lambda x: full_like(x, 0.7), zeros_like,
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / (abs(b) + 1),
    lambda a, b: where(a > b, a, b * 2), lambda a, b: where((a <= b) & (a > 0), a, 0.0),
    lambda a, b: a.clip(-1, 1) + b,
]  # fmt: skip
REDUCTIONS: list[Callable[[Any], Any]] = [
    lambda x: x.sum(axis=-1, keepdims=True), lambda x: x.max(axis=-1, keepdims=True),
    lambda x: x.mean(axis=-1, keepdims=True), lambda x: x.softmax(-1), lambda x: x.sum(axis=0),
    lambda x: (x * 0.5).max(axis=0, keepdims=True), lambda x: (x * x).mean(axis=0),
    lambda x: x.mean(axis=-1) if x.shape[0] == x.shape[1] else x,
]  # fmt: skip


def program(seed: int, reductions: bool = False) -> tuple[list[Tensor], Schedule, list[Any]]:
    """Inputs, the steps of a random program, and what its ops give one by one."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    rows, columns = rng.choice(
        [(1, 1), (3, 5), (4, 17), (8, 64), (5, 129), (2, 300), (6, 6), (24, 24)]
    )
    shapes = [(rows, columns), (rows, columns), (columns,), (rows, 1), (1, columns), ()]
    given = [cb.tensor(numbers.standard_normal(s).astype(np.float32)) for s in shapes]
    with record(*given) as recorder:
        values = list(given)
        for _ in range(rng.randrange(2, 16)):
            kind = rng.random()
            if reductions and kind < 0.2:
                wide = [v for v in values if v.ndim == 2 and v.shape[1] > 1]
                values.append(rng.choice(REDUCTIONS)(rng.choice(wide)) if wide else values[0])
            elif kind < 0.55:
                values.append(rng.choice(UNARY)(rng.choice(values)))
            else:
                values.append(rng.choice(BINARY)(rng.choice(values), rng.choice(values)))
        made = values[len(given) :]
        outputs = rng.sample(made, min(len(made), rng.randrange(1, 4)))
        outputs = [v if v.id not in {g.id for g in given} else v * 1 for v in outputs]
    graph = recorder.graph(*outputs)
    return list(recorder.inputs), schedule_of(graph), outputs


def keeps_results(fuse: Callable[[Schedule], Schedule], seed: int) -> None:
    """A random program with reductions gives fused what its ops give one by one."""
    inputs, schedule, outputs = program(seed, reductions=True)
    for found, want in zip(fuse(schedule.without_repeats()).run(inputs), outputs, strict=True):
        assert found.dtype is want.dtype and found.shape == want.shape
        a, b = (t.astype("f64").numpy() for t in (found, want))
        with np.errstate(invalid="ignore"):
            scale = np.nanmax(np.abs(np.where(np.isfinite(b), b, 0)), initial=1.0)
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5 * scale)
