"""The routines of permuted copies, padding and reversed rows, in order of preference."""

from __future__ import annotations

from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.elementwise.map import run
from cubepy.kernels.elementwise.problem import identity
from cubepy.kernels.elementwise.transposed_cpu import squares
from cubepy.kernels.entry.shapes import merged
from cubepy.kernels.movement import transpose_gpu
from cubepy.tune import GpuRoutine, Op, Routine


class Transpose(NamedTuple):
    """A copy of x, whose axes are permuted, to `out`, of one shape and not empty."""

    x: Any
    out: Any

    def squares(self) -> Any:
        """Both as images whose sides are swapped, or None."""
        dest, source = merged([self.out, self.x])
        return squares(dest, source)


class Tiles(GpuRoutine):
    """Tiles go through shared memory."""

    name = "tiles"

    def unfit(self, p: Transpose, properties: cb.DeviceProperties) -> str | None:
        """Two axes that are swapped."""
        return None if p.squares() is not None else "axes are not simply swapped"

    def launch(self, p: Transpose, properties: cb.DeviceProperties) -> None:
        """A cube does a tile."""
        transpose_gpu.transpose(*p.squares())


class Copy(Routine):
    """Elementwise work that changes nothing, which has routines of its own."""

    name = "copy"

    def launch(self, p: Transpose, properties: cb.DeviceProperties) -> None:
        """As of any strides."""
        run(identity, [p.x], p.out)


TRANSPOSE = Op("transpose", [Tiles(), Copy()])
