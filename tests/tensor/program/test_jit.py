"""`cb.jit`: what a program gives, what it looks at before it is used again, and what it refuses."""

from __future__ import annotations

import math
import threading
import warnings
from collections import OrderedDict
from operator import methodcaller
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, LaunchError, OutOfBoundsError, TraceWarning
from cubepy.tensor import Tensor, concat, where

RNG = np.random.default_rng(11)
FACTOR = 2.0


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def same(one: Any, other: Any) -> None:
    assert one.dtype is other.dtype
    np.testing.assert_array_equal(one.numpy(), other.numpy())


def traces(program: Any) -> int:
    return sum(program.traces.values())


def planned(program: Any) -> bool:
    return "one call of machine code" in program.explain()


def test_results_are_those_of_the_function_whatever_their_tree() -> None:
    def function(x: Tensor, more: dict[str, list[Tensor]]) -> Any:
        y = x @ more["w"][0]
        return {"y": y, "parts": (y.T, [y[0], 3, None]), "x": x}

    program = cb.jit(function)
    for _ in range(5):
        x, w = some(3, 4), some(4, 5)
        found, wanted = program(x, {"w": [w]}), function(x, {"w": [w]})
        same(found["y"], wanted["y"])
        same(found["parts"][0], wanted["parts"][0])
        same(found["parts"][1][0], wanted["parts"][1][0])
        assert found["parts"][1][1:] == [3, None]
        assert found["x"] is x
    assert traces(program) == 1
    assert planned(program)


class Pair(NamedTuple):
    first: Any
    second: Any


def test_tuples_with_names_are_trees() -> None:
    both = cb.jit(lambda p, k: Pair(p.first + p.second * k, {"in": Pair(p.first, p.second * 2)}))
    slopes = cb.jit(cb.grad(lambda p: (p.first * p.second).sum()))
    for n in range(4):
        given = Pair(cb.tensor([1.0]), cb.tensor([float(n)]))
        found, slope = both(given, 2.0), slopes(given)
        assert type(found) is type(found.second["in"]) is type(slope) is Pair
        assert found.first.item() == 1 + 2 * n and found.second["in"].second.item() == 2 * n
        assert slope.first.item() == n and slope.second.item() == 1
    assert len(both.traces) == 1


def test_ordered_dicts_are_trees() -> None:
    both = cb.jit(lambda d, k: OrderedDict(z=d["b"] * k, a=[OrderedDict(c=d["a"] + d["b"])]))
    slopes = cb.jit(cb.grad(lambda d: (d["a"] * d["b"]).sum()))
    for n in range(4):
        given = OrderedDict(b=cb.tensor([1.0]), a=cb.tensor([float(n)]))
        found, slope = both(given, 2.0), slopes(given)
        assert type(found) is type(found["a"][0]) is type(slope) is OrderedDict
        assert list(found) == ["z", "a"] and list(slope) == ["b", "a"]
        assert found["z"].item() == 2 and found["a"][0]["c"].item() == 1 + n
        assert slope["a"].item() == 1 and slope["b"].item() == n
        assert type(both(dict(given), 2.0)) is OrderedDict
    assert len(both.traces) == 2


def test_a_function_may_give_what_it_was_given() -> None:
    program = cb.jit(lambda given: {"y": given["x"]})
    for _ in range(4):
        x = some(3)
        same(program({"x": x})["y"], x)


def test_views_of_inputs_of_results_and_of_what_lies_between() -> None:
    def function(x: Tensor) -> Any:
        h = x.exp()
        return x.T, x[1:, ::2], h.T.reshape(2, -1), h[:, 1], (h * 2).expand(3, 4, 6) + 1

    program = cb.jit(function)
    for _ in range(5):
        x = some(4, 6)
        for one, other in zip(program(x), function(x), strict=True):
            same(one, other)
    assert planned(program)


