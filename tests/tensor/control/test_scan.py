"""`cb.scan`: a loop whose body is traced once."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, apply, zeros
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(8)


def some(*shape: int, dtype: Any = np.float32) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(dtype))


def recurrent(w: Tensor, reverse: bool = False) -> Any:
    def run(h: Tensor, x: Tensor) -> Any:
        def step(carry: Any, x: Tensor) -> Any:
            h, n = carry["h"], carry["n"]
            h = ((h + x) @ w).tanh()
            return {"h": h, "n": n + 1}, (h * 2, [x.sum() * n])

        return cb.scan(step, {"h": h, "n": cb.tensor(0)}, x, reverse=reverse)

    return run


@pytest.mark.parametrize("reverse", [False, True])
def test_programs_give_what_the_loop_gives_with_one_trace(reverse: bool) -> None:
    w = some(3, 3)
    function = recurrent(w, reverse)
    program = cb.jit(function)
    for n in range(8):
        if n == 5:
            w.assign_(some(3, 3))
        h, x = some(2, 3), some(7, 2, 3)
        found, wanted = program(h, x), function(h, x)
        np.testing.assert_array_equal(found[0]["h"].numpy(), wanted[0]["h"].numpy())
        assert found[0]["n"].item() == 7
        np.testing.assert_array_equal(found[1][0].numpy(), wanted[1][0].numpy())
        np.testing.assert_array_equal(found[1][1][0].numpy(), wanted[1][1][0].numpy())
    assert sum(program.traces.values()) == 1
    assert "one call of machine code" in program.explain()


def test_slices_of_any_strides_and_what_is_read_whole() -> None:
    def function(c: Tensor, x: Tensor) -> Any:
        step = lambda c, part: (c * 0.5 + part[0], (c + x.sum(axis=(0, 1)), part[0]))
        return cb.scan(step, c, [x, None, x[:, ::-1] * 2])

    program = cb.jit(function)
    for _ in range(5):
        c, x = some(4), some(5, 6, 4)[:, 1, :].reshape(5, 1, 4).expand(5, 4, 4)
        found, wanted = program(c, x[0]), function(c, x[0])
        for one, other in zip([found[0], *found[1]], [wanted[0], *wanted[1]], strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_the_body_runs_once_while_a_program_is_made() -> None:
    ran = itertools.count()

    def step(c: Tensor, x: Any) -> Any:
        next(ran)
        return c * 2, None

    program = cb.jit(lambda c: cb.scan(step, c, None, length=9))
    for _ in range(5):
        carry, ys = program(cb.tensor(1.0))
        assert carry.item() == 512.0 and ys is None
    assert next(ran) == 1


@pytest.mark.parametrize("way", ["inside", "through", "eager"])
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_are_those_of_the_loop(way: str, reverse: bool) -> None:
    def loss(h: Tensor, x: Tensor, w: Tensor) -> Tensor:
        carry, (ys, _) = recurrent(w, reverse)(h, x)
        return (carry["h"] * 3).sum() + (ys * ys).sum()

    derived = cb.grad(loss, (0, 1, 2))
    program = cb.jit(derived if way == "inside" else loss)
    for _ in range(5):
        given = [some(*s, dtype=np.float64) for s in ((2, 3), (6, 2, 3), (3, 3))]
        found = program(*given) if way == "inside" else cb.grad(program, (0, 1, 2))(*given)
        if way == "eager":
            given = [t.requires_grad_() for t in given]
            loss(*given).backward()
            found = [t.grad for t in given]
        for one, other in zip(found, derived(*[t.detach() for t in given]), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-11)
    assert way == "eager" or sum(program.traces.values()) == 1


def test_gradients_beside_differences() -> None:
    def function(h: Tensor, x: Tensor, w: Tensor) -> Tensor:
        step = lambda h, x: ((h * w + x).sin(), h * x)
        h, ys = cb.scan(step, h, x)
        return h + ys.sum(axis=0)

    given = [some(*s, dtype=np.float64).numpy() for s in ((3,), (4, 3), (3,))]
    check_gradients(function, *given)
    check_gradients(cb.jit(function), *given)


def test_second_derivatives_inside_a_program() -> None:
    def loss(h: Tensor, w: Tensor) -> Tensor:
        step = lambda h, x: ((h * w + x).sin(), h * x)
        h, ys = cb.scan(step, h, h.expand(4, 3) * 0.5)
        return h.sum() + (ys * ys).sum()

    def second(h: Tensor, w: Tensor) -> Any:
        along = lambda h, w: sum(g.sum() for g in cb.grad(loss, (0, 1))(h, w))
        return cb.grad(along, (0, 1))(h, w)

    program = cb.jit(second)
    for _ in range(4):
        h, w = some(3, dtype=np.float64), some(3, dtype=np.float64)
        for one, other in zip(program(h, w), second(h, w), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-10)


def test_gradients_stop_where_they_stop_in_the_loop() -> None:
    def loss(h: Tensor) -> Tensor:
        step = lambda h, x: (h * h.detach() * x, h)
        return cb.scan(step, h, cb.tensor([1.0, 2.0, 3.0]))[0].sum()

    program = cb.jit(cb.grad(loss))
    for _ in range(4):
        np.testing.assert_allclose(
            program(cb.tensor([1.5])).numpy(), cb.grad(loss)(cb.tensor([1.5])).numpy(), rtol=1e-6
        )


def test_loops_in_loops_branches_in_loops_and_checkpoints_around() -> None:
    def function(x: Tensor) -> Any:
        def outer(c: Tensor, row: Tensor) -> Any:
            inner = lambda c, v: (c * 0.5 + v, c * v)
            c, ys = cb.scan(inner, c, row)
            c = cb.cond(c > 0, lambda c: c.exp(), lambda c: c * 2, c)
            return c, ys.sum()

        c, ys = cb.checkpoint(lambda x: cb.scan(outer, cb.tensor(0.1), x), x)
        return (c + ys.sum()).sum()

    program, derived = cb.jit(function), cb.jit(cb.grad(function))
    for _ in range(6):
        x = some(4, 3)
        np.testing.assert_allclose(program(x).numpy(), function(x).numpy(), rtol=1e-6)
        np.testing.assert_allclose(
            derived(x).numpy(), cb.grad(function)(x).numpy(), rtol=1e-5, atol=1e-6
        )


def test_a_training_step_of_a_recurrent_net() -> None:
    def made() -> Any:
        nn.init.manual_seed(2)
        cell, head = nn.GRUCell(4, 8), nn.Linear(8, 4)
        parameters = [*cell.parameters(), *head.parameters()]

        def step(x: Tensor, lr: float) -> Tensor:
            for p in parameters:
                p.grad = None

            def body(h: Tensor, now: Tensor) -> Any:
                h = cell(now, h)
                return h, head(h)

            _, ys = cb.scan(body, zeros((3, 8)), x)
            loss = ((ys[:-1] - x[1:]) ** 2).mean()
            loss.backward()
            with cb.no_grad():
                for p in parameters:
                    p -= p.grad * lr
            return loss

        return step

    program, function = cb.jit(made()), made()
    for n in range(30):
        x = some(6, 3, 4)
        one, other = (run(x, 0.3 / (1 + n)).item() for run in (program, function))
        assert abs(one - other) < 1e-5
    assert sum(program.traces.values()) == 1
    assert "one call of machine code" in program.explain()


@pytest.mark.parametrize("width", [12, 40_000, 40_001])
@pytest.mark.parametrize("reverse", [False, True])
def test_large_slices(width: int, reverse: bool) -> None:
    step = lambda c, x: (c * 0.5 + x, c - x)
    function = lambda c, x: cb.scan(step, c, x, reverse=reverse)
    program = cb.jit(function)
    for _ in range(6):
        c, x = some(width), some(5, width)
        for one, other in zip(program(c, x), function(c, x), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_long_loop_is_no_longer_program() -> None:
    steps = []
    for length in (4, 400):
        program = cb.jit(lambda c, x: cb.scan(lambda c, x: (c * x + 1, c.sin()), c, x))
        for _ in range(5):
            program(some(3), some(length, 3))
        ((made,),) = program.programs.values()
        steps.append(made.plan.steps)
    assert steps[0] == steps[1] < 12


def test_carries_that_change_places() -> None:
    step = lambda c, x: ((c[1], c[0] + x, c[1][::-1]), c[0] * c[2])
    function = lambda a, b, x: cb.scan(step, (a, b, a), x)
    program = cb.jit(function)
    for _ in range(5):
        given = some(3), some(3), some(6, 3)
        found, wanted = program(*given), function(*given)
        for one, other in zip([*found[0], found[1]], [*wanted[0], wanted[1]], strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert "one call of machine code" in program.explain()


def test_no_slices() -> None:
    step = lambda c, x: (c + x, x * 2)
    for run in (cb.scan, cb.jit(lambda f, *args: cb.scan(f, *args))):
        carry, ys = run(step, cb.tensor([1.0]), zeros((0, 1)))
        assert (carry.tolist(), ys.shape) == ([1.0], (0, 1))


def test_what_is_refused() -> None:
    x, c = some(4, 3), some(3)
    with pytest.raises(ShapeError, match=r"the shapes are \(4, 3\), \(3,\)"):
        cb.scan(lambda c, x: (c, None), c, (x, c))
    with pytest.raises(ShapeError, match="length is 5"):
        cb.scan(lambda c, x: (c, None), c, x, length=5)
    with pytest.raises(ArgumentError, match="needs xs, or a length"):
        cb.scan(lambda c, x: (c, None), c)
    generator = cb.Generator(1)
    for wrap in (lambda f: f, cb.jit):
        with pytest.raises(ArgumentError, match=r"gives \(carry, y\), not Tensor"):
            wrap(lambda c, x: cb.scan(lambda c, x: c, c, x))(c, x)
        with pytest.raises(ShapeError, match=r"it was \((f32|float32)\[3\]\)") as raised:
            wrap(lambda c, x: cb.scan(lambda c, x: (c.sum(), x), c, x))(c, x)
        assert "cb.scan(lambda c, x: (c.sum(), x), c, x)" in str(raised.value)
    with pytest.raises(LaunchError, match="a generator moves on"):
        cb.jit(lambda c, x: cb.scan(lambda c, x: (generator.dropout(c), x), c, x))(c, x)


def layers(x: Tensor, w: Tensor, v: Tensor, b: Tensor, same: Tensor, both: Tensor) -> Tensor:
    """All ways in which a loop may read what stays the same."""

    def step(h: Tensor, x: Tensor) -> Any:
        y = F.linear(h, w, b) + b  # both twice
        y = (x @ v) @ w.T.T + y.tanh() + same @ v * both  # a product of what stays the same
        return (y * both).sin(), x.sum(axis=-1, keepdims=True) + h @ w.T

    h, ys = cb.scan(step, x[0] * 0, x)
    return (h * h).sum() + (ys * ys).sum()


def test_gradients_of_what_stays_the_same_are_summed_behind_the_loop() -> None:
    shapes = ((5, 2, 3), (3, 3), (3, 3), (3,), (2, 3), (2, 3))
    given = [some(*s, dtype=np.float64) * 0.5 for s in shapes]
    derived = cb.grad(layers, range(6))
    program = cb.jit(derived)
    for _ in range(4):
        for one, other in zip(program(*given), derived(*given), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-11, atol=1e-13)
    check_gradients(cb.jit(layers), *[t.numpy() for t in given])
    back = cb.explain(derived, *given).programs[0].steps
    (loop,) = [
        s.bodies[0] for s in back if s.op == "scan" and "last slice first" in s.bodies[0].title
    ]
    carries = [s.name for s in loop.steps if s.name.startswith("carry")]
    assert len(carries) == 3  # by h, and by `same` and `both`, which are more than weights


def test_a_weight_that_is_read_otherwise_is_summed_up_in_the_loop() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        def step(h: Tensor, x: Tensor) -> Any:
            return (h @ w + w[0]).tanh() + x, w * 1

        h, ws = cb.scan(step, x[0], x)
        return (h * h).sum() + ws.sum()

    x, w = some(4, 2, 3, dtype=np.float64), some(3, 3, dtype=np.float64)
    check_gradients(cb.jit(function), x.numpy(), w.numpy())


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_ends_where_data_say_so(reverse: bool) -> None:
    def function(h: Tensor, x: Tensor, most: Tensor) -> Any:
        def step(carry: Any, x: Tensor) -> Any:
            h, n = carry
            h = (h + x).tanh()
            return (h, n + 1), (h * 2, n)

        ends = lambda carry: (carry[1] >= most).reshape(1)
        return cb.scan(step, (h, cb.tensor(0)), x, reverse=reverse, until=ends)

    program = cb.jit(function)
    with cb.no_grad():
        for n in (3, 1, 7, 20, 2, 5, 7, 1):
            h, x = some(2, 3), some(7, 2, 3)
            (h_, count), ys = program(h, x, cb.tensor(n))
            (wanted, its), its_ys = function(h, x, cb.tensor(n))
            assert count.item() == its.item() == min(n, 7)
            np.testing.assert_array_equal(h_.numpy(), wanted.numpy())
            for one, other in zip(ys, its_ys, strict=True):
                np.testing.assert_array_equal(one.numpy(), other.numpy())
            behind = ys[0].numpy()[: 7 - n] if reverse else ys[0].numpy()[n:]
            assert not behind.any()
    assert sum(program.traces.values()) == 1
    assert "one call of machine code" in program.explain()
    assert "or until the last result is true" in program.explain()


def test_a_loop_within_a_loop_ends_anew_each_time() -> None:
    """What moves from turn to turn goes back to where it began, however often the loop ran."""

    def outer(total: Tensor, most: Tensor) -> Any:
        def inner(carry: Any, x: Tensor) -> Any:
            total, n = carry
            return (total + x, n + 1), total * x

        given = cb.tensor([1.0, 2.0, 3.0, 4.0])
        (total, _), ys = cb.scan(
            inner, (total, cb.tensor(0)), given, until=lambda carry: carry[1] >= most
        )
        return total, ys

    function = lambda x, most: cb.scan(outer, x, most)
    program = cb.jit(function)
    with cb.no_grad():
        for turns in ([1, 4, 2], [3, 3, 1], [4, 1, 9], [2, 2, 2]):
            given = cb.tensor(0.5), cb.tensor(turns)
            found, wanted = program(*given), function(*given)
            assert found[0].item() == wanted[0].item()
            np.testing.assert_array_equal(found[1].numpy(), wanted[1].numpy())
    assert "one call of machine code" in program.explain()


def test_what_says_where_a_loop_ends_is_one_element_and_stops_gradients() -> None:
    step = lambda c, x: (c * x, c)
    with pytest.raises(ShapeError, match=r"until of cb.scan gives one element, not .* \(2,\)"):
        cb.jit(lambda x: cb.scan(step, x, x, until=lambda c: cb.tensor([True, False])))(
            some(3, 1)[0]
        )
    with pytest.raises(ArgumentError, match="takes a function, not int"):
        cb.scan(step, some(3), some(3, 3), until=3)  # type: ignore[arg-type]
    loss = lambda x: cb.scan(step, x[0], x, until=lambda c: c.sum() > 3)[0].sum()
    with pytest.raises(LaunchError, match="no gradients through cb.scan with until"):
        cb.jit(cb.grad(loss))(some(3, 2))


def test_caches_are_written_where_they_are_in_a_loop() -> None:
    """Each turn sees what those before it wrote."""
    attrs: dict[str, Any] = {"scale": 0.5, "window": 0, "cap": 0.0}

    def function(q: Tensor, keys: Tensor, values: Tensor, starts: Tensor) -> Any:
        def step(carry: Any, q: Tensor) -> Any:
            seen, starts = carry
            k, v = q[:, :1] + seen[:, :1], q[:, 1:]
            seen = apply("cached_attention", q, k, v, keys, values, starts, None, None, **attrs)
            return (seen, starts + 1), seen

        return cb.scan(step, (q[0] * 0, starts), q)

    program = cb.jit(function)
    with cb.no_grad():
        for _ in range(5):
            q, starts = some(6, 2, 2, 1, 8), cb.tensor([3, 0])
            caches = [some(2, 1, 16, 8) for _ in range(2)]
            there, its = ([cb.tensor(t.numpy().copy()) for t in caches] for _ in range(2))
            (seen, behind), ys = program(q, *there, starts)
            (wanted, _), its_ys = function(q, *its, starts)
            assert behind.tolist() == [9, 6]
            np.testing.assert_array_equal(ys.numpy(), its_ys.numpy())
            np.testing.assert_array_equal(seen.numpy(), wanted.numpy())
            for one, other, before in zip(there, its, caches, strict=True):
                np.testing.assert_array_equal(one.numpy(), other.numpy())
                assert (one.numpy() != before.numpy()).any()
    assert "one call of machine code" in program.explain()
