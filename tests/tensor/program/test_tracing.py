"""A trace knows shapes and dtypes: nothing is computed while the function runs, and the first call
takes the memory of the program.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import LaunchError, OutOfBoundsError
from cubepy.runtime.stats import counters
from cubepy.tensor import Tensor, reshape, where
from cubepy.tensor.program.promised import Promised, compute, sketches
from cubepy.tensor.storage import Dense

RNG = np.random.default_rng(31)


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(np.float32))


def test_nothing_is_computed_while_the_function_runs() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    optimizer = nn.optim.AdamW(net.parameters(), lr=0.1)
    ran: list[tuple[int, Any]] = []
    seen, launches = iter([ran] * 9), (counters.launches for _ in range(9))  # no guards look

    def step(x: Tensor, y: Tensor) -> Tensor:
        before = next(launches)
        optimizer.zero_grad()
        h = net(x)
        h = cb.cond(h.sum() > 0, lambda h: h, lambda h: -h, h)
        _, h = cb.scan(lambda c, row: (c + row, row * c), h[0] * 0, h)
        loss = nn.functional.cross_entropy(where(h > 0, h, h.exp()), y)
        loss.backward()
        optimizer.step()
        next(seen).append((next(launches) - before, type(loss.storage)))
        return loss

    program = cb.jit(step)
    x, y = some(5, 6), cb.tensor([0, 1, 2, 0, 1])
    for _ in range(6):
        loss = program(x, y)
        assert type(loss.storage) is Dense and np.isfinite(loss.item())
    assert ran == [(0, Promised)] * 2  # in the first call an optimizer makes states
    for state in optimizer.state.values():
        assert {type(v.storage) for v in state.values() if isinstance(v, Tensor)} == {Dense}
    assert all(type(p.storage) is type(p.grad.storage) is Dense for p in net.parameters())


TRAINED = """
import resource
import numpy as np
import cubepy as cb

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

w = [cb.tensor(np.eye(64, dtype=np.float32) * 0.5, requires_grad=True) for _ in range(40)]

def step(x):
    h = x
    for p in w:
        p.grad = None
        h = (h @ p).tanh()
    loss = (h * h).mean()
    loss.backward()
    return loss

small = cb.tensor(np.ones((64, 64), np.float32))
for _ in range(3):
    cb.jit(step)(small)
x = cb.tensor(np.ones((1 << 15, 64), np.float32))  # 8 MiB, as each result of a layer is
before, program = peak(), cb.jit(step)
program(x)
first = peak() - before
for _ in range(9):
    program(x)