def test_a_float_may_be_another_one_in_every_call_and_an_int_is_part_of_the_kind() -> None:
    program = cb.jit(lambda x, lr, n: (x * lr + (1 - lr) / 2).reshape(n, -1))
    x = some(4, 6)
    for k in range(8):
        lr = 0.1 * k
        same(program(x, lr, 3), (x * lr + (1 - lr) / 2).reshape(3, -1))
    assert traces(program) == 1
    assert program(x, 0.5, 2).shape == (2, 12)
    assert traces(program) == 2


def test_a_float_that_python_looks_at_is_part_of_the_kind() -> None:
    def function(x: Tensor, a: float) -> Tensor:
        return x * math.sqrt(a) if a > 1 else x * a

    program = cb.jit(function)
    x = some(5)
    for a in (4.0, 0.5, 4.0, 9.0):
        same(program(x, a), function(x, a))
    assert traces(program) == 4 - 1


def test_globals_closures_and_attributes_are_looked_at() -> None:
    global FACTOR
    scale = 3.0

    def function(x: Tensor) -> Tensor:
        return x * FACTOR + scale

    program = cb.jit(function)
    x = some(6)
    for FACTOR, scale in ((2.0, 3.0), (2.0, 3.0), (5.0, 3.0), (5.0, 1.0), (2.0, 3.0)):
        same(program(x), function(x))
    FACTOR = 2.0
    assert traces(program) == 3


def test_training_and_attributes_of_modules_are_looked_at() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.gain = nn.Linear(4, 4), 2.0

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * (self.gain if self.training else 1.0)

    net, x = Net(), some(3, 4)
    with cb.no_grad():
        program = cb.jit(net)
        for change in (
            lambda: None,
            lambda: None,
            net.eval,
            net.train,
            lambda: setattr(net, "gain", 7.0),
            lambda: setattr(net.inner, "weight", nn.Parameter(some(4, 4))),
            lambda: net.load_state_dict(Net().state_dict()),
            lambda: net.inner.weight.assign_(some(4, 4)),
        ):
            change()
            for _ in range(3):
                same(program(x), net(x))


def test_a_method_of_a_module() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)

        @cb.jit
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x).relu()

    net, x = Net(), some(3, 4)
    with cb.no_grad():
        for _ in range(4):
            same(net(x), net.inner(x).relu())
    assert planned(Net.forward)


def test_other_shapes_dtypes_and_strides_are_other_kinds() -> None:
    program = cb.jit(lambda x: (x + 1).sum(axis=0))
    for x in (some(3, 4), some(2, 5), some(4, 3).T, some(3, 4).astype("f64"), some(3, 4)):
        for _ in range(3):
            same(program(x), (x + 1).sum(axis=0))
    assert traces(program) == 4


def test_what_is_assigned_inside_is_assigned_in_every_call() -> None:
    total = cb.tensor(np.zeros(3, np.float32))
    kept = total + 0

    @cb.jit
    def add(x: Tensor, y: Tensor) -> Tensor:
        nonlocal_total = total
        nonlocal_total += x
        y.assign_(total * 2)
        return y

    for n in range(1, 7):
        x, y = cb.tensor(np.full(3, 1.0, np.float32)), some(3)
        assert add(x, y) is y
        np.testing.assert_array_equal(total.numpy(), np.full(3, n, np.float32))
        np.testing.assert_array_equal(y.numpy(), np.full(3, 2 * n, np.float32))
    np.testing.assert_array_equal(kept.numpy(), np.zeros(3))
    assert traces(add) == 1


def test_a_tensor_that_is_passed_twice_or_also_read_as_a_global() -> None:
    w = some(3)
    program = cb.jit(lambda x, y: x * 2 + y * 3 + w * 5)
    for pair in ((w, w), (some(3), w), (w, some(3)), (some(3), some(3)), (w, w)):
        for _ in range(3):
            same(program(*pair), pair[0] * 2 + pair[1] * 3 + w * 5)


def test_detached_parameters_are_read_anew() -> None:
    w = cb.tensor([1.0, 2.0], requires_grad=True)
    program = cb.jit(lambda x: x * w.detach())
    x = cb.tensor([1.0, 1.0])
    for n in range(5):
        with cb.no_grad():
            w.assign_([float(n), 2.0])
        assert program(x).tolist() == [n, 2.0]
    assert traces(program) == 1


