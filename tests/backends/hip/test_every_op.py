"""Every op of the language, for every dtype, lines and modes, compiled for AMD GPUs: it has machine
code, or an error of cubepy says why not. LLVM would end the process, and this test with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.gpu.offline import program_for
from cubepy.backends.hip.backend import offline
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.backends.hip.offline import compile_for
from cubepy.errors import CubeError
from cubepy.lang.dtypes import as_dtype
from tests.backends.cuda.thorough import THOROUGH

DTYPES = """bool_ i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 fp8_e4m3 fp8_e5m2""".split()
MODES = ("checked", "validate", "unchecked")
WIDTHS = (0, 1, 4, 16)  # lanes of a line; 0: a number
UNITS = 64


@cb.func
def add(a, b):
    return a + b


@cb.func
def subtract(a, b):
    return a - b


@cb.func
def multiply(a, b):
    return a * b


@cb.func
def divide(a, b):
    return a / b


@cb.func
def divide_down(a, b):
    return a // b


@cb.func
def remainder(a, b):
    return a % b


@cb.func
def power(a, b):
    return a**b


@cb.func
def both(a, b):
    return a & b


@cb.func
def either(a, b):
    return a | b


@cb.func
def one_of(a, b):
    return a ^ b


@cb.func
def left(a, b):
    return a << b


@cb.func
def right(a, b):
    return a >> b


@cb.func
def less(a, b):
    return cb.select(a < b, a, b)


@cb.func
def equal(a, b):
    return cb.select(a == b, b, a)


@cb.func
def negative(a, b):
    return -a


@cb.func
def inverted(a, b):
    return ~a


@cb.func
def scaled(a, b):
    return cb.ldexp(a, 3)


@cb.func
def multiplied(a, b):
    return cb.fma(a, b, a)


@cb.func
def between(a, b):
    return cb.clamp(a, b, b)


@cb.func
def total(a, b):
    return a.sum() + b.prod()


@cb.func
def extremes(a, b):
    return cb.max(a.max(), b.min())


@cb.func
def holding(a, b):
    mask = a < b
    return cb.cast(mask.sum(), cb.i32) + cb.cast(mask.any(), cb.i32) + cb.cast(mask.all(), cb.i32)


@cb.func
def mixed(a, b):
    line = cb.interleave(a, b)
    return cb.slice_line(cb.concat(line, a), 1, a.lanes)


@cb.func
def parted(a, b):
    return cb.partition(a, a < b)


@cb.func
def kept(a, b):
    return cb.keep_first(a, 1, b)


@cb.func
def of_neighbours(a, b):
    up, down = cb.plane_shuffle_up(a, 1), cb.plane_shuffle_down(b, 2)
    return cb.plane_shuffle(up, cb.UNIT_POS_PLANE ^ 5) + cb.plane_shuffle_xor(down, 4)


@cb.func
def broadcast(a, b):
    return cb.plane_broadcast(a, 3)


@cb.func
def all_of_plane(a, b):
    return cb.cast(cb.plane_all(a < b), cb.i32) + cb.cast(cb.plane_any(a < b), cb.i32)


@cb.func
def scans(a, b):
    return cb.plane_inclusive_sum(a) + cb.plane_exclusive_sum(b)


@cb.func
def through_shared(a, b):
    held = cb.shared(UNITS, a.dtype)
    held[cb.UNIT_POS] = a
    cb.sync_cube()
    return held[UNITS - 1 - cb.UNIT_POS]


@cb.func
def through_local(a, b):
    held = cb.local(8, a.dtype)
    for k in range(8):
        held[k] = a
    return held[cb.UNIT_POS % 8]


@cb.func
def lines_through_shared(a, b):
    held = cb.shared(UNITS * a.lanes, a.dtype)
    held.store(cb.UNIT_POS * a.lanes, a)
    cb.sync_cube()
    return held.load((UNITS - 1 - cb.UNIT_POS) * a.lanes, a.lanes)


@cb.func
def lines_through_local(a, b):
    held = cb.local(8, a.dtype, lanes=a.lanes)
    for k in range(8):
        held[k] = a
    return held[cb.UNIT_POS % 8]


@cb.func
def said(a, b):
    cb.debug_print("%d", cb.UNIT_POS)
    cb.debug_assert(cb.UNIT_POS < UNITS, "so many units")
    return a


OWN = (
    add, subtract, multiply, divide, divide_down, remainder, power, both, either, one_of, left,
    right, less, equal, negative, inverted, scaled, multiplied, between, total, extremes, holding,
    mixed, parted, kept, of_neighbours, broadcast, all_of_plane, scans, through_shared,
    through_local, lines_through_shared, lines_through_local, said,
)  # fmt: skip
OF_LANES = (total, extremes, holding)
"""What makes one number of lines."""
OF_ONE = """exp exp2 log log2 log1p expm1 sqrt rsqrt sin cos tanh erf floor ceil trunc isnan isinf
    tan asin acos atan sinh cosh asinh acosh atanh log10 cbrt erfc lgamma sign isfinite reverse_bits
    abs round popcount clz ctz plane_sum plane_prod plane_max plane_min""".split()
OF_TWO = "atan2 hypot fmod copysign mulhi pow min max nan_min nan_max".split()
ATOMICS = "add sub max min and or xor exchange".split()
Op = tuple[str, Any, int]


@cb.kernel
def computed(
    x: cb.Array,
    y: cb.Array,
    out: cb.Array,
    ops: cb.Comptime[tuple],
    kinds: cb.Comptime[tuple],
    lanes: cb.Comptime[int],
):
    """What ops make of two numbers, or lines, of a dtype; and what it is as other dtypes."""
    i = cb.ABSOLUTE_POS * cb.comptime(max(lanes, 1))
    if lanes > 0:
        a, b = x.load(i, lanes), y.load(i, lanes, valid=lanes - 1, other=1)
    else:
        a, b = x[i], y[i]
    for k in cb.unroll(range(len(ops))):
        n = cb.comptime(1 if ops[k][1] in OF_LANES else max(lanes, 1))
        if ops[k][2] == 1:
            out.store((k, i), cb.splat(cb.cast(ops[k][1](a), out.dtype), n))
        else:
            out.store((k, i), cb.splat(cb.cast(ops[k][1](a, b), out.dtype), n))
    for k in cb.unroll(range(len(kinds))):
        kind = cb.comptime(kinds[k])
        n = cb.comptime(max(lanes, 1))
        out.store((len(ops) + k, i), cb.splat(cb.cast(cb.cast(a, kind), out.dtype), n))


@cb.kernel
def updated(x: cb.Array, out: cb.Array, names: cb.Comptime[tuple]):
    """What atomics of an array and of shared memory give."""
    held = cb.shared(UNITS, x.dtype)
    held[cb.UNIT_POS] = x[cb.UNIT_POS]
    cb.sync_cube()
    for k in cb.unroll(range(len(names))):
        v = held[cb.UNIT_POS]
        cb.sync_cube()
        out[k] = names[k](x, cb.UNIT_POS % 4, v)
        cb.sync_cube()
        out[k] = names[k](held, cb.UNIT_POS % 4, v)
        cb.sync_cube()


def ops(*names: str) -> list[Op]:
    """Functions of the language by their names."""
    return [(name, getattr(cb, name), 1 if name in OF_ONE else 2) for name in names]


OPS: list[Op] = [*((f.__name__, f, 2) for f in OWN), *ops(*OF_ONE, *OF_TWO)]


def arguments(dtype: str, lanes: int, some: Sequence[Op], kinds: tuple[Any, ...] = ()) -> Any:
    x = np.zeros(UNITS * max(lanes, 1), as_dtype(dtype).numpy)
    return x, x, np.zeros((len(some) + len(kinds), x.size), x.dtype), tuple(some), kinds, lanes


def refusals(case: Callable[[Any], Any], some: Iterable[Any]) -> dict[Any, str]:
    """Why cubepy refuses some of these; another error is one of this test."""
    found = {}
    for one in some:
        try:
            case(one)
        except CubeError as error:
            found[one] = str(error).splitlines()[0]
    return found


def compiled(processor: str, dtype: str, lanes: int, mode: str) -> dict[str, str]:
    """Compile all that the language has for a dtype; gives what it refuses, and why."""
    at = offline(processor)

    def understood(op: Op) -> Any:
        return program_for(at, computed, UNITS, arguments(dtype, lanes, [op]), {}, mode, False)

    refused = refusals(understood, OPS)
    known = [op for op in OPS if op not in refused]
    kinds = tuple(as_dtype(d) for d in DTYPES)
    code = compile_for(
        processor, computed, UNITS, *arguments(dtype, lanes, known, kinds), mode=mode
    )
    assert code.binary[:4] == b"\x7fELF"
    if lanes == 0:
        x = np.zeros(UNITS, as_dtype(dtype).numpy)

        def of_memory(f: Any) -> Any:
            return program_for(at, updated, UNITS, (x, x, (f,)), {}, mode, False)

        atomics = [getattr(cb, f"atomic_{name}") for name in ATOMICS]
        left_out = refusals(of_memory, atomics)
        some = tuple(f for f in atomics if f not in left_out)
        if some:
            assert compile_for(processor, updated, UNITS, x, x, some, mode=mode).binary
        refused |= {(f.__name__,): why for f, why in left_out.items()}
    return {op[0]: why for op, why in refused.items()}


ALL = [
    (p, d, n, MODES[(i + j + k) % len(MODES)])
    for i, d in enumerate(DTYPES)
    for j, n in enumerate(WIDTHS)
    for k, p in enumerate(KNOWN)
]
"""Every dtype and width on every processor; modes, which change how memory is accessed, by turns."""
CHOSEN = [
    (tuple(KNOWN)[k % len(KNOWN)], d, WIDTHS[k % 2 * 2], MODES[k % len(MODES)])
    for k, d in enumerate(DTYPES)
]
"""Every dtype once, with processors, modes, numbers and lines by turns."""


@pytest.mark.turns(3)
@pytest.mark.parametrize(("processor", "dtype", "lanes", "mode"), ALL if THOROUGH else CHOSEN)
def test_every_op_has_code_or_an_error(processor: str, dtype: str, lanes: int, mode: str) -> None:
    refused = compiled(processor, dtype, lanes, mode)
    assert not {"less", "equal", "said"} & refused.keys(), "every dtype has these"
