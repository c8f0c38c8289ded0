"""Gradients that come again, as programs: outside of `cb.jit` the gradient of an op is several ops,
each of which costs Python and a pass over memory.

What was asked for often, of the same specs, is one fused program from then on. Nothing is traced
for what comes a few times: a trace takes as long as some thousand small ops.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from cubepy.compiler.signature import ALONE, exact
from cubepy.runtime import recording
from cubepy.runtime.device import current
from cubepy.runtime.tables import room
from cubepy.tensor.gradients.rules import Backward, Vjp, summed_to
from cubepy.tensor.ops import OPS
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Value

AFTER = 24
"""How often a gradient is computed op by op first."""
LARGE = 1 << 13
"""Elements that count as one more time: what is large pays for a trace sooner."""
LIMIT = 1024
SMALL = 1 << 16
"""Bytes up to which a gradient with gaps is copied first; larger ones are read as they lie."""
KINDS = frozenset(["map", "row", "reduce"])
ALSO = frozenset(["batch_norm", "channel_norm"])
"""Ops of other kinds whose gradients are several ops."""
SINGLE = frozenset(
    "add sub neg sum mean cast dropout floordiv sign max_pool adaptive_max_pool".split()
)
"""Ops of these kinds whose gradients are one op or views."""

_met: dict[Any, Any] = {}
"""By op, attributes and specs, how often a gradient was asked for, or what computes it."""


def again(
    call: Any,
    rule: Vjp,
    inputs: Sequence[Value | None],
    results: Sequence[Value | None],
    needs: tuple[bool, ...],
    grads: Sequence[Any],
) -> Any:
    """The gradients by the inputs of a call, as far as they are wanted, summed to their shapes, by
    a program; None where there is none.
    """
    op = call.op
    if op in SINGLE or recording.detours or not (OPS[op].kind in KINDS or op in ALSO):
        return None
    if current().backend != "cpu":
        return None
    key: list[Any] = [op, rule, needs]
    arrays = []
    for group in (inputs, results):
        for v in group:
            if v is None:
                key.append(None)
                continue
            store = v.storage
            if type(store) is not Dense or store.device.backend != "cpu":
                return None
            key += store.shape, store.dtype
            arrays.append(v)
    for g in grads:
        if g is None:
            key.append(None)
            continue
        store = g.value.storage
        if type(store) is not Dense:
            return None
        if not store.array.flags.c_contiguous and store.array.nbytes > SMALL:
            return None
        key += store.shape, store.dtype
    if call.attrs:
        key += call.attrs
        key += [(type(v), v) if type(v) in ALONE else exact(v) for v in call.attrs.values()]
    try:
        found = _met.get(known := tuple(key), 0)
    except TypeError:  # something unhashable
        return None
    if type(found) is int:
        if found < AFTER:
            room(_met, LIMIT)
            most = max([math.prod(v.storage.shape) for v in arrays], default=0)
            _met[known] = found + 1 + most // LARGE
            return None
        there = [g is not None for g in grads]
        found = _met[known] = _Repeated(rule, inputs, results, needs, call.attrs, there)
    return found(arrays, [dense(g) for g in grads if g is not None])


def dense(grad: Any) -> Any:
    """A gradient without gaps: those of sums are one number that is everywhere."""
    array = grad.value.storage.array
    if array.flags.c_contiguous:
        return grad
    return _tensor()(Dense(np.ascontiguousarray(array)))


@cache
def _jit() -> Callable[[Any], Any]:
    """What makes programs, which know the walk back."""
    made: Callable[[Any], Any] = importlib.import_module("cubepy.tensor.program.jit").Jitted
    return made


@cache
def _tensor() -> Any:
    return importlib.import_module("cubepy.tensor.array").Tensor


class _Repeated:
    """A gradient of one kind of calls as a program."""

    def __init__(
        self,
        rule: Vjp,
        inputs: Sequence[Any],
        results: Sequence[Any],
        needs: tuple[bool, ...],
        attrs: dict[str, Any],
        grads: Sequence[bool],
    ) -> None:
        given = [*(v is not None for v in (*inputs, *results)), *grads]
        count, behind = len(inputs), len(inputs) + len(results)

        def function(*arrays: Any) -> tuple[Any, ...]:
            rest = iter(arrays)
            all_of: list[Any] = [next(rest) if there else None for there in given]
            seen = Backward(tuple(all_of[:count]), all_of[count:behind], attrs, needs)
            made = rule(seen, *all_of[behind:])
            parts = made if isinstance(made, (tuple, list)) else (made,)
            return tuple(
                [
                    summed_to(part, x) if part is not None and need else None
                    for part, x, need in zip(parts, all_of, needs, strict=False)
                ]
            )

        self.program = _jit()(function)

    def __call__(self, values: Sequence[Value], grads: Sequence[Any]) -> Any:
        tensor = _tensor()
        given = []
        for v in values:
            one = tensor.__new__(tensor)
            one.value = Value(v.storage)  # a program of plain elements
            given.append(one)
        return self.program(*given, *grads)
