"""Maps and reductions on both sides of reshapes join; parts that are side by side are one array."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, execute, record
from cubepy.tensor.fusion.matrices import as_matrices
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.fusion.schedule import schedule_of
from tests.tensor.fusion.random_programs import BINARY, UNARY
from tests.tensor.fusion.test_rows import steps_of

RNG = np.random.default_rng(1)


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def checked(recorder: Any, outputs: list[Tensor]) -> list[str]:
    """The ops of the fused graph, which gives what the ops gave one by one."""
    graph = recorder.graph(*outputs)
    fused = optimise(graph)
    for found, want in zip(execute(fused, recorder.inputs), outputs, strict=True):
        assert found.shape == want.shape and found.dtype is want.dtype
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=2e-5, atol=2e-5)
    return steps_of(fused)


def test_a_reshape_of_rows_does_not_part_a_group() -> None:
    x, y, w = some(4, 6, 33), some(4, 6, 33), some(33)
    with record(x, y, w) as recorder:
        rows = (x * 2).reshape(-1, 33)
        rows = rows / (rows * rows).mean(axis=1, keepdims=True).sqrt() * w
        z = rows.reshape(4, 6, 33) + y
    assert [op for op in checked(recorder, [z]) if op != "reshape"] == ["fused_rows"]


def test_totals_of_rows_are_columns_afterwards() -> None:
    x = some(3, 5, 70)
    with record(x) as recorder:
        y = (x * 0.5).reshape(15, 70)
        total = y.reshape(3, 5, 70).sum(axis=-1)
        z = y - total.reshape(15, 1)
    assert [op for op in checked(recorder, [z, total]) if op != "reshape"] == ["fused_rows"]


def test_views_with_gaps_are_not_copied() -> None:
    x = some(4, 6, 33)
    with record(x) as recorder:
        z = (x.permute(1, 0, 2) * 2).reshape(-1, 33).tanh()
    ops = [op for op in checked(recorder, [z]) if op != "reshape"]
    assert "contiguous" not in ops and len(ops) <= 3


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_with_reshapes(seed: int) -> None:
    rng = random.Random(seed)
    lead = rng.choice([(2, 3), (1, 4), (5, 1), (3, 2, 2)])
    n = rng.choice([1, 7, 24, 65])
    rows = int(np.prod(lead))
    x, y, row = some(*lead, n), some(rows, n), some(n)
    with record(x, y, row) as recorder:
        values: list[Tensor] = [x, y]
        for _ in range(rng.randrange(3, 14)):
            v, kind = rng.choice(values), rng.random()
            other = rng.choice([u for u in (*values, row) if u.ndim in (1, v.ndim)])
            if kind < 0.25:
                values.append(v.reshape(rng.choice([(*lead, n), (rows, n)])))
            elif kind < 0.4:
                values.append(v.sum(axis=-1, keepdims=True) * 0.1 + v)
            elif kind < 0.5:
                total = v.mean(axis=-1)
                values.append(v - total.reshape(*v.shape[:-1], 1))
            elif kind < 0.75:
                values.append(rng.choice(BINARY)(v, other).astype("f32"))
            else:
                values.append(rng.choice(UNARY)(v).astype("f32"))
        made = values[2:]
        outputs = rng.sample(made, min(len(made), rng.randrange(1, 4)))
        outputs = [v * 1 if v is x or v is y else v for v in outputs]
    checked(recorder, outputs)
    given = schedule_of(recorder.graph(*outputs))
    for found, want in zip(as_matrices(given).run(recorder.inputs), outputs, strict=True):
        assert found.shape == want.shape
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=2e-5, atol=2e-5)


def test_queries_keys_and_values_of_one_product() -> None:
    x, w = some(2, 5, 12), some(36, 12)

    def loss(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = F.linear(x, w).reshape(2, 5, 3, 2, 6).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).sum()

    with record(x, w) as recorder:
        grads = cb.grad(loss, (0, 1))(x, w)
    ops = checked(recorder, list(grads))
    assert "concat" in ops and "unslice" not in ops


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_of_an_array(axis: int) -> None:
    x = some(6, 6, 6)

    def loss(x: Tensor, cuts: tuple[int, ...]) -> Tensor:
        at, total = 0, 0.0
        for cut in cuts:
            index = (*(slice(None),) * axis, slice(at, at + cut))
            total, at = (x[index] * float(at + 1)).tanh().sum() + total, at + cut
        return total  # type: ignore[return-value]

    for cuts, whole in (((2, 1, 3), True), ((2, 3), False), ((5, 1), True), ((6,), False)):
        with record(x) as recorder:
            (grad,) = cb.grad(loss, (0,))(x, cuts)
        ops = checked(recorder, [grad])
        assert ("concat" in ops) == whole


def test_a_training_step_has_fewer_launches() -> None:
    layers = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24))
    x = some(2, 8, 24)
    step = cb.jit(lambda x: cb.grad(lambda x: (x + layers(x)).sum())(x))
    for _ in range(4):
        found = step(x)
    want = cb.grad(lambda x: (x + layers(x)).sum())(x)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
