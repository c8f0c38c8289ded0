"""Every rule of the language that a kernel can break: class, rule and value, line, caret and hint
of the error.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors

E = errors
X = np.arange(8, dtype=np.float32)
I = np.arange(8, dtype=np.int32)
TABLE = np.arange(3)

CASES: list[tuple[Any, type[Exception], str, str, str]] = []


def breaks(error: type[Exception], rule: str, at: str, hint: str = "") -> Any:
    """Declare a kernel that must fail: the rule, the text that the caret points at, and a part of
    the hint.
    """

    def declare(fn: Any) -> Any:
        CASES.append((cb.kernel(fn), error, rule, at, hint))
        return fn

    return declare


@breaks(E.KernelSyntaxError, "a slice cannot be used", "x[0:3]", "a.load(i, lanes)")
def slices(x: cb.Array, i: cb.Array):
    x[0] = x[0:3]


@breaks(
    E.KernelTypeError, "lanes 3 to 6 are not lanes of line of 4 f32", "cb.slice_line(line, 3, 4)"
)
def slices_lanes_that_are_not_there(x: cb.Array, i: cb.Array):
    line = x.load(0, 4)
    x.store(0, cb.slice_line(line, 3, 4))


@breaks(E.KernelSyntaxError, "an f-string cannot be used", 'f"{1}"')
def texts(x: cb.Array, i: cb.Array):
    x[0] = f"{1}"


@breaks(E.KernelSyntaxError, ":= cannot be used", "v := 1")
def walrus(x: cb.Array, i: cb.Array):
    x[0] = (v := 1) + v


@breaks(
    E.KernelSyntaxError,
    "a nested def cannot be used",
    "def inner",
    "declare it outside with @cb.func",
)
def nests(x: cb.Array, i: cb.Array):
    def inner(v):
        return v

    x[0] = inner(1)


@breaks(E.KernelSyntaxError, "raise cannot be used", "raise", "")
def raises(x: cb.Array, i: cb.Array):
    raise ValueError


@breaks(E.KernelSyntaxError, "match cannot be used", "match", "use if and elif")
def matches(x: cb.Array, i: cb.Array):
    match i[0]:
        case 1:
            x[0] = 1


@breaks(E.KernelSyntaxError, "for ... else", "for k")
def loop_else(x: cb.Array, i: cb.Array):
    for k in range(3):
        x[k] = 1
    else:
        x[0] = 2


@breaks(E.KernelTypeError, "a kernel returns nothing", "return", "store into an output array")
def gives(x: cb.Array, i: cb.Array):
    return x[0]


@breaks(
    E.KernelNameError, "'later' is used before it has a value", "later", "assign it on every path"
)
def early(x: cb.Array, i: cb.Array):
    x[0] = later  # noqa: F821
    later = 1


@breaks(E.KernelNameError, "has no attribute 'sizes'", "x.sizes", "it has size, shape, stride")
def attributes(x: cb.Array, i: cb.Array):
    x[0] = x.sizes


@breaks(E.KernelTypeError, "a line has 1 to 64 lanes, not 65", "x.load(0, 65)")
def long_line(x: cb.Array, i: cb.Array):
    x.store(0, x.load(0, 65))


@breaks(E.KernelTypeError, "lines of 4 and 8 lanes do not go together", "x.load(0, 4)")
def two_lengths(x: cb.Array, i: cb.Array):
    x.store(0, x.load(0, 4) + x.load(0, 8))


@breaks(E.KernelTypeError, "a mask cannot be a condition", "if", "cb.select(mask, a, b)")
def mask_condition(x: cb.Array, i: cb.Array):
    if x.load(0, 4) > 0:
        x[0] = 1


@breaks(E.KernelTypeError, "lane 4 is out of range", "x.load(0, 4)[4]")
def lane_outside(x: cb.Array, i: cb.Array):
    x[0] = x.load(0, 4)[4]


@breaks(E.KernelTypeError, "a line cannot be stored into one element", "x[0] =", "x.store(i, line)")
def line_in_element(x: cb.Array, i: cb.Array):
    x[0] = x.load(0, 4)


@breaks(E.KernelTypeError, "an index must be an integer, not f32", "x[x[0]]", "cb.cast(i, cb.i32)")
def float_index(x: cb.Array, i: cb.Array):
    x[0] = x[x[0]]


@breaks(E.KernelTypeError, "2 values cannot be unpacked into 3 names", "a, b, c")
def unpacks(x: cb.Array, i: cb.Array):
    a, b, c = x[0], x[1]
    x[0] = a + b + c


@breaks(E.KernelTypeError, "range needs integers, not f32", "for k", "cast the bound")
def float_range(x: cb.Array, i: cb.Array):
    for k in range(x[0]):
        x[k] = 1


@breaks(E.KernelTypeError, "a step that is not zero", "for k")
def zero_step(x: cb.Array, i: cb.Array):
    for k in range(0, i[0], 0):
        x[k] = 1


@breaks(E.CompileError, "ZeroDivisionError", "1 // 0")
def zero_division(x: cb.Array, i: cb.Array):
    x[0] = 1 // 0


@breaks(E.ComptimeError, "a comptime assertion failed: three is two", "assert")
def asserts(x: cb.Array, i: cb.Array):
    assert x.ndim == 2, "three is two"


@breaks(E.ComptimeError, "an array from outside", "TABLE", "pass it as an argument")
def outside_array(x: cb.Array, i: cb.Array):
    x[0] = TABLE[0]


@breaks(E.ComptimeError, "the shape of local memory must be comptime", "cb.local(i[0], cb.f32)")
def runtime_shape(x: cb.Array, i: cb.Array):
    m = cb.local(i[0], cb.f32)
    x[0] = m[0]


@breaks(
    E.ComptimeError, "the shape of shared memory must be positive ints", "cb.shared((2, 0), cb.f32)"
)
def empty_shape(x: cb.Array, i: cb.Array):
    m = cb.shared((2, 0), cb.f32)
    x[0] = m[0, 0]


@breaks(
    E.ComptimeError,
    "cb.comptime was given a runtime i32",
    "cb.comptime(i[0])",
    "cb.Comptime parameters",
)
def insists(x: cb.Array, i: cb.Array):
    x[0] = cb.comptime(i[0])


@breaks(
    E.ComptimeError,
    "cb.unroll needs a range with comptime bounds",
    "cb.unroll(range(i[0]))",
    "cb.Comptime",
)
def unrolls(x: cb.Array, i: cb.Array):
    for k in cb.unroll(range(i[0])):
        x[k] = 1


@breaks(
    E.ComptimeError,
    "'chosen' is comptime here and changes in a runtime loop or branch",
    "chosen(x[0])",
    "assign it on every path",
)
def runtime_choice(x: cb.Array, i: cb.Array):
    chosen = cb.exp
    if i[0] > 0:
        chosen = cb.log
    x[0] = chosen(x[0])


@breaks(
    E.DTypeError, "the number 300 does not fit in u8", "cb.u8(i[0]) + 300", "cast the other operand"
)
def too_big(x: cb.Array, i: cb.Array):
    x[0] = cb.u8(i[0]) + 300


@breaks(E.DTypeError, "the operator & needs integers or bools, not f32", "x[0] & 1")
def float_bits(x: cb.Array, i: cb.Array):
    x[0] = x[0] & 1


@breaks(E.DTypeError, "needs integers, not f32", "cb.atomic_or(x, 0, 1)")
def float_atomic(x: cb.Array, i: cb.Array):
    cb.atomic_or(x, 0, 1)


@breaks(
    E.DTypeError, "shared memory cannot hold fp8_e4m3", "cb.shared(4, cb.fp8_e4m3)", "use cb.f32"
)
def storage_only(x: cb.Array, i: cb.Array):
    m = cb.shared(4, cb.fp8_e4m3)
    x[0] = m[0]


@breaks(E.KernelTypeError, "is a kernel and cannot be called", "cb_kernel(x, i)", "use @cb.func")
def calls_kernel(x: cb.Array, i: cb.Array):
    cb_kernel(x, i)


@breaks(
    E.KernelTypeError,
    "print_text cannot be called with runtime values",
    "print_text(x[0])",
    "decorate it with @cb.func",
)
def calls_python(x: cb.Array, i: cb.Array):
    print_text(x[0])


@breaks(E.KernelNameError, "the name 'w' is not defined", "return v * w", "")
def wrong_in_func(x: cb.Array, i: cb.Array):
    x[0] = misspelt(x[0])


@breaks(E.CompileError, "ZeroDivisionError", "1 / zero", "")
def wrong_for_this_value(x: cb.Array, i: cb.Array):
    x[0] = inverse(0)


@breaks(
    E.KernelTypeError, "square takes 1 positional arguments but 2 were given", "square(x[0], 2)"
)
def too_many(x: cb.Array, i: cb.Array):
    x[0] = square(x[0], 2)


@breaks(E.KernelTypeError, "square needs a value for its parameter 'v'", "square()")
def too_few(x: cb.Array, i: cb.Array):
    x[0] = square()


@breaks(E.KernelTypeError, "has no parameter 'w'", "square(w=1)", "its parameters are v")
def unknown_argument(x: cb.Array, i: cb.Array):
    x[0] = square(w=1)


@breaks(E.KernelSyntaxError, "recursion cannot be used", "ping(v - 1)", "write it as a loop")
def ping_pong(x: cb.Array, i: cb.Array):
    x[0] = ping(x[0])


@breaks(
    E.KernelTypeError,
    "'re' cannot be assigned: structs are immutable",
    "z.re = 2",
    "make a new one",
)
def changes_struct(x: cb.Array, i: cb.Array):
    z = Pair(1, 2)
    z.re = 2
    x[0] = z.re


@breaks(E.KernelNameError, "struct Pair has no field or method 'imag'", "z.imag", "it has re, im")
def struct_field(x: cb.Array, i: cb.Array):
    z = Pair(1, 2)
    x[0] = z.imag


@breaks(
    E.DTypeError,
    "a float cannot be put into the field Pair.n of dtype i32",
    "Pair(1, 2, x[0])",
    "cb.cast(value, cb.i32)",
)
def struct_dtype(x: cb.Array, i: cb.Array):
    x[0] = Pair(1, 2, x[0]).re


@breaks(E.BarrierError, "reached by all units", "cb.sync_cube()", "")
def barrier_after_data(x: cb.Array, i: cb.Array):
    while x[cb.UNIT_POS] > 0:
        cb.sync_cube()
        x[cb.UNIT_POS] = 0


@cb.kernel
def cb_kernel(x: cb.Array, i: cb.Array):
    x[0] = 1


def print_text(v: Any) -> None:
    print(v)


@cb.func
def square(v):
    return v * v


@cb.func
def misspelt(v):
    return v * w  # noqa: F821


@cb.func
def inverse(zero):
    return 1 / zero


@cb.func
def ping(v):
    return pong(v) + 1


@cb.func
def pong(v):
    return ping(v - 1)


@cb.struct
class Pair:
    re: cb.f32
    im: cb.f32
    n: cb.i32 = 0


@pytest.mark.parametrize(
    ("kernel", "error", "rule", "at", "hint"), CASES, ids=[c[0].__name__ for c in CASES]
)
def test_a_broken_rule_is_shown_where_it_is_broken(
    kernel: Any, error: type[Exception], rule: str, at: str, hint: str
) -> None:
    with pytest.raises(error) as info:
        kernel[1, 4](X.copy(), I.copy())
    message = str(info.value)
    first, *rows = message.splitlines()
    assert rule in first, message
    place = next(row for row in rows if row.strip().startswith("File "))
    found = re.search(r'File "(.*)", line (\d+), in (.*)', place)
    assert found is not None and found[1] == str(Path(__file__)), message
    source = rows[rows.index(place) + 1]
    assert source.strip() == Path(__file__).read_text().splitlines()[int(found[2]) - 1].strip()
    assert at in source, message
    caret = rows[rows.index(place) + 2]
    assert caret.strip() == "^" and source[caret.index("^")] not in " )", message
    assert not hint or any(hint in row for row in rows if "Hint: " in row), message
    assert isinstance(info.value, errors.CubeError)
