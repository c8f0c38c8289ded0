"""How each builtin of the language becomes IR; `LOWERED` maps a name to its rule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.compiler import convert
from cubepy.compiler.expressions import Expressions
from cubepy.compiler.ir import (
    Alloc,
    Atomic,
    Barrier,
    DebugAssert,
    DebugPrint,
    Expr,
    Mem,
    Prefetch,
    Store,
    VType,
)
from cubepy.compiler.values import ArrayValue, Const, TupleValue, Value, describe, late_shape
from cubepy.errors import ComptimeError, DTypeError, KernelTypeError, SharedMemoryError
from cubepy.lang import dtypes as dt
from cubepy.lang.builtins import ATOMIC_OPS, FLOAT_MATH, PLANE_OPS
from cubepy.lang.dtypes import DType

LOWERED: dict[str, Callable[..., Value]] = {}
Args = list[Value]
Kwargs = dict[str, Value]


def lowers(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register the rule for some builtins."""

    def register(fn: Callable[..., Value]) -> Callable[..., Value]:
        LOWERED.update(dict.fromkeys(names, fn))
        return fn

    return register


def unpack(name: str, args: Args, kwargs: Kwargs, *names: str, **defaults: Value) -> list[Value]:
    """Match a builtin's arguments to its parameters."""
    order = [*names, *defaults]
    if len(args) > len(order):
        raise KernelTypeError(f"cb.{name} takes {len(order)} arguments but {len(args)} were given")
    given = dict(zip(order, args, strict=False))
    for k, v in kwargs.items():
        if k not in order or k in given:
            raise KernelTypeError(
                f"cb.{name} has no free parameter {k!r}", hint=f"its parameters: {', '.join(order)}"
            )
        given[k] = v
    for n in order:
        if n not in given:
            if n not in defaults:
                raise KernelTypeError(f"cb.{name} needs a value for {n!r}")
            given[n] = defaults[n]
    return [given[n] for n in order]


