"""Softmax and norms along the last axis beside maps as the reductions and maps that they are, so
that a residual, a scale or a mask is in their launch. On their own they stay the library's kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from cubepy.lang.dtypes import DType, f32, f64
from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.literals import stretched
from cubepy.tensor.fusion.reductions.rows import BUFFERED
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.ops import OPS, Spec

NORMS = ("softmax", "log_softmax", "layer_norm", "rms_norm")
LONG_ROWS, FEW_ELEMENTS = 1536, 1 << 15
"""Elements of a row from which on norms of fewer elements in all stay the library's on the host:
its loops over what the first cache just holds are quicker than those of a group (0.84 to 1.1 times
as fast together, Xeon with AVX-512, one thread).
"""
LONGEST_ON_GPU = {"softmax": 4096, "log_softmax": 4096, "layer_norm": 8192, "rms_norm": 8192}
"""Elements of rows up to which they are written out on a GPU, where units hold the rows in
registers: one launch is 0.97 to 1.7 times as fast as the two that it stands for
(`asv_benchmarks/gpu_fusion.py`, H200).
"""
Opened = dict[int, set[int]]
"""By the result of a softmax or norm, the values within it."""


def open_rows(
    schedule: Schedule, closed: set[int], on_host: bool = True
) -> tuple[Schedule, Opened]:
    """The schedule with softmax and norms beside maps written out, and what is within each.

    Args:
        schedule: of single ops.
        closed: results of those that stay as they are.
        on_host: whether it will run on a CPU.
    """
    specs, steps, found = dict(schedule.specs), list[Step](), Opened()
    chosen = set(_beside_maps(schedule, on_host)) - closed
    if not chosen:
        return schedule, found
    numbers = itertools.count(max(specs) + 1)
    for step in schedule.steps:
        result = step.results[0]
        if result in chosen:
            made = _Written(step, specs, numbers).steps
            found[result] = {r for s in made for r in s.results} - {result}
            steps += made
        else:
            steps.append(step)
    return replace(schedule, steps=tuple(steps), specs=specs), found


def split(schedule: Schedule, opened: Opened) -> set[int]:
    """The softmax and norms of which a fused schedule has parts as steps of their own."""
    left = {r for s in schedule.steps if s.op != "constant" for r in s.results}
    return {result for result, within in opened.items() if left & within}


def _beside_maps(schedule: Schedule, on_host: bool) -> Iterator[int]:
    """The softmax and norms of rows that read a map of this shape, or are read by one."""
    specs, alone = schedule.specs, stretched(schedule)
    maps = {s.results[0] for s in schedule.steps if _is_map(s, specs)} - alone.keys()
    for step in schedule.steps:
        if step.op not in NORMS or not _of_rows(step, specs, on_host):
            continue
        result, shape = step.results[0], specs[step.results[0]].shape
        near = [step.inputs[0], *schedule.readers[result]]
        if any(i in maps and specs[i].shape == shape for i in near):
            yield result


def _is_map(step: Step, specs: dict[int, Spec]) -> bool:
    """Whether a step computes, and can be part of a function."""
    if OPS[step.op].kind != "map" or len(step.results) != 1:
        return False
    dtypes = [specs[i].dtype for i in step.read]
    return written.writable(step.op, step.attrs, dtypes, specs[step.results[0]].dtype)


def _of_rows(step: Step, specs: dict[int, Spec], on_host: bool) -> bool:
    """Whether a softmax or norm is of floats along the last axis alone, and of rows that pay."""
    given, shape = specs[step.inputs[0]], specs[step.results[0]].shape
    if not given.dtype.is_float or given.dtype.storage_only or 0 in shape or not shape:
        return False
    if not 1 < shape[-1] <= (BUFFERED if on_host else LONGEST_ON_GPU[step.op]):
        return False
    if on_host and shape[-1] >= LONG_ROWS and math.prod(shape) < FEW_ELEMENTS:
        return False
    if "axis" in step.attrs:
        return bool(step.attrs["axis"] % len(shape) == len(shape) - 1)
    return len(step.attrs["normalized_shape"]) == 1


class _Written:
    """A softmax or norm as other steps.

    Attributes:
        steps: they.
    """

    def __init__(self, step: Step, specs: dict[int, Spec], numbers: Iterator[int]) -> None:
        self.specs, self.steps, self.numbers = specs, list[Step](), numbers
        self.result = step.results[0]
        x, self.shape = step.inputs[0], specs[self.result].shape
        self.dtype = specs[self.result].dtype
        method: Callable[..., list[Any]] = getattr(self, step.op)
        op, *inputs = method(x, *step.inputs[1:], **step.attrs)
        self.steps.append(Step(op, tuple(inputs), {}, (self.result,)))

    def map(self, op: str, *inputs: int, **attrs: Any) -> int:
        """A new value that a map gives."""
        whole = any(self.specs[i].shape == self.shape for i in inputs)
        return self.new(op, inputs, attrs, self.shape if whole else (*self.shape[:-1], 1))

    def row(self, op: str, x: int) -> int:
        """A new value that a reduction gives."""
        return self.new(op, (x,), {"axis": -1, "keepdims": True}, (*self.shape[:-1], 1))

    def new(
        self,
        op: str,
        inputs: Any,
        attrs: dict[str, Any],
        shape: tuple[int, ...],
        dtype: DType | None = None,
    ) -> int:
        """A new value."""
        value = next(self.numbers)
        self.specs[value] = Spec(shape, dtype or self.dtype)
        self.steps.append(Step(op, tuple(inputs), attrs, (value,)))
        return value

    def softmax(self, x: int, axis: int) -> list[Any]:
        """exp(x - max) / sum."""
        e = self.map("exp", self.map("sub", x, self.row("max", x)), below_one=True)
        return ["mul", e, self.map("reciprocal", self.row("sum", e))]

    def log_softmax(self, x: int, axis: int) -> list[Any]:
        """x - max - log(sum(exp(x - max)))."""
        low = self.map("sub", x, self.row("max", x))
        return ["sub", low, self.map("log", self.row("sum", self.map("exp", low, below_one=True)))]

    def layer_norm(
        self, x: int, weight: int, bias: int, normalized_shape: Any, eps: float
    ) -> list[Any]:
        """(x - mean) / sqrt(variance + eps) * weight + bias."""
        centred = self.map("sub", x, self.row("mean", x))
        return self.scaled(centred, centred, weight, bias, eps)

    def rms_norm(self, x: int, weight: int, normalized_shape: Any, eps: float) -> list[Any]:
        """x / sqrt(mean(x * x) + eps) * weight."""
        return self.scaled(x, x, weight, ABSENT, eps)

    def scaled(self, x: int, by: int, weight: int, bias: int, eps: float) -> list[Any]:
        """x / sqrt(mean(by * by) + eps) * weight + bias."""
        wide = f64 if self.dtype.bits == 64 else f32  # a small number is none in 16 bits
        number = self.new("constant", (), {"value": eps, "dtype": wide.name}, (), wide)
        total = self.map("add", self.row("mean", self.map("mul", by, by)), number)
        last: list[Any] = ["mul", x, self.map("rsqrt", total)]
        for op, other in (("mul", weight), ("add", bias)):
            if other != ABSENT:
                last = [op, self.map(last[0], *last[1:]), other]
        return last
