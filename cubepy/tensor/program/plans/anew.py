"""What a call gives anew to handles, as far as it is written where it was, and the text of it."""

from __future__ import annotations

import math
from typing import Any

from cubepy.tensor.program.form import DICTS
from cubepy.tensor.program.trace import Given, GradientGiven, Output
from cubepy.tensor.storage import Dense


def given_anew(writer: Any) -> dict[int, int]:
    """The inputs whose handles are given an output, by their numbers among those that run; none
    where gradients go through the call, which look at the old elements.

    Args:
        writer: of the program's calls.
    """
    trace = writer.trace
    if writer.gpu is not None or writer.home.backend != "cpu" or trace.differentiable:
        return {}
    effects = {e.handle: e.output for e in trace.effects if isinstance(e, Given)}
    others = [e.to for e in trace.effects if isinstance(e, GradientGiven)]
    others += [part.number for part in parts_of(trace.result) if isinstance(part, Output)]
    found: dict[int, int] = {}
    for k, n in enumerate(writer.fused.inputs):
        source, value = trace.sources[n], trace.values[n]
        output = effects.get(source) if source.kind in ("held", "argument") else None
        if output is not None and output not in others and type(value.storage) is Dense:
            if list(effects.values()).count(output) == 1:
                found[k] = output
    return found


def around(writer: Any) -> tuple[list[str], list[str]]:
    """Lines before and after what writes states in place.

    Args:
        writer: of the program's calls.
    """
    if not writer.updated:
        return [], []
    leaves = {e.output: e.leaf for e in writer.trace.effects if isinstance(e, Given)}
    arrays, states = "", ""
    for output, k in writer.updated.items():
        n = writer.fused.inputs[k]
        arrays += f"{writer.values[k]}, "
        handle = writer.handle(writer.trace.sources[n])
        states += f"({handle}, {writer.inputs[n]}, {leaves[output]}), "
    return [f"{arrays}= update.begin(({states}))"], ["update.end(1)"]


def parts_of(form: Any) -> list[Any]:
    """What a result is made of."""
    if type(form) in (list, tuple) or hasattr(form, "_fields"):
        return [part for inner in form for part in parts_of(inner)]
    if type(form) in DICTS:
        return [part for inner in form.values() for part in parts_of(inner)]
    return [form]


def nbytes_of(spec: Any) -> int:
    """Bytes of a tensor of a shape and a dtype."""
    shape, dtype = spec
    return math.prod(shape) * dtype.bits // 8  # type: ignore[no-any-return]