class Lowering(Expressions):
    """Methods that the rules share."""

    shared_limit: int
    properties: Any
    debug: bool

    def number(self, value: Value, name: str) -> Expr:
        """A value as an expression, or an error that names the builtin."""
        if not isinstance(value, Expr) and not (isinstance(value, Const) and value.is_number):
            raise KernelTypeError(f"cb.{name} needs a number or a line, not {describe(value)}")
        return convert.runtime(value, self.index)

    def dtype_of(self, value: Value, what: str) -> DType:
        """A comptime dtype."""
        if not isinstance(value, Const):
            raise ComptimeError(f"{what} must be comptime, but it is {describe(value)}")
        return dt.as_dtype(value.value)

    def shape_of(self, value: Value, what: str) -> tuple[int, ...]:
        """A comptime shape."""
        if not isinstance(value, Const):
            raise late_shape(what, value)
        shape = value.value if isinstance(value.value, tuple) else (value.value,)
        for n in shape:
            if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 1:
                raise ComptimeError(
                    f"the shape of {what} must be positive ints, not {value.value!r}"
                )
        return tuple(n.__index__() for n in shape)

    def lanes_of(self, value: Value, least: int = 1) -> int:
        """A comptime lane count from 1 to 64."""
        lanes = self.comptime_int(value, "the lane count")
        if not least <= lanes <= 64:
            raise KernelTypeError(f"a line has 1 to 64 lanes, not {lanes}")
        return lanes

    def array_method(self, owner: ArrayValue, method: str, args: Args, kwargs: Kwargs) -> Value:
        """`a.load(...)`, `a.store(...)`, `a.prefetch(...)`."""
        mem = owner.mem
        if mem.lanes:
            raise KernelTypeError(f"the elements of {mem.name} are lines already; index it")
        if method == "load":
            where, lanes_v, valid_v, other_v = unpack(
                "load", args, kwargs, "i", "lanes", valid=Const(None), other=Const(None)
            )
            lanes = self.lanes_of(lanes_v)
            indices, linear = self.line_position(mem, where)
            valid = self.valid_lanes(valid_v, lanes)
            filled = not (isinstance(other_v, Const) and other_v.value is None)
            extra = () if valid is None else (valid,)
            if filled:
                what = f"lanes of the array {mem.argument or mem.name!r}"
                extra = (*extra, convert.storable(other_v, mem.dtype, lanes, what))
            self.read.add(mem.name)
            return Expr(
                "line_load",
                VType(mem.dtype.compute, lanes),
                (*indices, *extra),
                (mem, linear, valid is not None, filled),
            )
        if method == "prefetch":
            (where,) = unpack("prefetch", args, kwargs, "i")
            indices, linear = self.line_position(mem, where)
            self.emit(Prefetch(mem, indices, linear))
            return Const(None)
        where, line, valid_v = unpack(method, args, kwargs, "i", "line", valid=Const(None))
        indices, linear = self.line_position(mem, where)
        lanes = line.type.lanes if isinstance(line, Expr) and line.type.lanes else 1
        value = convert.storable(line, mem.dtype, lanes, f"the array {mem.argument or mem.name!r}")
        valid = self.valid_lanes(valid_v, lanes)
        self.written.add(mem.name)
        self.emit(Store(mem, indices, value, linear, valid, stream=method == "store_stream"))
        return Const(None)

    def valid_lanes(self, value: Value, lanes: int) -> Expr | None:
        """How many lanes of a line are there; None for all, as where a comptime count says so."""
        if isinstance(value, Const) and (
            value.value is None or self.comptime_int(value, "valid=") >= lanes
        ):
            return None
        return self.as_index(value)

    def line_position(self, mem: Mem, where: Value) -> tuple[tuple[Expr, ...], bool]:
        """Where a line starts: a position in C order, or a tuple of coordinates."""
        if (isinstance(where, Const) and isinstance(where.value, tuple)) or isinstance(
            where, TupleValue
        ):
            coords = self._tuple(where)
            return self.indices(mem, coords), mem.ndim == 1
        return (self.as_index(where),), True

    def reduce_line(self, line: Expr, how: str) -> Value:
        """`line.sum()` and its like."""
        if how in ("any", "all"):
            return Expr(f"line_{how}", convert.BOOL, (convert.truth(line),))
        dtype = line.type.dtype
        if dtype.kind == "b" and how == "sum":
            return Expr("line_count", VType(dt.i32), (line,))
        if dtype.kind == "b":
            line, dtype = convert.cast(line, dt.i32), dt.i32
        return Expr(f"line_{how}", VType(dtype), (line,))

    def memory(self, kind: str, shape: tuple[int, ...], dtype: DType, lanes: int = 0) -> Value:
        """Allocate shared or local memory."""
        if dtype.storage_only:
            raise DTypeError(
                f"{kind} memory cannot hold {dtype.name}", hint=f"use cb.{dtype.compute.name}"
            )
        mem = Mem(self.fresh(kind), kind, dtype, len(shape), shape, "contiguous", lanes)
        if kind == "shared":
            self.shared.append(mem)
            total = sum(math.prod(m.shape or ()) * m.dtype.itemsize for m in self.shared)
            if total > self.shared_limit:
                raise SharedMemoryError(
                    f"the kernel asks for {total} bytes of shared memory; "
                    f"the device has {self.shared_limit} for a cube",
                    hint="use smaller tiles, or a narrower dtype",
                )
        else:
            self.emit(Alloc(mem))
        return ArrayValue(mem)


def _folded(name: str, values: Args) -> Value | None:
    """A math builtin of comptime numbers, computed now in f64."""
    if not all(isinstance(v, Const) and isinstance(v.value, (int, float)) for v in values):
        return None
    x = [v.value for v in values]  # type: ignore[union-attr]
    table: dict[str, Callable[..., Any]] = {
        "exp2": lambda v: 2.0**v,
        "rsqrt": lambda v: 1 / math.sqrt(v),
        "abs": abs,
        "min": min,
        "max": max,
        "floor": lambda v: float(math.floor(v)),
        "ceil": lambda v: float(math.ceil(v)),
        "trunc": float,
        "round": lambda v: float(round(v)),
        "pow": pow,
        "fma": lambda a, b, c: a * b + c,
        "clamp": lambda v, lo, hi: min(max(v, lo), hi),
        "nan_min": min,
        "nan_max": max,
    }
    fn = table.get(name) or getattr(math, name, None)
    if fn is None:
        return None
    with np.errstate(all="ignore"):
        return Const(fn(*x))


