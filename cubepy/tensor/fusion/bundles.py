"""Small maps of the same arithmetic over arrays of several sizes as one launch: the steps of an
optimizer, of all its small parameters.

Members of a bundle do not read one another: they have the same height, the most steps on a way from
there to an end of the schedule, which every step has less of than what it reads. So bundles never
wait for each other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cubepy.lang.dtypes import dtype_named
from cubepy.tensor.fusion import written
from cubepy.tensor.fusion.maps import in_order
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.ops.op import define, written_in_place
from cubepy.tensor.ops.updates import WRITING, function_of

MEMBERS = (8, 4, 2)
"""Of a bundle: few numbers, each of which is a kernel, and what compiles in a second."""
MOST_ARRAYS = 64
SMALL = 1 << 17
"""Bytes of a result on the host. Larger ones are written in place; a launch is nothing to them."""
SMALL_ON_GPU = 1 << 22


def _run_bundle(
    dtype: Any,
    *xs: Any,
    of: str,
    text: str,
    names: tuple[tuple[str, str], ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
) -> Any:
    from cubepy.kernels.fused.bundles import bundled_map

    step = of in WRITING
    function = function_of(of) if step else written.compiled(text, names)
    numbers, arrays = xs[: int(step)], xs[int(step) :]
    each = len(arrays) // len(shapes)
    members = [arrays[n : n + each] for n in range(0, len(arrays), each)]
    return bundled_map(function, members, shapes, written.dtypes_named(dtypes), numbers)


@define("map", {"bundled_map": _run_bundle}, constant=True)
def _bundle(
    *xs: Spec, shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...], **how: Any
) -> Any:
    """The results of a step of an optimizer, or of a function that was written, for each of some
    members: `of` names the op that does one of them.
    """
    return [Spec(tuple(shape), dtype_named(name)) for shape in shapes for name in dtypes]


def bundle_maps(schedule: Schedule, most: int = SMALL) -> Schedule:
    """The schedule with equal maps of small arrays as one step for several.

    Args:
        schedule: fused.
        most: bytes of a result.
    """
    known = heights(schedule)
    kept_as_they_are = written_in_place(schedule.steps)
    packed = without_gaps(schedule)
    alike: defaultdict[Any, list[Step]] = defaultdict(list)
    for step in schedule.steps:
        key = _kind(step, schedule.specs, most)
        if key is not None and packed.issuperset(step.read):
            if kept_as_they_are.isdisjoint(step.read):
                alike[key, known[step.results[0]]].append(step)
    bundles = [part for steps in alike.values() for part in _parts(steps)]
    return in_bundles(schedule, bundles, _bundled)


def in_bundles(
    schedule: Schedule,
    bundles: Sequence[Sequence[Step]],
    bundled: Callable[[Sequence[Step], dict[int, Spec]], Step],
) -> Schedule:
    """The schedule with one step for the members of each bundle, where the last one is.

    Args:
        schedule: of the members.
        bundles: steps that do not read one another.
        bundled: gives the step of some members, from the specs of all values.
    """
    if not bundles:
        return schedule
    gone = {s.results[0] for part in bundles for s in part}
    number = {s.results[0]: n for n, s in enumerate(schedule.steps)}
    order = [(n, s) for n, s in enumerate(schedule.steps) if s.results[0] not in gone]
    order += [(number[p[-1].results[0]], bundled(p, schedule.specs)) for p in bundles]
    return schedule.with_steps(in_order([s for _, s in sorted(order, key=lambda one: one[0])]))


def heights(schedule: Schedule) -> dict[int, int]:
    """By value, how many steps come after it on the longest way."""
    found: defaultdict[int, int] = defaultdict(int)
    for step in reversed(schedule.steps):
        height = max(found[r] for r in step.results)
        for r in step.results:
            found[r] = height
        for i in step.read:
            found[i] = max(found[i], height + 1)
    return found


def without_gaps(schedule: Schedule) -> set[int]:
    """Values that lie in memory without gaps; of inputs that is taken for granted."""
    found = set(schedule.inputs)
    for step in schedule.steps:
        if OPS[step.op].kind != "view" or (step.op == "reshape" and found.issuperset(step.read)):
            found.update(step.results)
    return found


def _kind(step: Step, specs: dict[int, Spec], most: int) -> Any:
    """What members of a bundle share; None for what joins none."""
    results = [specs[r] for r in step.results]
    shape = results[0].shape
    size = math.prod(shape)
    bytes_of = max(size * r.dtype.numpy.itemsize for r in results)
    if not 0 < bytes_of < most or (step.op not in WRITING and step.op != "fused_map"):
        return None
    given = step.read[int(step.op in WRITING) :]
    whole = tuple([specs[i].shape == shape for i in given])
    if any(not w and math.prod(specs[i].shape) != 1 for w, i in zip(whole, given, strict=True)):
        return None
    numbers = step.read[:1] if step.op in WRITING else step.attrs["text"]
    return step.op, numbers, whole, tuple([specs[i].dtype for i in (*given, *step.results)])


def _parts(steps: Sequence[Step]) -> Iterator[Sequence[Step]]:
    """Members of one bundle each, as many together as may be."""
    at, arrays = 0, len(steps[0].read) + len(steps[0].results)
    for many in MEMBERS:
        while many * arrays <= MOST_ARRAYS and at + many <= len(steps):
            yield steps[at : at + many]
            at += many


def _bundled(members: Sequence[Step], specs: dict[int, Spec]) -> Step:
    """Members as one step."""
    one = members[0]
    first = int(one.op in WRITING)
    given = [*one.read[:first], *(i for s in members for i in s.read[first:])]
    attrs = {
        "of": one.op,
        "text": one.attrs.get("text", ""),
        "names": one.attrs.get("names", ()),
        "shapes": tuple([specs[s.results[0]].shape for s in members]),
        "dtypes": tuple([specs[r].dtype.name for r in one.results]),
    }
    return Step("bundled_map", tuple(given), attrs, tuple([r for s in members for r in s.results]))
