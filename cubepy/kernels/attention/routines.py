"""Attention as an operation that is tuned: what describes one, its routines, and what measuring one
needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import cubepy as cb
from cubepy.kernels.attention import flash_lines as lines
from cubepy.kernels.attention.cpu import decode as few
from cubepy.kernels.attention.cpu import short
from cubepy.kernels.attention.flash_lines import QueryBlocks
from cubepy.kernels.attention.measure import Attend
from cubepy.kernels.attention.problem import Attention
from cubepy.tune import TunedRoutine

SHORT = 3  # queries from which lines of queries are full enough
FOR_GPUS = "cubepy.kernels.attention.routines_gpu"


@dataclass(frozen=True)
class Single:
    """There is nothing to choose."""


class Few(TunedRoutine):
    """Few queries on a CPU, one at a time: lanes lie along the width."""

    name = "few"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """On a CPU."""
        return "for CPUs" if p.on_gpu else None

    def group(self, key: Attention) -> int:
        """Keys and values are read for every query."""
        return 0 if key.length <= 4 * lines.FEW else -1

    def blueprints(self, p: Attention, properties: cb.DeviceProperties) -> Iterator[Single]:
        """By the rules."""
        yield Single()

    def launch(self, blueprint: Single, p: Attention, args: tuple[Any, ...]) -> None:
        """A cube does a query."""
        few.launch(p, args)


def unfit_short(p: Attention) -> str | None:
    """Why an attention is not for `short`, or None."""
    return short.unfit(p.depth, p.width or p.depth, p.keys, p.mask, short.FORWARD)


class Short(TunedRoutine):
    """Short sequences with narrow heads on a CPU: queries in the lanes, nothing kept."""

    name = "short"

    def supports(self, p: Attention, properties: cb.DeviceProperties) -> str | None:
        """Without a mask."""
        return "for CPUs" if p.on_gpu else unfit_short(p)

    def blueprints(self, p: Attention, properties: cb.DeviceProperties) -> Iterator[Single]:
        """By the rules."""
        yield Single()

    def launch(self, blueprint: Single, p: Attention, args: tuple[Any, ...]) -> None:
        """A cube does a head."""
        q, k, v, _, out, lse, factor = args
        short.launch(q, k, v, out, lse, p.causal, factor, p.properties)


class Lines(TunedRoutine):
    """Queries in the lanes of lines, on any device."""

    name = "lines"

    def blueprints(self, p: Attention, properties: cb.DeviceProperties) -> Iterator[QueryBlocks]:
        """By the rules; on a CPU then other blocks of keys, other tiles, other numbers of queries
        for a cube.
        """
        yield QueryBlocks()
        if p.on_gpu:
            return
        many = properties.vector_registers >= 32
        shapes = ((6, 4), (12, 2)) if many else ((6, 2), (12, 1), (4, 3))
        yield from (QueryBlocks(shape) for shape in shapes)
        yield from (QueryBlocks(keys=keys) for keys in (24, 48, 192) if keys <= 2 * p.keys)
        yield from (QueryBlocks(tiles=tiles) for tiles in (1, 2, 4, 8))

    def launch(self, blueprint: QueryBlocks, p: Attention, args: tuple[Any, ...]) -> None:
        """A cube does some strips of queries."""
        lines.launch(p, args, blueprint)


def guess(p: Attention) -> str:
    """The routine that is taken without a measurement."""
    if p.units:
        return str(import_module(FOR_GPUS).guess(p))
    if p.on_gpu:
        return "lines"
    if p.length >= SHORT and unfit_short(p) is None:
        return "short"
    return "few" if p.length <= lines.FEW else "lines"


class Guessed(Attend):
    """The operation, and which of its routines is guessed."""

    def guess(self, problem: Attention) -> str:
        """By the arrays, the device and the number of queries."""
        return guess(problem)


ATTENTION = Guessed("attention", [Short(), Few(), Lines()], FOR_GPUS)
