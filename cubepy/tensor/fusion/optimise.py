"""What a program does to its graph before its launches are recorded."""

from __future__ import annotations

from collections.abc import Collection

from cubepy.lang.dtypes import bf16, f16, f32
from cubepy.runtime.device import Device, device_properties, gpu_of
from cubepy.tensor.fusion.bundles import SMALL, SMALL_ON_GPU, bundle_maps
from cubepy.tensor.fusion.channels_last import with_channels_last
from cubepy.tensor.fusion.convolutions import fuse_convolutions
from cubepy.tensor.fusion.joined import join_parts, join_results
from cubepy.tensor.fusion.literals import read_literals
from cubepy.tensor.fusion.maps import fuse_maps
from cubepy.tensor.fusion.matrices import as_matrices
from cubepy.tensor.fusion.parted import part_maps, work
from cubepy.tensor.fusion.products.aligned import align_rows
from cubepy.tensor.fusion.products.epilogues import fuse_epilogues
from cubepy.tensor.fusion.products.packed import pack_weights
from cubepy.tensor.fusion.reductions import opened
from cubepy.tensor.fusion.reductions.bundled import bundle_sums
from cubepy.tensor.fusion.reductions.columns import fuse_columns
from cubepy.tensor.fusion.reductions.recomputed import recomputed
from cubepy.tensor.fusion.reductions.rows import MOST_BUFFERS, fuse_rows
from cubepy.tensor.fusion.schedule import Schedule, graph_of, schedule_of
from cubepy.tensor.fusion.steady import Preparation, prepared, steady
from cubepy.tensor.fusion.structures.general import Fused
from cubepy.tensor.fusion.structures.known import fused_alike
from cubepy.tensor.ir import Graph
from cubepy.tensor.storage import HOST


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
    return fused_alike(graph, device, weights, fused_anew)


def fused_anew(graph: Graph, device: Device, weights: Collection[int]) -> Fused:
    """A graph fused by all passes (see `fused`)."""
    on_host = gpu_of(device) is None
    buffers = MOST_BUFFERS if on_host else 0
    schedule = schedule_of(graph)
    number = {i: n for n, i in enumerate(schedule.inputs)}
    given = [schedule.inputs[n] for n in weights]
    kinds = {i: dict(n.attrs).get("storage", "dense") for i, n in zip(graph.firsts, graph.nodes)}
    packed = [i for i in graph.inputs if kinds[i] != "dense"]
    single = read_literals(join_parts(fuse_epilogues(schedule.without_repeats(), packed)))
    made: list[Preparation] = []
    dtypes = (f32,) if on_host else (f32, f16, bf16)
    if on_host or weights:
        single = fuse_convolutions(single, given, dtypes)
    if weights:
        kept = () if on_host else steady(single, given)
        single = with_channels_last(single, dtypes, kept, not on_host)
        if on_host:
            single = pack_weights(single, given, device_properties(device))
        single, made = prepared(single, given)
    steps = bundle_maps(_parted(single, buffers, on_host), SMALL if on_host else SMALL_ON_GPU)
    if not on_host:
        steps = align_rows(bundle_sums(steps))
    reads = tuple(number[i] for i in steps.inputs if i in number)
    ways = tuple(p._replace(inputs=tuple(number[i] for i in p.inputs)) for p in made)
    return Fused(graph_of(steps), reads, ways)


def _parted(schedule: Schedule, buffers: int, on_host: bool) -> Schedule:
    """Fused, with maps of what is put together done part by part where that is less work."""
    found, parted = _opened(schedule, buffers, on_host), part_maps(schedule)
    if parted is schedule:
        return found
    return min(found, _opened(parted, buffers, on_host), key=work)


def _opened(schedule: Schedule, buffers: int, on_host: bool) -> Schedule:
    """The same with softmax and norms written out where they join with maps as a whole."""
    closed: set[int] = set()
    while True:
        single, within = opened.open_rows(schedule, closed, on_host)
        found = _fewest(single, buffers)
        parts = opened.split(found, within)
        if not parts:
            return found
        closed |= parts


def _fewest(schedule: Schedule, buffers: int) -> Schedule:
    """Rows and maps fused as they stand or on matrices, whichever are fewer launches."""
    found, matrices = _in_groups(schedule, buffers), as_matrices(schedule)
    if matrices is schedule:
        return found
    return min(found, _in_groups(matrices, buffers), key=_launches)


def _in_groups(schedule: Schedule, buffers: int) -> Schedule:
    """Reductions and the maps around them, then the maps that are left."""
    schedule, separate = recomputed(schedule)
    return join_results(fuse_maps(fuse_columns(fuse_rows(schedule, buffers, separate))))


def _launches(schedule: Schedule) -> int:
    """How many steps are more than another shape."""
    return sum(s.op != "reshape" for s in schedule.steps)