@pytest.mark.parametrize(
    "look",
    [float, bool, Tensor.item, Tensor.numpy, Tensor.tolist, repr, methodcaller("to", "python")],
)
def test_elements_are_not_to_be_had_inside(look: Any) -> None:
    def function(x: Tensor) -> Any:
        y = x.sum()
        look(y)  # here
        return y

    with pytest.raises(LaunchError, match="while .*function is traced") as raised:
        cb.jit(function)(some(3))
    assert "look(y)  # here" in str(raised.value)


def test_arrays_are_not_taken() -> None:
    with pytest.raises(ArgumentError, match="takes tensors of cubepy, not numpy.ndarray"):
        cb.jit(lambda x: x)(np.zeros(3))


def test_gradients_go_through_programs() -> None:
    w, b = (cb.tensor(some(*s).numpy(), requires_grad=True) for s in ((4, 4), (4,)))

    def function(x: Tensor, gain: float) -> Any:
        h = (x @ w).tanh() * gain
        return h + b, h.sum()

    program = cb.jit(function)
    for n in range(6):
        x = cb.tensor(some(3, 4).numpy(), requires_grad=True)
        x4 = x.detach()
        found = []
        for run in (program, function):
            w.grad = b.grad = x.grad = None
            y, total = run(x, 1.0 + n) if n % 2 else run(x, 2.0)
            ((y * y).sum() if n < 3 else (y.sum() + total)).backward()
            found.append([t.grad.numpy().copy() for t in (w, b, x)])
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)
        assert x4.requires_grad is False
    assert traces(program) == 1
    assert planned(program)


def test_gradients_through_a_program_stop_where_those_of_the_function_stop() -> None:
    w = cb.tensor([2.0, 3.0], requires_grad=True)

    def function(x: Tensor) -> Any:
        with cb.no_grad():
            y = x * 3
        z = x * x.detach() * w
        return z * y, z.detach(), y, (x * 2).detach().exp() * x

    program = cb.jit(function)
    for _ in range(5):
        found = []
        for run in (program, function):
            x, w.grad = cb.tensor([1.0, 2.0], requires_grad=True), None
            tree = run(x)
            assert [t.requires_grad for t in tree] == [True, False, False, True]
            (tree[0] + tree[3]).sum().backward()
            found.append([x.grad.numpy(), w.grad.numpy()])
        for one, other in zip(*found, strict=True):
            np.testing.assert_array_equal(one, other)
    assert traces(program) == 1
    assert planned(program)


def test_gradients_of_a_program_have_gradients() -> None:
    program = cb.jit(lambda x: (x * x * x).sum())
    for _ in range(4):
        x = cb.tensor([1.0, 2.0], requires_grad=True)
        program(x).backward(create_graph=True)
        first, x.grad = x.grad, None
        first.sum().backward()
        assert (first.tolist(), x.grad.tolist()) == ([3.0, 12.0], [6.0, 12.0])


def test_gradients_of_gradients_go_through_programs() -> None:
    function = lambda x: (x * x * x).sum()
    program = cb.jit(function)
    for _ in range(5):
        x = cb.tensor([1.0, 2.0])
        same(
            cb.grad(lambda x: cb.grad(program)(x).sum())(x),
            cb.grad(lambda x: cb.grad(function)(x).sum())(x),
        )


def test_a_function_that_changes_what_it_reads_runs_as_it_is() -> None:
    seen = [0]

    def function(x: Tensor) -> Tensor:
        seen[0] += 1
        return x + seen[0]

    program = cb.jit(function)
    for n in range(1, 5):
        assert program(cb.tensor([0.0])).tolist() == [n]
    assert "changes what it reads" in program.explain()


def test_an_index_outside_is_an_error_and_the_next_call_works() -> None:
    program = cb.jit(lambda i, w: nn.functional.embedding(i, w) * 2)
    w, good = some(5, 3), cb.tensor([0, 4])
    for _ in range(4):
        program(good, w)
    assert planned(program)
    with pytest.raises(OutOfBoundsError):
        program(cb.tensor([0, 9]), w)
    same(program(good, w), nn.functional.embedding(good, w) * 2)


