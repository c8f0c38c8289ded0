"""Convolutions whose filters cover all of their input: one position, and so a linear layer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.ops import Spec


def flatten_convolutions(schedule: Schedule, values: set[int]) -> Schedule:
    """The schedule where convolutions of one position are linear layers.

    A kernel of convolutions walks taps for many positions at once; with one it waits for each sum.
    257 filters of 512 numbers: 21 us, as a layer 6 (two threads of Zen 5).

    Args:
        schedule: the steps.
        values: those whose filters are looked at: filters that stay.
    """
    specs, steps = dict(schedule.specs), list[Step]()

    def seen(op: str, value: int, found: tuple[int, ...], **attrs: Any) -> int:
        at = max(specs) + 1
        specs[at] = Spec(found, specs[value].dtype)
        steps.append(Step(op, (value,), attrs, (at,)))
        return at

    for step in schedule.steps:
        if not _is_one_position(step, specs, values):
            steps.append(step)
            continue
        x, weight, bias = step.inputs[:3]
        size, window = specs[x].shape, specs[weight].shape[1:]
        count, result = math.prod(window), step.results[0]
        if size[1:] != window:
            x = seen(
                "slice",
                x,
                (*size[:2], *window[1:]),
                index=((None,) * 3,) * 2 + ((0, window[1], None),),
            )
        x = seen("reshape", x, (size[0], count), shape=(size[0], count))
        filters = specs[weight].shape[0]
        weight = seen("reshape", weight, (filters, count), shape=(filters, count))
        made, shape = max(specs) + 1, specs[result].shape
        specs[made] = Spec((size[0], filters), specs[result].dtype)
        attrs = {"activation": step.attrs.get("activation")}
        steps.append(Step("linear", (x, weight, bias, ABSENT), attrs, (made,)))
        steps.append(Step("reshape", (made,), {"shape": shape}, (result,)))
    return replace(schedule, steps=tuple(steps), specs=specs)


def _is_one_position(step: Step, specs: dict[int, Spec], values: set[int]) -> bool:
    """Whether a step is a convolution without padding of one position, and nothing is added."""
    if step.op not in ("conv", "fused_conv") or step.inputs[1] not in values:
        return False
    a = step.attrs
    how = a.get("how") or (a["stride"], a["padding"], a["dilation"], a["groups"])
    x, window = specs[step.inputs[0]].shape, specs[step.inputs[1]].shape[1:]
    plain = not any(how[1]) and {*how[2], how[3]} == {1}
    alone = step.inputs[3:] in ((), (ABSENT,)) and a.get("filters") is None
    one = 0 not in x and all(n == 1 for n in specs[step.results[0]].shape[2:])
    # what is left of a row beyond the filter is no gap if there is one row
    whole = x[1:] == window or (len(window) == 2 and x[:2] == (1, 1))
    return (
        plain
        and alone
        and one
        and whole
        and specs[step.inputs[0]].dtype is specs[step.inputs[1]].dtype
    )