@lowers(*FLOAT_MATH)
def _float_math(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    (x,) = unpack(name, args, kwargs, "x")
    folded = _folded(name, [x])
    if folded is not None:
        return folded
    v = s.number(x, name)
    if not v.type.dtype.is_float:
        if name in ("floor", "ceil", "trunc") and v.type.dtype.is_int:
            return v
        v = convert.cast(v, dt.float_for(v.type.dtype) if v.type.dtype.kind != "b" else dt.f32)
    dtype = dt.bool_ if name in ("isnan", "isinf") else v.type.dtype
    return Expr("call", VType(dtype, v.type.lanes, v.type.weak and dtype.is_float), (v,), name)


@lowers("abs")
def _abs(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    (x,) = unpack(name, args, kwargs, "x")
    folded = _folded(name, [x])
    if folded is not None:
        return folded
    v = s.number(x, name)
    if v.type.dtype.kind in "ub":
        return v
    return Expr("call", v.type, (v,), "abs")


@lowers("round")
def _round(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    (x,) = unpack(name, args, kwargs, "x")
    folded = _folded(name, [x])
    if folded is not None:
        return folded
    v = s.number(x, name)
    return Expr("call", v.type, (v,), "round") if v.type.dtype.is_float else v


@lowers("min", "max", "nan_min", "nan_max")
def _min_max(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) < 2:
        raise KernelTypeError(f"{name} takes two or more values")
    folded = _folded(name, args)
    if folded is not None:
        return folded
    result = args[0]
    for other in args[1:]:
        a, b = convert.unify(result, other, s.index)
        result = Expr("call", a.type, (a, b), name)
    return result


@lowers("clamp")
def _clamp(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    x, low, high = unpack(name, args, kwargs, "x", "low", "high")
    return _min_max(s, "min", [_min_max(s, "max", [x, low], {}), high], {})


@lowers("pow")
def _pow(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    x, y = unpack(name, args, kwargs, "x", "y")
    return convert.binary("pow", x, y, s.index)


@lowers("fma")
def _fma(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    a, b, c = unpack(name, args, kwargs, "a", "b", "c")
    folded = _folded(name, [a, b, c])
    if folded is not None:
        return folded
    x, y = convert.unify(a, b, s.index)
    x, z = convert.unify(x, c, s.index)
    x, y = convert.unify(x, y, s.index)
    if not x.type.dtype.is_float:
        return convert.binary("add", convert.binary("mul", x, y, s.index), z, s.index)
    y, z = (convert.to(v, x.type.dtype, x.type.lanes, x.type.weak) for v in (y, z))
    return Expr("call", x.type, (x, y, z), "fma")


@lowers("select")
def _select(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    mask, a, b = unpack(name, args, kwargs, "mask", "a", "b")
    if isinstance(mask, Const):
        return a if mask.value else b
    m = convert.truth(s.number(mask, name))
    x, y = convert.unify(a, b, s.index)
    lanes = convert.common_lanes(m, x)
    x, y = (
        convert.to(x, x.type.dtype, lanes, x.type.weak),
        convert.to(y, y.type.dtype, lanes, y.type.weak),
    )
    return Expr("select", x.type, (convert.to(m, dt.bool_, lanes), x, y))


@lowers("cast")
def _cast(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, dtype_v = unpack(name, args, kwargs, "v", "dtype")
    dtype = s.dtype_of(dtype_v, "the dtype of a cast").compute
    if (
        isinstance(v, Const)
        and v.is_number
        and not dtype.is_float
        and isinstance(v.value, (float, np.floating))
    ):
        low, high = _range(dtype)
        number = 0 if math.isnan(v.value) else int(max(low, min(high, v.value)))
        return convert.constant(min(max(number, low), high), dtype)
    if isinstance(v, Const) and v.is_number and dtype.is_int:
        return convert.constant(_wrapped(int(v.value), dtype), dtype)
    return convert.cast(s.number(v, name), dtype)


def _range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "b":
        return 0, 1
    return (
        (0, (1 << dtype.bits) - 1)
        if dtype.kind == "u"
        else (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
    )


def _wrapped(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.kind == "i" and value >> (dtype.bits - 1) else value


@lowers("bitcast")
def _bitcast(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, dtype_v = unpack(name, args, kwargs, "v", "dtype")
    dtype = s.dtype_of(dtype_v, "the dtype of a bitcast")
    x = s.number(v, name)
    if {x.type.dtype.name, dtype.name} & {"f16", "bf16"}:
        raise DTypeError(
            "a bitcast of f16 or bf16 is not available",
            hint="reinterpret the array with .view(uint16)",
        )
    have, want = x.type.dtype.bits * max(x.type.lanes, 1), dtype.bits
    lanes = have // want if x.type.lanes else 0
    if have != want * max(lanes, 1) or "b" in (x.type.dtype.kind, dtype.kind) or lanes > 64:
        raise DTypeError(
            f"a bitcast keeps all bits: {x.type} has {have}, which {dtype.name} cannot take"
        )
    return Expr("bitcast", VType(dtype, lanes), (x,), dtype.name)


@lowers("popcount", "clz", "ctz")
def _bits(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    (v,) = unpack(name, args, kwargs, "x")
    x = s.number(v, name)
    if not x.type.dtype.is_int:
        raise DTypeError(f"cb.{name} needs an integer, not {x.type.dtype.name}")
    return Expr("call", VType(x.type.dtype, x.type.lanes), (convert.cast(x, x.type.dtype),), name)


@lowers("splat")
def _splat(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    v, lanes_v = unpack(name, args, kwargs, "v", "lanes")
    x = s.number(v, name)
    if x.type.lanes:
        raise KernelTypeError("cb.splat takes a scalar, not a line")
    return convert.splat(x, s.lanes_of(lanes_v))


@lowers("dot_i8")
def _dot(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    acc, a, b = (s.number(v, name) for v in unpack(name, args, kwargs, "acc", "a", "b"))
    lanes = acc.type.lanes
    want = (VType(dt.i32, lanes), VType(dt.u8, 4 * lanes), VType(dt.i8, 4 * lanes))
    if not lanes or (acc.type, a.type, b.type) != want:
        raise KernelTypeError(
            f"cb.dot_i8 needs lines (i32 of L, u8 of 4L, i8 of 4L), not ({acc.type}, {a.type}, {b.type})"
        )
    return Expr("call", acc.type, (acc, a, b), "dot_i8")


@lowers("dot_bf16")
def _dot_pairs(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    acc, a, b = (s.number(v, name) for v in unpack(name, args, kwargs, "acc", "a", "b"))
    lanes = acc.type.lanes
    words = VType(dt.u32, lanes)
    if not lanes or (acc.type, a.type, b.type) != (VType(dt.f32, lanes), words, words):
        raise KernelTypeError(
            f"cb.dot_bf16 needs lines (f32 of L, u32 of L, u32 of L), not ({acc.type}, {a.type}, {b.type})"
        )
    return Expr("call", acc.type, (acc, a, b), "dot_bf16")


def line_of(s: Lowering, value: Value, name: str) -> Expr:
    x = s.number(value, name)
    if not x.type.lanes:
        raise KernelTypeError(f"cb.{name} needs a line, not a scalar {x.type}")
    return x


@lowers("concat", "interleave")
def _concat(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    a, b = (line_of(s, v, name) for v in unpack(name, args, kwargs, "a", "b"))
    if a.type.dtype is not b.type.dtype or (name == "interleave" and a.type.lanes != b.type.lanes):
        raise KernelTypeError(f"cb.{name} needs lines of one kind, not {a.type} and {b.type}")
    n, m = a.type.lanes, b.type.lanes
    order = range(n + m) if name == "concat" else [k // 2 + (k % 2) * n for k in range(2 * n)]
    return shuffled(a, b, tuple(order))


@lowers("shuffle")
def _shuffle(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    a, b, lanes = unpack(name, args, kwargs, "a", "b", "lanes")
    if not isinstance(lanes, Const):
        raise ComptimeError("the lanes of cb.shuffle must be comptime")
    return shuffled(line_of(s, a, name), line_of(s, b, name), tuple(lanes.value))


def shuffled(a: Expr, b: Expr, order: tuple[int, ...]) -> Value:
    total = a.type.lanes + b.type.lanes
    if not 1 <= len(order) <= 64 or any(not 0 <= k < total for k in order):
        raise KernelTypeError(f"the lanes {order} are not 1 to 64 lanes out of {total}")
    return Expr("shuffle", VType(a.type.dtype, len(order)), (a, b), order)


@lowers("shared")
def _shared(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    shape, dtype = unpack(name, args, kwargs, "shape", "dtype")
    return s.memory(
        "shared",
        s.shape_of(shape, "shared memory"),
        s.dtype_of(dtype, "the dtype of shared memory"),
    )


@lowers("local")
def _local(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    shape, dtype, lanes_v = unpack(name, args, kwargs, "shape", "dtype", lanes=Const(0))
    lanes = s.lanes_of(lanes_v, least=0)
    return s.memory(
        "local",
        s.shape_of(shape, "local memory"),
        s.dtype_of(dtype, "the dtype of local memory"),
        lanes,
    )


@lowers("sync_cube", "sync_plane")
def _sync(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    unpack(name, args, kwargs)
    if name == "sync_cube" or s.plane > 1:
        s.emit(Barrier(plane=name == "sync_plane"))
    return Const(None)


@lowers("comptime")
def _comptime(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    (v,) = unpack(name, args, kwargs, "expr")
    if not isinstance(v, Const):
        raise ComptimeError(
            f"cb.comptime was given {describe(v)}",
            hint="comptime values come from cb.Comptime parameters",
        )
    return v


@lowers("unroll")
def _unroll(s: Any, name: str, args: Args, kwargs: Kwargs) -> Value:
    (v,) = unpack(name, args, kwargs, "over")
    return s.unrolled(v)  # type: ignore[no-any-return]


@lowers("device_properties")
def _properties(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    unpack(name, args, kwargs)
    return Const(s.properties)


@lowers("debug_print")
def _print(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    if s.debug:
        s.emit(
            DebugPrint(tuple(v.value if isinstance(v, Const) else s.number(v, name) for v in args))
        )
    return Const(None)


@lowers("debug_assert")
def _assert(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    cond, message = unpack(name, args, kwargs, "condition", message=Const("assertion failed"))
    if not isinstance(message, Const):
        raise ComptimeError("the message of cb.debug_assert must be comptime")
    if s.debug:
        c = convert.condition(cond)
        s.emit(DebugAssert(convert.to(c, dt.bool_), str(message.value)))
    return Const(None)


@lowers(*PLANE_OPS)
def _plane(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    two = "broadcast" in name or "shuffle" in name
    values = unpack(name, args, kwargs, "v", *(["unit"] if two else []))
    v = s.number(values[0], name)
    if "broadcast" in name:
        unit = s.comptime_int(values[1], "the unit of plane_broadcast")
        if not 0 <= unit < s.plane:
            raise KernelTypeError(f"unit {unit} is out of range for a plane of {s.plane}")
    if s.plane == 1:
        if name in ("plane_all", "plane_any"):
            return convert.truth(v)
        if name == "plane_exclusive_sum":
            return convert.constant(0, v.type.dtype, v.type.lanes)
        return v
    rest = tuple(s.as_index(x) for x in values[1:])
    return Expr(
        "plane",
        v.type if name not in ("plane_all", "plane_any") else convert.BOOL,
        (v, *rest),
        name,
    )


@lowers(*ATOMIC_OPS)
def _atomic(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
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
        raise DTypeError(f"cb.{name} needs integers, not {mem.dtype.name}")
    several = isinstance(index, TupleValue) or isinstance(getattr(index, "value", 0), tuple)
    where = s._tuple(index) if several else (index,)
    s.written.add(mem.name)
    s.read.add(mem.name)
    values = tuple(
        convert.storable(v, mem.dtype, 0, f"the array {mem.argument or mem.name!r}")
        for v in operands
    )
    target = s.fresh("old")
    s.types[target] = VType(mem.dtype)
    s.emit(Atomic(target, name[len("atomic_") :], mem, s.indices(mem, where), values))
    return Expr("var", s.types[target], (), target)
