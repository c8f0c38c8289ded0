"""Random kernels give the same results on compiled backends as on the python backend."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.staging import gpu_missing, staged

NUMBER = itertools.count()
FOLDER = Path(tempfile.mkdtemp(prefix="cubepy-random-"))

ATOMS = ("a", "b", "x[i]", "x[n]", "k", "1.5", "0.25", "acc", "keep[k % 2]", "p")
INTS = ("i", "k", "n", "3", "t", "q", "-2", "count[i]")
FLOAT_FORMS = ("({} + {})", "({} - {})", "({} * {})", "cb.max({}, {})", "cb.min({}, {})", "({} if {} > 0.5 else 1.0)",
               "cb.abs({} - {})", "cb.clamp({}, -3, 3) + {}", "cb.floor({}) * {}", "branchy({}, {})",
               "cb.select({} > 0, a, b) - {}", "({} // 0.75 - {})")  # fmt: skip
INT_FORMS = ("({} + {})", "({} * {})", "({} - {})", "({} // 2 + {})", "({} % 5 + {})", "({} ^ {})", "({} // ({} | 1))",
             "({} % ({} | 1))", "({} << ({} & 35))", "({} >> ({} & 35))", "cb.min({}, {})", "steps({}, {})",
             "(~{} & {})", "cb.popcount({}) + {}")  # fmt: skip
CONDITIONS = ("{f} < {f}", "0 <= {i} < 9", "{i} % 3 == 0 and {f} > 0", "{f} > 1 or {i} & 1", "not {f} <= {f}",
              "{i} != {i}")  # fmt: skip
UNIFORM = ("level > 0", "x[0] > 0.5", "cb.CUBE_POS == 1", "turns % 2 == 0")
PRELUDE = """
import cubepy as cb

@cb.func
def branchy(u, v):
    if u > v:
        return u - v
    elif u < -v:
        return v * 0.5
    return u

@cb.func
def steps(m, limit):
    m = m % 7
    for j in range(12):
        if m == limit % 3:
            return j
        m = (m * 3 + 1) % 11
        if m > 9:
            break
    return m

@cb.kernel
def random_kernel(x: cb.Array, out: cb.Array, count: cb.Array, level):
    i = cb.ABSOLUTE_POS
    t = cb.UNIT_POS
    s = cb.shared(4, cb.f32)
    keep = cb.local(2, cb.f32)
    keep[0] = 0.5
    keep[1] = x[i + 2]
    a = x[i]
    b = x[i + 1]
    acc = a - b
    p, q = b, cb.cast(1, cb.i32)
    n = 1
    k = 0
    turns = 0
    spins = 0
    v = cb.splat(a, 4)
