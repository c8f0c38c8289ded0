"""Barriers in shared memory that count arrivals and bytes (`mbarrier`)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.cuda.ops.ptx import VOID, asm, nothing, pointer, shared_address, size, word
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import I64, literal


@literal_op
def barrier_init(p: Any, count: Any, arrivals: Any) -> Any:
    """`barrier_init(p, count, arrivals)`: make `count` barriers that each wait for so many
    arrivals.
    """
    p, n, expected = pointer(p), literal(count), literal(arrivals)
    if n is None or expected is None:
        return None

    def emit(b: Any, at: Any, *_: Any) -> None:
        for k in range(n):
            address = shared_address(b, at, ir.Constant(I64, k), size(p))
            asm(b, VOID, f"mbarrier.init.shared::cta.b64 [$0], {expected};", [address])

    return types.void(p, count, arrivals), emit


@op
def barrier_fence() -> Any:
    """`barrier_fence()`: barriers made before are visible to copies and to the cluster."""
    return nothing("fence.mbarrier_init.release.cluster;")


@op
def barrier_arrive(p: Any, i: Any) -> Any:
    """`barrier_arrive(p, i)`: one arrival."""
    p = pointer(p)

    def emit(b: Any, at: Any, k: Any) -> None:
        asm(
            b, VOID, "mbarrier.arrive.shared::cta.b64 _, [$0];", [shared_address(b, at, k, size(p))]
        )

    return types.void(p, types.int64), emit


@op
def barrier_arrive_cluster(p: Any, i: Any, rank: Any) -> Any:
    """`barrier_arrive_cluster(p, i, rank)`: one arrival at the barrier of another cube of the
    cluster.
    """
    p = pointer(p)
    text = (
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, $0, $1; "
        "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
    )

    def emit(b: Any, at: Any, k: Any, to: Any) -> None:
        asm(b, VOID, text, [shared_address(b, at, k, size(p)), word(b, to)])

    return types.void(p, types.int64, types.int64), emit


@op
def barrier_expect(p: Any, i: Any, nbytes: Any) -> Any:
    """`barrier_expect(p, i, nbytes)`: one arrival, and so many bytes of copies to wait for."""
    p = pointer(p)

    def emit(b: Any, at: Any, k: Any, n: Any) -> None:
        text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
        asm(b, VOID, text, [shared_address(b, at, k, size(p)), word(b, n)])

    return types.void(p, types.int64, types.int64), emit


@op
def barrier_wait(p: Any, i: Any, parity: Any) -> Any:
    """`barrier_wait(p, i, parity)`: wait for the end of the phase of this parity."""
    p = pointer(p)
    text = (  # labels in braces are scoped, so the text may stand any number of times
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; "
        "@done bra over; bra again; over: }"
    )

    def emit(b: Any, at: Any, k: Any, phase: Any) -> None:
        asm(b, VOID, text, [shared_address(b, at, k, size(p)), word(b, phase)])

    return types.void(p, types.int64, types.int64), emit
