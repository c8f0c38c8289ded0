"""Sums down columns of several arrays of one shape as one launch on a GPU: the gradients of biases
and of norms' weights.

As for maps (`fusion.bundles`) members do not read one another: they are equally far from the end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from cubepy.lang.dtypes import dtype_named
from cubepy.tensor.fusion.bundles import MEMBERS, heights, in_bundles
from cubepy.tensor.fusion.reductions.columns import down_columns
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import define

LEAST_COLUMNS, MOST_ROWS = 128, 4096
"""Of fewer columns, or more rows, a cube would have too much to do alone."""
MOST_BYTES = 1 << 25
"""Of what a launch reads, which is kept for it."""


def _run_sums(dtype: Any, *xs: Any, results: tuple[tuple[tuple[int, ...], str], ...]) -> Any:
    from cubepy.kernels.fused.bundled_sums import bundled_sums

    rows = [x if x.strides[-1] == x.itemsize else kernels().copy(x) for x in xs]
    totals = bundled_sums([x.reshape(-1, x.shape[-1]) for x in rows])
    return [total.reshape(shape) for total, (shape, _) in zip(totals, results, strict=True)]


@define("reduce", {"bundled_sums": _run_sums}, constant=True)
def _bundled_sums(*xs: Spec, results: tuple[tuple[tuple[int, ...], str], ...]) -> Any:
    """The sums of the columns of each array."""
    return [Spec(tuple(shape), dtype_named(name)) for shape, name in results]


def bundle_sums(schedule: Schedule) -> Schedule:
    """The schedule with sums down columns of arrays of one shape as one step for several."""
    known, specs = heights(schedule), schedule.specs
    alike: defaultdict[Any, list[Step]] = defaultdict(list)
    for step in schedule.steps:
        key = _kind(step, specs)
        if key is not None:
            alike[key, known[step.results[0]]].append(step)
    bundles = [part for steps in alike.values() for part in _parts(steps, specs)]
    return in_bundles(schedule, bundles, _bundled)


def _kind(step: Step, specs: dict[int, Spec]) -> Any:
    """What members of a bundle share: rows, columns, dtype; None for what joins none."""
    shape = down_columns(step, specs) if step.op == "sum" else None
    if shape is None or shape[-1] < LEAST_COLUMNS:
        return None
    dtype, rows = specs[step.inputs[0]].dtype, math.prod(shape[:-1])
    if dtype.bits > 32 or specs[step.results[0]].dtype is not dtype or rows > MOST_ROWS:
        return None
    return rows, shape[-1], dtype


def _parts(steps: Sequence[Step], specs: dict[int, Spec]) -> Iterator[Sequence[Step]]:
    """Members of one bundle each, as many together as may be."""
    shape, dtype = specs[steps[0].inputs[0]]
    each, at = math.prod(shape) * dtype.numpy.itemsize, 0
    for many in MEMBERS:
        while many * each <= MOST_BYTES and at + many <= len(steps):
            yield steps[at : at + many]
            at += many


def _bundled(members: Sequence[Step], specs: dict[int, Spec]) -> Step:
    """Members as one step."""
    results = tuple([s.results[0] for s in members])
    attrs = {"results": tuple([(specs[r].shape, specs[r].dtype.name) for r in results])}
    return Step("bundled_sums", tuple([s.inputs[0] for s in members]), attrs, results)
