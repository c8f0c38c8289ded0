"""Maps on write behind convolutions: what scales and shifts channels (batch normalisation that does
not train) goes into filters and bias that stay, a residual and an activation into the launch.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from cubepy.lang.dtypes import DType, bf16, f16, f32
from cubepy.tensor.fusion.products.epilogues import ACTIVATIONS, named
from cubepy.tensor.fusion.products.packed import packed_filter
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.fusion.steady import steady
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.convolution import conv_size
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import define

AFFINE = ("add", "sub", "mul", "div")
Ints = tuple[int, ...]


def _run_conv(
    dtype: Any,
    x: Any,
    weight: Any,
    bias: Any,
    residual: Any,
    how: tuple[Ints, Ints, Ints, int],
    filters: Ints | None,
    activation: str | None,
    precision: str | None = None,
) -> Any:
    stride, padding, dilation, groups = how
    w = weight if filters is None else packed_filter(weight, filters, groups)
    function = getattr(kernels(), f"conv{len(stride)}d")
    epilogue = {"activation": activation, "add": residual, "precision": precision}
    return function(x, w, bias, stride, padding, dilation, groups, **epilogue)


@define("product", {"fused_conv": _run_conv})
def _fused_conv(
    x: Spec,
    weight: Spec,
    bias: Spec | None,
    residual: Spec | None,
    how: tuple[Ints, Ints, Ints, int],
    filters: Ints | None,
    activation: str | None,
    precision: str | None = None,
) -> Spec:
    """activation(conv + residual): `how` is stride, padding, dilation and groups; `filters` is the
    shape of the weight if that is packed.
    """
    stride, padding, dilation, _ = how
    shape = weight.shape if filters is None else filters
    size = conv_size(x.shape[2:], shape[2:], stride, padding, dilation)
    return Spec((x.shape[0], shape[0], *size), x.dtype)


def fuse_convolutions(
    schedule: Schedule, given: Iterable[int], dtypes: Collection[DType] = (f32,)
) -> Schedule:
    """The schedule where convolutions do what only follows them.

    What scales and shifts channels of 16-bit floats in f32 goes into filters in f32, which are
    rounded once, at the end.

    Args:
        schedule: of single steps.
        given: the inputs that stay: channels are scaled and shifted by what is made of these alone.
        dtypes: of convolutions that are looked at.
    """
    if not any(s.op == "conv" for s in schedule.steps):
        return schedule
    return _Convolutions(schedule, set(given), dtypes).schedule()


class _Convolutions:
    """A schedule while steps join its convolutions.

    Attributes:
        specs: of all values.
        values: those that stay.
        alone: those that one step reads, and nobody else.
        made_by: by value, where its step is.
    """

    def __init__(self, schedule: Schedule, given: set[int], dtypes: Collection[DType]) -> None:
        self.given, self.specs = schedule, dict(schedule.specs)
        self.values = steady(schedule, given) if given else set()
        self.steps: list[list[Step]] = [[_begun(s, schedule, dtypes)] for s in schedule.steps]
        readers: dict[int, int] = {}
        for step in schedule.steps:
            for i in step.read:
                readers[i] = readers.get(i, 0) + 1
        self.alone = {i for i, n in readers.items() if n == 1 and i not in schedule.outputs}
        self.made_by = {s.results[0]: n for n, s in enumerate(schedule.steps)}

    def schedule(self) -> Schedule:
        """The steps; a convolution runs where the last one is that it does."""
        for n, step in enumerate(self.given.steps):
            for source in step.read:
                conv = self.convolution(source)
                done = None if conv is None else self.joined(conv, step, source)
                if done is not None:
                    self.steps[self.made_by[source]].pop()
                    self.steps[n] = done
                    self.made_by[step.results[0]] = n
                    break
        single = [one for steps in self.steps for s in steps for one in self.ended(s)]
        return replace(self.given, specs=self.specs).with_steps(single)

    def convolution(self, value: int) -> Step | None:
        """The convolution that makes a value which one step reads."""
        at = self.made_by.get(value) if value in self.alone else None
        step = None if at is None else self.steps[at][-1]
        return step if step is not None and step.op == "fused_conv" else None

    def joined(self, conv: Step, step: Step, source: int) -> list[Step] | None:
        """The steps that do a convolution and what follows; None where that cannot be."""
        spec, wide = self.specs[step.results[0]], conv.attrs["wide"]
        if step.op == "cast" and spec.dtype is self.specs[conv.inputs[0]].dtype and wide:
            return self.narrowed(conv, step.results)
        if conv.attrs["activation"] is not None:
            return None
        if step.op == "cast" and spec.dtype is f32 and not wide:
            return self.widened(conv, step.results)
        if spec != self.specs[source]:
            return None
        if step.op in ACTIVATIONS:
            attrs = {**conv.attrs, "activation": named(step)}
            return [replace(conv, attrs=attrs, results=step.results)]
        if step.op not in AFFINE or len(step.read) != 2 or step.inputs[0] == step.inputs[1]:
            return None
        left = step.inputs[0] == source
        other = step.inputs[1] if left else step.inputs[0]
        free = conv.inputs[3] == ABSENT
        if step.op == "add" and free and self.specs[other] == spec and not wide:
            return [replace(conv, inputs=(*conv.inputs[:3], other), results=step.results)]
        stay = {conv.inputs[1], other} <= self.values and self.by_channel(other, len(spec.shape))
        stay = stay and self.specs[conv.inputs[1]].dtype is f32
        if stay and free and (left or step.op in ("add", "mul")):
            return self.affine(conv, step, other)
        return None

    def by_channel(self, value: int, rank: int) -> bool:
        """Whether a value is a number for each channel, or for all."""
        shape, dtype = self.specs[value]
        whole = (1,) * (rank - len(shape)) + shape
        return dtype in (f32, f16, bf16) and all(n == 1 for d, n in enumerate(whole) if d != 1)

    def new(self, made: list[Step], op: str, inputs: Ints, to: Spec, **attrs: Any) -> int:
        """A value of another step, which stays."""
        value = max(self.specs) + 1
        self.specs[value] = to
        self.values.add(value)
        made.append(Step(op, inputs, attrs, (value,)))
        return value

    def cast(self, made: list[Step], value: int, dtype: DType) -> int:
        """A value in another dtype."""
        shape, before = self.specs[value]
        if before is dtype:
            return value
        return self.new(made, "cast", (value,), Spec(shape, dtype), dtype=dtype.name)

    def widened(self, conv: Step, results: Ints) -> list[Step] | None:
        """A convolution of 16-bit floats whose result is f32, until it is rounded."""
        if conv.inputs[3] != ABSENT or conv.inputs[1] not in self.values:
            return None
        if conv.inputs[2] not in (ABSENT, *self.values):
            return None
        return self.in_dtype(conv, f32, results)

    def narrowed(self, conv: Step, results: Ints) -> list[Step]:
        """The same where it is rounded."""
        return self.in_dtype(conv, self.specs[conv.inputs[0]].dtype, results)

    def in_dtype(self, conv: Step, dtype: DType, results: Ints) -> list[Step]:
        made: list[Step] = []
        x, weight, bias, residual = conv.inputs
        bias = bias if bias == ABSENT else self.cast(made, bias, dtype)
        inputs = (x, self.cast(made, weight, dtype), bias, residual)
        attrs = {**conv.attrs, "wide": dtype is not self.specs[x].dtype}
        return [*made, replace(conv, inputs=inputs, attrs=attrs, results=results)]

    def affine(self, conv: Step, step: Step, other: int) -> list[Step]:
        """A convolution whose filters and bias do the arithmetic of a step, too."""
        weight, bias = conv.inputs[1:3]
        shape = self.specs[weight].shape
        filters = shape[0]
        made: list[Step] = []

        def new(op: str, inputs: tuple[int, ...], size: Ints, **attrs: Any) -> int:
            return self.new(made, op, inputs, Spec(size, f32), **attrs)

        flat = (math.prod(self.specs[other].shape),)
        channel = new("reshape", (self.cast(made, other, f32),), flat, shape=flat)
        if flat != (filters,):
            channel = new("expand", (channel,), (filters,), shape=(filters,))
        if step.op in ("mul", "div"):
            along = (filters, *(1,) * (len(shape) - 1))
            scale = new("reshape", (channel,), along, shape=along)
            weight = new(step.op, (weight, scale), shape)
            bias = bias if bias == ABSENT else new(step.op, (bias, channel), (filters,))
        elif bias != ABSENT:
            bias = new(step.op, (bias, channel), (filters,))
        else:
            bias = channel if step.op == "add" else new("neg", (channel,), (filters,))
            if self.specs[other].shape != (filters,):
                bias = new("contiguous", (bias,), (filters,))
        inputs = (conv.inputs[0], weight, bias, conv.inputs[3])
        return [*made, replace(conv, inputs=inputs, results=step.results)]

    def ended(self, step: Step) -> list[Step]:
        """A step as it will run: a convolution that took nothing as it was."""
        if step.op != "fused_conv":
            return [step]
        if step.attrs["wide"]:  # nobody rounded its result
            shape, _ = self.specs[step.results[0]]
            dtype, result = self.specs[step.inputs[0]].dtype, max(self.specs) + 1
            self.specs[result] = Spec(shape, dtype)
            *made, conv = self.narrowed(step, (result,))
            cast = Step("cast", (result,), {"dtype": "f32"}, step.results)
            return [*made, *self.ended(conv), cast]
        attrs = {name: value for name, value in step.attrs.items() if name != "wide"}
        if attrs["activation"] is not None or step.inputs[3] != ABSENT:
            return [replace(step, attrs=attrs)]
        names = ("stride", "padding", "dilation", "groups")
        plain = dict(zip(names, attrs["how"], strict=True))
        plain["precision"] = attrs["precision"]
        return [Step("conv", step.inputs[:3], plain, step.results)]


def _begun(step: Step, schedule: Schedule, dtypes: Collection[DType]) -> Step:
    """A convolution as one that may take more; another step as it is. It is `wide` while its result
    is f32, and its input 16-bit floats.
    """
    read = {schedule.specs[i].dtype for i in step.read}
    if step.op != "conv" or len(read) > 1 or not read.issubset(dtypes):
        return step
    a = step.attrs
    how = a["stride"], a["padding"], a["dilation"], a["groups"]
    attrs = {"how": how, "filters": None, "activation": None, "precision": a["precision"]}
    return replace(
        step, op="fused_conv", inputs=(*step.inputs, ABSENT), attrs={**attrs, "wide": False}
    )
