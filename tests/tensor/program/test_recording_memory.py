"""While launches are recorded, memory that nothing reads any more goes back to the system, though
its addresses stay taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import OutOfMemoryError
from cubepy.runtime.memory.mapped import AVAILABLE
from cubepy.runtime.memory.pool import Pool, host_pool
from cubepy.tensor.program.plans import host
from cubepy.tensor.program.plans.host import Recording

RNG = np.random.default_rng(0)
needs_mapping = pytest.mark.skipif(not AVAILABLE, reason="the system cannot give pages back")


@needs_mapping
def test_a_recording_holds_what_is_in_use() -> None:
    x = RNG.standard_normal((256, 256)).astype(np.float32) / 16
    want = x
    most = 0
    with Recording() as recorded:
        y = x
        for _ in range(12):
            y = K.matmul(y, x)
            most = max(most, recorded.mapped)
    for _ in range(12):
        want = want @ x
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
    assert len(recorded.steps) >= 12 and y.nbytes <= most <= 3 * y.nbytes
    assert len(recorded.fresh) >= 12, "every buffer has an address of its own"
    del y
    assert recorded.mapped == 0


@needs_mapping
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.mean(axis=(0, 2, 3)),
        lambda x: x.transpose(0, 3).reshape(64, -1).sum(axis=0),
        lambda x: x[:, ::-1].cumsum(-1),
        lambda x: cb.nn.functional.max_pool2d(x, 3, padding=1),
        lambda x: x.astype("bf16") * 2,
    ],
)
def test_no_op_keeps_its_memory(function: Any) -> None:
    x = cb.tensor(RNG.standard_normal((8, 16, 64, 64)).astype(np.float32))
    for _ in range(2):
        with cb.no_grad(), Recording() as recorded:
            y = function(x)
        assert recorded.fresh
        del y
        assert recorded.mapped == 0


def test_results_of_the_recorded_call_stay() -> None:
    """They are given to whoever called, and outlive the recording."""
    x = cb.tensor(RNG.standard_normal((300, 300)).astype(np.float32))
    run = cb.jit(lambda x: ((x @ x).relu(), (x.T @ x)[5:]))
    found = [run(x) for _ in range(5)]
    for one, other in found:
        np.testing.assert_array_equal(one.numpy(), found[-1][0].numpy())
        np.testing.assert_array_equal(other.numpy(), found[-1][1].numpy())


def test_the_limit_holds_while_launches_are_recorded() -> None:
    x = RNG.standard_normal((256, 256)).astype(np.float32)
    with cb.config.override(memory_limit=host_pool.stats.in_use + 3 * x.nbytes):
        with Recording() as recorded, pytest.raises(OutOfMemoryError, match="exceed the limit"):
            _kept = [K.matmul(x, x) for _ in range(5)]
    assert recorded.steps


def test_what_lies_between_is_in_memory_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until these are written: gradients at the end of a step have its activations before."""
    arenas = []
    for least in (1, 1 << 40):
        monkeypatch.setattr(host, "LODGED", least)
        layers = cb.nn.Sequential(*(cb.nn.Linear(64, 64) for _ in range(6)))
        with cb.no_grad():
            for n, p in enumerate(layers.parameters()):
                values = np.random.default_rng(n).standard_normal(p.shape)
                p.assign_(cb.tensor(values.astype(np.float32) / 8))

        def step(x: cb.Tensor, layers: Any = layers) -> cb.Tensor:
            for p in layers.parameters():
                p.grad = None
            loss = (layers(x).tanh() ** 2).mean()
            loss.backward()
            return loss

        run, x = cb.jit(step), cb.tensor(RNG.standard_normal((48, 64)).astype(np.float32))
        for _ in range(4):
            loss = run(x)
        found = [p.grad.numpy() for p in layers.parameters()]
        assert loss.item() == step(x).item()
        for one, p in zip(found, layers.parameters(), strict=True):
            np.testing.assert_array_equal(one, p.grad.numpy())
        (program,) = (p for programs in run.programs.values() for p in programs)
        assert program.operands is not None
        arenas.append(program.operands.arena)
    assert 0 < arenas[0] < arenas[1] / 2


def test_large_buffers_that_are_released_go_back_while_little_is_kept() -> None:
    pool = Pool()
    with pool.keeping_little():
        large, small = pool.empty((1 << 20,), np.float32), pool.empty((1 << 16,), np.float32)
        del large, small
        assert pool.stats.in_use == 0 and pool.stats.reserved == 1 << 18
    large = pool.empty((1 << 20,), np.float32)
    del large
    assert pool.stats.reserved == (1 << 18) + (1 << 22)
