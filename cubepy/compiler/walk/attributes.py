"""Host objects as values, and `owner.name`."""

from __future__ import annotations

import math
import re
import types
from typing import Any

from cubepy.compiler.ir import Expr, Mem, VType
from cubepy.compiler.lower.topology import topology
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import (
    ArrayValue,
    Const,
    MethodValue,
    StructValue,
    TupleValue,
    Value,
    describe,
)
from cubepy.errors import ComptimeError, KernelNameError
from cubepy.lang.builtins import Topology
from cubepy.lang.names import __all__ as LANGUAGE
from cubepy.lang.struct import Struct

ARRAY_METHODS = ("load", "store", "store_stream", "prefetch")
ELSEWHERE = {
    "threadIdx": "in CUDA threadIdx.x is cb.UNIT_POS_X",
    "blockIdx": "in CUDA blockIdx.x is cb.CUBE_POS_X",
    "blockDim": "in CUDA blockDim.x is cb.CUBE_DIM_X",
    "gridDim": "in CUDA gridDim.x is cb.CUBE_COUNT_X",
    "syncthreads": "a barrier of a cube is cb.sync_cube()",
    "program_id": "in Triton program_id(0) is cb.CUBE_POS_X",
    "threadfence": "writes are seen by others of a cube after cb.sync_cube()",
    "syncwarp": "a barrier of a plane is cb.sync_plane()",
    "warpsize": "a warp is a plane, and its size cb.PLANE_DIM",
    "laneid": "the lane of a unit in its plane is cb.UNIT_POS_PLANE",
    "grid": "in numba.cuda grid(1) is cb.ABSOLUTE_POS",
    "tid": "in Warp tid() is cb.ABSOLUTE_POS",
    "num_programs": "in Triton num_programs(0) is cb.CUBE_COUNT_X",
    "atomic": "atomic operations are cb.atomic_add(array, index, value) and its like",
    "atomic_cas": "it is cb.atomic_compare_exchange(array, index, expected, value)",
    "atomic_xchg": "it is cb.atomic_exchange(array, index, value)",
    "static_range": "a loop that is written out is over cb.unroll(range(...))",
    "static": "a loop that is written out is over cb.unroll(range(...))",
    "constexpr": "a comptime parameter is annotated with cb.Comptime[int]",
    "where": "it is cb.select(mask, a, b), or a if mask else b",
    "maximum": "it is cb.max, or cb.nan_max where NaN shall be seen",
    "minimum": "it is cb.min, or cb.nan_min where NaN shall be seen",
    "zeros": "a line of zeros is cb.splat(cb.f32(0), lanes), and memory cb.local or cb.shared",
    "full": "a line of one number is cb.splat(value, lanes)",
    "dot": "a product of lines is (a * b).sum(), and matrix units are cb.mma",
    "power": "it is **, or cb.pow",
    "rand": "random numbers are cb.to_uniform(cb.philox((position,), (seed,))[0])",
    "randn": "random numbers are cb.to_normal(cb.philox((position,), (seed,)))",
    "popc": "it is cb.popcount",
    "ffs": "the lowest set bit is at cb.ctz(x)",
    "shfl_sync": "it is cb.plane_shuffle(value, unit)",
    "ballot_sync": "ask cb.plane_any or cb.plane_all, or count with cb.plane_sum",
    "thread_id": "a unit's index in its cube is cb.UNIT_POS, in the launch cb.ABSOLUTE_POS",
    "block_id": "the index of a cube is cb.CUBE_POS",
    "thread_idx": "the index of a unit in its cube is cb.UNIT_POS",
    "block_idx": "the index of a cube is cb.CUBE_POS",
    "block_dim": "the units of a cube are cb.CUBE_DIM",
    "grid_dim": "the cubes of a launch are cb.CUBE_COUNT",
    "barrier_sync": "a barrier of a cube is cb.sync_cube()",
    "__syncthreads": "a barrier of a cube is cb.sync_cube()",
    "shared_array": "memory of a cube is cb.shared(shape, dtype)",
    "local_array": "memory of a unit is cb.local(shape, dtype)",
    "sum": "lanes are added by line.sum(), tuples by sum(t), planes by cb.plane_sum(v)",
    "mean": "sum in a loop over range(x.size) or cb.lines, and divide",
    "argmax": "keep the largest and its place in a loop",
    "store": "an array has it: x[i] = v, or x.store(i, line)",
    "load": "an array has it: x[i], or x.load(i, lanes) for a line",
    "ndrange": "a kernel is run for each unit: kernel[cb.over(shape)](...)",
    "arange": "in Triton arange is cb.iota, and an index is cb.ABSOLUTE_POS",
    **dict.fromkeys(
        ("vec2", "vec3", "vec4", "Vector", "mat22", "mat33", "mat44", "matrix", "Matrix"),
        "a vector is a @cb.struct of numbers, whose operators are methods (__add__)",
    ),
    **dict.fromkeys(("pi", "inf", "nan", "e", "tau"), "Python's math has it: math.pi, math.inf"),
    **dict.fromkeys(
        ("random", "randint", "uniform"),
        "random numbers are cb.to_uniform(cb.philox((position,), (seed,))[0])",
    ),
    **dict.fromkeys(
        ("cdiv", "ceil_div", "ceildiv"), "round a quotient up by -(-a // b), or (a + b - 1) // b"
    ),
    **dict.fromkeys(
        ("int", "float", "bool"), "write int(x), float(x) or bool(x), or cb.cast(x, cb.i32)"
    ),
    **dict.fromkeys(("ballot", "all_sync", "any_sync"), "ask cb.plane_any or cb.plane_all"),
    **dict.fromkeys(
        ("shfl", "shfl_up", "shfl_down", "shfl_xor", "shfl_down_sync", "shfl_up_sync"),
        "it is cb.plane_shuffle, plane_shuffle_up, plane_shuffle_down or plane_shuffle_xor",
    ),
    **dict.fromkeys(("len", "length", "size"), "it is len(x) or x.size, and of lines line.lanes"),
    **dict.fromkeys(
        ("sigmoid", "relu", "gelu", "silu"), "write it, as in 1 / (1 + cb.exp(-x)) or cb.max(x, 0)"
    ),
    **dict.fromkeys(("lerp", "mix"), "write a + (b - a) * t"),
    **dict.fromkeys(("clock", "clock64"), "time is measured outside, with cb.profile()"),
    "swap": "write a, b = b, a",
    "printf": "write print(a, b): it prints with mode='validate'",
    "device_print": "write print(a, b): it prints with mode='validate'",
    "isclose": "write cb.abs(a - b) < tolerance",
    "mod": "it is %, or cb.fmod with the sign of the first number",
    "sort": "sort outside by K.sort; few numbers, in a loop over cb.local or cb.shared",
    "cumsum": "over a plane it is cb.plane_inclusive_sum(v), and outside K.cumsum",
    "view": "the bits of a number as another dtype are cb.bitcast(v, dtype)",
    "make_block_ptr": "a line along the last axis is x.load((i, j), lanes)",
}
"""Words of other languages, and where they are found in this one."""
OF_ARRAYS = {
    **dict.fromkeys(
        ("sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin", "dot"),
        "go over the array in a loop, or take a line of it: x.load(i, 8).sum()",
    ),
    "T": "exchange the indices: x[j, i]",
    "strides": "its steps, in elements, are x.stride",
    "astype": "cast what is read: cb.cast(x[i], cb.f32)",
    "view": "take bits of what is read: cb.bitcast(x[i], cb.i32)",
    **dict.fromkeys(
        ("reshape", "ravel", "flatten", "flat", "transpose"),
        "x.load(i, lanes) counts in C order; reshape outside, which copies nothing",
    ),
    "fill": "store each element: x[i] = v",
    "copy": "store each element of another array, such as cb.local(shape, dtype)",
    "len": "its length is len(x), or x.size",
}
"""What to write for attributes that arrays have elsewhere."""
LINE_METHODS = ("sum", "prod", "max", "min", "any", "all")


