"""The walk back: from values to what they were computed from, the latest first.

Values are numbered as they are made, so a value comes later than everything that it depends on: a
heap of numbers is an order in which every gradient is complete before it is passed on.
"""

from __future__ import annotations

import heapq
import importlib
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from cubepy.errors import GradientError
from cubepy.lang.dtypes import f32, f64
from cubepy.runtime import memory, recording
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tensor.control.again import again
from cubepy.tensor.custom.hooks import met, present
from cubepy.tensor.custom.overwritten import checked, latest
from cubepy.tensor.gradients.rules import Backward, summed_to
from cubepy.tensor.modes import mode
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.movement import as_index, spans, takes_all
from cubepy.tensor.program.observe import active
from cubepy.tensor.storage import HOST, Dense
from cubepy.tensor.value import Call, Value

Tensors = Callable[[Value], Any]


def walk_back(
    seeds: Sequence[tuple[Value, Any]],
    wanted: Iterable[Value] | None,
    tensor_of: Tensors,
    *,
    create_graph: bool = False,
    retain_graph: bool = False,
) -> dict[Value, Any]:
    """Gradients of sums by what they were computed from.

    Args:
        seeds: values, and the gradient (a tensor) by each of them.
        wanted: by what; None for all leaves.
        tensor_of: makes a tensor of a value.
        create_graph: whether the gradients remember how they are computed, so that they have
            gradients themselves.
        retain_graph: whether the calls that were walked can be walked again.

    Returns:
        For each value that was reached, its gradient.

    Raises:
        GradientError: an op on the way has no gradient, or was walked already.
    """
    targets = None if wanted is None else set(wanted)
    useful = None if targets is None else _leading_to(targets, [value for value, _ in seeds])
    pending: dict[int, tuple[Value, Any]] = {}
    heap: list[int] = []

    def add(value: Value, grad: Any) -> None:
        before = pending.get(value.id)
        if before is None:
            heapq.heappush(heap, -value.id)
        elif type(grad) is Parts or type(before[1]) is Parts:
            grad = Parts.together(before[1], grad)
        else:
            grad = before[1] + grad
        pending[value.id] = value, grad

    found: dict[Value, Any] = {}
    walked: list[Call] = []
    before_it, mode.enabled = mode.enabled, create_graph
    try:
        for value, grad in seeds:
            add(value, grad)
        while heap:
            entry = pending.pop(-heapq.heappop(heap), None)
            if entry is None:  # a result of a call that was walked already
                continue
            value, grad = entry
            if type(grad) is Parts:
                grad = grad.joined(value, tensor_of)
            if present[0]:
                grad = met(value, grad)
            if targets is None:
                if value.call is None:
                    found[value] = grad
            elif value in targets:
                found[value] = grad
            if value.call is not None and (useful is None or value in useful):
                _through(value, grad, pending, found, targets, tensor_of, add, useful)
                walked.append(value.call)
    finally:
        mode.enabled = before_it
    if not retain_graph:
        for call in walked:
            call.free()
    return found


