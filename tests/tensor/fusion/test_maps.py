"""Groups of maps: fused, every op gives the bits that it gives alone."""

from __future__ import annotations

import random

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import record, where
from cubepy.tensor.array import filled
from cubepy.tensor.fusion.grouping import Item, grouped
from cubepy.tensor.fusion.literals import read_literals
from cubepy.tensor.fusion.maps import fuse_maps
from cubepy.tensor.fusion.schedule import Schedule, schedule_of
from tests.tensor.fusion.random_programs import program

X = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_keep_their_bits(seed: int) -> None:
    inputs, schedule, outputs = program(seed)
    fused = fuse_maps(schedule.without_repeats())
    for found, want in zip(fused.run(inputs), outputs, strict=True):
        assert found.dtype is want.dtype and found.shape == want.shape
        np.testing.assert_array_equal(found.numpy(), want.numpy())


def steps_of(schedule: Schedule) -> list[str]:
    return [s.op for s in schedule.steps if s.op != "constant"]


def test_several_results_are_one_step() -> None:
    x = cb.tensor(X)
    with record(x) as recorder:
        y = x * 0.3 + 1
        outputs = y.tanh(), where(y > 0, y, x), y.astype("f16")
    schedule = fuse_maps(schedule_of(recorder.graph(*outputs)).without_repeats())
    assert steps_of(schedule) == ["fused_map"]
    for found, want in zip(schedule.run([x]), outputs, strict=True):
        np.testing.assert_array_equal(found.numpy(), want.numpy())


def test_what_lies_between_is_not_surrounded() -> None:
    x = cb.tensor(X)
    with record(x) as recorder:
        y = x * 2 + 1
        z = y.exp() - y.sum(axis=-1, keepdims=True) * y
    schedule = fuse_maps(schedule_of(recorder.graph(z)))
    assert steps_of(schedule) == ["fused_map", "sum", "fused_map"]
    np.testing.assert_array_equal(schedule.run([x])[0].numpy(), z.numpy())


def test_an_array_of_one_number_is_no_result_of_a_function() -> None:
    """What is computed of numbers alone is a number, where a line of them is stored."""
    x = cb.tensor(X)
    with record(x) as recorder:
        zeros = filled(0, x, x.shape)
        outputs = where(x > 0, x, zeros), zeros.flip(0), x * 0.3
    schedule = fuse_maps(read_literals(schedule_of(recorder.graph(*outputs)).without_repeats()))
    assert steps_of(schedule) == ["expand", "slice", "fused_map"]
    for found, want in zip(schedule.run([x]), outputs, strict=True):
        np.testing.assert_array_equal(found.numpy(), want.numpy())


def test_numbers_are_arguments() -> None:
    """Another number is the same function, but for those that are written into functions."""
    texts = set()
    for number in (0.3, 0.7, 11.0):
        x = cb.tensor(X)
        with record(x) as recorder:
            y = (x * number + 1).exp()
        schedule = fuse_maps(schedule_of(recorder.graph(y)))
        texts |= {s.attrs["text"] for s in schedule.steps if s.op == "fused_map"}
    assert len(texts) == 1 and "cast(1, cb.f32)" in next(iter(texts))


@pytest.mark.parametrize("seed", range(100))
def test_groups_never_wait_for_each_other(seed: int) -> None:
    rng = random.Random(seed)
    items: list[Item] = []
    for n in range(rng.randrange(3, 40)):
        inputs = tuple(sorted({rng.randrange(n) for _ in range(rng.randrange(4))})) if n else ()
        items.append(Item(inputs, rng.choice([None, "a", "a", "b"])))
    groups = grouped(items, rng.sample(range(len(items)), 2))
    of = {n: min(group) for group in groups for n in group}
    waits: dict[int, set[int]] = {}
    for n, item in enumerate(items):
        at = of.get(n, n)
        waits.setdefault(at, set()).update(of.get(i, i) for i in item.inputs if of.get(i, i) != at)
    while ready := [at for at, others in waits.items() if not others]:
        for at in ready:
            del waits[at]
        for others in waits.values():
            others.difference_update(ready)
    assert not waits


def test_another_shape_of_a_structure_has_its_groups() -> None:
    """But for shapes that were others, and are equal now."""

    def items(a: tuple[int, ...], b: tuple[int, ...]) -> list[Item]:
        return [Item((), None), Item((0,), a), Item((1,), b), Item((2,), a), Item((1,), a)]

    first = grouped(items((2, 3), (2, 1)), [3, 4])
    assert grouped(items((5, 7), (5, 1)), [3, 4]) == first == [[1, 4]]
    assert grouped(items((4, 4), (4, 4)), [3, 4]) == [[1, 2, 3, 4]]


@pytest.mark.parametrize("seed", range(6))
def test_results_lie_as_all_that_is_read_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.choice([1, 3, 5, 8], rng.integers(2, 6)).tolist())
    order = rng.permutation(len(shape)).tolist()
    kinds = rng.choice(["f4", "f8", "i4", "i8"], 2)
    x, y = (rng.integers(-9, 9, shape).astype(k).transpose(order) for k in kinds)
    row = np.arange(x.shape[-1], dtype="f4")
    program = cb.jit(lambda a, b, c: ((a * 2 + b) * c, a - b))
    steps = cb.jit(lambda a, b, c: ((a * 2 + b) * c).sum(0) - b[0])
    for given in ((x, y), (np.ascontiguousarray(x), y), (x[::-1], y[::-1])):
        one, two = (cb.tensor(g) for g in given)
        for _ in range(3):
            scaled, less = program(one, two, cb.tensor(row))
            summed = steps(one, two, cb.tensor(row))
        np.testing.assert_array_equal(scaled.numpy(), (given[0] * 2 + given[1]) * row)
        np.testing.assert_array_equal(less.numpy(), given[0] - given[1])
        want = ((given[0] * 2 + given[1]) * row).sum(0) - given[1][0]
        np.testing.assert_allclose(summed.numpy(), want, rtol=1e-4)
        if given[0] is x:
            lies = np.argsort([-s for s, n in zip(x.strides, x.shape, strict=True) if n > 1])
            for found in (scaled.numpy(), less.numpy()):
                steps_of_it = [-s for s, n in zip(found.strides, x.shape, strict=True) if n > 1]
                np.testing.assert_array_equal(np.argsort(steps_of_it), lies)
