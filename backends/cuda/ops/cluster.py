"""Clusters of cubes, barriers of some planes of a cube, and the order of launches."""

from __future__ import annotations

from typing import Any

from numba.core import types

from cubepy.backends.cuda.ops.ptx import VOID, asm, nothing, pointer, shared_address, size, word
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import F32, F64, I32, I64, SCALARS

ELEMENTS = {
    "f32": ("f32", F32),
    "f64": ("f64", F64),
    "i32": ("b32", I32),
    "u32": ("b32", I32),
    "i64": ("b64", I64),
    "u64": ("b64", I64),
}
"""Of dtypes that cubes give each other: an instruction's suffix, and the type of its operand."""


@op
def cluster_rank() -> Any:
    """`cluster_rank()`: the place of this cube in its cluster."""
    return types.int32(), lambda b: asm(b, I32, "mov.u32 $0, %cluster_ctarank;", [], memory=False)


@op
def sync_cluster() -> Any:
    """`sync_cluster()`: every unit of every cube of the cluster arrives before any goes on."""
    return nothing("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;", convergent=True)


@op
def load_cluster(p: Any, i: Any, rank: Any) -> Any:
    """`load_cluster(p, i, rank)`: an element of 32 or 64 bits of the same shared memory of another
    cube of the cluster.
    """
    p = pointer(p)
    dtype = p.dtype
    kind, element = ELEMENTS[dtype]
    ld = f"ld.shared::cluster.{kind}"
    text = f"{{ .reg .b32 there; mapa.shared::cluster.u32 there, $1, $2; {ld} $0, [there]; }}"

    def emit(b: Any, at: Any, k: Any, of: Any) -> Any:
        return asm(b, element, text, [shared_address(b, at, k, size(p)), word(b, of)])

    return SCALARS[dtype](p, types.int64, types.int64), emit


@op
def store_cluster(p: Any, i: Any, value: Any, rank: Any) -> Any:
    """`store_cluster(p, i, value, rank)`: set such an element of another cube of the cluster."""
    p = pointer(p)
    kind, _ = ELEMENTS[p.dtype]
    text = (
        f"{{ .reg .b32 there; mapa.shared::cluster.u32 there, $0, $2; "
        f"st.shared::cluster.{kind} [there], $1; }}"
    )

    def emit(b: Any, at: Any, k: Any, v: Any, of: Any) -> None:
        asm(b, VOID, text, [shared_address(b, at, k, size(p)), v, word(b, of)])

    return types.void(p, types.int64, SCALARS[p.dtype], types.int64), emit


@op
def wait_previous() -> Any:
    """`wait_previous()`: the launches before this one are complete, and what they wrote is seen."""
    return nothing("griddepcontrol.wait;")


@op
def start_next() -> Any:
    """`start_next()`: the launch after this one may begin, as far as this cube is concerned."""
    return nothing("griddepcontrol.launch_dependents;")


@op
def sync_group(number: Any, units: Any) -> Any:
    """`sync_group(number, units)`: barrier `number` (1 to 15) of so many units, whole planes."""

    def emit(b: Any, k: Any, n: Any) -> None:
        asm(b, VOID, "bar.sync $0, $1;", [word(b, k), word(b, n)], convergent=True)

    return types.void(types.int64, types.int64), emit


@op
def arrive_group(number: Any, units: Any) -> Any:
    """`arrive_group(number, units)`: arrive at barrier `number` of so many units without
    waiting.
    """

    def emit(b: Any, k: Any, n: Any) -> None:
        asm(b, VOID, "bar.arrive $0, $1;", [word(b, k), word(b, n)], convergent=True)

    return types.void(types.int64, types.int64), emit
