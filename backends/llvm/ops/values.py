"""Building LLVM values that are either scalars or vectors: one code path for both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir
from numba.core import cgutils

from cubepy.backends.llvm.ops.types import F32, F64, I32

Value = Any
Builder = Any

KEPT = ("nsz",)
"""Flags for additions that recover a rounding error: a kernel's fast-math flags would cancel them
to nothing, and numba gives those only to instructions that have no flags of their own."""

KEPT_PRODUCT = ("arcp",)
"""The same for products, whose zeros keep their signs: what it allows is about quotients."""


def lanes_of(ty: ir.Type) -> int:
    """Lanes of an LLVM type; 0 for a scalar."""
    return ty.count if isinstance(ty, ir.VectorType) else 0


def element_of(ty: ir.Type) -> ir.Type:
    """The element of a vector, or the scalar type itself."""
    return ty.element if isinstance(ty, ir.VectorType) else ty


def shaped(element: ir.Type, like: ir.Type) -> ir.Type:
    """A type of this element with the lanes of another type."""
    return ir.VectorType(element, like.count) if isinstance(like, ir.VectorType) else element


GPUS = "nvptx", "amdgcn"
"""What names of GPUs begin with, as targets of LLVM."""
_constants: dict[Any, ir.Constant] = {}
"""Those that were made, and orders of lanes: their text is worked out once."""
MANY = 4096


def const(ty: ir.Type, x: Any) -> ir.Constant:
    """A constant, in every lane of a vector type."""
    kind = type(x)
    key = ty, kind, x if kind is int else repr(x)  # zeros have signs, NumPy's too
    found = _constants.get(key)
    if found is None:
        lanes = [x] * ty.count if isinstance(ty, ir.VectorType) and x is not None else x
        found = ir.Constant(ty, lanes)
        if len(_constants) < MANY:
            _constants[key] = found
    return found


def constant_of(b: Builder, value: Value) -> int | None:
    """The integer that a value is on a CPU, in every lane; None if it is known at run time only.

    On GPUs none is known: shorter divisions moved registers of clusters' kernels into memory.
    """
    if str(b.module.triple).startswith(GPUS):
        return None
    numbers = getattr(value, "constant", None)
    if isinstance(numbers, (list, tuple)):
        lanes = {getattr(n, "constant", n) for n in numbers}
        numbers = lanes.pop() if len(lanes) == 1 else None
    return numbers if type(numbers) is int else None


def int_like(ty: ir.Type) -> ir.Type:
    """The integer type with the width and lanes of a float type."""
    widths = {F32: 32, F64: 64}
    return shaped(ir.IntType(widths[element_of(ty)]), ty)


def mangled(ty: ir.Type) -> str:
    """How intrinsic names write a type."""
    if isinstance(ty, ir.VectorType):
        return f"v{ty.count}{mangled(ty.element)}"
    if isinstance(ty, ir.PointerType):  # typed before LLVM 16
        return f"p0{mangled(ty.pointee)}" if str(ty).endswith("*") else "p0"
    return str(ty.intrinsic_name)


def intrinsic(
    b: Builder, name: str, result: ir.Type, args: Sequence[Value], over: Sequence[ir.Type]
) -> Value:
    """Call the LLVM intrinsic `name` overloaded for the types `over`."""
    full = ".".join([name, *(mangled(t) for t in over)])
    fn = cgutils.get_or_insert_function(
        b.module, ir.FunctionType(result, [a.type for a in args]), full
    )
    return b.call(fn, args)


LIBDEVICE = {
    "fabs": "fabs",
    "copysign": "copysign",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "rint": "rint",
    "sqrt": "sqrt",
    "minnum": "fmin",
    "maxnum": "fmax",
    "pow": "pow",
    "sin": "sin",
    "cos": "cos",
}
"""Functions of NVIDIA's math library, for intrinsics that its code generator does not take."""


def on_nvidia(b: Builder) -> bool:
    """Whether the module is compiled for an NVIDIA GPU: in LLVM 7's dialect, with libdevice."""
    return str(b.module.triple).startswith("nvptx")


def on_amd(b: Builder) -> bool:
    """Whether the module is compiled for an AMD GPU."""
    return str(b.module.triple).startswith("amdgcn")