"""


@st.composite
def expression(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(ATOMS))
    left, right = draw(expression(depth=depth - 1)), draw(expression(depth=depth - 1))
    return draw(st.sampled_from(FLOAT_FORMS)).format(left, right)


@st.composite
def integer(draw: st.DrawFn, depth: int = 2) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(INTS))
    left, right = draw(integer(depth=depth - 1)), draw(integer(depth=depth - 1))
    return draw(st.sampled_from(INT_FORMS)).format(left, right)


@st.composite
def condition(draw: st.DrawFn) -> str:
    form = draw(st.sampled_from(CONDITIONS))
    while "{f}" in form or "{i}" in form:
        form = form.replace("{f}", draw(expression(depth=2)), 1) if "{f}" in form else form
        form = form.replace("{i}", draw(integer(depth=1)), 1) if "{i}" in form else form
    return form


@st.composite
def block(draw: st.DrawFn, depth: int, barriers: bool, indent: str, loop: bool = False) -> str:
    """Statements; `barriers`: all units come here together, `loop`: inside a loop that may be left."""
    lines: list[str] = []
    inner = indent + "    "
    kinds = ["float", "int", "line", "local", "swap"] + ["if", "for", "while", "unroll"] * bool(depth)
    kinds += ["shared", "shared", "uniform"] * barriers + ["leave"] * loop
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(kinds))
        if kind == "float":
            lines.append(f"{indent}acc = {draw(expression())} * 0.5")
        elif kind == "int":
            lines.append(f"{indent}n = {draw(integer())} % 17")
        elif kind == "swap":
            lines.append(f"{indent}p, q, b = b, {draw(integer())} % 5, p + q")
        elif kind == "line":
            lines.append(f"{indent}v = cb.fma(v, cb.splat(a, 4), x.load(i, 4))")
            lines.append(f"{indent}acc += cb.select(v > b, v, v * 0.5).max() + v[{draw(st.integers(0, 3))}]")
        elif kind == "local":
            lines.append(f"{indent}keep[{draw(integer())} % 2] += {draw(expression())} * 0.25")
            if draw(st.booleans()):
                lines.append(f"{indent}count[i] += {draw(integer())} % 3")
        elif kind == "shared":
            lines += [f"{indent}s[t] = {draw(expression())}", f"{indent}cb.sync_cube()",
                      f"{indent}acc += s[(t + {draw(st.integers(1, 3))}) % 4]", f"{indent}cb.sync_cube()"]  # fmt: skip
        elif kind in ("if", "uniform"):
            together = kind == "uniform"
            lines.append(f"{indent}if {draw(st.sampled_from(UNIFORM)) if together else draw(condition())}:")
            lines.append(draw(block(max(depth - 1, 0), together, inner, loop)))
            if draw(st.booleans()):
                lines.append(f"{indent}else:")
                lines.append(draw(block(max(depth - 1, 0), together, inner, loop)))
        elif kind == "for":
            bounds = draw(st.sampled_from(("3", "level", "1, 8, 3", "5, level, -2", "0")))
            lines.append(f"{indent}for k in range({bounds}):")
            lines.append(draw(block(depth - 1, barriers, inner, not barriers)))
        elif kind == "unroll":
            lines.append(f"{indent}for k in cb.unroll(range({draw(st.integers(1, 2))})):")
            lines.append(draw(block(depth - 1, barriers, inner, not barriers)))
        elif kind == "while":
            turns = "turns" if barriers else "spins"  # one that all units share, and one that they do not
            lines.append(f"{indent}{turns} = 0")
            lines.append(f"{indent}while {turns} < {draw(st.sampled_from(('2', 'level', '3')))}:")
            lines.append(f"{inner}{turns} += 1")
            lines.append(draw(block(depth - 1, barriers, inner, not barriers)))
            lines.append(f"{indent}{turns} = 7")
        else:
            lines.append(f"{indent}if {draw(condition())}:")
            lines.append(f"{inner}{draw(st.sampled_from(('break', 'continue')))}")
            lines.append(f"{indent}n += 1")
    return "\n".join(lines)


@st.composite
def kernel_source(draw: st.DrawFn) -> str:
    end = "    out[i] = acc + keep[0] - p\n    count[i] = n * 10 + q\n"
    early = f"    if {draw(condition())}:\n        out[i] = n\n        return\n" if draw(st.booleans()) else ""
    return PRELUDE + draw(block(2, True, "    ")) + "\n" + early + end


def load(source: str) -> Any:
    name = f"random_kernel_{next(NUMBER)}"
    path = FOLDER / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.random_kernel


def check(source: str, compiled: str) -> None:
    """A compiled backend gives what the python backend gives, to the bit."""
    kernel = load(source)
    x = np.random.default_rng(1).standard_normal(12).astype(np.float32)
    results = []
    for device in (compiled, "python"):
        out, count = np.zeros(12, np.float32), np.zeros(12, np.int32)
        kernel[3, 4](x, out, count, 2, device=device)
        results.append((out, count))
    (fast, fast_count), (python, python_count) = results
    np.testing.assert_array_equal(fast_count, python_count, err_msg=source)
    np.testing.assert_array_equal(fast, python, err_msg=source)


@settings(max_examples=25)
@given(source=kernel_source())
def test_the_cpu_agrees_on_random_kernels(source: str) -> None:
    check(source, "cpu")


@pytest.mark.skipif(bool(gpu_missing()), reason=gpu_missing())
@settings(max_examples=25)
@given(source=kernel_source())
def test_the_gpu_agrees_on_random_kernels(source: str) -> None:
    with pytest.MonkeyPatch.context() as patch, staged(patch):
        check(source, "cuda")
