"""Large results of narrow floats whose rows would begin anywhere, on a GPU: logits of a vocabulary
of 50,257 words. In memory with some bytes between the rows products write and read them by the copy
engine, and everybody else reads whole lines.
"""

from __future__ import annotations

import math

from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import Spec

PRODUCTS = frozenset({"linear", "matmul"})
MADE_BY = PRODUCTS | {"fused_map", "fused_columns"}
ROW_BY_ROW = MADE_BY.union(
    ("fused_rows", "bundled_sums", "sum", "mean", "max", "min", "argmax"),
    ("logsumexp", "softmax", "log_softmax", "gather", "slice"),
)
"""Ops that take rows with gaps as they are; a reshape of what comes before the last axis does,
too.
"""
LEAST_BYTES, LEAST_ROW = 1 << 21, 1 << 11
"""Of a result, and of its rows, of which the gaps are a small part then."""
COPIED = 16
"""Bytes of whose multiples rows begin that the copy engine takes."""


def align_rows(schedule: Schedule) -> Schedule:
    """The schedule where such results, if products make or read them, have aligned rows."""
    steps, changed = list[Step](), False
    for step in schedule.steps:
        found = tuple([n for n, r in enumerate(step.results) if _pays(step, r, schedule)])
        if found:
            step = Step(step.op, step.inputs, {**step.attrs, "aligned": found}, step.results)
            changed = True
        steps.append(step)
    return schedule.with_steps(steps) if changed else schedule


def _pays(step: Step, result: int, schedule: Schedule) -> bool:
    """Whether a result is better off with aligned rows: products make it, or read it, and all that
    read it take it so.
    """
    if step.op not in MADE_BY or not _ragged(schedule.specs[result]):
        return False
    if step.op == "matmul" and any(len(schedule.specs[i].shape) < 2 for i in step.read):
        return False  # of vectors there are no rows
    reads = _reads(result, schedule)
    ops = [schedule.made_by[r].op for r in reads or ()]
    multiplied = step.op in PRODUCTS or not PRODUCTS.isdisjoint(ops)
    return reads is not None and multiplied and ROW_BY_ROW.issuperset(ops)


def _ragged(spec: Spec) -> bool:
    """Whether rows are long, of 16 bits, and begin at no multiple of what the copy engine takes."""
    if len(spec.shape) < 2 or not spec.dtype.is_float or spec.dtype.bits != 16:
        return False
    row = spec.shape[-1] * 2
    return row >= LEAST_ROW and row % COPIED != 0 and math.prod(spec.shape) * 2 >= LEAST_BYTES


def _reads(value: int, schedule: Schedule) -> list[int] | None:
    """The first results of the steps that read a value as rows of its last axis, also behind a
    reshape, or turned over by a product; None where it is an output, or somebody needs it in one
    piece.
    """
    specs, made_by = schedule.specs, schedule.made_by
    found: list[int] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if one in schedule.outputs:
            return None
        for first in schedule.readers[one]:
            step = made_by[first]
            if step.op == "permute" and schedule.readers[first] and first not in schedule.outputs:
                turned = schedule.readers[first]
                if any(made_by[r].op not in PRODUCTS for r in turned):
                    return None
                found += turned
            elif step.op == "reshape" and specs[first].shape[-1] == specs[value].shape[-1]:
                waiting.append(first)
            else:
                found.append(first)
    return found