def on_amd_of_old(b: Builder) -> bool:
    """Whether the module is compiled for an AMD GPU by an LLVM before 22, which is wrong there for
    some of what ops write.
    """
    return on_amd(b) and ll.llvm_version_info[0] < 22


def on_gpu(b: Builder) -> bool:
    """Whether the module is compiled for a GPU."""
    return str(b.module.triple).startswith(GPUS)


def math(b: Builder, name: str, *args: Value) -> Value:
    """Call an intrinsic whose arguments and result have one type, such as `llvm.fma`."""
    ty = args[0].type
    if name in LIBDEVICE and on_nvidia(b):
        return _libdevice(b, name, args)
    return intrinsic(b, f"llvm.{name}", ty, args, [ty])


def _libdevice(b: Builder, name: str, args: Sequence[Value]) -> Value:
    ty = args[0].type
    n = lanes_of(ty)
    if not n:
        full = f"__nv_{LIBDEVICE[name]}{'f' if ty == F32 else ''}"
        return b.call(
            cgutils.get_or_insert_function(b.module, ir.FunctionType(ty, [ty] * len(args)), full),
            args,
        )
    out = ir.Constant(ty, ir.Undefined)
    for k in range(n):
        one = _libdevice(b, name, [lane(b, a, k) for a in args])
        out = b.insert_element(out, one, ir.Constant(I32, k))
    return out


def negated(b: Builder, x: Value) -> Value:
    """-x of a float; the dialect of LLVM for NVIDIA GPUs has no such instruction."""
    return b.fsub(const(x.type, -0.0), x, flags=KEPT) if on_nvidia(b) else b.fneg(x)


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """x * y + z, rounded once."""
    return math(b, "fma", x, y, z)


def shuffled(b: Builder, x: Value, y: Value, order: Sequence[int]) -> Value:
    """The lanes of x followed by those of y, in a given order."""
    key = tuple(order)
    mask = _constants.get(key)
    if mask is None:
        mask = ir.Constant(ir.VectorType(I32, len(order)), list(order))
        if len(_constants) < MANY:
            _constants[key] = mask
    return b.shuffle_vector(x, y, mask)


def splatted(b: Builder, x: Value, lanes: int) -> Value:
    """A scalar in every lane."""
    if isinstance(x, ir.Constant):
        return ir.Constant(ir.VectorType(x.type, lanes), [x] * lanes)
    undef = ir.Constant(ir.VectorType(x.type, lanes), ir.Undefined)
    return shuffled(b, b.insert_element(undef, x, ir.Constant(I32, 0)), undef, [0] * lanes)


def lane(b: Builder, x: Value, k: int) -> Value:
    """One lane of a vector."""
    return b.extract_element(x, ir.Constant(I32, k))


def each_lane(b: Builder, x: Value, f: Any, result: ir.Type | None = None) -> Value:
    """Apply a scalar builder to every lane; `result` is the type of the line, if it is
    another one.
    """
    if not lanes_of(x.type):
        return f(x)
    out = ir.Constant(result or x.type, ir.Undefined)
    for k in range(lanes_of(x.type)):
        out = b.insert_element(out, f(lane(b, x, k)), ir.Constant(I32, k))
    return out


def any_lane(b: Builder, mask: Value) -> Value:
    """Whether a mask holds somewhere, as one i1."""
    n = lanes_of(mask.type)
    if not n:
        return mask
    if on_gpu(b):
        out = lane(b, mask, 0)
        for k in range(1, n):
            out = b.or_(out, lane(b, mask, k))
        return out
    word = b.bitcast(mask, ir.IntType(n))
    return b.icmp_unsigned("!=", word, ir.Constant(word.type, 0))


def is_nan(b: Builder, x: Value) -> Value:
    """A mask of the NaN lanes."""
    return b.fcmp_unordered("uno", x, x)


def first_lanes(b: Builder, n: Value, lanes: int) -> Value:
    """A mask of the first n lanes; n is a signed integer."""
    index = ir.Constant(ir.VectorType(n.type, lanes), list(range(lanes)))
    return b.icmp_signed("<", index, splatted(b, n, lanes))
