"""Where a unit is, shared memory, and barriers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from cubepy.backends.gpu.ops.topology import multiple, shared_memory
from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import I32, I64, literal

__all__ = [
    "cube_count",
    "cube_position",
    "lane_position",
    "multiple",
    "no_unroll",
    "shared_memory",
    "sync_cube",
    "sync_plane",
    "unit_position",
]
_AXES = "xyz"


def asm(
    b: Any, result: ir.Type, text: str, constraints: str, args: list[Any], side_effect: bool = True
) -> Any:
    """One piece of inline PTX; operands are $0, $1, ..."""
    fn = ir.FunctionType(result, [a.type for a in args])
    return b.call(ir.InlineAsm(fn, text, constraints, side_effect), args)


@op
def no_unroll() -> Any:
    """`no_unroll()`: at the top of a loop's body, tells ptxas to leave the loop as it is."""
    text = r".pragma \22nounroll\22;"  # the quotes as LLVM's text has them
    return types.void(), lambda b: asm(b, ir.VoidType(), text, "", [])


def register(b: Any, name: str) -> Any:
    """A special register, as i32."""
    fn = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(I32, []), f"llvm.nvvm.read.ptx.sreg.{name}"
    )
    return b.call(fn, [])


def ranged(b: Any, name: str, low: int, high: int) -> Any:
    """A special register whose value is known to be in [low, high), as i64."""
    value = register(b, name)
    value.set_metadata("range", b.module.add_metadata([I32(low), I32(high)]))
    return b.zext(value, I64)


@literal_op
def unit_position(axis: Any, count: Any) -> Any:
    """`unit_position(axis, count)`: this unit's position in its cube; count: units of the cube
    along the axis.
    """
    a, n = literal(axis), literal(count)
    if a is None or n is None:
        return None
    return types.int64(
        axis, count
    ), lambda b, *_: ranged(b, f"tid.{_AXES[a]}", 0, n) if n > 1 else I64(0)


@literal_op
def cube_position(axis: Any) -> Any:
    """`cube_position(axis)`: the cube's position in the launch."""
    a = literal(axis)
    if a is None:
        return None
    limit = 2**31 - 1 if a == 0 else 65535
    return types.int64(axis), lambda b, *_: ranged(b, f"ctaid.{_AXES[a]}", 0, limit)


@literal_op
def cube_count(axis: Any) -> Any:
    """`cube_count(axis)`: cubes of the launch along an axis."""
    a = literal(axis)
    if a is None:
        return None
    limit = 2**31 - 1 if a == 0 else 65535
    return types.int64(axis), lambda b, *_: ranged(
        b, f"nctaid.{_AXES[a]}", 1, limit + 1 if a else limit
    )


@op
def lane_position() -> Any:
    """`lane_position()`: this unit's position in its plane."""
    return types.int64(), lambda b: ranged(b, "laneid", 0, 32)


@op
def sync_cube() -> Any:
    """`sync_cube()`: wait until every unit of the cube is here; orders shared memory."""

    def emit(b: Any) -> None:
        fn = cgutils.get_or_insert_function(
            b.module, ir.FunctionType(ir.VoidType(), []), "llvm.nvvm.barrier0"
        )
        call = b.call(fn, [])
        call.attributes.add("convergent")

    return types.void(), emit


@op
def sync_plane() -> Any:
    """`sync_plane()`: wait for the units of the plane that run; orders shared memory among them."""

    def emit(b: Any) -> None:
        asm(
            b, ir.VoidType(), "{ .reg .b32 m; activemask.b32 m; bar.warp.sync m; }", "~{memory}", []
        )

    return types.void(), emit