def _through(
    value: Value,
    grad: Any,
    pending: dict[int, tuple[Value, Any]],
    found: dict[Value, Any],
    targets: set[Value] | None,
    tensor_of: Tensors,
    add: Callable[[Value, Any], None],
    useful: set[Value] | None,
) -> None:
    """Pass the gradients by the results of a call on to its inputs."""
    call = value.call
    assert call is not None
    if call.inputs is None:
        raise GradientError(
            f"the graph of {call.op!r} was walked already, and what it needs is gone",
            location=call.location(),
            hint="pass retain_graph=True to the first backward() or grad()",
        )
    rule = OPS[call.op].vjp
    if rule is None:
        raise GradientError(
            f"the op {call.op!r} has no gradient",
            location=call.location(),
            hint="use x.detach() where the gradient shall stop, or with cb.no_grad(); "
            "cb.custom_vjp gives functions one",
        )
    inputs = call.inputs
    results: Sequence[Any] = (value,)
    grads = [grad]
    if call.results:
        results, grads = [known() for known in call.results], []
        for one in results:
            if one is value:
                grads.append(grad)
                continue
            entry = None if one is None else pending.pop(one.id, None)
            if entry is not None and type(entry[1]) is Parts:
                entry = entry[0], entry[1].joined(entry[0], tensor_of)
            if entry is not None and present[0]:
                entry = entry[0], met(*entry)
            if entry is not None and targets is not None and entry[0] in targets:
                found[entry[0]] = entry[1]
            grads.append(None if entry is None else entry[1])
    if useful is None:
        needs = tuple([v is not None and v.needs_grad for v in inputs])
    else:
        needs = tuple([v is not None and v.needs_grad and v in useful for v in inputs])
    if call.kept:
        results = [v or kept for v, kept in zip(results, call.kept, strict=True)]
    if latest[0] > value.id:  # a kernel wrote memory since
        inputs, results = (
            tuple(
                [None if v is None else checked(v, value.id, call.op, call.location()) for v in vs]
            )
            for vs in (inputs, results)
        )
    recorder, given = active.get(), None
    if recorder is None and not mode.enabled:
        if call.op == "slice":
            part = Parts.of(inputs[0], grad, call.attrs["index"])
            if part is not None:
                add(call.inputs[0], part)  # type: ignore[arg-type]
                return
        given = again(call, rule, inputs, results, needs, grads)
    if given is None:
        seen = Backward(inputs, results, call.attrs, needs, tensor_of)
        given = (
            rule(seen, *grads) if recorder is None else recorder.back(call.op, rule, seen, grads)
        )
    parts = given if isinstance(given, (tuple, list)) else (given,)
    for n, part in enumerate(parts):
        if part is not None and needs[n]:
            into = call.inputs[n]
            like = into.storage  # type: ignore[union-attr]
            if part.shape != like.shape or part.dtype is not like.dtype:
                part = summed_to(part, like)
            add(into, part)  # type: ignore[arg-type]


class Parts:
    """Gradients by slices of a value: they go to their spots together, so that those of a hundred
    slices are one array, not a sum of a hundred.

    Args:
        parts: indices as the op "slice" takes them, and arrays; on a GPU tensors.
        whole: what else comes, a tensor, or None.
    """

    __slots__ = ("parts", "whole")

    def __init__(self, parts: list[tuple[Any, np.ndarray]], whole: Any = None) -> None:
        self.parts, self.whole = parts, whole

    @staticmethod
    def of(value: Value | None, grad: Any, index: Any) -> Parts | None:
        """The gradient by a slice of a value; None where another way is taken."""
        given = grad.value.storage
        store = value.storage  # type: ignore[union-attr]
        if type(store) is not Dense or type(given) is not Dense or recording.detours:
            return None
        if given.dtype is not store.dtype or store.device != given.device:
            return None
        if store.device.backend == "cpu":
            fits = store.dtype in (f32, f64)
        else:
            fits = type(given.array) is DeviceArray
        if not fits or _all(index, store.shape):  # a view does it
            return None
        return Parts([(index, given.array if store.device.backend == "cpu" else grad)])

    @staticmethod
    def together(one: Any, other: Any) -> Parts:
        """A sum of gradients of which one at least is of slices."""
        first = one if type(one) is Parts else Parts([], one)
        second = other if type(other) is Parts else Parts([], other)
        whole = second.whole if first.whole is None else first.whole
        if first.whole is not None and second.whole is not None:
            whole = first.whole + second.whole
        first.parts += second.parts
        return Parts(first.parts, whole)

    def joined(self, value: Value, tensor_of: Tensors) -> Any:
        """All of them in their spots, as a tensor."""
        store = value.storage
        if store.device.backend != "cpu":
            return self.joined_on_gpu(store.shape)
        spots, disjoint, covered = _indices(store.shape, tuple([index for index, _ in self.parts]))
        array = memory.empty(store.shape, store.dtype.numpy, HOST)
        if not covered:
            array.fill(0)
        for spot, (_, part) in zip(spots, self.parts, strict=True):
            if disjoint:
                array[spot] = part
            else:
                array[spot] += part
        made = tensor_of(Value(Dense(array, store.device)))
        return made if self.whole is None else self.whole + made

    def joined_on_gpu(self, shape: tuple[int, ...]) -> Any:
        """The same: side by side in a launch or a few, or one after the other among zeros."""
        indices = tuple([index for index, _ in self.parts])
        found = _side_by_side(shape, indices)
        if found is not None:
            axis, order, shapes = found
            parts = [self.parts[n][1] for n in order]
            parts = [
                p if p.shape == s else p.reshape(s) for p, s in zip(parts, shapes, strict=True)
            ]
            made = _apply()("concat", *parts, axis=axis)
            return made if self.whole is None else self.whole + made
        made = self.whole
        for index, part in self.parts:
            one = _apply()("unslice", part, shape=shape, index=index)
            made = one if made is None else made + one
        return made


