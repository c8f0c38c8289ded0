"""Rules of barriers in memory, and of groups of planes that wait for each other."""

from __future__ import annotations

import math

from cubepy.compiler import convert
from cubepy.compiler.ir import Barrier, Expr, Hardware, If, Stmt
from cubepy.compiler.lower.hardware.operands import ZERO, barrier, choice, element, emit, require
from cubepy.compiler.lower.memory import allocate
from cubepy.compiler.lower.operands import as_index, comptime_int
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.lower.topology import topology
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import ArrayValue, Const, Value
from cubepy.errors import KernelTypeError
from cubepy.lang import dtypes as dt


@lowers("barrier")
def _barrier(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    count_v, arrivals_v = unpack(name, args, kwargs, "count", "arrivals")
    count = choice(s, count_v, range(1, 1025), "the count of cb.barrier")
    arrivals = choice(s, arrivals_v, range(1, 1 << 20), "the arrivals of cb.barrier")
    made = allocate(s, "shared", (count,), dt.u64)
    assert isinstance(made, ArrayValue)
    s.barriers[made.mem.name] = (made.mem, arrivals)
    return made


@lowers("barrier_arrive", "barrier_expect", "barrier_wait", "barrier_arrive_cluster")
def _barrier_use(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    more = {
        "barrier_expect": "nbytes",
        "barrier_wait": "parity",
        "barrier_arrive_cluster": "rank",
    }.get(name)
    bar, i, *rest = unpack(name, args, kwargs, "bar", "i", *([more] if more else []))
    mem = barrier(s, bar, name)
    return emit(s, name, (mem,), (element(s, mem, i, "a barrier"), *(as_index(s, v) for v in rest)))


@lowers("sync_group", "arrive_group")
def _sync_group(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    number, units_v = unpack(name, args, kwargs, "id", "units")
    units = comptime_int(units_v, f"the units of cb.{name}")
    if units % s.plane or not 0 < units <= math.prod(s.units):
        raise KernelTypeError(
            f"cb.{name} needs whole planes of the cube, not {units} units of {math.prod(s.units)}"
        )
    if isinstance(number, Const):
        choice(s, number, range(1, 16), f"the id of cb.{name}")
    return emit(s, name, args=(as_index(s, number), as_index(s, units_v)))


def with_barriers_first(s: Scope, body: list[Stmt]) -> list[Stmt]:
    """The kernel's body after what makes its barriers ready for every unit."""
    if not s.barriers:
        return body
    made: list[Stmt] = [
        Hardware("barrier_init", None, (mem,), (), (math.prod(mem.shape or ()), arrivals))
        for mem, arrivals in s.barriers.values()
    ]
    made.append(Hardware("barrier_fence", None))
    unit = topology(s, "UNIT_POS")
    if isinstance(unit, Expr):
        made = [If(convert.compare("eq", unit, ZERO, s.index), made, [])]  # type: ignore[arg-type]
    meet: Stmt = Hardware("sync_cluster", None) if math.prod(s.cluster) > 1 else Barrier()
    return [*made, meet, *body]
