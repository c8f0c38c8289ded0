"""Maps on write behind products with one matrix: bias, activation and residual, which their launch
does as well.
"""

from __future__ import annotations

from dataclasses import replace

from cubepy.lang.dtypes import f32
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.ops import Spec

ACTIVATIONS = ("relu", "silu", "sigmoid", "tanh", "gelu")


def fuse_epilogues(schedule: Schedule) -> Schedule:
    """The schedule where what only the addition of a bias, an activation or a residual addition
    reads of a product with a matrix is not stored: the product's own launch does them.
    """
    schedule = _as_linear(schedule)
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
        steps[n] = _with(linear, step, source, schedule.specs)
        made_by[step.results[0]] = n
    return schedule.with_steps([s for s in steps if s.op])


def _as_linear(schedule: Schedule) -> Schedule:
    """The schedule where products of f32 with one matrix, which something is added to or an
    activation follows, are linear layers without a bias; the weight is a view of the matrix.
    """
    specs, steps = dict(schedule.specs), list[Step]()
    followed = {i for s in schedule.steps if s.op in (*ACTIVATIONS, "add") for i in s.read}
    for step in schedule.steps:
        given = [specs[i] for i in step.read]
        floats = all(g.dtype is f32 for g in given)
        if step.op == "matmul" and step.results[0] in followed and floats:
            a, b = given
            if len(b.shape) == 2 and len(a.shape) > 1:
                weight = max(specs) + 1
                specs[weight] = Spec((b.shape[1], b.shape[0]), b.dtype)
                steps.append(Step("permute", (step.inputs[1],), {"axes": (1, 0)}, (weight,)))
                inputs = (step.inputs[0], weight, ABSENT, ABSENT)
                step = Step("linear", inputs, {"activation": None}, step.results)
        steps.append(step)
    return replace(schedule, steps=tuple(steps), specs=specs)


def _is_bias(value: int, specs: dict[int, Spec], columns: int) -> bool:
    """Whether a value is a number for each column."""
    return specs[value].shape == (columns,) and specs[value].dtype is f32


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
    first = linear.inputs[2] == ABSENT and linear.attrs["activation"] is None
    bias = first and result.dtype is f32 and _is_bias(other, specs, result.shape[-1])
    return bias or specs[other] == result


def _with(linear: Step, step: Step, source: int, specs: dict[int, Spec]) -> Step:
    """A linear layer that does a step as well."""
    if step.op == "add":
        other = step.inputs[1] if step.inputs[0] == source else step.inputs[0]
        whole = specs[other] == specs[source]
        rest = (linear.inputs[2], other) if whole else (other, ABSENT)
        return replace(linear, inputs=(*linear.inputs[:2], *rest), results=step.results)
    return replace(linear, attrs={**linear.attrs, "activation": named(step)}, results=step.results)


def named(step: Step) -> str:
    """An activation as kernels call it."""
    tanh = step.op == "gelu" and step.attrs["approximate"] == "tanh"
    return "gelu_tanh" if tanh else step.op
