"""How the builtins of matrix units and asynchronous copies become `Hardware` statements.

Each rule checks that the device has the feature, and the shapes and dtypes that the instruction
takes; the backend only prints the call. Options that an instruction encodes are comptime.
"""

from __future__ import annotations

import math
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.builtin_calls import Args, Kwargs, Lowering, lowers, unpack
from cubepy.compiler.ir import Barrier, Expr, Hardware, If, Mem, Stmt, VType
from cubepy.compiler.values import ArrayValue, Const, TupleValue, Value, describe
from cubepy.errors import ComptimeError, DTypeError, FeatureError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.dtypes import DType
from cubepy.lang.hardware import FEATURES, NEEDS

FALSE, TRUE, ZERO = Const(False), Const(True), Const(0)
NONE = Const(None)
FP8 = ("fp8_e4m3", "fp8_e5m2")
MATRIX_DTYPES = ("f16", "bf16", "f32", "i8", "u8", *FP8)
SWIZZLES = (0, 32, 64, 128)
MAX_CLUSTER = 16


def require(s: Lowering, name: str) -> None:
    """Refuse a builtin that the device does not have.

    Raises:
        FeatureError: its feature is not among the device's.
    """
    feature = NEEDS[name]
    if feature not in s.properties.features:
        raise FeatureError(
            f"cb.{name} needs the feature {feature!r} ({FEATURES[feature]}), which {s.properties.name} does not have",
            hint=f'guard it: if "{feature}" in cb.device_properties().features',
        )


def emit(
    s: Lowering,
    op: str,
    mems: tuple[Mem, ...] = (),
    args: tuple[Expr, ...] = (),
    attrs: tuple[Any, ...] = (),
) -> Value:
    """Append a statement without a result."""
    s.emit(Hardware(op, None, mems, args, attrs))
    return NONE


def result(
    s: Lowering,
    op: str,
    vtype: VType,
    mems: tuple[Mem, ...],
    args: tuple[Expr, ...],
    attrs: tuple[Any, ...],
) -> Expr:
    """Append a statement whose result is a new variable."""
    target = s.fresh(op)
    s.types[target] = vtype
    s.emit(Hardware(op, target, mems, args, attrs))
    return Expr("var", vtype, (), target)


def memory(value: Value, kinds: tuple[str, ...], what: str) -> Mem:
    """The memory behind an argument."""
    names = {
        "global": "an array argument",
        "shared": "shared memory",
        "local": "local memory",
        "map": "a tensor map",
    }
    wanted = " or ".join(names[k] for k in kinds)
    if not isinstance(value, ArrayValue) or value.mem.kind not in kinds:
        given = names[value.mem.kind] if isinstance(value, ArrayValue) else describe(value)
        raise KernelTypeError(f"{what} must be {wanted}, not {given}")
    if value.mem.lanes:
        raise KernelTypeError(f"{what} holds lines; it must hold numbers")
    return value.mem


def barrier(s: Lowering, value: Value, name: str) -> Mem:
    """Memory that `cb.barrier` made."""
    if not isinstance(value, ArrayValue) or value.mem.name not in s.barriers:
        raise KernelTypeError(
            f"cb.{name} works on barriers, not on {describe(value)}",
            hint="make them with cb.barrier(count, arrivals)",
        )
    return value.mem


def element(s: Lowering, mem: Mem, where: Value, what: str) -> Expr:
    """Where an element is, in elements from the start of its memory: from its indices or its place
    in C order.
    """
    several = isinstance(where, TupleValue) or (
        isinstance(where, Const) and isinstance(where.value, tuple)
    )
    coords = s._tuple(where) if several else (where,)
    if several and len(coords) != mem.ndim:
        raise KernelTypeError(
            f"{what} has rank {mem.ndim} and is indexed with {len(coords)} indices"
        )
    if not several and mem.shape is None and mem.ndim > 1 and mem.layout != "contiguous":
        raise KernelTypeError(
            f"{what} is not contiguous, so one position does not say where",
            hint="give a tuple with an index for each axis",
        )
    steps = strides(s, mem)[-len(coords) :] if several else strides(s, mem)[-1:]
    terms: list[Value] = []
    for index, stride in zip(coords, steps, strict=True):
        known = index.value if isinstance(index, Const) else s.as_index(index)
        if isinstance(known, Expr):
            terms.append(
                known if stride == Const(1) else convert.binary("mul", known, stride, s.index)
            )
        elif known:
            terms.append(convert.binary("mul", index, stride, s.index))
    total: Value = ZERO
    for term in terms:
        total = term if total == ZERO else convert.binary("add", total, term, s.index)
    return s.as_index(total)


