"""One cube: what its units share, where they meet, and whose turn it is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import accumulate
from types import FunctionType
from typing import Any

import numpy as np

from tests.backends.cuda.emulator.arithmetic import ARITHMETIC
from tests.backends.cuda.emulator.barriers import Barrier
from tests.backends.cuda.emulator.copies import Engine, Groups
from tests.backends.cuda.emulator.matrices import (
    GROUP,
    PLANE,
    Product,
    load_matrix,
    mma,
    store_matrix,
)
from tests.backends.cuda.emulator.memory import DTYPES, MEMORY_OPS, Place

Answer = Callable[[list[list[Any]]], list[Any]]


def bits(mask: int) -> list[int]:
    """The places of the ones of a number."""
    return [k for k in range(mask.bit_length()) if mask >> k & 1]


def of_all(compute: Callable[[list[Any]], Any]) -> Answer:
    """What all units bring, made one value that each of them gets."""
    return lambda calls: [compute([c[0] for c in calls])] * len(calls)


IN_PLANES: dict[str, Answer] = {
    "sync_plane": lambda calls: [None] * PLANE, "mma": mma, "load_matrix": load_matrix, "store_matrix": store_matrix,
    "plane_shuffle_xor": lambda calls: [calls[k ^ int(calls[k][1])][0] for k in range(PLANE)],
    "plane_sum": of_all(lambda values: type(values[0])(sum(values))), "plane_max": of_all(max),
    "plane_prod": of_all(lambda values: type(values[0])(math.prod(values))),
    "plane_min": of_all(min), "plane_any": of_all(any), "plane_all": of_all(all),
    "plane_broadcast": lambda calls: [calls[int(c[1])][0] for c in calls],
    "plane_shuffle": lambda calls: [calls[int(c[1]) % PLANE][0] for c in calls],
    "plane_shuffle_up": lambda calls: [calls[k - n if (n := int(calls[k][1])) <= k else k][0] for k in range(PLANE)],
    "plane_shuffle_down": lambda calls: [calls[k + n if (n := int(calls[k][1])) < PLANE - k else k][0] for k in range(PLANE)],
    "plane_exclusive_sum": lambda calls: list(accumulate((c[0] for c in calls[:-1]), initial=type(calls[0][0])(0))),
    "plane_inclusive_sum": lambda calls: list(accumulate(c[0] for c in calls)),
}  # fmt: skip
REST = 0.25
"""How often a plane stays behind while others go on: those that wait too little for it are found.
"""
NOBODY: list[int] = []
"""Who goes on as long as others are missing."""
MEETINGS = {
    *IN_PLANES, "sync_cube", "sync_cluster", "sync_group", "arrive_group", "wgmma", "wgmma_registers", "barrier_wait",
}  # fmt: skip
SILENT = (
    "set_registers",
    "barrier_fence",
    "fence_async",
    "wgmma_fence",
    "tma_prefetch",
    "wait_previous",
    "start_next",
)
"""Ops that order what is in order here, or only make things faster."""


OWN_OPS: dict[str, Callable[[Cube, int], Any]] = {
    "unit_position": lambda cube, unit: lambda axis, n: 0 if axis else unit,
    "lane_position": lambda cube, unit: lambda: unit % PLANE,
    "copy_async": lambda cube, unit: lambda to, source, i, j, n: cube.engine.copy_async(
        cube.copies[unit], to, source, i, j, True, n),
    "copy_async_if": lambda cube, unit: lambda to, source, i, j, valid, n: cube.engine.copy_async(
        cube.copies[unit], to, source, i, j, valid, n),
    "copy_async_commit": lambda cube, unit: cube.copies[unit].commit,
    "copy_async_wait": lambda cube, unit: cube.copies[unit].wait,
    "tma_store": lambda cube, unit: lambda source, target, i, *coords: cube.engine.tma_store(
        cube.stores[unit], source, target, i, coords),
    "tma_commit": lambda cube, unit: cube.stores[unit].commit,
    "tma_wait": lambda cube, unit: lambda n, read: cube.stores[unit].wait(n),
    "wgmma_commit": lambda cube, unit: cube.products[unit].commit,
    "wgmma_wait": lambda cube, unit: lambda *args: cube.products[unit].wait(args[-1]),
}  # fmt: skip
"""The ops in which a unit is known, made from its cube and its number."""


class Cube:
    """One cube of a launch."""

    def __init__(
        self, kernel: Any, numbers: dict[str, Any], args: list[Any], position: tuple[int, ...], cubes: tuple[int, ...], units: int,
        shared_bytes: int, chance: random.Random, late: float,
    ) -> None:  # fmt: skip
        self.position, self.cubes, self.units, self.chance, self.late = (
            position,
            cubes,
            units,
            chance,
            late,
        )
        self.shared = np.full(-(-shared_bytes // 16) * 2 + 2, 0xFFFFFFFFFFFFFFFF, np.uint64).view(
            np.uint8
        )
        self.limit = shared_bytes
        self.engine = Engine(self.shared, chance, late)
        self.places: dict[tuple[str, int], Place] = {}
        self.barriers: dict[int, Barrier] = {}
        used = {*kernel.co_names, *(c for c in kernel.co_consts if type(c) is str)}

        def groups(kind: str) -> list[Groups]:
            """Of each unit, where the kernel has ops of a kind."""
            return [Groups() for _ in range(units)] if any(n.startswith(kind) for n in used) else []

        self.stores, self.products = groups("tma"), groups("wgmma")
        self.copies = groups("copy_async")
        self.meetings: dict[Any, dict[int, list[Any]]] = {}
        self.answers: list[Any] = [None] * units
        self.alive = units
        self.waiting: dict[int, tuple[Barrier, int]] = {}
        self.cluster: list[Cube] = [self]
        together = {name: op for name, op in self.shared_ops().items() if name in used} | numbers
        own = [(name, make) for name, make in OWN_OPS.items() if name in used]
        self.programs = [
            FunctionType(kernel, {**together, **{name: make(self, u) for name, make in own}})(*args)
            for u in range(units)
        ]

    def shared_ops(self) -> dict[str, Any]:
        """The ops that are the same for all units."""
        return {
            **ARITHMETIC, **MEMORY_OPS, **dict.fromkeys(SILENT, lambda *_: None), "shared_memory": self.place,
            "cube_position": lambda axis: self.position[axis], "cube_count": lambda axis: self.cubes[axis],
            "cluster_rank": lambda: self.cluster.index(self),
            "load_cluster": lambda p, i, rank: MEMORY_OPS["load"](self.cluster[int(rank)].same(p), i),
            "store_cluster": lambda p, i, value, rank: MEMORY_OPS["store"](self.cluster[int(rank)].same(p), i, value),
            "barrier_init": self.barrier_init, "barrier_arrive": lambda p, i: self.barriers[p.byte(i)].update(1, 0),
            "barrier_arrive_cluster": lambda p, i, rank: self.other(int(rank)).barriers[p.byte(i)].update(1, 0),
            "barrier_expect": lambda p, i, n: self.barriers[p.byte(i)].update(1, n),
            "tma_load": lambda to, bar, source, i, b, *coords: self.engine.tma_load(
                [self], bar.byte(b), to, source, i, coords),
            "tma_load_multicast": lambda to, bar, source, i, b, mask, *coords: self.engine.tma_load(
                [self.other(n) for n in bits(int(mask))], bar.byte(b), to, source, i, coords),
        }  # fmt: skip

    def other(self, rank: int) -> Cube:
        """A cube of the cluster, which must not have ended."""
        assert self.cluster[rank].alive, "a cube has ended whose shared memory another one uses"
        return self.cluster[rank]

    def place(self, dtype: str, at: int) -> Place:
        """Shared memory from a byte on."""
        if (dtype, at) not in self.places:
            kind = DTYPES[dtype]
            end = at + (self.limit - at) // kind.itemsize * kind.itemsize
            self.places[dtype, at] = Place(self.shared[at:end].view(kind), at)
        return self.places[dtype, at]

    def same(self, p: Place) -> Place:
        """The place in this cube's shared memory where another cube's is in its own."""
        return Place(self.shared[p.start : p.start + p.items.nbytes].view(p.dtype), p.start)

    def barrier_init(self, p: Place, count: int, arrivals: int) -> None:
        self.barriers |= {p.byte(i): Barrier(arrivals) for i in range(count)}

    def meet(self, unit: int, op: str, args: list[Any]) -> list[int]:
        """A unit comes where others must come too; gives those that go on."""
        key: Any = (op, unit // PLANE)
        size = PLANE
        together = IN_PLANES.get(op)
        if together is None:
            if op in ("sync_cube", "sync_cluster"):
                key, size = op, self.units
            elif op in ("sync_group", "arrive_group"):
                key, size = ("sync_group", int(args[0])), args[1]
            elif op.startswith("wgmma"):
                key, size = (op, unit // GROUP), GROUP
        waiting = self.meetings.get(key)
        if waiting is None:
            waiting = self.meetings[key] = {}
        assert unit not in waiting, f"unit {unit} arrives twice in one phase of {key}"
        waiting[unit] = args
        if together is not None and len(waiting) < size:
            return NOBODY
        going = []
        if op == "arrive_group":  # counts, and does not wait
            waiting[unit] = []
            going = [unit]
        if len(waiting) < size:
            return going
        del self.meetings[key]
        if op in ("sync_group", "arrive_group"):
            return going + sorted(u for u, given in waiting.items() if given)
        units = sorted(waiting)
        calls = [waiting[u] for u in units]
        if together is not None:
            for u, answer in zip(units, together(calls), strict=True):
                self.answers[u] = answer
        elif op.startswith("wgmma"):
            product = Product(op, calls, self.shared, self.chance.random() >= self.late)
            for u in units:
                self.products[u].begin(lambda u=u: product.add(u))
        return units

    def run(self) -> Iterator[str]:
        """Run all units to their end, a piece at a time: "meets" where all of them wait for the
        cluster, "waits" where none can go on by itself, else "moved".
        """
        ready = list(range(self.units))
        go_on, answers, meet = [p.send for p in self.programs], self.answers, self.meet
        drawn = self.chance.random
        while self.alive:
            ready.sort(key=lambda unit: drawn())  # half as long as to shuffle
            moved = bool(ready)
            resting = {p for p in range(-(-self.units // PLANE)) if drawn() < REST}
            going = [u for u in ready if u // PLANE in resting]
            for unit in ready:
                if unit // PLANE in resting:
                    continue
                answer, answers[unit] = answers[unit], None
                try:
                    op, *args = go_on[unit](answer)
                except StopIteration:
                    self.alive -= 1
                    continue
                if op == "barrier_wait":
                    self.waiting[unit] = self.barriers[args[0].byte(args[1])], int(args[2])
                else:
                    met = meet(unit, op, args)
                    if met and op == "sync_cluster":
                        yield "meets"
                    going += met
            moved |= self.engine.some_land(not ready)
            for unit in [
                u for u, (barrier, parity) in self.waiting.items() if barrier.passes(parity)
            ]:
                del self.waiting[unit]
                going.append(unit)
            ready = going
            yield "moved" if moved or ready else "waits"
        assert not self.engine.under_way, "a copy lands in shared memory after its cube has ended"
        for stores in self.stores:
            stores.wait(-1)