def test_one_program_from_eight_threads() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return ((x @ w).relu() @ w).softmax() + concat([x, x[:, :0]], 1)

    program = cb.jit(function)
    failed: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            x, w = (cb.tensor(rng.standard_normal((9, 9)).astype(np.float32)) for _ in range(2))
            if not np.array_equal(program(x, w).numpy(), function(x, w).numpy()):
                failed.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_a_program_inside_another_one_is_part_of_it() -> None:
    inner = cb.jit(lambda x: x * 2)
    outer = cb.jit(lambda x: inner(x) + 1)
    for _ in range(4):
        assert outer(cb.tensor([1.0])).tolist() == [3.0]
    assert traces(inner) == 0


def test_settings_make_programs_anew() -> None:
    program = cb.jit(lambda x: where(x > 0, x, -x).mean())
    x = some(100)
    for _ in range(4):
        program(x)
    before = cb.config.serial_us
    try:
        cb.config.serial_us = before + 1
        assert not program.programs
        for _ in range(4):
            same(program(x), where(x > 0, x, -x).mean())
    finally:
        cb.config.serial_us = before


def test_the_arena_is_planned_by_when_arrays_are_used() -> None:
    def function(x: Tensor) -> Tensor:
        for _ in range(50):
            x = x.sin() @ x
        return x

    program = cb.jit(function)
    for _ in range(5):
        program(some(16, 16))
    (made,) = next(iter(program.programs.values()))
    assert made.operands is not None
    assert made.operands.arena <= 3 * 16 * 16 * 4


class Named:
    def __init__(self) -> None:
        self.named_like_a_global = cb.tensor(np.ones(3, np.float32))


HOLDS_ONE = Named()
named_like_a_global = 0


def test_a_global_named_like_an_attribute_is_not_looked_at() -> None:
    global named_like_a_global
    program = cb.jit(lambda x: HOLDS_ONE.named_like_a_global * x)
    for _ in range(4):
        named_like_a_global = program(some(3))
    assert traces(program) == 1


def test_many_globals_are_told_apart() -> None:
    names = [f"name{n}" for n in range(600)]
    text = f"def f(x):\n    return x * ({' + '.join(names)})"
    scope: dict[str, Any] = dict.fromkeys(names, 1.0)
    exec(text, scope)
    program = cb.jit(scope["f"])
    x = cb.tensor(np.ones(2, np.float32))
    for name in (names[0], names[255], names[599]):
        before = program(x).tolist()
        scope[name] += 1.0
        assert program(x).tolist() == [n + 1 for n in before]


def test_what_is_passed_may_be_the_result() -> None:
    program = cb.jit(lambda x, y: [y, x])
    x, y = cb.tensor([1.0]), cb.tensor([2.0])
    for _ in range(4):
        found = program(x, y)
        assert found[0] is y and found[1] is x
    assert "0 ops in 0 steps" in cb.explain(program, x, y)


def test_what_is_another_one_in_each_call_warns_once() -> None:
    program, x = cb.jit(lambda x, options: x * options["n"][0]), cb.tensor([1.0])
    with pytest.warns(TraceWarning, match=r"another value of args\[1\]\['n'\]\[0\]") as found:
        for n in range(40):
            assert program(x, {"n": [n]}).item() == n
    assert len(found) == 1 and found[0].filename == __file__
    program = cb.jit(lambda batch: batch.x * 2)
    with pytest.warns(TraceWarning, match=r"another object at args\[0\]") as found:
        for n in range(40):
            assert program(SimpleNamespace(x=cb.tensor([float(n)]))).item() == 2 * n
    assert len(found) == 1
    quiet = cb.jit(lambda x, n: x * n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(40):  # shapes are no numbers
            assert quiet(cb.tensor([1.0] * (n + 1)), 2).shape == (n + 1,)