def strides(s: Lowering, mem: Mem) -> tuple[Value, ...]:
    """How far neighbours along each axis are apart, in elements."""
    if mem.shape is not None:
        return tuple(Const(math.prod(mem.shape[d + 1 :])) for d in range(mem.ndim))
    last = mem.ndim - 1
    return tuple(
        Const(1)
        if d == last and mem.layout != "strided"
        else Expr("stride", VType(s.index), (), (mem, d))
        for d in range(mem.ndim)
    )


def flag(value: Value, what: str) -> bool:
    """A comptime bool."""
    if not isinstance(value, Const) or not isinstance(value.value, bool):
        raise ComptimeError(f"{what} must be True or False at comptime, not {describe(value)}")
    return value.value


def choice(s: Lowering, value: Value, allowed: tuple[int, ...] | range, what: str) -> int:
    """A comptime int out of some."""
    n = s.comptime_int(value, what)
    if n not in allowed:
        options = (
            f"{allowed[0]} to {allowed[-1]}"
            if isinstance(allowed, range)
            else ", ".join(map(str, allowed))
        )
        raise KernelTypeError(f"{what} must be one of {options}, not {n}")
    return n


def matrix_dtype(
    s: Lowering, value: Value, name: str, allowed: tuple[str, ...] = MATRIX_DTYPES
) -> DType:
    """The dtype of a product's inputs; "tf32" is another name of f32 here."""
    tf32 = isinstance(value, Const) and value.value == "tf32"
    dtype = dt.f32 if tf32 else s.dtype_of(value, f"the dtype of cb.{name}")
    if dtype.name not in allowed:
        raise DTypeError(
            f"cb.{name} does not take {dtype.name}", hint=f"it takes {', '.join(allowed)}"
        )
    if dtype.name in FP8 and not {"mma_fp8", "tma"} & s.properties.features:
        raise FeatureError(f"{s.properties.name} has no matrix units for {dtype.name}")
    return dtype


def holds(mem: Mem, dtype: DType) -> bool:
    """Whether shared memory holds elements of a dtype; those without arithmetic of their own lie
    there as bytes.
    """
    return mem.dtype is dtype or (dtype.storage_only and mem.dtype is dt.u8 and dtype.itemsize == 1)


def words(
    s: Lowering, value: Value, lanes: tuple[int, ...], what: str, dtype: DType = dt.u32
) -> Expr:
    """A line of a dtype, of one of these lengths; 0 is a number."""
    wanted = " or ".join(map(str, lanes))
    if (
        not isinstance(value, Expr)
        or value.type.dtype is not dtype
        or value.type.lanes not in lanes
    ):
        given = str(value.type) if isinstance(value, Expr) else describe(value)
        raise KernelTypeError(f"{what} must be a line of {wanted} {dtype.name}, not {given}")
    return value


