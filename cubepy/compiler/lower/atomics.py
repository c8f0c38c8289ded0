"""The rule of atomics."""

from __future__ import annotations

from cubepy.compiler import convert
from cubepy.compiler.ir import Atomic, Expr, VType
from cubepy.compiler.lower.operands import indices
from cubepy.compiler.lower.registry import Args, Kwargs, lowers, unpack
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import ArrayValue, TupleValue, Value, describe, tuple_items
from cubepy.errors import DTypeError, KernelTypeError
from cubepy.lang.builtins import ATOMIC_OPS


@lowers(*ATOMIC_OPS)
def _atomic(s: Scope, name: str, args: Args, kwargs: Kwargs) -> Value:
    names = (
        ("array", "index", "expected", "desired")
        if "compare" in name
        else ("array", "index", "value")
    )
    array, index, *operands = unpack(name, args, kwargs, *names)
    if not isinstance(array, ArrayValue):
        raise KernelTypeError(f"cb.{name} works on an array, not on {describe(array)}")
    mem = array.mem
    if mem.kind == "local":
        raise KernelTypeError("local memory belongs to one unit and has no atomics")
    if mem.dtype.storage_only or mem.dtype.kind == "b":
        raise DTypeError(f"there are no atomics on {mem.dtype.name}")
    if mem.dtype.is_float and name.split("_")[1] in ("and", "or", "xor"):
        raise DTypeError(
            f"cb.{name} needs integers, not {mem.dtype.name}",
            hint="use an array of integers: cb.bitcast(v, cb.i32) gives the bits of an f32",
        )
    several = isinstance(index, TupleValue) or isinstance(getattr(index, "value", 0), tuple)
    where = tuple_items(index) if several else (index,)
    s.written.add(mem.name)
    s.read.add(mem.name)
    values = tuple(
        convert.storable(v, mem.dtype, 0, f"the array {mem.argument or mem.name!r}")
        for v in operands
    )
    target = s.fresh("old")
    s.types[target] = VType(mem.dtype)
    s.emit(Atomic(target, name[len("atomic_") :], mem, indices(s, mem, where), values))
    return Expr("var", s.types[target], (), target)
