"""Gradients that come again without their rule: each gives what the rule gives of the same numbers,
which are others every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor.array import apply
from cubepy.tensor.control import again, repeated
from cubepy.tensor.control.learned import learned
from cubepy.tensor.gradients import engine
from cubepy.tensor.ops import OPS
from tests.tensor.gradients.samples import SAMPLES

on_host = pytest.mark.skipif(
    cb.current_device().backend != "cpu", reason="calls on the host are known by short keys"
)
TIMES = 7
"""Rules are asked four times, and learned in the fifth."""


def parts_of(result: Any) -> list[Any]:
    return [p for p in (result if isinstance(result, list) else [result]) if p.requires_grad]


def gradients(function: Callable[..., Any], arrays: list[Any], dtype: str) -> list[Any]:
    """Gradients of a weighted sum of all results, by all floats."""
    given = []
    for a in arrays:
        is_float = a is not None and a.dtype.kind == "f"
        x = None if a is None else cb.tensor(a.astype(dtype) if is_float else a)
        given.append(x.requires_grad_() if is_float and x is not None else x)
    rng, total = np.random.default_rng(0), cb.tensor(np.zeros((), dtype))
    for part in parts_of(function(*given)):
        total = total + (part * cb.tensor(rng.standard_normal(part.shape).astype(dtype))).sum()
    total.backward()
    return [x.grad.numpy() for x in given if x is not None and x.grad is not None]


def compared(function: Callable[..., Any], arrays: list[Any], dtype: str, monkeypatch: Any) -> None:
    for n in range(TIMES):
        now = [a * (1 - 1e-3 * n) if a is not None and a.dtype.kind == "f" else a for a in arrays]
        found = gradients(function, now, dtype)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "again", lambda *given: None)
            wanted = gradients(function, now, dtype)
        assert len(found) == len(wanted)
        tight = {"rtol": 1e-12, "atol": 1e-13} if dtype == "f8" else {"rtol": 1e-5, "atol": 1e-5}
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, **tight)


@pytest.mark.parametrize("op", [op for op in SAMPLES if OPS[op].vjp is not None])
def test_gradients_of_every_op_are_those_of_its_rule(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if op == "projected_recurrence" and cb.current_device().backend != "cpu":
        pytest.skip("GPUs go step by step")
    monkeypatch.setattr(repeated, "AFTER", 2)
    for inputs, attrs in SAMPLES[op]:
        compared(lambda *t, a=attrs: apply(op, *t, **a), list(inputs), "f8", monkeypatch)


def some_step(rng: np.random.Generator, x: Any, y: Any) -> Callable[[Any, Any], Any]:
    """A random step of two tensors of any shapes, one of which is the shape of the result."""
    shape, rank = x.shape, x.ndim
    axis, order = int(rng.integers(rank)), tuple(int(d) for d in rng.permutation(rank))
    n = shape[axis]
    start, step = int(rng.integers(n)), int(rng.integers(1, 3))
    cut = (slice(None),) * axis + (slice(start, None, step),)
    index = cb.tensor(rng.integers(0, n, 3))
    wide = (2, *shape)
    steps: list[Callable[[Any, Any], Any]] = [
        lambda x, y: x.reshape(-1),
        lambda x, y: x.permute(order),
        lambda x, y: x[cut],
        lambda x, y: x.unsqueeze(axis),
        lambda x, y: x.expand(wide),
        lambda x, y: x.sum(axis),
        lambda x, y: x.mean(axis, keepdims=True),
        lambda x, y: cb.tensor.concat([x, x * 2.0], axis),
        lambda x, y: cb.tensor.stack([x, x], axis),
        lambda x, y: x.split(max(1, n // 2), axis)[0],
        lambda x, y: x.unbind(axis)[n // 2],
        lambda x, y: x.index_select(axis, index),
        lambda x, y: x.flip(axis),
        lambda x, y: x.cumsum(axis),
        lambda x, y: x.sort(axis)[0],
        lambda x, y: x * y.sum(),
        lambda x, y: x - y.mean(),
        lambda x, y: x.tanh(),
        lambda x, y: x @ x.mT if rank >= 2 else x + 1.0,
        lambda x, y: cb.nn.functional.pad(x, (1, 2)),
    ]
    return steps[int(rng.integers(len(steps)))]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("seed", range(24))
def test_gradients_of_random_chains_are_those_of_the_rules(
    seed: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated, "AFTER", 3)
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, 5, int(rng.integers(1, 4))))
    a, b = rng.standard_normal(shape), rng.standard_normal(3)
    x, y, chain = cb.tensor(a), cb.tensor(b), list[Any]()
    while len(chain) < 6 and x.size < 2000:
        chain.append(some_step(rng, x, y))
        x = chain[-1](x, y)
        x = x if x.ndim else x.reshape(1)

    def function(x: Any, y: Any) -> Any:
        for step in chain:
            x = step(x, y)
            x = x if x.ndim else x.reshape(1)
        return x * y.sum()

    compared(function, [a, b], dtype, monkeypatch)


@on_host
def test_what_is_learned_is_done_without_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for op in ("concat", "conv", "cumsum", "matmul", "gather"):
        rule = OPS[op].vjp

        def counted(*given: Any, op: str = op, rule: Any = rule) -> Any:
            asked.append(op)
            return rule(*given)

        counted.__module__ = rule.__module__  # type: ignore[union-attr]
        monkeypatch.setattr(OPS[op], "vjp", counted)
        for _ in range(12):
            for inputs, attrs in SAMPLES[op][:1]:
                gradients(lambda *t, a=attrs, op=op: apply(op, *t, **a), list(inputs), "f8")
        assert asked.count(op) <= again.FEW + 2


@on_host
def test_what_looks_at_elements_or_at_other_tensors_is_not_learned() -> None:
    x, other = cb.tensor([1.0, 2.0]), cb.tensor([3.0, 4.0])
    looks = lambda t: [t * float(t[0])]
    for function in (looks, lambda t: [t + other], lambda t: [other], lambda t: [None]):
        assert learned(function, [x.storage])[1] is None
    made, known = learned(lambda t: [t * 2.0, None, t.reshape(2, 1)], [x.storage])
    assert known is not None
    for _ in range(3):
        parts = known([other.storage])
        assert parts is not None and parts[1] is None
        assert parts[0].tolist() == [6.0, 8.0] and parts[2].tolist() == [[3.0], [4.0]]
    assert made[0].tolist() == [2.0, 4.0]
