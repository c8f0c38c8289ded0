"""Several maps of the same arithmetic in one launch on a CPU: a cube does a piece of a member."""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.elementwise.map_cpu import CHUNK, lines_at
from cubepy.kernels.fused.problem import Bundle, put
from cubepy.kernels.primitives.vector_width import beside, lanes_on
from cubepy.tune import CpuRoutine


@cb.kernel
def map_members(
    results,
    inputs,
    numbers,
    function: cb.Comptime,
    many: cb.Comptime[int],
    fixed: cb.Comptime[tuple],
    lanes: cb.Comptime[int],
    chunk: cb.Comptime[int],
):
    """results[n][i] = function(*numbers, inputs[0][i], ...)[n] of each of `many` members, whose
    pieces are counted one member after the other.
    """
    made = len(results) // many
    piece = cb.CUBE_POS
    for j in cb.unroll(range(many)):
        mine = results[j * made : (j + 1) * made]
        given = inputs[j * len(fixed) : (j + 1) * len(fixed)]
        n = mine[0].shape[0]
        pieces = (n + chunk - 1) // chunk
        if 0 <= piece and piece < pieces:
            for k, valid in cb.lines(piece * chunk, cb.min(piece * chunk + chunk, n), lanes):
                found = function(*numbers, *lines_at(given, (), fixed, k, valid, lanes))
                if made == 1 and len(numbers) == 0:
                    put(mine[0], (k,), found, lanes, valid)
                else:
                    for m in cb.unroll(range(made)):
                        put(mine[m], (k,), found[m], lanes, valid)
        piece = piece - pieces


class Pieces(CpuRoutine):
    """A cube does a piece of a member."""

    name = "pieces"

    def launch(self, p: Bundle, properties: cb.DeviceProperties) -> None:
        """Pieces of all members."""
        lanes = lanes_on(properties, *p.results, *p.inputs)
        largest = max(p.results, key=lambda r: r.size)
        lanes *= beside(lanes, largest, properties)
        made = len(p.results) // p.many
        cubes = sum(-(-r.size // CHUNK) for r in p.results[::made])
        given = tuple(p.results), tuple(p.inputs), p.numbers
        how = p.function, p.many, p.fixed, lanes, CHUNK
        map_members[cubes, 1](*given, *how, mode="unchecked")
