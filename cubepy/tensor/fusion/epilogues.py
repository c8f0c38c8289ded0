"""Maps on write behind linear layers: activations and residuals that their launch does as well."""

from __future__ import annotations

from dataclasses import replace

from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ir import ABSENT

ACTIVATIONS = ("relu", "silu", "sigmoid", "tanh", "gelu")


def fuse_epilogues(schedule: Schedule) -> Schedule:
    """The schedule where what only an activation or a residual addition reads of a linear layer is
    not stored: the layer's own launch does them.
    """
    steps = list(schedule.steps)
    made_by = {r: n for n, s in enumerate(steps) for r in s.results}
    readers: dict[int, int] = {}
    for step in steps:
        for i in step.read:
            readers[i] = readers.get(i, 0) + 1
    alone = {i for i, n in readers.items() if n == 1 and i not in schedule.outputs}
    for n, step in enumerate(steps):
        source = next(
            (i for i in step.read if _takes(step, i, steps, made_by, alone, schedule)), None
        )
        if source is None:
            continue
        linear = steps[made_by[source]]
        steps[made_by[source]] = replace(linear, op="", results=())  # runs later, as this step
        steps[n] = _with(linear, step, source)
        made_by[step.results[0]] = n
    return schedule.with_steps([s for s in steps if s.op])


def _takes(
    step: Step,
    source: int,
    steps: list[Step],
    made_by: dict[int, int],
    alone: set[int],
    schedule: Schedule,
) -> bool:
    """Whether a linear layer that made a value can do a step as well."""
    if source not in made_by or source not in alone:
        return False
    linear = steps[made_by[source]]
    specs = schedule.specs
    result = specs[step.results[0]]
    if linear.op != "linear" or specs[source] != result or result.dtype.bits > 32:
        return False
    if step.op in ACTIVATIONS:
        return linear.attrs["activation"] is None and linear.inputs[3] == ABSENT
    if step.op != "add" or linear.inputs[3] != ABSENT or step.inputs[0] == step.inputs[1]:
        return False
    other = step.inputs[1] if step.inputs[0] == source else step.inputs[0]
    return specs[other] == result


def _with(linear: Step, step: Step, source: int) -> Step:
    """A linear layer that does a step as well."""
    if step.op == "add":
        other = step.inputs[1] if step.inputs[0] == source else step.inputs[0]
        return replace(linear, inputs=(*linear.inputs[:3], other), results=step.results)
    return replace(linear, attrs={**linear.attrs, "activation": named(step)}, results=step.results)


def named(step: Step) -> str:
    """An activation as kernels call it."""
    tanh = step.op == "gelu" and step.attrs["approximate"] == "tanh"
    return "gelu_tanh" if tanh else step.op
