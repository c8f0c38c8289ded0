"""Nodes like one before are not run but repeated: results, launches and memory are those of ops."""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
import cubepy.tensor as ours
from cubepy import nn
from cubepy.nn import functional as F
from cubepy.tensor.graph import execute
from cubepy.tensor.program import stepwise
from cubepy.tensor.program.plans import repeated
from tests.tensor.program.test_random_programs import ANY, SHAPES, arrays, results, steps_of

RNG = np.random.default_rng(0)
repeating = repeated.recorded_arrays


def by_ops(graph: Any, inputs: Any, home: Any, before: Any, recorded: Any) -> list[Any]:
    return [t.storage.dense() for t in execute(graph, inputs, before)]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, generator: np.random.Generator) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        for p in self.parameters():
            p.assign_(cb.tensor(generator.standard_normal(p.shape).astype(np.float32) * 0.3))

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        parts = self.qkv(self.norm(x)).reshape(b, t, 3, self.heads, c // self.heads)
        q, k, v = (parts.permute(2, 0, 3, 1, 4)[i] for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, t, c)).relu()


def training_step(optimizer: str) -> Any:
    generator = np.random.default_rng(5)
    with cb.no_grad():
        model = nn.Sequential(*(Block(8, 2, generator) for _ in range(3)))
    rule: Any = getattr(nn.optim, optimizer)(model.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        rule.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        rule.step()
        return loss

    return cb.jit(step)


def seen(step: Any) -> list[Any]:
    """What of programs is to be equal: launches of nodes, memory, text."""
    programs = [p for variants in step.programs.values() for p in variants]
    assert all(p.plan is not None for p in programs), [p.why for p in programs]
    memory = [(p.operands.arena, p.operands.lifetimes, p.plan.launches) for p in programs]
    lines = [line for line in str(step.explain()).splitlines() if " ms, " not in line]
    return [[p.launched for p in programs], memory, lines]


@pytest.fixture
def op_by_op(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Whether nodes are all run as ops from now on."""

    def choose(slow: bool) -> None:
        repeated._tables.nodes.clear()
        monkeypatch.setattr(stepwise, "recorded_arrays", by_ops if slow else repeating)

    return choose


def count_again(monkeypatch: pytest.MonkeyPatch, module: Any = repeated) -> list[int]:
    """How often a module does what was done before again, from here on."""
    counted, one = [0], module.again

    def again(*given: Any) -> Any:
        counted[0] += 1
        return one(*given)

    monkeypatch.setattr(module, "again", again)
    return counted


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_equal_layers_and_new_shapes_give_what_ops_give(
    op_by_op: Any, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [(1, 4, 8), (2, 4, 8), (3, 7, 8), (1, 5, 8), (3, 7, 8)]
    xs = [cb.tensor(RNG.standard_normal(s).astype(np.float32)) for s in shapes]
    found = []
    for slow in (True, False):
        op_by_op(slow)
        counted, step = count_again(monkeypatch), training_step(optimizer)
        losses = [step(x).item() for x in xs for _ in range(4)]
        found.append((losses, seen(step)))
        assert (counted[0] == 0) == slow
    assert found[0] == found[1]


@settings(max_examples=20, deadline=None)
@given(steps_of(ANY, 5), SHAPES, st.integers(0, 99))
def test_random_layers_give_what_ops_give(steps: Any, shape: tuple[int, int], seed: int) -> None:
    """The same steps on three sets of arrays, of which one is all views of one array."""
    sets = [arrays(seed + n, shape) for n in range(2)]
    one = np.concatenate([x.reshape(-1) for x in sets[0]])
    ends = np.cumsum([x.size for x in sets[0]])
    views = np.split(one, ends[:-1])
    sets.append([v.reshape(x.shape) for v, x in zip(views, sets[0], strict=True)])

    def layers(*given: Any) -> Any:
        parts = [given[n : n + 5] for n in range(0, 15, 5)]
        return [y for part in parts for y in results(ours, steps, [0, 1], part)]

    given_ = [cb.tensor(x) for xs in sets for x in xs]
    found = []
    for slow in (True, False):
        try:
            stepwise.recorded_arrays = by_ops if slow else repeating
            repeated._tables.nodes.clear()
            f = cb.jit(layers)
            with np.errstate(all="ignore"):
                made = [[y.numpy().tobytes() for y in f(*given_)] for _ in range(3)]
        finally:
            stepwise.recorded_arrays = repeating
        (program,) = next(iter(f.programs.values()))
        memory = None if program.operands is None else program.operands.arena
        found.append((made, program.launched, memory, program.why))
    assert found[0] == found[1]


def test_a_kernel_whose_globals_changed_runs_anew(op_by_op: Any) -> None:
    op_by_op(False)
    scope: dict[str, Any] = {"cb": cb, "FACTOR": 2.0}
    text = "def scale(x: cb.Array, out: cb.Array):\n    i = cb.ABSOLUTE_POS\n"
    text += "    if i < out.size:\n        out[i] = x[i] * FACTOR\n"
    linecache.cache["<scale>"] = len(text), None, text.splitlines(keepends=True), "<scale>"
    exec(compile(text, "<scale>", "exec"), scope)
    kernel = cb.kernel(scope["scale"])

    def scaled(x: Any) -> Any:
        out = ours.empty_like(x)
        kernel[cb.over(out)](x, out)
        return out + x

    x = cb.tensor(np.arange(6, dtype=np.float32))
    first = cb.jit(scaled)
    assert [first(x).tolist()[5] for _ in range(3)] == [15.0] * 3
    scope["FACTOR"] = 3.0
    second = cb.jit(lambda x: scaled(x))
    assert [second(x).tolist()[5] for _ in range(3)] == [20.0] * 3


def test_other_settings_and_threads_start_anew(op_by_op: Any) -> None:
    op_by_op(False)
    x = cb.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    cb.jit(lambda x: x.softmax(-1) @ x.mT)(x)
    known = dict(repeated._tables.nodes)
    assert known
    there: list[int] = []
    thread = threading.Thread(target=lambda: there.append(len(repeated._tables.nodes)))
    thread.start()
    thread.join()
    assert there == [0]
    with cb.config.override(debug=1):
        cb.jit(lambda x: x.softmax(-1) @ x.mT)(x)
        assert all(one is not known.get(key) for key, one in repeated._tables.nodes.items())
