"""Graphs of a known structure and other sizes are fused as they would be anew."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.tensor as ours
from cubepy import nn
from cubepy.nn import functional as F
from cubepy.runtime.ahead.described import MARGIN
from cubepy.tensor import Tensor
from cubepy.tensor.fusion import optimise
from cubepy.tensor.fusion.optimise import fused, fused_anew
from cubepy.tensor.fusion.structures import kept, known
from cubepy.tensor.fusion.structures.sizes import Size, Sizes
from cubepy.tensor.ir import Graph
from cubepy.tensor.program.trace import Tracer
from cubepy.tensor.record import record, recorded_by
from cubepy.tensor.storage import HOST
from tests.tensor.program.test_random_programs import ANY, OTHERS, arrays, results

ROOT = Path(__file__).resolve().parents[3]
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 24, 33, 63, 64, 65, 100, 130, 200)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No graph has been fused yet, and small ones are of interest."""
    monkeypatch.setattr(known, "_known", {})
    monkeypatch.setattr(known, "LEAST", 1)
    yield


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that go through all passes."""
    found: list[Graph] = []

    def anew(graph: Graph, *how: Any) -> Any:
        found.append(graph)
        return fused_anew(graph, *how)

    monkeypatch.setattr(optimise, "fused_anew", anew)
    return found


def drawn(seed: int) -> tuple[list[Any], list[int]]:
    """Steps of a random program, and which values are wanted."""
    rng = random.Random(seed)
    names = sorted(ANY) + sorted(OTHERS)
    steps = [(rng.choice(names), rng.randrange(6), rng.randrange(10)) for _ in range(10)]
    return steps, [rng.randrange(4) for _ in range(2)]


def traced(steps: Any, wanted: list[int], shape: tuple[int, int]) -> Graph:
    """The graph of a program, of which nothing is computed."""
    tracer = Tracer({n: cb.tensor(x) for n, x in enumerate(arrays(0, shape))}, "steps")
    with recorded_by(tracer):
        made = results(ours, steps, wanted, list(tracer.own.values()))
    return tracer.trace(made)[0].graph


def of_values(graph: Graph, of: Graph) -> list[int]:
    """Which values of another graph the values of a graph are."""
    number = {id(spec): n for n, spec in enumerate(of.values)}
    return [number.get(id(spec), -1) for spec in graph.values]


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_are_fused_as_they_would_be_anew(seed: int) -> None:
    rng, (steps, wanted) = random.Random(seed), drawn(seed)
    for _ in range(8):
        shape = rng.choice(LENGTHS), rng.choice(LENGTHS)
        graph = traced(steps, wanted, shape)
        found, want = fused(graph), fused_anew(graph, HOST, ())
        assert found == want
        assert of_values(found.graph, graph) == of_values(want.graph, graph)


def test_most_random_graphs_are_known_from_the_third_on(passes: list[Graph]) -> None:
    graphs = 0
    for seed in range(30):
        steps, wanted = drawn(seed)
        for shape in ((7, 19), (9, 21), (11, 23), (13, 37), (15, 39)):
            graph = traced(steps, wanted, shape)
            before = len(passes)
            assert fused(graph) == fused_anew(graph, HOST, ())
            graphs += shape[0] > 9 and len(passes) == before
    assert graphs > 60


class Block(nn.Module):
    """Attention and a layer, with norms before them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(24), nn.Linear(24, 72), nn.Linear(24, 24)
        self.up, self.down = nn.Linear(24, 96), nn.Linear(96, 24)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (p.reshape(b, t, 6, c // 6).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(x)))


def step_of() -> tuple[Any, nn.Module]:
    """A training step of a block, and the block."""
    block = Block()
    rng = np.random.default_rng(5)
    with cb.no_grad():
        for p in block.parameters():
            p.assign_(rng.standard_normal(p.shape).astype(np.float32) * 0.1)
    optimizer = nn.optim.AdamW(block.parameters(), lr=1e-3)

    @cb.jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (block(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, block


PAIRS = [
    (2, 8),
    (5, 8),
    (7, 8),
    (7, 11),
    (5, 13),
    (9, 17),
    (10, 5),
    (3, 8),
    (1, 8),
    (5, 1),
    (4, 24),
]


def test_training_steps_of_known_structure_are_those_fused_anew(
    monkeypatch: pytest.MonkeyPatch, passes: list[Graph]
) -> None:
    """The same bits, the same launches; most shapes go through no pass."""
    runs = []
    for reused in (True, False):
        if not reused:
            monkeypatch.setattr(optimise, "fused_alike", lambda g, d, w, anew: anew(g, d, w))
        step, block = step_of()
        losses, launches = [], []
        rng = np.random.default_rng(7)
        before = len(passes)
        for shape in PAIRS:
            x = cb.tensor(rng.standard_normal((*shape, 24)).astype(np.float32))
            losses += [step(x).numpy().copy() for _ in range(3)]
            launches.append([p.launched for v in step.programs.values() for p in v][-1])
        many = len(passes) - before
        runs.append((losses, launches, [p.numpy().copy() for p in block.parameters()], many))
    for found, want in zip(runs[0][0] + runs[0][2], runs[1][0] + runs[1][2], strict=True):
        np.testing.assert_array_equal(found, want)
    assert runs[0][1] == runs[1][1]
    assert runs[0][3] < runs[1][3] - 2


def test_weights_that_stay_are_prepared_as_they_would_be_anew(passes: list[Graph]) -> None:
    block = Block()
    block.requires_grad_(False)
    program, plain = cb.jit(lambda x: block(x)), len(passes)
    for n, shape in enumerate([(3, 7), (5, 9), (6, 11), (7, 13), (9, 15)]):
        x = cb.tensor(np.random.default_rng(n).standard_normal((*shape, 24)).astype(np.float32))
        found = [program(x).numpy() for _ in range(3)]
        plain = len(passes) if n == 2 else plain
        for one in found:
            np.testing.assert_allclose(one, block(x).numpy(), 1e-4, 1e-5)
    assert len(passes) == plain
    graphs = {p.writer.prepared.preparations for v in program.programs.values() for p in v}
    assert len({tuple(w.graph for w in ways) for ways in graphs}) == 1


def scaled(shape: tuple[int, int], number: float, axis: int) -> Graph:
    x = cb.tensor(np.ones(shape, np.float32))
    with record(x) as recorder:
        y = (x * number).sum(axis=axis, keepdims=True) * 2 - x
    return recorder.graph(y)


def test_other_numbers_that_are_no_sizes_are_another_structure() -> None:
    for number, axis in ((0.0, 0), (-0.0, 0), (0.5, 1), (0.7, 1), (0.0, -1)):
        for shape in ((5, 7), (6, 9), (11, 13)):
            graph = scaled(shape, number, axis)
            assert fused(graph) == fused_anew(graph, HOST, ())


def test_what_is_equal_by_chance_is_fused_anew(passes: list[Graph]) -> None:
    for shape in ((5, 7), (6, 9), (11, 13)):
        fused(scaled(shape, 0.3, 1))
    before = len(passes)
    fused(scaled((12, 15), 0.3, 1))
    assert len(passes) == before
    for shape in ((9, 9), (1, 9), (9, 1), (1 << 20, 2)):
        graph = scaled(shape, 0.3, 1)
        assert fused(graph) == fused_anew(graph, HOST, ())


def test_graphs_that_name_objects_are_not_kept() -> None:
    @cb.custom_vjp
    def doubled(x: Tensor) -> Tensor:
        return x * 2

    doubled.defvjp(lambda x: (x * 2, None), lambda saved, g: g * 2)
    x = cb.tensor([1.0, 2.0], requires_grad=True)
    tracer = Tracer({0: x}, "doubled")
    with recorded_by(tracer):
        made = doubled(tracer.own[0]) + 1
    exact = tracer.trace(made)[0].differentiated
    assert any(n.op == "custom" for n in exact.nodes)
    assert known.structure_of(exact, []) is None


def test_tables_of_structures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "KEPT", 8)
    for n in range(40):
        fused(scaled((5, 7), n + 0.25, 1))
    assert len(known._known) <= 8


def test_lengths_know_how_they_were_computed() -> None:
    sizes = Sizes([3, 8])
    a, b = sizes.given
    made = [a * b, (a + 1) * b - 2, -(-b // a), b % a, 2 - a]
    assert [m.number for m in made] == [24, 30, 3, 2, -1]
    values = sizes.values([5, 9])
    assert [values[m.at] for m in made] == [45, 52, 2, 4, -3]


def test_questions_about_lengths_are_kept() -> None:
    sizes = Sizes([3, 8])
    a, b = sizes.given
    assert a < b and not b <= a and a * b == 24 and b != 9 and bool(a)
    assert sizes.differs(sizes.values([4, 6])) is None
    assert sizes.differs(sizes.values([6, 4])) is not None  # not in order
    assert sizes.differs(sizes.values([3, 9])) is not None  # 9


def test_tables_ask_which_lengths_are_equal() -> None:
    sizes = Sizes([3, 8, 1])
    a, b, one = sizes.given
    assert len({(a, b): 0, (b, a): 1, (1, a): 2, (one, a): 3}) == 3
    assert sizes.differs(sizes.values([4, 9, 1])) is None
    assert sizes.differs(sizes.values([4, 4, 1])) is not None
    assert sizes.differs(sizes.values([4, 9, 2])) is not None


def test_a_length_that_is_taken_as_a_number_stays_it() -> None:
    sizes = Sizes([3, 8])
    assert list(range(sizes.given[0])) == [0, 1, 2]
    assert sizes.differs(sizes.values([3, 9])) is None
    assert sizes.differs(sizes.values([4, 8])) is not None


def test_lengths_are_compared_with_floats() -> None:
    sizes = Sizes([2])
    (a,) = sizes.given
    assert a == 2.0 and a != 0.5 and a != 1.0
    assert sizes.differs(sizes.values([1])) is not None
    assert sizes.differs(sizes.values([3])) is not None


@pytest.mark.parametrize("other", [True, np.int64(3), [3]])
def test_lengths_are_not_compared_with_other_things(other: Any) -> None:
    (a,) = Sizes([3]).given
    assert type(a) is Size
    with pytest.raises(TypeError, match="a length and"):
        a == other
    with pytest.raises(TypeError, match="a length and"):
        a * other


IN_ANOTHER = """
import json, sys
import numpy as np
from cubepy.tensor.fusion import optimise
from cubepy.tensor.fusion.structures import kept
passes = []
anew = optimise.fused_anew
def noted(graph, *how):
    passes.append(len(graph.nodes))
    return anew(graph, *how)
optimise.fused_anew = noted
import cubepy as cb
from tests.tensor.fusion.test_structures import step_of
cb.use("cpu")
step, block = step_of()
x = cb.tensor(np.random.default_rng(1).standard_normal((3, 7, 24)).astype(np.float32))
losses = [step(x).item() for _ in range(4)]
found = [len(p.graph.nodes) for v in step.programs.values() for p in v]
print(json.dumps([[n for n in passes if n >= kept.LEAST], losses, found]))
"""


def in_another(cache: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER],
        env=os.environ | {"CUBEPY_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_another_process_fuses_nothing(tmp_path: Path) -> None:
    sources = [p for folder in ("cubepy", "backends", "nn") for p in (ROOT / folder).rglob("*.py")]
    age = time.time() - max(p.stat().st_mtime for p in sources)
    time.sleep(max(0.0, MARGIN + 1 - age))  # what is so new is not kept
    passes, *first = in_another(tmp_path)
    assert passes
    again, *second = in_another(tmp_path)
    assert not again and first == second
    for path in tmp_path.rglob("*.walk"):
        path.write_bytes(path.read_bytes()[:-9])
    damaged, *third = in_another(tmp_path)
    assert damaged == passes and first == third


def test_what_is_kept_is_what_the_passes_give(monkeypatch: pytest.MonkeyPatch) -> None:
    records: dict[str, bytes] = {}
    monkeypatch.setattr(kept, "write", lambda name, one: records.update({name: pickle.dumps(one)}))
    monkeypatch.setattr(kept, "read", lambda name: pickle.loads(records[name]))
    for seed in range(12):
        graph = traced(*drawn(seed), (7, 19))
        want = fused_anew(graph, HOST, ())
        kept.keep("name", graph, want)
        found = kept.fused_before("name", graph)
        assert found == want
        assert of_values(found.graph, graph) == of_values(want.graph, graph)
