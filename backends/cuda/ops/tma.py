"""Copies of whole tiles by the tensor memory accelerator (`cp.async.bulk.tensor`).

Coordinates come in the order of NumPy's indices, the innermost last; PTX wants the innermost first.
"""

from __future__ import annotations

from typing import Any

from numba.core import types

from cubepy.backends.cuda.ops.ptx import VOID, asm, nothing, pointer, shared_address, size, word
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import I64, literal


def _coordinates(first: int, rank: int) -> str:
    """Operands `first` on, in braces, the last one first."""
    return "{" + ", ".join(f"${k}" for k in reversed(range(first, first + rank))) + "}"


@op
def tma_load(*args: Any) -> Any:
    """`tma_load(to, barrier, map, i, b, *coords)`: copy a box to to[i]; barrier[b] counts
    its bytes.
    """
    return _load(args, multicast=False)


@op
def tma_load_multicast(*args: Any) -> Any:
    """`tma_load_multicast(to, barrier, map, i, b, mask, *coords)`: the same, to every cube of
    the mask.
    """
    return _load(args, multicast=True)


def _load(args: tuple[Any, ...], multicast: bool) -> Any:
    to, barrier, source = (pointer(t) for t in args[:3])
    first = 6 if multicast else 5
    rank = len(args) - first
    # $0 to, $1 map, $2 barrier, then the mask, then the coordinates
    text = (
        f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        f"{'.multicast::cluster' if multicast else ''} [$0], [$1, "
        f"{_coordinates(4 if multicast else 3, rank)}], [$2]"
    )
    if multicast:
        text = f"{{ .reg .b16 cubes; cvt.u16.u32 cubes, $3; {text}, cubes; }}"
    else:
        text += ";"

    def emit(b: Any, at: Any, bar: Any, where: Any, i: Any, k: Any, *rest: Any) -> None:
        addresses = [
            shared_address(b, at, i, size(to)),
            b.ptrtoint(where, I64),
            shared_address(b, bar, k, size(barrier)),
        ]
        asm(b, VOID, text, [*addresses, *(word(b, x) for x in rest)])

    words = (types.int64,) * (len(args) - 5)
    return types.void(to, barrier, source, types.int64, types.int64, *words), emit


@op
def tma_store(*args: Any) -> Any:
    """`tma_store(source, map, i, *coords)`: copy a box from source[i] to the array behind
    the map.
    """
    source, target = (pointer(t) for t in args[:2])
    rank = len(args) - 3
    text = (
        f"cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$1, "
        f"{_coordinates(2, rank)}], [$0];"
    )

    def emit(b: Any, at: Any, where: Any, i: Any, *coords: Any) -> None:
        address = shared_address(b, at, i, size(source))
        asm(b, VOID, text, [address, b.ptrtoint(where, I64), *(word(b, x) for x in coords)])

    return types.void(source, target, types.int64, *(types.int64,) * rank), emit


@op
def tma_commit() -> Any:
    """`tma_commit()`: the stores since the last commit are one group."""
    return nothing("cp.async.bulk.commit_group;")


@literal_op
def tma_wait(pending: Any, read: Any) -> Any:
    """`tma_wait(n, read)`: wait until at most n groups of stores are under way (`read`: still read
    their source).
    """
    n, only = literal(pending), literal(read)
    if n is None or only is None:
        return None
    text = f"cp.async.bulk.wait_group{'.read' if only else ''} {n};"
    return types.void(pending, read), lambda b, *_: asm(b, VOID, text, []) and None


@op
def tma_prefetch(where: Any) -> Any:
    """`tma_prefetch(map)`: bring the description of an array near."""
    where = pointer(where)

    def emit(b: Any, at: Any) -> None:
        asm(b, VOID, "prefetch.tensormap [$0];", [b.ptrtoint(at, I64)])

    return types.void(where), emit


@op
def fence_async() -> Any:
    """`fence_async()`: what this unit wrote to shared memory is seen by copies and matrix units."""
    return nothing("fence.proxy.async.shared::cta;")
