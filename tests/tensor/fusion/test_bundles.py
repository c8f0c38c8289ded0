"""Equal maps of small arrays in one launch: the bits are those of the maps alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.tensor import Tensor, apply, execute, record
from cubepy.tensor.fusion.bundles import SMALL, bundle_maps
from cubepy.tensor.fusion.maps import fuse_maps
from cubepy.tensor.fusion.optimise import optimise
from cubepy.tensor.fusion.schedule import Schedule, schedule_of
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.updates import WRITING

RNG = np.random.default_rng(0)
SHAPES = [(3, 5), (70,), (1,), (9000,), (2, 4, 8), (17,), (33, 33), (5,), (64,), (2,), (1, 1)]


def some(*shape: int, dtype: str = "f32") -> Tensor:
    return cb.tensor(RNG.uniform(0.1, 1, shape)).astype(dtype)


def ops_of(graph: Any) -> Counter[str]:
    steps = graph.steps if isinstance(graph, Schedule) else graph.nodes
    return Counter(s.op for s in steps if s.op not in ("input", "constant", "reshape"))


def same(found: list[Tensor], wanted: list[Tensor]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype is other.dtype
        found_here, wanted_here = (t.astype("f64").numpy() for t in (one, other))
        np.testing.assert_array_equal(found_here, wanted_here)  # NaN is NaN there


@pytest.mark.turns(6)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("op", sorted(WRITING))
def test_steps_of_many_parameters_keep_their_bits(op: str, dtype: str) -> None:
    arrays = 1 + len(OPS[WRITING[op]].writes)  # the gradient is not written
    numbers, given = some(10), [[some(*s, dtype=dtype) for _ in range(arrays)] for s in SHAPES]
    with record(numbers, *(t for each in given for t in each)) as recorder:
        wanted = [t for each in given for t in apply(op, numbers, *each)]
    graph = optimise(recorder.graph(*wanted))
    assert graph.nodes[-1].op in ("bundled_map", op)
    assert ops_of(graph).total() <= 4
    same(execute(graph, recorder.inputs), wanted)


def test_maps_that_were_written_are_members_too() -> None:
    """A step of gradient descent in ops, whose rate is an array of one number."""
    rate = some()
    given = [(some(*s), some(*s)) for s in SHAPES[:9]]
    with record(rate, *(t for pair in given for t in pair)) as recorder:
        wanted = [p - rate * (g * 3 + p) for p, g in given]
    schedule = fuse_maps(schedule_of(recorder.graph(*wanted)).without_repeats())
    assert ops_of(schedule) == {"fused_map": 9}
    bundled = bundle_maps(schedule)
    assert ops_of(bundled) == {"bundled_map": 1, "fused_map": 1}
    same(bundled.run(list(recorder.inputs)), wanted)


def test_members_do_not_read_one_another() -> None:
    """Chains of equal maps: those of one height join, and the schedule keeps an order."""
    ones = [some(6), some(9), some(40)]
    with record(*ones) as recorder:
        values, wanted = list(ones), list[Tensor]()
        for turn in range(3):
            values = [(v * 0.3 + 1.5).sum() + v for v in values[: 3 - turn]]
            wanted += values
    schedule = fuse_maps(schedule_of(recorder.graph(*wanted)).without_repeats())
    same(bundle_maps(schedule).run(list(recorder.inputs)), wanted)


def test_views_with_gaps_and_large_arrays_stay_alone() -> None:
    x, y = some(6, 8), some(5, 4)
    large = [some(SMALL // 4 + 8 * n) for n in range(2)]
    with record(x, y, *large) as recorder:
        wanted = [(v * 0.3 - 1).abs() for v in (x[:, :4], y, *large)]
    schedule = fuse_maps(schedule_of(recorder.graph(*wanted)).without_repeats())
    assert ops_of(bundle_maps(schedule)) == {"slice": 1, "fused_map": 4}


def test_inputs_that_have_gaps_after_all_are_right() -> None:
    wide = some(6, 8)
    given = [wide.permute(1, 0), some(3, 5)]
    with record(*given) as recorder:
        wanted = [(v * 0.3 - 1).abs() for v in given]
    graph = optimise(recorder.graph(*wanted))
    assert ops_of(graph) == {"bundled_map": 1}
    same(execute(graph, recorder.inputs), wanted)


def one_step(net: Any, steps: Any, x: Tensor, y: Tensor) -> Tensor:
    steps.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    steps.step()
    return loss


@pytest.mark.parametrize("optimizer", [nn.optim.SGD, nn.optim.AdamW, nn.optim.Adagrad])
def test_training_is_what_it_was(optimizer: Any) -> None:
    """Programs and calls one by one; two groups of parameters with rates of their own."""
    x, y = RNG.standard_normal((16, 8)), RNG.standard_normal((16, 3))
    trained = []
    for compiled in (False, True):
        rng = np.random.default_rng(5)
        net = nn.Sequential(nn.Linear(8, 20), nn.Tanh(), nn.Linear(20, 20), nn.Linear(20, 3))
        for p in net.parameters():
            p.assign_(rng.standard_normal(p.shape).astype(np.float32))
        first, *others = net.parameters()
        groups = [{"params": [first, others.pop()], "lr": 0.02}, {"params": others}]
        steps = optimizer(groups, lr=0.01)

        call = cb.jit(one_step) if compiled else one_step
        losses = [call(net, steps, cb.tensor(x), cb.tensor(y)).item() for _ in range(6)]
        trained.append((losses, [p.numpy() for p in net.parameters()]))
        if compiled:
            assert "bundled_map" in str(call.explain())
    np.testing.assert_allclose(trained[0][0], trained[1][0], rtol=1e-12)
    for one, other in zip(trained[0][1], trained[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
