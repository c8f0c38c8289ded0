"""Programs under pressure: memory, threads, forks, many graphs, tensors that outlive a trace."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.backends.cpu.backend import CpuExecutable
from cubepy.errors import LaunchError, OutOfMemoryError
from cubepy.runtime.launch import launcher
from cubepy.tensor import Tensor
from cubepy.tensor.program.plans import repeated

RNG = np.random.default_rng(12)


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def resident() -> int:
    """Bytes of the process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# Memory


@pytest.fixture
def limit() -> Iterator[Any]:
    def room(size: int) -> None:
        gc.collect()
        cb.config.memory_limit = cb.memory_stats("cpu").in_use + size

    yield room
    cb.config.memory_limit = 0


def hungry(x: Tensor) -> Tensor:
    y = x @ x
    z = y.exp() + 1  # the second one
    return (z @ y).sum()


def test_a_program_without_room_says_at_which_op_and_the_next_call_works(limit: Any) -> None:
    x, program = some(256, 256) * 0.05, cb.jit(hungry)
    wanted = hungry(x).item()
    limit(16 << 18)
    for _ in range(8):
        assert program(x).item() == wanted
    assert "one call of machine code" in program.explain()
    before = cb.memory_stats("cpu").in_use
    full = [x + n for n in range(15)]
    with pytest.raises(OutOfMemoryError) as raised:
        program(x)
    assert "z = y.exp() + 1  # the second one" in str(raised.value)
    del full, raised
    gc.collect()
    assert cb.memory_stats("cpu").in_use == before
    assert program(x).item() == wanted
    assert "one call of machine code" in program.explain()


@pytest.mark.parametrize("calls", [0, 1])
def test_without_room_for_tracing_or_recording(limit: Any, calls: int) -> None:
    x, program = some(256, 256) * 0.05, cb.jit(hungry)
    wanted = hungry(x).item()
    limit(16 << 18)
    for _ in range(calls):
        program(x)
    full = [x + n for n in range(15)]
    with pytest.raises(OutOfMemoryError) as raised:
        program(x)
    assert "z = y.exp() + 1  # the second one" in str(raised.value)
    del full, raised
    gc.collect()
    for _ in range(4):
        assert program(x).item() == wanted


