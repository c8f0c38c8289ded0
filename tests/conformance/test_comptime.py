"""What is known when the code is made: folding, pruning, unrolling, functions and dtypes as
arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb

F = np.float32
TABLE = (3, 1, 4, 1, 5)


def host_function(n: int) -> int:
    """Runs while the kernel is compiled."""
    return sum(range(n))


@cb.kernel
def folded(out: cb.Array, *, name: cb.Comptime[str], kind: cb.Comptime, sizes: cb.Comptime[tuple]):
    if name == "scaled":
        factor = 2
    elif name in ("plain", "other"):
        factor = 1
    else:
        factor = name.no_such_attribute
    rows, columns = sizes
    out[0] = factor * rows + columns
    out[1] = host_function(rows) + len(sizes) + TABLE[2] + sum(TABLE)
    out[2] = cb.cast(300.7, kind) if kind.is_int else cb.cast(0.1, kind)
    out[3] = kind.bits
    total = 0
    for position, value in cb.unroll(tuple(enumerate(TABLE))):
        if value == 1:
            continue
        if position == 4:
            break
        total += value * 10**position
    out[4] = total
    properties = cb.device_properties()
    out[5] = properties.plane_size == cb.PLANE_DIM and properties.max_shared_memory > 1000
    out[6] = 7 if out.ndim == 1 and out.dtype == cb.f64 else missing_name  # noqa: F821
    if cb.CUBE_DIM_X > 2:
        return
    out[7] = 1


@cb.kernel
def resident_where_it_is(x: cb.Array, out: cb.Array):
    if "resident" in cb.device_properties().features:
        cb.resident(4)
    i = cb.ABSOLUTE_POS
    out[i] = cb.exp(x[i]) * 2


def test_a_number_of_resident_cubes_changes_no_result(device: str) -> None:
    x = np.linspace(-3, 3, 128, dtype=F)
    out = np.zeros(128, F)
    resident_where_it_is[2, 64](x, out, device=device)
    np.testing.assert_allclose(out, 2 * np.exp(x), rtol=3e-7)


def test_strings_dtypes_tuples_and_host_functions(device: str) -> None:
    out = np.zeros(8)
    folded[1, 1](out, name="scaled", kind=cb.u8, sizes=(5, 3), device=device)
    assert out.tolist() == [13, 10 + 2 + 4 + 14, 255, 8, 403, 1, 7, 1]
    folded[1, 1](out, name="other", kind=cb.f32, sizes=(2, 3), device=device)
    assert out.tolist() == [5, 1 + 2 + 4 + 14, float(F(0.1)), 32, 403, 1, 7, 1]


@cb.func
def square(v):
    return v * v


@cb.func
def shifted(v):
    return v + 1


@dataclass(frozen=True)
class Blueprint:
    rows: int
    steps: tuple
    dtype: cb.DType = cb.f32

    @property
    def half(self) -> int:
        return self.rows // 2

    def twice(self) -> int:
        return self.rows * 2


@cb.func
def through(v, steps: cb.Comptime[tuple]):
    for step in cb.unroll(steps):
        v = step(v)
    return v


@cb.kernel
def planned(x: cb.Array, out: cb.Array, plan: cb.Comptime[Blueprint]):
    acc = cb.local(plan.rows, plan.dtype)
    for r in cb.unroll(range(plan.rows)):
        acc[r] = through(x[r], plan.steps)
    for r in range(plan.rows):
        out[r] = acc[plan.rows - 1 - r] + plan.half * 100 + plan.twice() * 1000


@pytest.mark.parametrize("steps", [(square, shifted), (shifted, square), ()])
def test_functions_in_comptime_dataclasses(device: str, steps: tuple) -> None:
    x, out = np.arange(3, dtype=F), np.zeros(3, F)
    planned[1, 1](x, out, Blueprint(3, steps), device=device)
    want = x.copy()
    for step in steps:
        want = want * want if step is square else want + 1
    np.testing.assert_array_equal(out, want[::-1] + 100 + 6000)


@cb.kernel
def kinds(out: cb.Array, value: cb.Comptime):
    first = value[0]
    out[0] = first / 2
    out[1] = 1 if first is True else 0


def test_equal_comptime_values_of_different_types_are_different(device: str) -> None:
    out = np.zeros(2)
    results = []
    for value in ((1,), (True,), (1.0,)):
        kinds[1, 1](out, value, device=device)
        results.append(out.tolist())
    assert results == [[0.5, 0], [0.5, 1], [0.5, 0]]


def closing_over(factor: float, function: object) -> object:
    @cb.kernel
    def closed(x: cb.Array, out: cb.Array):
        i = cb.ABSOLUTE_POS
        out[i] = function(x[i]) * factor

    return closed


def test_closures_keep_their_own_values(device: str) -> None:
    x, out = np.arange(4, dtype=F), np.zeros(4, F)
    for factor, function in ((2, square), (0.5, shifted), (-1, square)):
        closing_over(factor, function)[1, 4](x, out, device=device)
        np.testing.assert_array_equal(out, (x * x if function is square else x + 1) * factor)


DTYPES = (
    cb.bool_,
    cb.i8,
    cb.i16,
    cb.i32,
    cb.i64,
    cb.u8,
    cb.u16,
    cb.u32,
    cb.u64,
    cb.f16,
    cb.bf16,
    cb.f32,
    cb.f64,
)


@cb.func
def note(out, i, j, a, b, kinds: cb.Comptime[tuple]):
    total, ratio = a + b, a / b
    out[i, j, 0] = kinds.index(total.dtype)
    out[i, j, 1] = kinds.index(ratio.dtype)
    out[i, j, 2] = cb.cast(total, cb.i32)


@cb.kernel
def sums(
    one: cb.Array,
    out: cb.Array,
    i: cb.Comptime[int],
    first: cb.Comptime[int],
    kinds: cb.Comptime[tuple],
):
    for j in cb.unroll(range(first, len(kinds))):
        note(out, i, j, cb.cast(one[0], kinds[i]), cb.cast(one[0], kinds[j]), kinds)


def expected(a: cb.DType, b: cb.DType) -> cb.DType:
    """The rule of the language reference, written anew."""
    if a.kind == "b" and b.kind == "b":
        return cb.i32
    if a.kind == "b" or b.kind == "b":
        return b if a.kind == "b" else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if {a, b} == {cb.f16, cb.bf16}:
        return cb.f32
    if a.kind == b.kind:
        return a if a.bits >= b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {8: cb.i16, 16: cb.i32, 32: cb.i64, 64: cb.i64}[unsigned.bits]


def quotient(a: cb.DType, b: cb.DType) -> cb.DType:
    if a.is_float or b.is_float:
        return expected(a, b)
    return cb.f64 if 64 in (a.bits, b.bits) else cb.f32


def test_the_whole_promotion_table(device: str) -> None:
    """Compiled backends get every pair once: which dtype a result has is found before there is a
    backend.
    """
    out = np.zeros((len(DTYPES), len(DTYPES), 3), np.int32)
    for i, a in enumerate(DTYPES):
        first = 0 if device == "python" else i
        sums[1, 1](np.ones(1, F), out, i, first, DTYPES, device=device)
        for j, b in tuple(enumerate(DTYPES))[first:]:
            assert DTYPES[out[i, j, 0]] is expected(a, b), (a, b, "+")
            assert DTYPES[out[i, j, 1]] is quotient(a, b), (a, b, "/")
            assert out[i, j, 2] == 2, (a, b)


@cb.kernel
def converts(x: cb.Array, out: cb.Array, kinds: cb.Comptime[tuple]):
    i = cb.ABSOLUTE_POS
    for k in cb.unroll(range(len(kinds))):
        out[i, k] = cb.cast(cb.cast(x[i], kinds[k]), cb.f64)


def limits(kind: cb.DType) -> tuple[int, int]:
    info = np.iinfo(kind.numpy)
    return int(info.min), int(info.max)


@pytest.mark.parametrize("source", [F, np.float64, np.float16, ml_dtypes.bfloat16, np.int64])
def test_casts_between_all_dtypes(device: str, source: type) -> None:
    values = [
        0.0,
        -0.0,
        1,
        -1,
        2.5,
        -3.75,
        127.5,
        255,
        -128,
        300,
        -300,
        40000,
        1e10,
        -1e20,
        np.nan,
        np.inf,
        -np.inf,
    ]
    if source is np.int64:
        values = [0, 1, -1, 127, 128, 255, 256, -129, 40000, 2**31, 2**40 + 3, -(2**33)]
    if source is np.float16:
        values = [v for v in values if not abs(v) > 65504 or np.isinf(v)]
    x = np.array(values).astype(source)
    out = np.zeros((len(values), len(DTYPES)))
    converts[1, len(values)](x, out, DTYPES, device=device)
    for row, v in zip(
        out, x.astype(np.int64 if source is np.int64 else np.float64).tolist(), strict=True
    ):
        for got, kind in zip(row, DTYPES, strict=True):
            with np.errstate(all="ignore"):
                if kind.kind == "b":
                    want = float(v != 0)
                elif kind.is_float:
                    narrow = np.array(v).astype(
                        F if kind.bits == 16 and source is not np.float64 else np.float64
                    )
                    want = float(narrow.astype(kind.numpy))
                elif isinstance(v, int):
                    want = float(np.array(v).astype(kind.numpy))
                else:
                    low, high = limits(kind)
                    want = float(
                        0 if np.isnan(v) else low if v <= low else high if v >= high else int(v)
                    )
            np.testing.assert_equal(got, want, err_msg=f"{v} to {kind}")


@cb.kernel
def leaves_turns(x: cb.Array, out: cb.Array, *, times: cb.Comptime[int]):
    count, seen = 0, 0
    t = cb.UNIT_POS
    s = cb.shared(2, cb.i32)
    for k in cb.unroll(range(times)):
        if x[k, t] < 0:
            continue
        count += 1
        for j in cb.unroll(range(2)):
            if x[k, t] == 7 + j:
                break
            if x[k, t] == 9:
                continue
            seen += 10 ** (j + 1)
        if x[k, t] > 90:
            continue
        seen += 1
    for k in cb.unroll(range(times)):
        if x[k, t] > 95:
            break
        count += 100
    s[t] = count
    cb.sync_cube()
    out[t] = s[1 - t] * 100000 + seen


def test_runtime_jumps_out_of_unrolled_turns_stay_small(device: str) -> None:
    rng = np.random.default_rng(0)
    times = 14
    x = rng.choice(
        np.array([-1, 3, 7, 8, 9, 92, 99], np.int32),
        (times, 2),
        p=[0.2, 0.2, 0.1, 0.1, 0.1, 0.25, 0.05],
    )
    out = np.zeros(2, np.int32)
    leaves_turns[1, 2](x, out, times=times, device=device)
    want = []
    for t in range(2):
        count = seen = 0
        for v in x[:, t].tolist():
            if v < 0:
                continue
            count += 1
            seen += {7: 0, 8: 10, 9: 0}.get(v, 110) + (v <= 90)
        for v in x[:, t].tolist():
            if v > 95:
                break
            count += 100
        want.append((count, seen))
    assert out.tolist() == [want[1 - t][0] * 100000 + want[t][1] for t in range(2)]
    if device == "cpu":
        code = leaves_turns[1, 2].inspect(x, out, times=times).python
        assert len(code.splitlines()) < 60 * times