def wrap(s: Scope, value: Any) -> Value:
    """A host object as a value of the kernel."""
    if isinstance(value, Topology):
        return topology(s, value.name)
    if isinstance(value, Struct):
        return StructValue(
            value.__cubepy_type__,
            tuple((n, wrap(s, v)) for n, v in value.__cubepy_values__.items()),
        )
    if isinstance(value, types.ModuleType):
        return Const(value)  # asking it for more may import more
    if isinstance(value, type):
        return Const(value)  # of `np.float32`, `ndim` is a descriptor
    if hasattr(value, "__array_interface__") and getattr(value, "ndim", 0) > 0:
        raise ComptimeError(
            "an array from outside cannot be used in a kernel directly",
            hint="pass it as an argument",
        )
    return Const(value)


def attribute(s: Scope, owner: Value, name: str) -> Value:
    """`owner.name`."""
    if isinstance(owner, Const):
        return const_attribute(s, owner, name)
    if isinstance(owner, ArrayValue):
        return array_attribute(s, owner, name)
    if isinstance(owner, StructValue):
        field = owner.get(name)
        if field is not None:
            return field
        if name in owner.type.methods:
            return MethodValue(owner, name)
        raise KernelNameError(
            f"struct {owner.type.__name__} has no field or method {name!r}",
            hint=f"it has {', '.join([n for n, _ in owner.fields] + list(owner.type.methods))}",
        )
    if isinstance(owner, Expr):
        if name == "dtype":
            return Const(owner.type.dtype)
        if name == "lanes" and owner.type.lanes:
            return Const(owner.type.lanes)
        if owner.type.lanes and name in LINE_METHODS:
            return MethodValue(owner, name)
    raise KernelNameError(f"{describe(owner)} has no attribute {name!r}", hint=_of_value(owner))


