"""The routines of elementwise work, in order of preference."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.elementwise import map_cpu, map_gpu
from cubepy.kernels.elementwise.map_cpu import CHUNK
from cubepy.kernels.elementwise.problem import Map, described, identity, lies_across, memory_order
from cubepy.kernels.elementwise.transposed_cpu import Transposed
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, Op


class Turned(CpuRoutine):
    """Inputs, or the result, are transposed first: squares are turned several times as fast as
    lanes are gathered one by one.
    """

    name = "turned"

    def unfit(self, p: Map, properties: cb.DeviceProperties) -> str | None:
        """Where neighbours in memory are neighbours along another axis than the last."""
        if p.dest.size < CHUNK or p.dest.strides[-1] != p.dest.itemsize:
            return "so few elements are gathered"
        return None if any(p.across) else "all arrays lie alike"

    def launch(self, p: Map, properties: cb.DeviceProperties) -> None:
        """What fewer arrays want is turned."""
        across = p.across
        order = memory_order(p.inputs[across.index(True)])
        views = [x.transpose(order) for x in p.inputs]
        if across.count(True) > 1 + sum(lies_across(x) for x in views):  # rather turn the result
            made = memory.empty(tuple(p.dest.shape[d] for d in order), p.dest.dtype)
            MAP.run(described(p.function, views, made))
            MAP.run(described(identity, [made], p.dest.transpose(order)))
            return
        inputs = [
            turned(x) if across_too else x for x, across_too in zip(p.inputs, across, strict=True)
        ]
        MAP.run(p._replace(inputs=inputs))


def turned(x: Any) -> Any:
    """The same numbers with neighbours along the last axis."""
    part = x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]
    made = memory.empty(part.shape, x.dtype)
    MAP.run(described(identity, [part], made))
    return made if part.shape == x.shape else np.broadcast_to(made, x.shape)


MAP = Op("map", [map_gpu.Lines(), Transposed(), Turned(), map_cpu.Flat(), map_cpu.Rows()])
