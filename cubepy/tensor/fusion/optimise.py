"""What a program does to its graph before its launches are recorded."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from cubepy.lang.dtypes import bf16, f16, f32
from cubepy.runtime.device import Device, device_properties, gpu_of
from cubepy.runtime.tables import room
from cubepy.tensor.fusion.bundles import SMALL, SMALL_ON_GPU, bundle_maps
from cubepy.tensor.fusion.convolutions import fuse_convolutions, with_channels_last
from cubepy.tensor.fusion.epilogues import fuse_epilogues
from cubepy.tensor.fusion.joined import join_parts, join_results
from cubepy.tensor.fusion.literals import read_literals
from cubepy.tensor.fusion.maps import fuse_maps
from cubepy.tensor.fusion.matrices import as_matrices
from cubepy.tensor.fusion.packed import pack_weights
from cubepy.tensor.fusion.parted import part_maps, work
from cubepy.tensor.fusion.reductions.columns import fuse_columns
from cubepy.tensor.fusion.reductions.opened import open_rows, split
from cubepy.tensor.fusion.reductions.rows import MOST_BUFFERS, fuse_rows
from cubepy.tensor.fusion.schedule import Schedule, graph_of, schedule_of, structure
from cubepy.tensor.fusion.steady import Preparation, prepared, steady
from cubepy.tensor.ir import Graph
from cubepy.tensor.storage import HOST

KEPT = 256
"""Structures of which it is remembered how they are fused."""
_on_matrices: dict[Any, bool] = {}


class Fused(NamedTuple):
    """A graph in fewer steps, and what it reads.

    Attributes:
        graph: the steps.
        inputs: which inputs of the traced graph are its first ones.
        preparations: how the other ones are made.
    """

    graph: Graph
    inputs: tuple[int, ...]
    preparations: tuple[Preparation, ...]


def optimise(graph: Graph, device: Device = HOST) -> Graph:
    """A graph with the same inputs and outputs in fewer steps (see `fused`).

    Args:
        graph: what was recorded.
        device: where it will run.
    """
    return fused(graph, device).graph


def fused(graph: Graph, device: Device = HOST, weights: Collection[int] = ()) -> Fused:
    """A graph with the same outputs in fewer steps: equal ops run once, linear layers take what
    follows them, what is made of weights alone is made once, reductions along rows join with the
    maps around them, and what is left of the maps joins by shape.

    Args:
        graph: what was recorded.
        device: where it will run.
        weights: inputs, by their numbers among all, that stay as they are from call to call.
    """
    on_host = gpu_of(device) is None
    buffers = MOST_BUFFERS if on_host else 0
    schedule = schedule_of(graph)
    number = {i: n for n, i in enumerate(schedule.inputs)}
    given = [schedule.inputs[n] for n in weights]
    single = read_literals(join_parts(fuse_epilogues(schedule.without_repeats())))
    made: list[Preparation] = []
    dtypes = (f32,) if on_host else (f32, f16, bf16)
    if on_host or weights:
        single = fuse_convolutions(single, given, dtypes)
    if weights:
        kept = () if on_host else steady(single, given)
        single = with_channels_last(single, dtypes, kept)
        if on_host:
            single = pack_weights(single, given, device_properties(device))
        single, made = prepared(single, given)
    steps = bundle_maps(_parted(single, buffers, on_host), SMALL if on_host else SMALL_ON_GPU)
    reads = tuple(number[i] for i in steps.inputs if i in number)
    ways = tuple(p._replace(inputs=tuple(number[i] for i in p.inputs)) for p in made)
    return Fused(graph_of(steps), reads, ways)


def _parted(schedule: Schedule, buffers: int, on_host: bool) -> Schedule:
    """Fused, with maps of what is put together done part by part where that is less work."""
    fuse = _opened if on_host else _fewest
    found, parted = fuse(schedule, buffers), part_maps(schedule)
    if parted is schedule:
        return found
    return min(found, fuse(parted, buffers), key=work)


def _opened(schedule: Schedule, buffers: int) -> Schedule:
    """The same with softmax and norms written out where they join with maps as a whole."""
    closed: set[int] = set()
    while True:
        single, opened = open_rows(schedule, closed)
        found = _fewest(single, buffers)
        parts = split(found, opened)
        if not parts:
            return found
        closed |= parts


def _fewest(schedule: Schedule, buffers: int) -> Schedule:
    """Rows and maps fused as they stand or on matrices, whichever are fewer launches; which it is
    for one structure is remembered.
    """
    key = structure(schedule), buffers
    on_matrices = _on_matrices.get(key)
    found: list[Schedule] = []
    if on_matrices is not True:
        found.append(_in_groups(schedule, buffers))
    if on_matrices is not False:
        matrices = as_matrices(schedule)
        if matrices is not schedule or not found:
            found.append(_in_groups(matrices, buffers))
    best = min(found, key=_launches)
    if on_matrices is None:
        room(_on_matrices, KEPT)
        _on_matrices[key] = best is not found[0]
    return best


def _in_groups(schedule: Schedule, buffers: int) -> Schedule:
    """Reductions and the maps around them, then the maps that are left."""
    return join_results(fuse_maps(fuse_columns(fuse_rows(schedule, buffers))))


def _launches(schedule: Schedule) -> int:
    """How many steps are more than another shape."""
    return sum(s.op != "reshape" for s in schedule.steps)
