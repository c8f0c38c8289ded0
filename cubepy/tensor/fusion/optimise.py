"""What a program does to its graph before its launches are recorded."""

from __future__ import annotations

from cubepy.runtime.device import Device, gpu_of
from cubepy.tensor.fusion.epilogues import fuse_epilogues
from cubepy.tensor.fusion.joined import join_parts
from cubepy.tensor.fusion.maps import fuse_maps
from cubepy.tensor.fusion.matrices import as_matrices
from cubepy.tensor.fusion.rows import MOST_BUFFERS, fuse_rows
from cubepy.tensor.fusion.schedule import Schedule, graph_of, schedule_of
from cubepy.tensor.ir import Graph
from cubepy.tensor.storage import HOST


def optimise(graph: Graph, device: Device = HOST) -> Graph:
    """A graph with the same outputs in fewer steps: equal ops run once, linear layers take what
    follows them, reductions along rows join with the maps around them, and what is left of the maps
    joins by shape.

    Args:
        graph: what was recorded.
        device: where it will run.
    """
    buffers = MOST_BUFFERS if gpu_of(device) is None else 0
    single = join_parts(fuse_epilogues(schedule_of(graph).without_repeats()))
    fused = fuse_maps(fuse_rows(single, buffers))
    matrices = as_matrices(single)
    if matrices is not single:
        other = fuse_maps(fuse_rows(matrices, buffers))
        fused = min(fused, other, key=_launches)
    return graph_of(fused)


def _launches(schedule: Schedule) -> int:
    """How many steps are more than another shape."""
    return sum(s.op != "reshape" for s in schedule.steps)
