"""What a program does to its graph before its launches are recorded."""

from __future__ import annotations

from cubepy.tensor.fusion.maps import fuse_maps
from cubepy.tensor.fusion.rows import fuse_rows
from cubepy.tensor.fusion.schedule import graph_of, schedule_of
from cubepy.tensor.ir import Graph


def optimise(graph: Graph) -> Graph:
    """A graph with the same outputs in fewer steps: equal ops run once, reductions along rows join
    with the maps around them, and what is left of the maps joins by shape.
    """
    return graph_of(fuse_maps(fuse_rows(schedule_of(graph).without_repeats())))