@cache
def _apply() -> Callable[..., Any]:
    return importlib.import_module("cubepy.tensor.array").apply  # type: ignore[no-any-return]


_all = lru_cache(4096)(takes_all)


@lru_cache(1024)
def _side_by_side(
    shape: tuple[int, ...], indices: tuple[Any, ...]
) -> tuple[int, list[int], list[tuple[int, ...]]] | None:
    """Along which axis slices of a shape lie side by side, and are all of it, their order there,
    and what they are of in that order; None where they do not.
    """
    taken = [spans(index, shape) for index in indices]
    if len(taken) < 2 or any(span.step != 1 for part in taken for span in part if len(span) > 1):
        return None
    cut = [d for d, n in enumerate(shape) if any(len(part[d]) != n for part in taken)]
    if len(cut) != 1:
        return None
    (axis,) = cut
    order = sorted(range(len(taken)), key=lambda n: taken[n][axis].start)
    at = 0
    for n in order:
        span = taken[n][axis]
        if not len(span) or span.start != at:
            return None
        at += len(span)
    if at != shape[axis]:
        return None
    return axis, order, [tuple([len(span) for span in taken[n]]) for n in order]


@lru_cache(1024)
def _indices(
    shape: tuple[int, ...], indices: tuple[Any, ...]
) -> tuple[tuple[Any, ...], bool, bool]:
    """Slices of a shape as NumPy takes them, whether no element is in two of them, and whether
    every one is in one.
    """
    taken = [spans(index, shape) for index in indices]
    disjoint = len(taken) < 2
    for axis in range(len(shape)):
        ends = sorted((min(s[axis], default=0), max(s[axis], default=-1)) for s in taken)
        disjoint = disjoint or all(a[1] < b[0] for a, b in itertools.pairwise(ends))
    count = sum(math.prod(map(len, s)) for s in taken)
    return tuple(map(as_index, indices)), disjoint, disjoint and count == math.prod(shape)


def _leading_to(targets: set[Value], roots: list[Value]) -> set[Value]:
    """The values between roots and targets: those whose gradients are needed."""
    seen: dict[int, Value] = {}
    stack = list(roots)
    while stack:
        value = stack.pop()
        if value.id in seen:
            continue
        seen[value.id] = value
        if value.call is not None and value.call.inputs is not None:
            stack += [v for v in value.call.inputs if v is not None and v.needs_grad]
    useful = set(targets)
    for n in sorted(seen):
        call = seen[n].call
        if call is not None and call.inputs is not None:
            if any(v in useful for v in call.inputs if v is not None):
                useful.add(seen[n])
        elif call is not None:  # it was walked: whoever comes here is told
            useful.add(seen[n])
    return useful


def depends_on_others(result: Value, known: Sequence[Value]) -> bool:
    """Whether a value depends on leaves that need gradients besides these."""
    if any(v.call is not None for v in known):
        return True
    seen, stack = {v.id for v in known}, [result]
    while stack:
        value = stack.pop()
        if value.id in seen or not value.needs_grad:
            continue
        seen.add(value.id)
        if value.call is None:
            return True
        stack += [v for v in value.call.inputs or () if v is not None]
    return False
