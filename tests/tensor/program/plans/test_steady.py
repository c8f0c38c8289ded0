"""A program does not look at tensors that nobody exchanged, and sees every exchange."""

from __future__ import annotations

import ast
import gc
import importlib
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError
from cubepy.tensor import Tensor
from cubepy.tensor.program.plans.steady import Noted, Steady, now, renew

WIDTH = 192
"""A parameter of WIDTH x WIDTH is large enough for programs that write states where they are."""
RNG = np.random.default_rng(0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.large = nn.Linear(WIDTH, WIDTH, bias=False)
        self.small = nn.Linear(WIDTH, 3)
        self.drop = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.small(self.large(x).relu()))


def memos(program: Any) -> list[Any]:
    return [p.writer.scope["memo"] for found in program.programs.values() for p in found]


def looks_no_more(program: Any) -> bool:
    """Whether a program takes all handles to be what they were."""
    return any(memo.seen[0] is now[0] for memo in memos(program))


class World:
    """A model, a tensor outside and a Steady; what may happen to them between calls."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.net = Net().eval()
        self.outside = cb.tensor(self.some(3))
        self.steady = Steady([(self.tensor(3), self.tensor(3)), (self.tensor(3), self.tensor(1))])
        self.x = cb.tensor(self.some(4, WIDTH))

        def function(x: Tensor, pairs: Any) -> Tensor:
            total = pairs[0][0] * pairs[0][1] + pairs[1][0] * pairs[1][1]
            return self.net(x) * self.outside + total

        def decay() -> None:
            self.net.small.weight.assign_(self.net.small.weight * 0.5)
            self.net.large.weight.assign_(self.net.large.weight * 0.5)

        def shift(tensor: Tensor) -> None:
            tensor += 1

        self.function, self.program = function, cb.jit(function)
        self.decay, self.shift = cb.jit(decay), cb.jit(shift)

    def some(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def tensor(self, *shape: int) -> Tensor:
        return cb.tensor(self.some(*shape))

    def parameter(self) -> Tensor:
        found = list(self.net.parameters())
        return found[int(self.rng.integers(len(found)))]

    def cached(self) -> Tensor:
        leaves = self.steady.leaves()
        return leaves[int(self.rng.integers(len(leaves)))]

    def check(self, calls: int) -> None:
        with cb.no_grad():
            for _ in range(calls):
                found = self.program(self.x, self.steady).numpy()
                wanted = self.function(self.x, self.steady).numpy()
                np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)

    # What may happen

    def nothing(self) -> None:
        pass

    def assigned(self) -> None:
        p = self.parameter()
        p.assign_(self.some(*p.shape) * 0.1)

    def augmented(self) -> None:
        p = self.parameter()
        with cb.no_grad():
            p *= 1.25

    def loaded(self) -> None:
        self.net.load_state_dict(Net().state_dict())

    def rebound(self) -> None:
        self.net.small.weight = nn.Parameter(self.some(3, WIDTH) * 0.1)

    def taken_over(self) -> None:
        self.net.small.bias.take_over_(self.tensor(3))

    def wanted(self) -> None:
        p = self.parameter()
        p.requires_grad_(not p.requires_grad)

    def outside_rebound(self) -> None:
        self.outside = self.tensor(3)

    def outside_exchanged(self) -> None:
        self.outside.assign_(self.some(3))

    def cache_exchanged(self) -> None:
        t = self.cached()
        t += self.tensor(*t.shape)

    def cache_written_by_the_user(self) -> None:
        self.cached().numpy()[...] = self.rng.random()

    def weight_written_by_the_user(self) -> None:
        self.parameter().detach().numpy()[...] *= np.float32(0.75)

    def another_steady(self) -> None:
        self.steady = Steady([(self.tensor(3), self.tensor(3)), (self.tensor(3), self.tensor(1))])

    def by_another_program(self) -> None:
        with cb.no_grad():
            self.decay()

    def argument_of_another_program(self) -> None:
        with cb.no_grad():
            self.shift(self.outside)

    def by_a_step_of_training(self) -> None:
        optimizer = nn.optim.SGD(self.net.parameters(), lr=0.01)
        if any(p.requires_grad for p in self.net.parameters()):
            self.net(self.x).sum().backward()
            optimizer.step()

    def by_a_trace_that_fails(self) -> None:
        def fails() -> None:
            self.outside.assign_(self.outside * 3)
            raise KeyError("no")

        with pytest.raises(KeyError):
            cb.jit(fails)()

    def by_a_gradient(self) -> None:
        def f(x: Tensor) -> Tensor:
            y = (x * x).sum()
            self.outside.assign_(x * 2)
            return y

        cb.value_and_grad(f)(self.tensor(3))

    def by_a_thread(self) -> None:
        happens = self.rng.choice(["assigned", "cache_exchanged", "by_another_program"])
        thread = threading.Thread(target=getattr(self, happens))
        thread.start()
        thread.join()

    def collected(self) -> None:
        for _ in range(20):
            self.other = Net().eval()
            self.others = [self.tensor(3) for _ in range(20)]
        del self.other, self.others
        gc.collect()

    def training(self) -> None:
        self.net.train(not self.net.training)
        with cb.no_grad():
            self.program(self.x, self.steady)
        self.net.eval()


HAPPENS = sorted(
    name
    for name, value in vars(World).items()
    if callable(value) and name[0] != "_" and name not in ("some", "tensor", "parameter", "cached")
)
HAPPENS.remove("check")


@pytest.mark.parametrize("_", range(6))
def test_whatever_is_exchanged_between_calls(_: int) -> None:
    rng, world = RNG, World(RNG)
    world.check(6)
    assert looks_no_more(world.program)
    for _turn in range(25):
        getattr(world, str(rng.choice(HAPPENS)))()
        world.check(int(rng.integers(1, 6)))


@pytest.mark.parametrize("happens", HAPPENS)
def test_each_exchange_is_seen_by_a_program_that_looks_no_more(happens: str) -> None:
    world = World(RNG)
    for _ in range(3):
        world.check(9)
        assert looks_no_more(world.program)
        getattr(world, happens)()
        world.check(9)


def settled(program: Any, *args: Any) -> None:
    for _ in range(9):
        program(*args)
    assert looks_no_more(program)


def test_exchanges_of_others_do_not_concern_a_program() -> None:
    renew()  # others may have the identities of handles that are gone
    mine, other = cb.tensor([1.0]), cb.tensor([2.0])
    program = cb.jit(lambda: mine * 2)
    settled(program)
    other.assign_([5.0])
    other += 1
    nn.Linear(3, 3).requires_grad_(False)
    assert looks_no_more(program)
    mine.assign_([7.0])
    assert not looks_no_more(program)
    assert program().item() == 14


def test_a_program_that_updates_its_state_looks_no_more_at_the_rest() -> None:
    weight, state = cb.tensor([2.0]), cb.tensor([1.0])

    def step() -> Tensor:
        state.assign_(state * weight)
        return state + 0

    program = cb.jit(step)
    with cb.no_grad():
        settled(program)
        before = state.item()
        assert program().item() == before * 2
        assert looks_no_more(program)
        weight.assign_([3.0])
        assert program().item() == before * 6


def test_a_shared_value_that_is_said_to_need_gradients() -> None:
    """Two handles of one value: what is said of one is true for the other."""
    mine, other = cb.tensor([1.0, 2.0]), cb.tensor([3.0, 4.0])
    mine.assign_(other)
    program = cb.jit(lambda: (mine * 2).sum())
    settled(program)
    other.requires_grad_()
    assert program().requires_grad == (mine * 2).sum().requires_grad


def test_noted_arrays_are_let_go() -> None:
    """A program keeps no memory that its tensors do not have any more, nor that of a Steady."""
    weight = cb.tensor(np.ones((64, 64), np.float32))
    steady = Steady([cb.tensor(np.ones((64, 64), np.float32))])
    program = cb.jit(lambda pair: weight + pair[0])
    settled(program, steady)
    arrays = [weakref.ref(t.numpy()) for t in (weight, steady[0])]
    weight.assign_(np.zeros((64, 64), np.float32))
    del steady
    gc.collect()
    assert [a() for a in arrays] == [None, None]


def test_a_state_that_another_program_noted_is_still_written_in_place() -> None:
    state = cb.tensor(np.zeros((256, 256), np.float32)) + 0

    def step() -> None:
        state.assign_(state + 1)

    looks, writes = cb.jit(lambda: state.sum()), cb.jit(step)
    with cb.no_grad():
        for _ in range(4):
            writes()
        settled(looks)
        for n in range(4):
            writes()
            assert looks().item() == (5 + n) * 65536


def test_weights_laid_out_for_products_and_noted() -> None:
    x, w = (cb.tensor(RNG.random((64, 64), np.float32)) for _ in range(2))
    w = w + 0
    laid_out, plain = cb.jit(lambda x: x @ w), cb.jit(lambda: w.sum())
    for _ in range(3):
        settled(plain)
        settled(laid_out, x)
        w.assign_(w * 2)
        np.testing.assert_allclose(laid_out(x).numpy(), (x @ w).numpy(), rtol=1e-5)
        assert plain().item() == pytest.approx(w.sum().item())


def test_identities_of_what_is_collected_are_nobodys() -> None:
    """New handles that lie where noted ones did are exchanged without a word to programs."""
    net, x = Net().eval(), cb.tensor(RNG.random((2, WIDTH), np.float32))
    program, others = cb.jit(lambda x: net(x)), cb.jit(lambda pairs: pairs[0][0] + pairs[0][1])
    with cb.no_grad():
        for _ in range(8):
            program(x)
        assert looks_no_more(program)
        came = 0
        for _ in range(50):
            pairs = Steady([(cb.tensor([1.0]), cb.tensor([2.0]))])
            for _ in range(4):
                others(pairs)
            del pairs
            handles = [cb.tensor([float(n)]) for n in range(20)]
            came += sum(id(h) in now[0] for h in handles)
            for handle in handles:
                handle.assign_([7.0])
            assert looks_no_more(program)
        assert came and len(now[0].joined) < 10


def test_threads_see_no_value_that_was_exchanged_before() -> None:
    """One thread exchanges and calls, others call: nobody sees an older value than before."""
    held = cb.tensor(np.zeros(8, np.float32))
    cached = Steady([(cb.tensor(np.zeros(8, np.float32)),)])
    program = cb.jit(lambda pair: held + pair[0][0])
    settled(program, cached)
    stop, wrong = threading.Event(), list[str]()

    def calls() -> None:
        last = 0.0
        while not stop.is_set():
            found = program(cached).numpy()
            if found.min() < last:
                wrong.append(f"{found} after {last}")
            last = float(found.min())

    threads = [threading.Thread(target=calls) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(1, 400):
            (held if n % 2 else cached[0][0]).assign_(np.full(8, n // 2 + n % 2, np.float32))
            if program(cached).numpy().tolist() != [float(n)] * 8:
                wrong.append(f"{program(cached)} for {n}")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong


def test_an_interrupt_while_a_handle_is_exchanged() -> None:
    """What is interrupted between a handle and those who look at it is seen."""
    held = cb.tensor([1.0])
    program = cb.jit(lambda: held * 2)
    settled(program)

    class Interrupted(Noted):
        def __contains__(self, key: object) -> bool:
            if held.item() == 5:
                raise KeyboardInterrupt
            return False  # another thread joins just now

    before = now[0]
    now[0] = Interrupted()
    now[0].update(before)
    for memo in memos(program):
        memo.seen = (now[0], *memo.seen[1:])
    with pytest.raises(KeyboardInterrupt):
        held.assign_([5.0])
    assert program().item() == 10


@pytest.mark.parametrize("part", [[1], {"a": 1}, 3.0, None])
def test_a_bundle_is_made_of_tensors(part: Any) -> None:
    with pytest.raises(ArgumentError, match="Steady"):
        Steady([(cb.tensor([1.0]), part)])


def test_steady_of_one_program_take_turns() -> None:
    pairs = [Steady([(cb.tensor([float(n)]),)]) for n in range(3)]
    program = cb.jit(lambda pair: pair[0][0] * 2)
    for _ in range(6):
        for n, pair in enumerate(pairs):
            assert program(pair).item() == 2 * n
    assert sum(program.traces.values()) == 1
    other = Steady([(cb.tensor([1.0]), cb.tensor([2.0]))])
    assert program(other).item() == 2
    assert program(Steady([(cb.tensor([1.0, 2.0]),)])).tolist() == [2, 4]


MADE = ("__new__", "_new", "Handle", "Value")
"""What makes a handle or a value that nobody else has."""
ALLOWED = {
    "value": {
        ("steady.py", "exchange"),
        ("states.py", "hand_over"),  # says so afterwards
        ("trace.py", "compute"),  # handles in a list, made in the line before
        *[
            (name, "__init__")
            for name in ("value.py", "scalar.py", "form.py", "limits.py", "derived.py")
        ],
        ("padding.py", "__init__"),
    },
    "needs_grad": {
        ("differentiable.py", "requires_grad_"),  # says so
        ("value.py", "__init__"),
        ("trace.py", "alias"),
        *[(name, "remember") for name in ("differentiated.py",)],  # what an op gave just now
        *[("array.py", "remembered"), ("vjp.py", "_differentiable")],
        ("array.py", "_slices"),  # tensors made in the line before
        ("composed.py", "__call__"),  # so are these
        *[("checkpoint.py", "checkpoint"), ("checkpoint.py", "remember_alias")],
    },
    "storage": {
        ("leaked.py", "close"),  # says so
        *[(name, "__init__") for name in ("value.py", "pickled.py")],
    },
}


def stores(tree: ast.AST, attribute: str) -> list[tuple[str, str, bool]]:
    """The functions that store an attribute, of which name, and whether they made what has it."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        made = set()
        for node in ast.walk(function):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
                called = node.value.func
                name = (
                    called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                )
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if name in MADE:
                    made |= {ast.unparse(t) for t in targets}
        for node in ast.walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
                targets = [node.target]
            flat = [
                t for one in targets for t in (one.elts if isinstance(one, ast.Tuple) else [one])
            ]
            for t in flat:
                if isinstance(t, ast.Attribute) and t.attr == attribute:
                    found.append(
                        (function.name, ast.unparse(t.value), ast.unparse(t.value) in made)
                    )
    return found


@pytest.mark.turns(1)
@pytest.mark.parametrize("attribute", sorted(ALLOWED))
def test_handles_are_exchanged_in_one_way(attribute: str) -> None:
    """No other code gives a handle a value, or a value what programs look at."""
    files = [p for room in ("tensor", "nn", "quant", "models") for p in folder(room).rglob("*.py")]
    assert len(files) > 300
    texts = [(path.name, path.read_text()) for path in files]
    found = {
        (name, function)
        for name, text in texts
        if f".{attribute}" in text
        for function, _, made in stores(ast.parse(text), attribute)
        if not made
    }
    assert found == ALLOWED[attribute]


def folder(room: str) -> Path:
    """Where a room of the package is."""
    return Path(importlib.import_module(f"cubepy.{room}").__path__[0])
