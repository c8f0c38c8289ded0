"""Several maps of the same arithmetic in one launch on a GPU: a cube does a run of a member."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.elementwise.map_gpu import UNITS, LinePlan, read_all
from cubepy.kernels.fused.problem import Bundle, put
from cubepy.kernels.primitives.lines import multiple
from cubepy.kernels.primitives.vector_width import line_of
from cubepy.tune import GpuRoutine


@cb.kernel
def map_members_wide(
    results,
    inputs,
    numbers,
    function: cb.Comptime,
    many: cb.Comptime[int],
    plan: cb.Comptime[LinePlan],
):
    """The same by whole cubes: a unit does a line of a member, and a cube is of one member."""
    made = len(results) // many
    width = cb.CUBE_DIM * plan.lanes
    piece = cb.CUBE_POS
    for j in cb.unroll(range(many)):
        mine = results[j * made : (j + 1) * made]
        given = inputs[j * len(plan.fixed) : (j + 1) * len(plan.fixed)]
        n = mine[0].shape[0]
        pieces = (n + width - 1) // width
        k = multiple(piece * width + cb.UNIT_POS * plan.lanes, plan.lanes)
        if 0 <= piece and k < n:
            found = function(*numbers, *read_all(given, (k,), n - k, plan))
            if made == 1 and len(numbers) == 0:
                put(mine[0], (k,), found, plan.lanes, n - k)
            else:
                for m in cb.unroll(range(made)):
                    put(mine[m], (k,), found[m], plan.lanes, n - k)
        piece = piece - pieces


class Pieces(GpuRoutine):
    """A cube does a run of a member."""

    name = "pieces"

    def launch(self, p: Bundle, properties: cb.DeviceProperties) -> None:
        """Cubes for all members."""
        fixed = p.fixed * p.many
        read = [a for a, f in zip(p.inputs, fixed, strict=True) if not f]
        plan = LinePlan(line_of(*p.results, *read), 1, p.fixed)
        made = len(p.results) // p.many
        cubes = sum(-(-r.size // (UNITS * plan.lanes)) for r in p.results[::made])
        given = tuple(p.results), tuple(p.inputs), p.numbers, p.function, p.many, plan
        map_members_wide[cubes, UNITS](*given, mode="unchecked")
