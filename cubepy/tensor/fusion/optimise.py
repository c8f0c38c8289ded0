"""What a program does to its graph before its launches are recorded."""

from __future__ import annotations

from cubepy.runtime.device import Device, gpu_of
from cubepy.tensor.fusion.epilogues import fuse_epilogues
from cubepy.tensor.fusion.maps import fuse_maps
from cubepy.tensor.fusion.rows import MOST_BUFFERS, fuse_rows
from cubepy.tensor.fusion.schedule import graph_of, schedule_of
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
    single = fuse_epilogues(schedule_of(graph).without_repeats())
    return graph_of(fuse_maps(fuse_rows(single, buffers)))
