"""`cb.explain`: what a program is, why it was traced, and that asking changes nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError
from cubepy.tensor import Tensor
from cubepy.tensor.explained.lineage import Lineage, lines_of
from cubepy.tensor.explained.reasons import unfused
from cubepy.tensor.explained.report import Explanation
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.program.trace import Tracer
from cubepy.tensor.record import recorded_by

RNG = np.random.default_rng(5)
SCALE = 2.0
HERE = Path(__file__).name


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def layer(x: Tensor, w: Tensor) -> Any:
    h = (x @ w * SCALE).relu()
    centred = h - h.mean(axis=-1, keepdims=True)
    return centred.exp().sum(axis=0)


def lineage(function: Any, *args: Tensor) -> Lineage:
    tracer = Tracer(dict(enumerate(args)), "f")
    with recorded_by(tracer):
        result = function(*tracer.own.values())
    trace, _ = tracer.trace(result)
    return Lineage(trace.graph, optimise(trace.graph), lines_of(trace.graph, trace.asked))


def test_a_program_is_shown_with_steps_kernels_memory_and_guards() -> None:
    f = cb.jit(layer)
    x, w = some(4, 8), some(8, 16)
    for _ in range(10):  # launches find out first whether threads pay
        f(x, w)
    found = f.explain()
    assert str(found).startswith("layer: 1 kind of arguments, 1 trace\n")
    (program,) = found.programs
    assert not program.planned and program.launches and program.arena >= program.peak > 0
    assert "global SCALE" in program.guards
    text = str(found)
    assert "= input x" in text and "%2 = %0 @ %1" in text and f"{HERE}:" in text
    assert sum(len(s.kernels or ()) for s in program.steps) == program.launches


def test_groups_show_their_formulas_and_lines() -> None:
    found = lineage(layer, some(4, 8), some(8, 16))
    groups = [at for at in range(len(found.ran.nodes)) if found.fused(at)]
    assert groups
    inside = [line for at in groups for line in found.formulas(at)]
    assert any("relu" in line for line in inside) and any(" - " in line for line in inside)
    lines = {line.line for at in groups for line in found.lines(at)}
    begin = layer.__code__.co_firstlineno
    assert {begin + 1, begin + 2} <= lines
    traced = {s.results[0] for s in found.single.steps if s.op != "constant"}
    assert traced == {s.results[0] for some in found.inside for s in some if s.op != "constant"}


def test_groups_on_matrices_are_found_through_reshapes() -> None:
    def norm(x: Tensor, w: Tensor) -> Any:
        y = (x.reshape(-1, 8) @ w).reshape(2, 3, 8) + x
        centred = y - y.mean(axis=-1, keepdims=True)
        scale = (centred * centred).mean(axis=-1, keepdims=True)
        return (centred / (scale + 1e-5).sqrt()).reshape(-1, 8) @ w

    found = lineage(norm, some(2, 3, 8), some(8, 8))
    inside = {s.results[0] for some in found.inside for s in some}
    maps = {
        s.results[0] for s in found.single.steps if s.op in ("add", "sub", "mul", "div", "mean")
    }
    assert maps <= inside
    assert any(found.fused(at) for at in range(len(found.ran.nodes)))


def test_inputs_have_the_names_of_parameters() -> None:
    net = nn.Linear(4, 2)
    (program,) = cb.explain(net, some(3, 4)).programs
    assert next(s.name for s in program.steps if s.op == "input") == "args[0]"
    (program,) = cb.explain(lambda pair, s: pair[0] * pair[1] * s, [some(3), some(3)], 2.0).programs
    names = [s.name for s in program.steps if s.op == "input"]
    assert names[:2] == ["pair[0]", "pair[1]"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: (x @ x).exp(), "product"),
        (lambda x: x.exp().sum(axis=0), "fewer than 8 columns"),
        (lambda x: (x @ some(4, 9)).exp().sum(axis=0), "quicker on their own"),
        (lambda x: x.exp().var(axis=0), "is another reduction"),
        (lambda x: x.reshape(2, 2, 4).exp().sum(axis=0), "other axes than the last"),
        (lambda x: (x + 1.5).exp()[:2], "strides of the same elements"),
        (lambda x: x.exp().sort(0)[0], "sorts or scans"),
        (lambda x: (x.exp(), (x.exp() @ x).exp() + x.exp()), "product"),
    ],
)
def test_neighbours_that_are_not_fused_have_a_reason(function: Any, said: str) -> None:
    reasons = unfused(lineage(function, some(4, 4)))
    assert any(said in one.why for one in reasons), [str(r) for r in reasons]


def test_what_is_fused_needs_no_reason() -> None:
    assert unfused(lineage(lambda x: ((x * 3.5).exp() + x).tanh(), some(4, 4))) == []


def test_a_way_through_others_is_named() -> None:
    def function(x: Tensor) -> Any:
        y = x.exp()
        return y.sort(0)[0] * y

    found = lineage(function, some(4, 4))
    (one,) = [r for r in unfused(found) if (r.first, r.second) == ("exp", "mul")]
    assert one.why == "a way from one to the other leads through argsort, take_along_axis"


def test_what_a_product_does_as_well_is_named() -> None:
    def function(x: Tensor) -> Any:
        y = x.exp()
        return (y @ x) * y

    found = lineage(function, some(4, 4))
    (one,) = [r for r in unfused(found) if (r.first, r.second) == ("exp", "mul")]
    assert one.why == "mul is done by fused_linear, a product with a kernel of its own"


def test_reasons_of_traces_say_what_was_new(monkeypatch: pytest.MonkeyPatch) -> None:
    f = cb.jit(layer)
    x, w = some(4, 8), some(8, 16)
    f(x, w)
    f(some(5, 8), w)
    f(some(5, 8), w)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    f(some(5, 8), w)
    first, second, third = f.explain().traced
    assert first.why == "the first call"
    assert "argument 0 is float32[5, 8] instead of float32[4, 8]" in second.why
    assert "global SCALE" in third.why
    assert "3 traces" in f.explain()


def test_gradients_and_strides_are_told_apart() -> None:
    f = cb.jit(lambda x: x * 2)
    f(some(4, 4))
    f(some(4, 4).T)
    f(some(4, 4).requires_grad_())
    _, strides, wanted = [one.why for one in f.explain().traced]
    assert "other strides" in strides
    assert "needs a gradient" in wanted


def test_asking_changes_nothing() -> None:
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = nn.optim.Adam(net.parameters(), lr=0.05)
    x, y, total = some(4, 2), some(4, 1), cb.tensor([0.0])

    def step(x: Tensor, y: Tensor) -> Any:
        nonlocal total
        optimizer.zero_grad()
        error = net(x) - y
        loss = (error * error).mean()
        loss.backward()
        optimizer.step()
        total.assign_(total + loss.detach())
        x += 1
        return loss

    was = [p.value for p in (*net.parameters(), x, y, total)]
    found = cb.explain(step, x, y)
    assert all(p.value is v for p, v in zip((*net.parameters(), x, y, total), was, strict=True))
    assert optimizer.state == {} and all(p.grad is None for p in net.parameters())
    (program,) = found.programs
    assert program.effects > 4 and not program.planned
    loss = step(x, y).item()
    again = cb.explain(step, x, y)
    assert all(s["step"] == 1 for s in optimizer.state.values())
    assert again.programs and loss > 0


def test_a_jitted_function_keeps_its_own_history() -> None:
    f = cb.jit(layer)
    x, w = some(4, 8), some(8, 16)
    f(x, w)
    before = dict(f.traces)
    found = cb.explain(f, x, w)
    assert f.traces == before and found.traces == 1
    assert any("(inferred)" in r for s in found.programs[0].steps for r in s.routines)
    assert isinstance(cb.explain(f), Explanation)


def test_library_functions_of_arrays_say_what_they_did() -> None:
    found = cb.explain(cb.kernels.softmax, np.ones((2, 3), np.float32))
    assert "softmax" in str(found)
    with pytest.raises(ArgumentError, match="takes a function"):
        cb.explain(3)  # type: ignore[arg-type]


def test_arrays_stand_for_tensors_of_them() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    x = np.ones((3, 4), np.float32)
    (of_array,), (of_tensor,) = (cb.explain(net, a).programs for a in (x, cb.tensor(x)))
    assert (of_array.ops, of_array.launches) == (of_tensor.ops, of_tensor.launches)
    assert cb.explain(lambda a, b, *, c: a * b["one"] + c, x, {"one": x}, c=[x][0]).programs
    with pytest.raises(ArgumentError, match="takes tensors of cubepy, not numpy.ndarray"):
        cb.explain(cb.jit(net), x)  # as the call itself


def test_refused_kinds_are_shown() -> None:
    calls: list[int] = []

    def counting(x: Tensor) -> Any:
        calls.append(1)
        return x * len(calls)

    f = cb.jit(counting)
    for _ in range(5):
        f(some(3))
    assert "runs as it is" in f.explain() and f.explain().refused


def test_drawings_are_whole_files(tmp_path: Path) -> None:
    found = cb.explain(layer, some(4, 8), some(8, 16))
    target = tmp_path / "layer.svg"
    found.save(target)
    found.save(tmp_path / "layer.txt")
    root = ET.fromstring(target.read_text())
    assert root.tag.endswith("svg")
    texts = [e.text or "" for e in root.iter() if e.tag.endswith("text")]
    assert any("matmul" in t for t in texts) and any("arena" in t for t in texts)
    boxes = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(boxes) > len(found.programs[0].steps)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["layer.svg", "layer.txt"]
    assert found._repr_svg_() == target.read_text()
    for kind in (".png", ".PDF", ".html"):
        with pytest.raises(ArgumentError, match=r"is drawn as \.svg(.|\n)*'layer\.svg'"):
            found.save(target.with_suffix(kind))
    found.save(tmp_path / "other.SVG")
    assert (tmp_path / "other.SVG").read_text() == target.read_text()


def test_names_in_drawings_are_escaped() -> None:
    root = ET.fromstring(cb.explain(lambda x: (x < 1) & (x > 0), some(3))._repr_svg_())
    assert any("<" in (e.text or "") for e in root.iter())


def test_what_branches_and_loops_do_is_shown() -> None:
    w = some(4, 4)

    def step(h: Tensor, x: Tensor) -> Any:
        h = (h @ w + x).tanh()  # product
        return h, cb.cond(h.sum() > 0, lambda y: y * 2 + 1, lambda y: y, h)  # choice

    def function(x: Tensor) -> Tensor:
        return cb.scan(step, x[0], x, reverse=True)[1].sum()

    found = cb.explain(function, some(5, 2, 4))
    (program,) = found.programs
    (scan,) = [s for s in program.steps if s.op == "scan"]
    (loop,) = scan.bodies
    assert loop.title == "5 times, the last slice first"
    assert [s.name for s in loop.steps if s.op == "input"] == ["carry 0", "slice 0", "read 0"]
    product = next(s for s in loop.steps if s.op == "fused_linear")
    assert product.formulas == ("%3 = %0 @ %2", "%4 = %3 + %1", "%5 = tanh(%4)")
    assert product.kernels and product.lines[0].startswith(f"{HERE}:")
    (cond,) = [s for s in loop.steps if s.op == "cond"]
    one, other = cond.bodies
    assert (one.title, other.title) == ("where true", "where false")
    assert [s.op for s in one.steps if s.op != "input"] == ["fused_map"]
    assert [s.op for s in other.steps] == ["input"] and other.gives[0].startswith("%0: f32")
    assert "body=" not in str(found) and "5 times, the last slice first:" in found
    assert "%5 = tanh(%4)" in found._repr_svg_()
    ET.fromstring(found._repr_svg_())
    derived = cb.explain(cb.grad(function), some(5, 2, 4))
    assert sum(len(s.bodies) for s in derived.programs[0].steps) == 2
    program = cb.jit(function)
    program(some(5, 2, 4))
    assert "%5 = tanh(%4)" in program.explain()
