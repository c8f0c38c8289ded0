"""Where a unit is, shared memory, and barriers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from cubepy.backends.llvm.ops.registry import literal_op, op
from cubepy.backends.llvm.ops.types import I8, I32, I64, Ptr, literal, memory_ir

SHARED = "cubepy_shared"
SHARED_SPACE = 3
ALIGNMENT = 1024
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


@literal_op
def shared_memory(dtype: Any, offset: Any) -> Any:
    """`shared_memory(dtype, offset)`: a pointer into the cube's shared memory, `offset` bytes from
    its start.
    """
    name, at = literal(dtype), literal(offset)
    if name is None or at is None:
        return None
    # LLVM's analysis does not look through the change of address space, so the type says what is
    # known.
    out = Ptr(name, align=at & -at if at else ALIGNMENT)

    def emit(b: Any, *_: Any) -> Any:
        variable = b.module.globals.get(SHARED)
        if variable is None:
            variable = ir.GlobalVariable(b.module, ir.ArrayType(I8, 0), SHARED, SHARED_SPACE)
            variable.linkage = "external"
            variable.align = ALIGNMENT
        start = b.gep(variable, [I64(0), I64(at)])
        element = memory_ir(name)
        return b.addrspacecast(
            b.bitcast(start, element.as_pointer(SHARED_SPACE)), element.as_pointer()
        )

    return out(dtype, offset), emit


@literal_op
def multiple(value: Any, step: Any) -> Any:
    """`multiple(value, step)`: value, which is known to be a multiple of a power of two."""
    k = literal(step)
    if k is None:
        return None
    return types.int64(types.int64, step), lambda b, v, _: b.and_(v, I64(-k))


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