@lowers("mma")
def _mma(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    a, b, c, dtype_v, other_v = unpack(name, args, kwargs, "a", "b", "c", "dtype", other=NONE)
    dtype = matrix_dtype(s, dtype_v, name)
    kind = dtype.name
    if other_v != NONE:
        other = matrix_dtype(s, other_v, name, (kind, "i8", "u8") if dtype.is_int else (kind,))
        kind = kind if other is dtype else f"{kind}.{other.name}"
    acc = dt.i32 if dtype.is_int else dt.f32
    values = (
        words(s, a, (4,), "the fragment a of cb.mma"),
        words(s, b, (2,), "the fragment b of cb.mma"),
        words(s, c, (4,), "the accumulator of cb.mma", acc),
    )
    return result(s, "mma", VType(acc, 4), (), values, (kind,))


@lowers("load_matrix")
def _load_matrix(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    source, i, count_v, flip = unpack(
        name, args, kwargs, "shared", "i", count=Const(4), transpose=FALSE
    )
    mem = memory(source, ("shared",), "the source of cb.load_matrix")
    count = choice(s, count_v, (1, 2, 4), "the count of cb.load_matrix")
    where = element(s, mem, i, "the source of cb.load_matrix")
    s.read.add(mem.name)
    return result(s, name, VType(dt.u32, count), (mem,), (where,), (count, flag(flip, "transpose")))


@lowers("store_matrix")
def _store_matrix(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    target, i, line, flip = unpack(name, args, kwargs, "shared", "i", "words", transpose=FALSE)
    mem = memory(target, ("shared",), "the target of cb.store_matrix")
    value = words(s, line, (1, 2, 4), "what cb.store_matrix stores")
    where = element(s, mem, i, "the target of cb.store_matrix")
    s.written.add(mem.name)
    return emit(s, name, (mem,), (value, where), (flag(flip, "transpose"),))


@lowers("pack", "unpack")
def _pack(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    v, dtype_v = unpack(name, args, kwargs, "v", "dtype")
    dtype = matrix_dtype(
        s, dtype_v, name, ("f16", "bf16", "f32", *FP8) if name == "pack" else ("f16", "bf16", "f32")
    )
    each = 32 // dtype.bits
    if name == "unpack":
        x = words(s, v, tuple(range(1, 64 // each + 1)), "what cb.unpack takes apart")
        return result(s, name, VType(dt.f32, x.type.lanes * each), (), (x,), (dtype.name,))
    if not isinstance(v, Expr) or not v.type.lanes or not v.type.dtype.is_float:
        raise KernelTypeError(f"cb.pack takes a line of floats, not {describe(v)}")
    if v.type.lanes % each:
        raise KernelTypeError(
            f"{v.type.lanes} lanes of {dtype.name} do not fill whole words of {each}"
        )
    x = convert.cast(v, dt.f32)
    return result(s, name, VType(dt.u32, x.type.lanes // each), (), (x,), (dtype.name,))


@lowers("packed_fma")
def _packed_fma(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    *lines, dtype_v = unpack(name, args, kwargs, "a", "b", "c", "dtype")
    dtype = matrix_dtype(s, dtype_v, name, ("f16", "bf16"))
    first = words(s, lines[0], tuple(range(1, 17)), "a of cb.packed_fma")
    a, b, c = (
        words(s, v, (first.type.lanes,), f"{k} of cb.packed_fma")
        for k, v in zip("abc", lines, strict=True)
    )
    return result(s, name, a.type, (), (a, b, c), (dtype.name,))


@lowers("packed_max")
def _packed_max(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    *both, dtype_v = unpack(name, args, kwargs, "a", "b", "dtype")
    dtype = matrix_dtype(s, dtype_v, name, ("f16", "bf16"))
    first = words(s, both[0], tuple(range(17)), "a of cb.packed_max")
    a, b = (
        words(s, v, (first.type.lanes,), f"{k} of cb.packed_max")
        for k, v in zip("ab", both, strict=True)
    )
    return result(s, name, a.type, (), (a, b), (dtype.name,))


@lowers("copy_async")
def _copy_async(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    to_v, i, from_v, j, n_v, valid = unpack(
        name, args, kwargs, "shared", "i", "array", "j", "nbytes", valid=TRUE
    )
    to = memory(to_v, ("shared",), "the target of cb.copy_async")
    source = memory(from_v, ("global",), "the source of cb.copy_async")
    if not holds(to, source.dtype):
        raise DTypeError(
            f"cb.copy_async copies from {source.dtype.name} to {to.dtype.name}; it does not convert"
        )
    nbytes = choice(s, n_v, (4, 8, 16), "the bytes of cb.copy_async")
    places = (
        element(s, to, i, "the target of cb.copy_async"),
        element(s, source, j, "the source of cb.copy_async"),
    )
    s.written.add(to.name)
    s.read.add(source.name)
    ok = convert.condition(valid)
    if isinstance(ok, Const):
        if ok.value:
            return emit(s, name, (to, source), places, (nbytes,))
        ok = convert.constant(False, dt.bool_)
    return emit(s, "copy_async_if", (to, source), (*places, ok), (nbytes,))  # type: ignore[arg-type]


@lowers("copy_async_commit", "tma_commit", "fence_async", "wgmma_commit", "sync_cluster")
def _plain(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    unpack(name, args, kwargs)
    return emit(s, name)


@lowers("copy_async_wait")
def _copy_wait(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    (n,) = unpack(name, args, kwargs, "n")
    return emit(s, name, attrs=(choice(s, n, range(32), "the groups of cb.copy_async_wait"),))


@lowers("barrier")
def _barrier(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    count_v, arrivals_v = unpack(name, args, kwargs, "count", "arrivals")
    count = choice(s, count_v, range(1, 1025), "the count of cb.barrier")
    arrivals = choice(s, arrivals_v, range(1, 1 << 20), "the arrivals of cb.barrier")
    made = s.memory("shared", (count,), dt.u64)
    assert isinstance(made, ArrayValue)
    s.barriers[made.mem.name] = (made.mem, arrivals)
    return made


@lowers("barrier_arrive", "barrier_expect", "barrier_wait", "barrier_arrive_cluster")
def _barrier_use(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    more = {
        "barrier_expect": "nbytes",
        "barrier_wait": "parity",
        "barrier_arrive_cluster": "rank",
    }.get(name)
    bar, i, *rest = unpack(name, args, kwargs, "bar", "i", *([more] if more else []))
    mem = barrier(s, bar, name)
    return emit(s, name, (mem,), (element(s, mem, i, "a barrier"), *(s.as_index(v) for v in rest)))


@lowers("load_cluster")
def _load_cluster(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    from_v, i, rank = unpack(name, args, kwargs, "shared", "i", "rank")
    source = memory(from_v, ("shared",), "the source of cb.load_cluster")
    if source.dtype.bits not in (32, 64):
        raise DTypeError(f"cb.load_cluster reads 32 or 64 bits, not {source.dtype.name}")
    s.read.add(source.name)
    places = (element(s, source, i, "the source of cb.load_cluster"), s.as_index(rank))
    return result(s, name, VType(source.dtype), (source,), places, ())


@lowers("store_cluster")
def _store_cluster(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    into, i, value_v, rank = unpack(name, args, kwargs, "shared", "i", "value", "rank")
    target = memory(into, ("shared",), "the target of cb.store_cluster")
    if target.dtype.bits not in (32, 64):
        raise DTypeError(f"cb.store_cluster writes 32 or 64 bits, not {target.dtype.name}")
    value = convert.storable(value_v, target.dtype, 0, "what cb.store_cluster writes to")
    s.written.add(target.name)
    places = (element(s, target, i, "the target of cb.store_cluster"), value, s.as_index(rank))
    return emit(s, name, (target,), places)


def coordinates(s: Lowering, mem: Mem, value: Value, name: str) -> tuple[Expr, ...]:
    """Where a box starts, one index for each axis of the map's array."""
    coords = s._tuple(value) if not isinstance(value, Expr) else (value,)
    if len(coords) != mem.ndim:
        raise KernelTypeError(
            f"cb.{name} needs {mem.ndim} coordinates for the map {mem.argument!r}, not {len(coords)}"
        )
    return tuple(s.as_index(c) for c in coords)


def _fits(tile: Mem, source: Mem, name: str) -> None:
    if not holds(tile, source.dtype):
        raise DTypeError(
            f"cb.{name} copies between {tile.dtype.name} in shared memory and a map of {source.dtype.name}; "
            "it does not convert"
        )
    if math.prod(tile.shape or ()) < math.prod(source.shape or ()):
        raise KernelTypeError(
            f"the box {source.shape} of the map {source.argument!r} has more elements than the shared memory "
            f"{tile.shape}"
        )


@lowers("tma_load")
def _tma_load(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    to_v, i, map_v, coords, bar, b, mask = unpack(
        name, args, kwargs, "shared", "i", "map", "coords", "bar", "b", multicast=NONE
    )
    to = memory(to_v, ("shared",), "the target of cb.tma_load")
    source = memory(map_v, ("map",), "the source of cb.tma_load")
    _fits(to, source, name)
    signal = barrier(s, bar, name)
    s.written.add(to.name)
    s.read.add(source.name)
    where = (element(s, to, i, "the target of cb.tma_load"), element(s, signal, b, "a barrier"))
    several = not (isinstance(mask, Const) and mask.value is None)
    if several:
        require(s, "cluster")
        where = (*where, s.as_index(mask))  # type: ignore[assignment]
    op = "tma_load_multicast" if several else "tma_load"
    return emit(s, op, (to, signal, source), (*where, *coordinates(s, source, coords, name)))


@lowers("tma_store")
def _tma_store(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    map_v, coords, from_v, i = unpack(name, args, kwargs, "map", "coords", "shared", "i")
    target = memory(map_v, ("map",), "the target of cb.tma_store")
    source = memory(from_v, ("shared",), "the source of cb.tma_store")
    _fits(source, target, name)
    s.read.add(source.name)
    s.written.add(target.name)
    where = element(s, source, i, "the source of cb.tma_store")
    return emit(s, name, (source, target), (where, *coordinates(s, target, coords, name)))


@lowers("tma_wait")
def _tma_wait(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    n, read = unpack(name, args, kwargs, "n", read=TRUE)
    return emit(
        s, name, attrs=(choice(s, n, range(32), "the groups of cb.tma_wait"), flag(read, "read"))
    )


@lowers("add_line")
def _add_line(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    target, i, line = unpack(name, args, kwargs, "array", "i", "line")
    mem = memory(target, ("global",), "the target of cb.add_line")
    if mem.dtype is not dt.f32:
        raise DTypeError(f"cb.add_line adds to f32, not to {mem.dtype.name}")
    value = words(s, line, (2, 4), "what cb.add_line adds", dt.f32)
    s.written.add(mem.name)
    return emit(s, name, (mem,), (value, element(s, mem, i, "the target of cb.add_line")))


@lowers("tma_prefetch")
def _tma_prefetch(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    (map_v,) = unpack(name, args, kwargs, "map")
    return emit(s, name, (memory(map_v, ("map",), "what cb.tma_prefetch takes"),))


@lowers("set_registers")
def _set_registers(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    n, grow = unpack(name, args, kwargs, "n", "grow")
    return emit(
        s, name, attrs=(choice(s, n, range(24, 257, 8), "the registers"), flag(grow, "grow"))
    )


@lowers("sync_group", "arrive_group")
def _sync_group(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    number, units_v = unpack(name, args, kwargs, "id", "units")
    units = s.comptime_int(units_v, f"the units of cb.{name}")
    if units % s.plane or not 0 < units <= math.prod(s.units):
        raise KernelTypeError(
            f"cb.{name} needs whole planes of the cube, not {units} units of {math.prod(s.units)}"
        )
    if isinstance(number, Const):
        choice(s, number, range(1, 16), f"the id of cb.{name}")
    return emit(s, name, args=(s.as_index(number), s.as_index(units_v)))


@lowers("cluster")
def _cluster(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    x, y, z = (
        choice(s, v, range(1, MAX_CLUSTER + 1), "a side of a cluster")
        for v in unpack(name, args, kwargs, "x", y=Const(1), z=Const(1))
    )
    if x * y * z > MAX_CLUSTER:
        raise KernelTypeError(f"a cluster has at most {MAX_CLUSTER} cubes, not {x * y * z}")
    if s.cluster not in ((1, 1, 1), (x, y, z)):
        raise KernelTypeError(
            f"the cubes are in clusters of {s.cluster} already and cannot be in clusters of {(x, y, z)}"
        )
    s.cluster = (x, y, z)
    return NONE


@lowers("wait_previous", "start_next")
def _overlap(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    unpack(name, args, kwargs)
    s.overlap = s.overlap or name == "wait_previous"
    return emit(s, name)


@lowers("resident")
def _resident(s: Lowering, name: str, args: Args, kwargs: Kwargs) -> Value:
    require(s, name)
    (cubes,) = unpack(name, args, kwargs, "cubes")
    s.resident = choice(s, cubes, range(1, 33), "the cubes of cb.resident")
    return NONE


def cluster_position(s: Any) -> Expr:
    """`cb.CLUSTER_POS`."""
    require(s, "CLUSTER_POS")
    return result(s, "cluster_rank", VType(dt.i32), (), (), ())


def with_barriers_first(s: Any, body: list[Stmt]) -> list[Stmt]:
    """The kernel's body after what makes its barriers ready for every unit."""
    if not s.barriers:
        return body
    made: list[Stmt] = [
        Hardware("barrier_init", None, (mem,), (), (math.prod(mem.shape or ()), arrivals))
        for mem, arrivals in s.barriers.values()
    ]
    made.append(Hardware("barrier_fence", None))
    unit = s.topology("UNIT_POS")
    if isinstance(unit, Expr):
        made = [If(convert.compare("eq", unit, ZERO, s.index), made, [])]  # type: ignore[arg-type]
    meet: Stmt = Hardware("sync_cluster", None) if math.prod(s.cluster) > 1 else Barrier()
    return [*made, meet, *body]
