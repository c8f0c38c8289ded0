"""Numbers that are written into functions: whoever reads one in another shape reads the number.

An array of one number, stretched or filled, stays for those that need it as it is.
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
    schedule, known = _numbered(schedule)
    specs = schedule.specs
    if not known:
        return schedule
    steps: list[Step] = []
    for step in schedule.steps:
        if OPS[step.op].kind == "map" and not known.keys().isdisjoint(step.inputs):
            inputs = tuple([known.get(i, i) for i in step.inputs])
            given = [specs[i] for i in inputs if i != ABSENT]
            if _written(step, specs) and broadcast(*given) == specs[step.results[0]].shape:
                step = replace(step, inputs=inputs)
        steps.append(step)
    return schedule.with_steps(steps)


def _numbered(schedule: Schedule) -> tuple[Schedule, dict[int, int]]:
    """The schedule with a literal beside each array that is filled with one, and all values that
    are literals in another shape.
    """
    known = stretched(schedule)
    specs, steps = dict(schedule.specs), list[Step]()
    for step in schedule.steps:
        steps.append(step)
        if step.op == "full":
            filled, number = step.results[0], max(specs) + 1
            dtype, value = specs[filled].dtype, step.attrs["value"]
            kind = bool if dtype.name == "bool_" else float if dtype.is_float else int
            attrs = {"value": kind(value), "dtype": dtype.name}
            if attrs["value"] == value and written.literal("constant", attrs):
                steps.append(Step("constant", (), attrs, (number,)))
                specs[number], known[filled] = Spec((), dtype), number
    return replace(schedule, steps=tuple(steps), specs=specs), known


def _written(step: Step, specs: dict[int, Spec]) -> bool:
    """Whether a step can be one of a function, whatever its shape."""
    dtypes = [specs[i].dtype for i in step.read]
    result = specs[step.results[0]].dtype
    return len(step.results) == 1 and written.writable(step.op, step.attrs, dtypes, result)
