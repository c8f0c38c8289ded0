"""The formulas in generated CPU code: fast math leaves them alone, lanes do not see each other,
lines stay lines.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

numba = pytest.importorskip("numba")

from tests.accuracy import BINARY, UNARY, draws, reference, ulps
from tests.backends.cpu.ops.compiled_ops import FLOATS, apply, compiled

BOUND = {"f32": 0.55, "f64": 2.5}
CALLED = {"tan": {"tan"}, "lgamma": {"lgamma"}, "fmod": {"fmod", "fmodf"}}
"""What the C library does for rare arguments."""


def ordinary(dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers that a kernel which excludes NaN and infinity may be given, and whose results are
    neither.
    """
    x = np.abs(draws(dtype, 4000, rng))
    return np.resize(x[(x > 1e-30) & (x < 80)], 3072)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fast_math_leaves_corrections_alone(dtype: str) -> None:
    x = ordinary(dtype, np.random.default_rng())
    small, large = np.minimum(x, x.dtype.type(0.99)), x + 1
    inputs = {name: small if name in ("asin", "acos", "atanh") else x for name in UNARY}
    inputs["acosh"] = large
    names = list(UNARY)
    outs = [np.zeros_like(x) for _ in names]
    body = [f"for i in range(0, {x.size}, 16):"]
    for k, name in enumerate(names):
        body.append(f"    store_line(p{2 * k + 1}, i, {name}(load_line(p{2 * k}, i, 16)))")
    kernel = compiled("\n".join(body), [dtype] * (2 * len(names)), fastmath=True)
    pointers = [a.ctypes.data for pair in zip(inputs.values(), outs, strict=True) for a in pair]
    kernel(*pointers, 0, 0)
    for name, got in zip(names, outs, strict=True):
        far = ulps(got, reference(name, inputs[name]), dtype)
        assert far.max() <= BOUND[dtype], f"{name}: {far.max()} at {inputs[name][far.argmax()]!r}"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_line_gives_what_its_lanes_give_alone(dtype: str) -> None:
    rng = np.random.default_rng()
    x, y = (np.resize(draws(dtype, 2000, rng), 1920) for _ in range(2))
    exprs = [(f"{n}(a)", dtype) for n in UNARY] + [(f"{n}(a, b)", dtype) for n in BINARY]
    alone, lines = (apply(exprs, width, x, y) for width in (0, 3))
    for (name, _), one, other in zip(exprs, alone, lines, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_lines_call_no_function_for_ordinary_lanes(name: str, dtype: str) -> None:
    values = ", ".join(f"load_line(p{k}, 0, 16)" for k in range(2 if name in BINARY else 1))
    kernel = compiled(f"store_line(p2, 0, {name}({values}))", [dtype] * 3)
    kernel.compile((numba.types.int64,) * 5)
    text = next(iter(kernel.inspect_llvm().values()))
    body = text[text.index("define ") :].split("\n}\n")[0]
    called = {
        line.split("@")[1].split("(")[0]
        for line in body.splitlines()
        if " call " in line and "@" in line
    }
    called = {c for c in called if not c.startswith("llvm.")}
    assert called <= CALLED.get(name, set()), called
    assert not re.search(r"fdiv [a-z ]*double|llvm\.sqrt\.f64", body)
