"""Numbers that are written into functions: whoever reads one in another shape reads the number.

An array of one number stays what it is, a view of that number, and needs no memory.
"""

from __future__ import annotations

from dataclasses import replace

from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.ops.op import broadcast


def stretched(schedule: Schedule) -> dict[int, int]:
    """Values that are a literal in another shape, and the literal."""
    found: dict[int, int] = {}
    numbers: set[int] = set()
    for step in schedule.steps:
        if step.op == "constant":
            if written.literal(step.op, step.attrs):
                numbers.update(step.results)
        elif step.op == "expand" and step.inputs[0] in numbers:
            found[step.results[0]] = step.inputs[0]
    return found


def read_literals(schedule: Schedule) -> Schedule:
    """The schedule where maps read literals as numbers, if the others that they read say what shape
    they have.
    """
    known, specs = stretched(schedule), schedule.specs
    if not known:
        return schedule
    steps: list[Step] = []
    for step in schedule.steps:
        if OPS[step.op].kind == "map" and not known.keys().isdisjoint(step.inputs):
            inputs = tuple([known.get(i, i) for i in step.inputs])
            given = [specs[i] for i in inputs if i != ABSENT]
            if broadcast(*given) == specs[step.results[0]].shape and _written(step, specs):
                step = replace(step, inputs=inputs)
        steps.append(step)
    return schedule.with_steps(steps)


def _written(step: Step, specs: dict[int, Spec]) -> bool:
    """Whether a step can be one of a function, whatever its shape."""
    dtypes = [specs[i].dtype for i in step.read]
    result = specs[step.results[0]].dtype
    return len(step.results) == 1 and written.writable(step.op, step.attrs, dtypes, result)
