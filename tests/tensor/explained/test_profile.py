"""`cb.profile`: time by op and by the user's line, at once and in programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import cubepy as cb
from cubepy.runtime.profile import Profile
from cubepy.tensor import Tensor

RNG = np.random.default_rng(8)


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def layer(x: Tensor, w: Tensor) -> Tensor:
    h = x @ w
    return h.relu().sum(axis=0)


FIRST = layer.__code__.co_firstlineno


def lines(p: Profile) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for op, line in p.ops:
        name, _, number = line.rpartition(":")
        assert Path(name) == Path(__file__)
        found.setdefault(op, set()).add(int(number))
    return found


def test_ops_have_the_lines_that_asked_for_them() -> None:
    x, w = some(4, 8), some(8, 4)
    layer(x, w)
    with cb.profile() as p:
        for _ in range(3):
            layer(x, w)
    assert lines(p) == {"matmul": {FIRST + 1}, "relu": {FIRST + 2}, "sum": {FIRST + 2}}
    assert {t.calls for t in p.ops.values()} == {3}
    assert all(t.seconds >= t.launched > 0 for t in p.ops.values())
    assert (
        sum(t.launched for t in p.ops.values())
        <= sum(t.seconds for t in p.kernels.values()) * 1.0001
    )
    assert set(p.by_op()) == {"matmul", "relu", "sum"}
    assert {int(line.rpartition(":")[2]) for line in p.by_line()} == {FIRST + 1, FIRST + 2}
    assert p.by_line()[f"{__file__}:{FIRST + 2}"].calls == 6


def test_programs_run_step_by_step_with_their_lines() -> None:
    f = cb.jit(layer)
    x, w = some(4, 8), some(8, 4)
    for _ in range(10):
        wanted = f(x, w)
    assert "one call of machine code" in f.explain()
    traces = dict(f.traces)
    with cb.profile() as p:
        found = f(x, w)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-6)
    assert f.traces == traces
    (program,) = f.explain().programs
    steps = [s.op for s in program.steps if s.op != "input"]
    assert sorted(op for op, _ in p.ops) == sorted(steps)
    for _, line in p.ops:
        number = line.removesuffix(" and 1 more").rpartition(":")[2]
        assert int(number) in (FIRST + 1, FIRST + 2)
    assert f(x, w).shape == (4,) and "one call of machine code" in f.explain()


def test_effects_of_programs_happen_under_the_profiler() -> None:
    total = some(3)

    @cb.jit
    def count(x: Tensor) -> None:
        total.assign_(total + x)

    x = cb.tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        count(x)
    before = total.numpy().copy()
    cb.profile(count, x)  # calls it twice
    np.testing.assert_allclose(total.numpy(), before + 2 * x.numpy(), rtol=1e-6)


def test_a_call_can_be_profiled() -> None:
    x, w = some(4, 8), some(8, 4)
    p = cb.profile(layer, x, w)
    assert p.result.shape == (4,) and p.by_op()["matmul"].calls == 1


def test_tables_are_text_json_and_a_trace(tmp_path: Path) -> None:
    x, w = some(4, 8), some(8, 4)
    layer(x, w)
    with cb.profile() as p:
        layer(x, w)
    text = str(p)
    assert "kernels ms" in text and f"{__file__}:{FIRST + 1}" in text
    read = json.loads(p.to_json())
    assert {row["op"] for row in read["ops"]} == {"matmul", "relu", "sum"}
    assert read["seconds"] == p.seconds and len(read["kernels"]) == len(p.kernels)
    p.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ops = [e for e in events if e["cat"] == "op"]
    kernels = [e for e in events if e["cat"] == "kernel"]
    assert [e["name"] for e in ops] == ["matmul", "relu", "sum"] and len(kernels) >= 3
    assert all(e["ph"] == "X" and e["dur"] >= 0 and e["ts"] >= 0 for e in events)
    for op in ops:
        inside = [k for k in kernels if op["ts"] <= k["ts"] < op["ts"] + op["dur"]]
        assert inside, "kernels lie inside of their op"
    assert {e["args"]["line"] for e in ops} == {f"{__file__}:{FIRST + n}" for n in (1, 2)}
    assert p._repr_html_().startswith("<div>")


def test_the_way_back_belongs_to_the_line_of_backward() -> None:
    w = some(3).requires_grad_()
    loss = (w * w).sum()
    with cb.profile() as p:
        loss.backward()
    here = test_the_way_back_belongs_to_the_line_of_backward.__code__.co_firstlineno + 4
    assert {number for numbers in lines(p).values() for number in numbers} == {here}
