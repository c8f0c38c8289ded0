"""Atomics, integer and bf16 dot products, reports and refusals of generated CPU code."""

from __future__ import annotations

import operator

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from tests.backends.cpu.ops.compiled_ops import NUMPY, compiled, run


@pytest.mark.parametrize("who", ["atomic", "own"])
@pytest.mark.parametrize("dtype", [d for d in NUMPY if d != "bool_"])
def test_atomics_return_the_old_value(dtype: str, who: str) -> None:
    kind = NUMPY[dtype]
    is_float = dtype in ("f16", "bf16", "f32", "f64", "fp8_e4m3", "fp8_e5m2")
    table = {
        "add": lambda x, v: x + v,
        "sub": lambda x, v: x - v,
        "max": max,
        "min": min,
        "xchg": lambda x, v: v,
    }
    if not is_float:
        table |= {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
    cells = np.full(len(table) + 2, 5).astype(kind)
    old = np.zeros(len(table) + 2, kind)
    cast = dtype if dtype not in ("int4", "uint4") else ("i8" if dtype == "int4" else "u8")
    body = [
        f'store(p1, {k}, {who}_rmw(p0, {k}, {cast}(2), "{name}"))' for k, name in enumerate(table)
    ]
    k = len(table)
    body += [f"store(p1, {k}, {who}_cas(p0, {k}, {cast}(5), {cast}(3)))",
             f"store(p1, {k + 1}, {who}_cas(p0, {k + 1}, {cast}(4), {cast}(3)))"]  # fmt: skip
    run("\n".join(body), cells, old)
    np.testing.assert_array_equal(old.astype(np.float32), 5)
    want = [f(5, 2) for f in table.values()] + [3, 5]
    np.testing.assert_array_equal(
        cells.astype(np.float32), np.array(want).astype(kind).astype(np.float32)
    )


@pytest.mark.parametrize("who", ["atomic", "own"])
def test_atomics_on_booleans_and_nan(who: str) -> None:
    cells, old = np.array([True, True, False, True]), np.zeros(4, np.bool_)
    body = [f'store(p1, {k}, {who}_rmw(p0, {k}, {v}, "{name}"))'
            for k, (name, v) in enumerate((("and", False), ("xor", True), ("or", True), ("xchg", False)))]  # fmt: skip
    run("\n".join(body), cells, old)
    np.testing.assert_array_equal(old, [True, True, False, True])
    np.testing.assert_array_equal(cells, [False, False, True, False])
    x = np.array([np.nan, 1], np.float32)
    run(f'{who}_rmw(p0, 0, f32(2), "max")\n{who}_rmw(p0, 1, f32(NAN), "min")', x)
    np.testing.assert_array_equal(x, [2, 1])


def test_atomics_lose_no_update_between_threads() -> None:
    import threading

    body = """for k in range(n0):
    atomic_rmw(p0, 0, f32(1), "add")
    atomic_rmw(p1, 1, f32(1), "add")
    atomic_rmw(p2, 0, i32(1), "add")
    take(a3)"""
    scope = compiled(body, ["f32", "f16", "i32", "i64"])
    cells = (
        np.zeros(2, np.float32),
        np.zeros(2, np.float16),
        np.zeros(1, np.int32),
        np.zeros(1, np.int64),
    )
    addresses = [c.ctypes.data for c in cells]
    scope(*addresses, 0, 0)
    released = numba.njit(nogil=True, error_model="numpy")(scope.py_func)
    released(*addresses, 0, 0)
    threads = [threading.Thread(target=released, args=(*addresses, 500, 0)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [float(c.astype(np.float64).max()) for c in cells] == [2000, 2000, 2000, 2000]


@pytest.mark.parametrize("most", [255, 128])
@pytest.mark.parametrize("way", ["best", "pairs", "plain"])
def test_byte_dot_products_are_exact(way: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.backends.llvm.ops.numbers import integer

    if way != "best":
        monkeypatch.setattr(integer, "_byte_dot_lanes", lambda: ())
        monkeypatch.setattr(integer.dot_i8, "_signatures", {})
        monkeypatch.setattr(integer.dot_i7, "_signatures", {})
    if way == "plain":
        monkeypatch.setattr(integer, "_pair_sum_lanes", lambda: ())
        monkeypatch.setattr(integer, "_byte_pair_lanes", lambda: ())
    op = "dot_i8" if most == 255 else "dot_i7"
    rng = np.random.default_rng(20)
    x = rng.integers(0, most + 1, 256, dtype=np.uint8)
    y = rng.integers(-128, 128, 256, dtype=np.int64).astype(np.int8)
    x[:8], y[:8] = most, -128
    x[8:16], y[8:16] = most, 127
    acc = rng.integers(-(2**30), 2**30, 64, dtype=np.int64).astype(np.int32)
    widths = (1, 3, 4, 8, 16, 12) if way == "plain" else (3, 4, 8, 12, 16)
    out = np.zeros(64 * len(widths), np.int32)
    body = [f"store_line(p3, {64 * k}, {op}(load_line(p2, 0, {w}), load_line(p0, 0, {4 * w}), load_line(p1, 0, {4 * w})))"
            for k, w in enumerate(widths)]  # fmt: skip
    run("\n".join(body), x, y, acc, out)
    products = (x.astype(np.int64) * y).reshape(64, 4).sum(1) + acc
    for k, w in enumerate(widths):
        np.testing.assert_array_equal(out[64 * k : 64 * k + w], products[:w])


@pytest.mark.parametrize("wide", [True, False])
def test_pair_dot_products_round_each_sum(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.backends.llvm.ops.lines import pairs

    if not wide:
        monkeypatch.setattr(pairs, "_pair_dot_lanes", lambda: ())
        monkeypatch.setattr(pairs.dot_bf16, "_signatures", {})
    rng = np.random.default_rng(21)
    values = rng.standard_normal((2, 128)).astype(np.float32).view(np.uint32) & 0xFFFF0000
    x, y = (np.ascontiguousarray((v >> 16).astype(np.uint16)).view(np.uint32) for v in values)
    acc = rng.standard_normal(64).astype(np.float32)
    widths = (1, 3, 4, 8, 16, 12, 32) if not wide else (3, 4, 8, 12, 16)
    out = np.zeros(64 * len(widths), np.float32)
    body = [f"store_line(p3, {64 * k}, dot_bf16(load_line(p2, 0, {w}), load_line(p0, 0, {w}), load_line(p1, 0, {w})))"
            for k, w in enumerate(widths)]  # fmt: skip
    run("\n".join(body), x, y, acc, out)
    a, b = (v.view(np.float32).astype(np.float64).reshape(64, 2) for v in values)
    total = (a[:, 0] * b[:, 0] + (a[:, 1] * b[:, 1] + acc).astype(np.float32)).astype(np.float32)
    for k, w in enumerate(widths):
        np.testing.assert_array_equal(out[64 * k : 64 * k + w], total[:w])


def test_first_report_wins() -> None:
    err = np.zeros(3, np.int64)
    run("report(p0, 7, 10, 20)\nreport(p0, 8, 30, 40)", err)
    np.testing.assert_array_equal(err, [7, 10, 20])


def test_print_values_goes_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    run(r'print_values("%lld %g %llu 100%%\n", i32(-3), f32(1.5), u8(200))', np.zeros(1, np.int64))
    assert capfd.readouterr().out == "-3 1.5 200 100%\n"


def test_call_kernel_by_address() -> None:
    import ctypes

    seen = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
        lambda *a: seen.append(a)
    )
    address = ctypes.cast(callback, ctypes.c_void_p).value
    run("call_kernel(n0, 3, 9, n1)", np.zeros(1), n0=address, n1=64)
    assert seen == [(3, 9, 64)]


def test_ops_refuse_operands_that_do_not_go_together() -> None:
    for body, text in (("add(i32(1), i64(1))", "one type"), ("splat(f32(1), 65)", "1 to 64 lanes"),
                       ("truediv(i32(1), i32(2))", "not defined for i32"), ("load(1, 2)", "not a pointer"),
                       ('bitcast(f32(1), "i64")', "widths differ"),
                       ('extract(iota("i32", 4), 4)', "no lane 4")):  # fmt: skip
        with pytest.raises(numba.core.errors.TypingError, match=text):
            run(body, np.zeros(1))
