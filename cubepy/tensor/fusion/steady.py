"""What a program computes of weights alone: done once, and kept until a weight changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from cubepy.tensor.fusion.schedule import Schedule, Step, graph_of
from cubepy.tensor.ir import Graph
from cubepy.tensor.ops import OPS, Spec

LOOKS = ("reshape", "permute", "expand", "slice", "detach", "contiguous")
"""Ops that may look at the memory of their input."""
COPY = object()


class Preparation(NamedTuple):
    """How an input of a fused graph is made of inputs of the traced one.

    Attributes:
        inputs: their numbers.
        graph: of these, to the one output.
    """

    inputs: tuple[int, ...]
    graph: Graph


def steady(schedule: Schedule, given: Iterable[int]) -> set[int]:
    """The values that depend on steady inputs, or on nothing.

    Args:
        schedule: the steps.
        given: the inputs that are steady.
    """
    found = set(given)
    for step in schedule.steps:
        if OPS[step.op].kind not in ("opaque", "effect") and found.issuperset(step.read):
            found.update(step.results)
    return found


def prepared(schedule: Schedule, given: Iterable[int]) -> tuple[Schedule, list[Preparation]]:
    """The schedule where what steady inputs alone decide are inputs, behind those that it still
    reads, and how these are made. Views of inputs stay: they are free.
    """
    inputs = set(given)
    values = steady(schedule, inputs)
    by = {r: s for s in schedule.steps for r in s.results}
    memory = _memory_of(schedule, inputs, values)
    wanted: dict[int, None] = {}
    for step in schedule.steps:
        if not values.issuperset(step.results):
            for i in values.intersection(step.read):
                i = memory[i]
                if i not in inputs and _of_inputs(i, by, inputs):
                    wanted[i] = None
    made = [_preparation(schedule, value, by) for value in wanted]
    left = schedule.with_steps([s for s in schedule.steps if not set(s.results) & wanted.keys()])
    read = {i for s in left.steps for i in s.read} | set(left.outputs)
    kept = [i for i in schedule.inputs if i in read or i not in inputs]
    return replace(left, inputs=(*kept, *wanted)), made


def _memory_of(schedule: Schedule, inputs: set[int], values: set[int]) -> dict[int, int]:
    """By values: themselves, or the value that they look at, if memory has no gaps.

    Args:
        schedule: the steps.
        inputs: some of its inputs.
        values: these and what is made of them.
    """
    specs, seen = schedule.specs, dict[int, Any]()
    memory = {i: i for i in inputs}
    for step in schedule.steps:
        if not values.issuperset(step.results):
            continue
        memory.update((i, i) for i in step.results)
        if step.op in LOOKS:
            i, result = step.inputs[0], step.results[0]
            seen[result] = _looked(step, seen[i] if i in seen else _whole(specs[i]), specs[result])
            if seen[result] is not COPY:
                memory[result] = memory[i]
            else:
                del seen[result]
    return memory


def _looked(step: Step, x: Any, result: Spec) -> Any:
    """What a step sees of an array; COPY where it has to copy, None where lengths are not known."""
    if x is None or not _known(result):
        return None
    if step.op == "contiguous":
        return x if x.flags.c_contiguous else COPY
    if step.op != "reshape":
        try:
            return OPS[step.op].run(x.dtype, x, **step.attrs)
        except TypeError:  # an index that is no number
            return None
    if x.flags.c_contiguous:
        return x.reshape(result.shape)
    try:
        return np.reshape(x, result.shape, copy=False)
    except (ValueError, TypeError):  # NumPy 1 has no such argument
        return COPY


def _whole(spec: Spec) -> Any:
    """An array of one byte with the shape and strides of one without gaps."""
    if not _known(spec):
        return None
    strides = [1]
    for n in reversed(spec.shape[1:]):
        strides.append(strides[-1] * max(1, n))
    return as_strided(np.zeros(1, np.uint8), spec.shape, strides[: len(spec.shape)][::-1])


def _known(spec: Spec) -> bool:
    """Whether lengths are numbers; in a pattern for graphs of many sizes some are not."""
    return all(type(n) is int for n in spec.shape)


def _of_inputs(value: int, by: dict[int, Step], inputs: set[int]) -> bool:
    """Whether a value is made of an input by more than numbers."""
    stack, seen = [value], set[int]()
    while stack:
        i = stack.pop()
        if i in inputs:
            return True
        if i in by and i not in seen:
            seen.add(i)
            stack += by[i].read
    return False


def _preparation(schedule: Schedule, value: int, by: dict[int, Step]) -> Preparation:
    """How a value is made."""
    needed, stack = set[int](), [value]
    while stack:
        i = stack.pop()
        if i not in needed:
            needed.add(i)
            stack += by[i].read if i in by else ()
    inputs = tuple(i for i in schedule.inputs if i in needed)
    steps = tuple(s for s in schedule.steps if needed.intersection(s.results))
    part = replace(schedule, steps=steps, inputs=inputs, outputs=(value,))
    return Preparation(inputs, graph_of(part))