def test_where_a_program_has_no_room_the_function_may_have(limit: Any) -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        for _ in range(3):
            y = (y @ x).tanh()
        return y.sum()

    x, program = some(256, 256), cb.jit(function)
    limit(64 << 18)
    for _ in range(8):
        program(x)
    ((made,),) = program.programs.values()
    made.operands.frames.clear()
    made.call.__globals__["new_frame"] = lambda: (_ for _ in ()).throw(OutOfMemoryError("full"))
    np.testing.assert_array_equal(program(x).numpy(), function(x).numpy())


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_ten_thousand_steps_keep_no_memory() -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = nn.optim.Adam(net.parameters(), lr=1e-3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    program, x, y = cb.jit(step), some(8, 16), some(8, 4)
    for _ in range(200):
        program(x, y)
    before = resident()
    for _ in range(10_000):
        program(x, y)
    assert resident() - before < 20e6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_thousand_graphs_keep_little_memory() -> None:
    steps = (  # none of which fuses: what is compiled for a graph is another matter
        lambda x: x @ x,
        lambda x: x.cumsum(0),
        lambda x: x.T,
        lambda x: x.flip(0),
        lambda x: x.sort(1)[0],
    )

    def chain(number: int) -> Any:
        ops = [steps[number // 5**k % 5] for k in range(6)]

        def function(x: Tensor) -> Tensor:
            for op in ops:
                x = op(x)
            return x

        return function

    x = some(4, 4)
    for number in range(200):
        cb.jit(chain(number))(x)
    gc.collect()
    before = resident()
    for number in range(200, 1200):
        program = cb.jit(chain(number))
        for _ in range(3):
            program(x)
        if number % 50 == 49:
            gc.collect()  # tests seldom look for garbage, see conftest.py
    assert resident() - before < 15e6  # a tenth of what ten thousand may take


def test_code_of_graphs_that_nobody_has_any_more_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "PROGRAMS", 16)
    monkeypatch.setattr(repeated, "KEPT", 16)
    maps = (Tensor.exp, Tensor.tanh, Tensor.abs, Tensor.relu)

    def chain(number: int) -> Any:
        ops = [maps[number // 4**k % 4] for k in range(3)]

        def function(x: Tensor) -> Tensor:
            for op in ops:
                x = op(x) * 2 - 1
            return x

        return function

    def there() -> int:
        gc.collect()
        return sum(type(one) is CpuExecutable for one in gc.get_objects())

    x, programs = some(4, 4), {n: cb.jit(chain(n)) for n in (7, 8, 63)}
    wanted = {n: [program(x).numpy() for _ in range(3)][-1] for n, program in programs.items()}
    before = there()
    for number in range(64):
        program = cb.jit(chain(number))
        for _ in range(3):
            program(x)
    del program
    assert there() - before <= 2 * 16 + 2
    for number, kept in programs.items():  # has its own, and another one is traced
        assert np.array_equal(kept(x).numpy(), wanted[number])
        assert np.array_equal(cb.jit(chain(number))(x).numpy(), wanted[number])


# Threads and processes


def test_a_training_step_with_a_loop_and_a_branch_from_eight_threads() -> None:
    w = some(6, 6)

    def step(h: Tensor, x: Tensor) -> Any:
        y = cb.cond(h.sum() > 0, lambda h: h.sum(), lambda h: h[0, 0], h)
        return (h @ w + x).tanh(), y

    function = cb.value_and_grad(lambda x: cb.scan(step, x[0], x)[1].sum())
    program = cb.jit(function)
    failed: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            x = cb.tensor(rng.standard_normal((5, 6, 6)).astype(np.float32))
            for one, other in zip(program(x), function(x), strict=True):
                if not np.allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5):
                    failed.append(seed)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    assert "one call of machine code" in program.explain()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_runs_the_program() -> None:
    program = cb.jit(lambda x: ((x @ x).relu() @ x).softmax())
    x = some(24, 24)
    for _ in range(5):
        wanted = program(x).numpy()
    assert "one call of machine code" in program.explain()
    child = os.fork()
    if child == 0:
        same = all(np.array_equal(program(x).numpy(), wanted) for _ in range(20))
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


# Tensors that outlive a trace


def test_a_tensor_that_a_trace_computed_and_that_was_kept_is_an_error() -> None:
    kept: dict[str, Tensor] = {}
    place = iter([kept] * 99)  # no guard looks into it

    def function(x: Tensor) -> Tensor:
        y = x * 2  # here
        next(place)["y"] = y
        return y.sum()

    program = cb.jit(function)
    program(some(3))
    for use in (lambda y: y + 1, lambda y: y.numpy(), cb.jit(lambda x: kept["y"] * x)):
        with pytest.raises(LaunchError, match="computed while it was traced was kept") as raised:
            use(kept["y"])
        assert "y = x * 2  # here" in str(raised.value)
        assert "assign_" in str(raised.value)
    assert kept["y"].shape == (3,)
    assert program(cb.tensor([1.0, 2.0, 3.0])).item() == 12.0


def test_a_tensor_of_a_branch_that_is_used_behind_it_is_an_error() -> None:
    kept: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        def branch(x: Tensor) -> Tensor:
            kept[:] = [x.exp()]  # here
            return x * 2

        y = cb.cond(x.sum() > 0, branch, lambda x: x, x)
        return y + kept[0]

    with pytest.raises(LaunchError, match="a function of cb.cond computed") as raised:
        cb.jit(function)(some(3))
    assert "kept[:] = [x.exp()]  # here" in str(raised.value)


def test_results_gradients_states_and_constants_of_the_first_call_are_there() -> None:
    w, total, kept = some(3).requires_grad_(), some(3), []
    place = iter([kept] * 99)

    def function(x: Tensor) -> Any:
        h = (x * w).exp()
        next(place).append(cb.tensor([1.0, 2.0, 3.0]) * 2)
        with cb.no_grad():
            total.assign_(h * 2)
        return [h, (h * h).sum()]

    h, loss = cb.jit(function)(some(3))
    loss.backward()
    assert w.grad.shape == h.numpy().shape == total.numpy().shape
    assert kept[0].tolist() == [2.0, 4.0, 6.0]