(found,) = program.explain().programs
print(first, found.arena)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs the sizes of Linux")
def test_the_first_call_takes_the_memory_of_the_program() -> None:
    run = subprocess.run([sys.executable, "-c", TRAINED], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    first, arena = map(int, run.stdout.split())
    assert 40 * (8 << 20) < arena < 46 * (8 << 20)  # op by op, a product and its tanh would stay
    assert first < arena + (32 << 20)


def test_a_fault_in_the_first_call_changes_nothing() -> None:
    table, count, other = some(4, 3), cb.tensor([0.0]), cb.tensor([5.0])

    def function(i: Tensor, t: Tensor) -> Tensor:
        count.assign_(count + 1)
        t += 1
        return nn.functional.embedding(i, table) * 2  # here

    program = cb.jit(function)
    with pytest.raises(OutOfBoundsError) as raised:
        program(cb.tensor([9]), other)
    assert "nn.functional.embedding(i, table) * 2  # here" in str(raised.value)
    assert (count.tolist(), other.tolist()) == ([0.0], [5.0])
    for n in range(1, 5):
        found = program(cb.tensor([1]), other)
        np.testing.assert_array_equal(found.numpy(), table.numpy()[[1]] * 2)
        assert (count.tolist(), other.tolist()) == ([n], [5.0 + n])


def test_an_error_of_the_function_changes_nothing() -> None:
    total = cb.tensor([1.0])

    def function(x: Tensor) -> Tensor:
        total.assign_(total + x)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        cb.jit(function)(cb.tensor([2.0]))
    assert total.tolist() == [1.0]


def test_a_function_that_gives_no_program_is_computed_once() -> None:
    """What it keeps has elements, too: values, views, the same elements under another name."""
    seen: list[int] = []
    kept: list[Tensor] = []

    def function(x: Tensor) -> Tensor:
        seen.append(len(seen))  # which it reads
        y = (x * 2).exp()
        kept[:] = [y, y[1:], y.detach(), (x + 1).detach()]
        return y.sum()

    x = some(3)
    program = cb.jit(function)
    for n in range(1, 7):
        assert program(x).item() == pytest.approx(np.exp(x.numpy() * 2).sum(), rel=1e-6)
        assert len(seen) == n
        wanted = np.exp(x.numpy() * 2)
        for t, want in zip(kept, (wanted, wanted[1:], wanted, x.numpy() + 1), strict=True):
            np.testing.assert_allclose(t.numpy(), want, rtol=1e-6)


def test_the_same_elements_under_another_name_may_not_be_kept_either() -> None:
    kept: dict[str, Tensor] = {}
    place = iter([kept] * 9)  # no guard looks into it

    def function(x: Tensor) -> Tensor:
        next(place)["y"] = (x * 2).detach()
        return x.sum()

    cb.jit(function)(some(3))
    with pytest.raises(LaunchError, match="computed while it was traced was kept"):
        kept["y"].numpy()


def test_gradients_go_through_the_first_call() -> None:
    w = some(3).requires_grad_()
    program = cb.jit(lambda x: ((x * w).tanh(), x + 1))
    x = some(3)
    want = x.numpy() * (1 - np.tanh(x.numpy() * w.numpy()) ** 2)
    for _ in range(4):
        y, _ = program(x)
        w.grad = None
        y.sum().backward()
        np.testing.assert_allclose(w.grad.numpy(), want, rtol=1e-5, atol=1e-6)


def test_whether_a_reshape_needs_a_copy_is_known_while_tracing() -> None:
    x = some(2, 3)
    program = cb.jit(lambda x: reshape(x * 2, (6,), copy=False) + 1)
    np.testing.assert_array_equal(program(x).numpy(), x.numpy().reshape(6) * 2 + 1)
    with pytest.raises(ValueError, match="without a copy"):
        cb.jit(lambda x: reshape((x * 2).T, (6,), copy=False) + 1)(x)


def promised(function: Any, *given: Tensor) -> list[Any]:
    """The storages of what a function gives in a trace."""
    found: list[Any] = []

    def run(*given: Tensor) -> Any:
        result = function(*given)
        found[:] = [t.storage for t in result]
        return list(result)

    with pytest.raises(ZeroDivisionError):  # so that no program gives them elements
        cb.jit(lambda *given: (run(*given), 1 / 0))(*given)
    return found


def test_promises_are_computed_together_and_once() -> None:
    def function(x: Tensor) -> list[Tensor]:
        y = x.exp()
        return [y + 1, y * y, *(y - 1).chunk(2, 0), y.sum()]

    x = some(4, 2)
    stores = promised(function, x)
    assert [s.nbytes for s in stores] == [32, 32, 16, 16, 4]
    before = counters.ops
    compute(stores)
    assert counters.ops == before and {type(s) for s in stores} == {Dense}
    want = [t.numpy() for t in function(x)]
    for store, array in zip(stores, want, strict=True):
        np.testing.assert_array_equal(store.array, array)


def test_sketches_share_memory_as_the_arrays_will() -> None:
    x = some(4, 6)
    stores = promised(lambda x: [(y := x * 2), y[1:], y.T, x[1:], x + 1], x)
    made = sketches(stores)
    assert [a.shape for a in made] == [(4, 6), (3, 6), (6, 4), (3, 6), (4, 6)]
    assert np.shares_memory(made[0], made[1]) and np.shares_memory(made[0], made[2])
    assert not np.shares_memory(made[0], made[4])
    assert np.shares_memory(made[3], x.numpy())
    assert {type(s) for s in stores} == {Promised}


def test_what_a_call_replaces_goes_at_once() -> None:
    """No trace, no recording and no result keeps the values that parameters and states had, also
    where results are large, and the garbage collector does not run; their memory goes, or is that
    of the next ones.
    """
    layer = nn.Linear(256, 256, bias=False)
    optimizer = nn.optim.AdamW(layer.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (layer(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    program, x, w = cb.jit(step), some(8, 256), layer.weight
    gc.collect()
    gc.disable()
    try:
        for _ in range(6):
            states = [w, *(t for t in optimizer.state.get(w, {}).values() if type(t) is Tensor)]
            before = [(t, weakref.ref(t.value), weakref.ref(t.storage.array)) for t in states]
            grad = None if w.grad is None else weakref.ref(w.grad.storage.array)
            program(x)
            assert grad is None or grad() is None
            for t, value, array in before:
                assert value() is None
                assert array() is None or array() is t.storage.array
    finally:
        gc.enable()
