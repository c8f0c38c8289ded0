"""Images with their channels last in memory, as convolutions by matrix units read and write them:
one copy at the beginning, and what follows keeps them so.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from cubepy.lang.dtypes import DType, f32
from cubepy.tensor.fusion.schedule import Schedule, Step
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import define

MANY_FILTERS, MANY_CHANNELS, MOST = 32, 16, 0.8
"""Channels last pay where so much of the work is in convolutions of many filters and channels."""


def _run_last(dtype: Any, x: Any) -> Any:
    order = (0, *range(2, x.ndim), 1)
    seen = x.transpose(order)
    if not seen.flags.c_contiguous:
        seen = kernels().copy(seen)
    return seen.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


@define("view", {"packed_channels": _run_last})
def _packed_channels(x: Spec) -> Spec:
    """x (N, C, *size) with the channels last in memory."""
    return x


@define("product", {"packed_filters_last": _run_last})
def _packed_filters_last(weight: Spec) -> Spec:
    """Filters with their channels last in memory, as a GPU's copy engine takes them."""
    return weight


CONVOLUTIONS = ("conv", "fused_conv")
IMAGES = (*CONVOLUTIONS, "max_pool", "avg_pool", "interpolate", "packed_channels")
"""Ops whose results lie as the images lie that they are given."""


def with_channels_last(
    schedule: Schedule,
    dtypes: Collection[DType] = (f32,),
    filters: Collection[int] = (),
    mapped: bool = False,
) -> Schedule:
    """The schedule where images that come to convolutions have channels last, if these have many:
    results lie as images do, so that one copy at the beginning is enough. Nothing changes where
    somebody reads an image whose result would have channels first again.

    Args:
        schedule: of single steps.
        dtypes: of images.
        filters: values that stay, of which filters have their channels last, too.
        mapped: whether maps of images and what puts them side by side may be among the steps; their
            results lie as images do.
    """
    specs, total, many = schedule.specs, 0.0, 0.0
    for step in schedule.steps:
        if step.op in CONVOLUTIONS:
            work, pays = _work(step, specs, dtypes)
            total, many = total + work, many + work * pays
    if not total or many < MOST * total:
        return schedule
    images = _images(schedule, mapped)
    if images is None:
        return schedule
    specs, steps, last = dict(specs), [], dict[int, int]()
    for step in schedule.steps:
        if step.op in CONVOLUTIONS and step.inputs[0] not in images:
            x = step.inputs[0]
            if x not in last:
                last[x] = max(specs) + 1
                specs[last[x]] = specs[x]._replace()
                steps.append(Step("packed_channels", (x,), {}, (last[x],)))
            step = replace(step, inputs=(last[x], *step.inputs[1:]))
        if step.op in CONVOLUTIONS and step.inputs[1] in filters:
            weight = step.inputs[1]
            if math.prod(specs[weight].shape[2:]) > 1:
                if weight not in last:
                    last[weight] = max(specs) + 1
                    specs[last[weight]] = specs[weight]
                    steps.append(Step("packed_filters_last", (weight,), {}, (last[weight],)))
                step = replace(step, inputs=(step.inputs[0], last[weight], *step.inputs[2:]))
        steps.append(step)
    return replace(schedule, steps=tuple(steps), specs=specs)


def _images(schedule: Schedule, mapped: bool) -> set[int] | None:
    """The values that have their channels last where convolutions are given such images; None where
    an image is read by what would turn it back.
    """
    specs, images, parts = schedule.specs, set[int](), set[int]()
    for step in schedule.steps:
        if (
            not images.isdisjoint(step.read)
            or not parts.isdisjoint(step.read)
            or step.op in CONVOLUTIONS
        ):
            kind, found = OPS[step.op].kind, specs[step.results[0]]
            known = images | parts
            if step.op in IMAGES or (mapped and _over_channels(step, len(found.shape))):
                images.update(step.results[:1])
            elif mapped and step.op == "concat":
                if step.attrs["axis"] % len(found.shape) == 1 and known.issuperset(step.read):
                    images.update(step.results)
            elif mapped and step.op == "slice":
                if _of_channels(step.attrs["index"], len(found.shape)):
                    parts.update(step.results)
            elif mapped and kind == "map":
                whole = [i for i in step.read if specs[i].shape == found.shape]
                if not known.issuperset(whole):
                    return None
                images.update(step.results)
            elif kind not in ("reduce", "view"):
                return None
    return images


def _over_channels(step: Step, rank: int) -> bool:
    """Whether a step is a softmax over channels, whose result lies as the image does."""
    return step.op == "softmax" and step.attrs["axis"] % rank == 1


def _of_channels(index: tuple[Any, ...], rank: int) -> bool:
    """Whether a slice takes some channels of an image, one after the other, and all else of it."""
    if len(index) < 2 or rank < 3 or not all(isinstance(part, tuple) for part in index):
        return False
    others = (*index[:1], *index[2:])
    return all(part == (None, None, None) for part in others) and index[1][2] in (None, 1)


def _work(step: Step, specs: dict[int, Spec], dtypes: Collection[DType]) -> tuple[float, bool]:
    """The products of a convolution, and whether it has many filters and channels."""
    filters, channels, *window = step.attrs.get("filters") or specs[step.inputs[1]].shape
    result = specs[step.results[0]].shape
    groups = step.attrs["how"][3] if "how" in step.attrs else step.attrs["groups"]
    depthwise = channels == 1 and groups >= MANY_FILTERS
    enough = filters // groups >= MANY_FILTERS and channels >= MANY_CHANNELS
    flat = specs[step.inputs[0]].dtype in dtypes and len(window) > 1
    return math.prod(result) * channels * math.prod(window), flat and (depthwise or enough)
