"""Maps on write behind products with one matrix, which their launch does as well: bias, activation,
a residual before or behind it, and a gate, by which all is multiplied.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from cubepy.lang.dtypes import bf16, f16, f32
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.ops import OPS, Spec

ACTIVATIONS = ("relu", "silu", "sigmoid", "tanh", "gelu")
LAYERS = ("linear", "fused_linear")
FLOATS = (f32, f16, bf16)


def fuse_epilogues(schedule: Schedule, packed: Collection[int] = ()) -> Schedule:
    """The schedule where what only the addition of a bias, an activation, a residual addition or a
    product of the same shape reads of a product with a matrix is not stored: the product's own
    launch does them.

    Args:
        schedule: of single steps.
        packed: inputs that are not dense; products with these take activations and residuals
            behind them.
    """
    layers = _as_linear(schedule)
    return _as_products(_Products(layers, set(packed)).schedule(), schedule)


def _as_linear(schedule: Schedule) -> Schedule:
    """The schedule where products of floats with one matrix, which something is added to, or is
    multiplied by, or an activation follows, are linear layers without a bias; the weight is a view
    of the matrix.
    """
    specs, steps = dict(schedule.specs), list[Step]()
    ends = (*ACTIVATIONS, "add", "mul")
    followed = {i for s in schedule.steps if s.op in ends for i in s.read}
    for step in schedule.steps:
        if step.op == "matmul" and step.results[0] in followed:
            a, b = [specs[i] for i in step.read]
            floats = a.dtype is b.dtype and a.dtype in FLOATS
            if floats and len(b.shape) == 2 and len(a.shape) > 1:
                weight = max(specs) + 1
                specs[weight] = Spec((b.shape[1], b.shape[0]), b.dtype)
                steps.append(Step("permute", (step.inputs[1],), {"axes": (1, 0)}, (weight,)))
                inputs = (step.inputs[0], weight, ABSENT, ABSENT)
                step = Step("linear", inputs, {"activation": None}, step.results)
        steps.append(step)
    return replace(schedule, steps=tuple(steps), specs=specs)


def _as_products(schedule: Schedule, given: Schedule) -> Schedule:
    """The schedule where layers that nothing joined are the products that they were."""
    was = {s.results[0]: s for s in given.steps if s.op == "matmul"}
    bare = {"activation": None}
    steps = [
        was[s.results[0]]
        if s.results[0] in was and s.inputs[2:] == (ABSENT, ABSENT) and s.attrs == bare
        else s
        for s in schedule.steps
    ]
    return schedule.with_steps(steps)


class _Products:
    """A schedule while steps join its products.

    Attributes:
        packed: inputs that are not dense.
        alone: values that one step reads, and nobody else.
        made_by: by value, where its step is.
    """

    def __init__(self, schedule: Schedule, packed: set[int]) -> None:
        self.given, self.specs, self.packed = schedule, schedule.specs, packed
        self.steps = list(schedule.steps)
        self.made_by = {r: n for n, s in enumerate(self.steps) for r in s.results}
        readers: dict[int, int] = {}
        for step in self.steps:
            for i in step.read:
                readers[i] = readers.get(i, 0) + 1
        self.alone = {i for i, n in readers.items() if n == 1 and i not in schedule.outputs}

    def schedule(self) -> Schedule:
        """The steps; a product runs where the last one is that it does."""
        for n, step in enumerate(self.given.steps):
            for source in step.read:
                found = self.joined(step, source)
                if found is not None:
                    at = self.made_by[source]
                    self.steps[at] = replace(self.steps[at], op="", results=())
                    self.steps[n] = found
                    self.made_by[step.results[0]] = n
                    break
        return self.given.with_steps([s for s in self.steps if s.op])

    def joined(self, step: Step, source: int) -> Step | None:
        """A linear layer that does a step as well; None where that cannot be."""
        if source not in self.made_by or source not in self.alone:
            return None
        linear = self.steps[self.made_by[source]]
        result = self.specs[step.results[0]]
        if linear.op not in LAYERS or self.specs[source] != result or result.dtype.bits > 32:
            return None
        if step.op in ACTIVATIONS:
            return self.activated(linear, step)
        if step.op not in ("add", "mul") or step.inputs[0] == step.inputs[1]:
            return None
        other = step.inputs[1] if step.inputs[0] == source else step.inputs[0]
        if linear.inputs[3] != ABSENT:
            return None
        whole = self.specs[other] == result
        if step.op == "mul":
            gated = whole and self.dense(linear) and self.stored(other)
            return _with(linear, (linear.inputs[2], other), step, "gate") if gated else None
        if whole:
            return replace(linear, inputs=(*linear.inputs[:3], other), results=step.results)
        first = linear.inputs[2] == ABSENT and linear.attrs["activation"] is None
        if (
            first
            and result.dtype in FLOATS
            and self.specs[other] == Spec(result.shape[-1:], result.dtype)
        ):
            return replace(linear, inputs=(*linear.inputs[:2], other, ABSENT), results=step.results)
        return None

    def activated(self, linear: Step, step: Step) -> Step | None:
        """A linear layer with an activation, which a residual comes before."""
        if linear.attrs["activation"] is not None or linear.attrs.get("joined") == "gate":
            return None
        if linear.inputs[3] != ABSENT:
            if not self.dense(linear):
                return None
            linear = _with(linear, linear.inputs[2:], step, "add")
        attrs = {**linear.attrs, "activation": named(step)}
        return replace(linear, attrs=attrs, results=step.results)

    def dense(self, linear: Step) -> bool:
        """Whether a layer is of floats, and its weight no packed one."""
        floats = all(self.specs[i].dtype in FLOATS for i in linear.read)
        return floats and self.packed.isdisjoint(linear.read)

    def stored(self, value: int) -> bool:
        """Whether a value is in memory anyway: not the result of a map that would join the
        product by it.
        """
        at = self.made_by.get(value)
        return at is None or value not in self.alone or OPS[self.steps[at].op].kind != "map"


def _with(linear: Step, rest: tuple[int, ...], step: Step, joined: str) -> Step:
    """A linear layer with a bias and what its sums are joined with."""
    attrs = {"columns": None, "activation": linear.attrs["activation"], "joined": joined}
    return Step("fused_linear", (*linear.inputs[:2], *rest), attrs, step.results)


def named(step: Step) -> str:
    """An activation as kernels call it."""
    tanh = step.op == "gelu" and step.attrs["approximate"] == "tanh"
    return "gelu_tanh" if tanh else step.op