def _of_value(owner: Value) -> str:
    """What something has that is known at run time only."""
    if isinstance(owner, Expr) and owner.op == "topology":
        return f"a position is a number: cb.{owner.attr}; those along axes end in _X, _Y and _Z"
    if isinstance(owner, Expr):
        line = ", ".join(("lanes", *LINE_METHODS)) if owner.type.lanes else ""
        return f"it has dtype{line and ', '}{line}"
    return "a tuple has items: t[0]" if isinstance(owner, TupleValue) else ""


def const_attribute(s: Scope, owner: Const, name: str) -> Value:
    obj = owner.value
    try:
        return wrap(s, s.facts.reads.attribute(obj, name))
    except AttributeError:
        what = f"module {obj.__name__!r}" if isinstance(obj, types.ModuleType) else describe(owner)
        raise KernelNameError(f"{what} has no attribute {name!r}", hint=_near(obj, name)) from None


def _near(obj: Any, name: str) -> str:
    """What was meant by a name that something does not have."""
    import difflib

    words = ELSEWHERE if getattr(obj, "__name__", "") == "cubepy" else {}
    if words and (bits := re.fullmatch(r"(float|u?int|bfloat)(\d+)", name)):
        kind = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf"}[bits[1]]
        return f"dtypes are short here: cb.{kind}{bits[2]}"
    known, least = (LANGUAGE, 0.65) if words else (dir(obj), 0.6)
    folded = {n.lower(): n for n in known}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=least)
    return words.get(name) or (f"did you mean {folded[close[0]]!r}?" if close else "")


def array_attribute(s: Scope, owner: ArrayValue, name: str) -> Value:
    mem = owner.mem
    if name == "dtype":
        return Const(mem.dtype)
    if name == "ndim":
        return Const(mem.ndim)
    if name == "lanes" and mem.lanes:
        return Const(mem.lanes)
    if mem.kind == "map":
        return map_attribute(s, mem, name)
    if name in ARRAY_METHODS:
        return MethodValue(owner, name)
    if mem.shape is not None:
        if name == "size":
            return Const(math.prod(mem.shape))
        if name == "shape":
            return Const(mem.shape)
        if name == "stride":
            return Const(tuple(math.prod(mem.shape[d + 1 :]) for d in range(mem.ndim)))
    index = VType(s.index)
    if name == "size":
        return Expr("size", index, (), mem)
    if name in ("shape", "stride"):
        return TupleValue(tuple(Expr(name, index, (), (mem, d)) for d in range(mem.ndim)))
    raise KernelNameError(
        f"an array has no attribute {name!r}",
        hint=OF_ARRAYS.get(name) or "it has size, shape, stride, dtype, ndim, load and store",
    )


def map_attribute(s: Scope, mem: Mem, name: str) -> Value:
    """`map.name`."""
    box = mem.shape or ()
    known = {"box": box, "swizzle": int(mem.layout), "nbytes": math.prod(box) * mem.dtype.itemsize}
    if name not in known:
        raise KernelNameError(
            f"a tensor map has no attribute {name!r}",
            hint="it has dtype, ndim, box, swizzle and nbytes",
        )
    return Const(known[name])
