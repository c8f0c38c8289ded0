"""Random kernels give the same results on the cpu backend as on the python backend."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

NUMBER = itertools.count()
FOLDER = Path(tempfile.mkdtemp(prefix="cubepy-random-"))

ATOMS = ("a", "b", "x[i]", "k", "1.5", "0.25", "acc")
INTS = ("i", "k", "n", "3", "t")


@st.composite
def expression(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(ATOMS))
    left, right = draw(expression(depth=depth - 1)), draw(expression(depth=depth - 1))
    form = draw(st.sampled_from(("({} + {})", "({} - {})", "({} * {})", "cb.max({}, {})", "cb.min({}, {})",
                                 "({} if {} > 0.5 else 1.0)", "cb.abs({} - {})")))  # fmt: skip
    return form.format(left, right)


@st.composite
def integer(draw: st.DrawFn, depth: int = 2) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(INTS))
    left, right = draw(integer(depth=depth - 1)), draw(integer(depth=depth - 1))
    form = draw(st.sampled_from(("({} + {})", "({} * {})", "({} - {})", "({} // 2 + {})", "({} % 5 + {})", "({} ^ {})")))
    return form.format(left, right)


@st.composite
def block(draw: st.DrawFn, depth: int, barriers: bool, indent: str) -> str:
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("float", "int", "if", "for", "line", "shared")))
        if kind == "float":
            lines.append(f"{indent}acc = {draw(expression())} * 0.5")
        elif kind == "int":
            lines.append(f"{indent}n = {draw(integer())} % 17")
        elif kind == "line":
            lines.append(f"{indent}v = cb.fma(v, cb.splat(a, 4), x.load(i, 4))")
            lines.append(f"{indent}acc += cb.select(v > b, v, v * 0.5).max()")
        elif kind == "shared" and barriers:
            lines += [f"{indent}s[t] = {draw(expression())}", f"{indent}cb.sync_cube()",
                      f"{indent}acc += s[(t + {draw(st.integers(1, 3))}) % 4]", f"{indent}cb.sync_cube()"]  # fmt: skip
        elif kind == "if" and depth:
            lines.append(f"{indent}if {draw(expression())} < {draw(expression())}:")
            lines.append(draw(block(depth - 1, False, indent + "    ")))
            if draw(st.booleans()):
                lines.append(f"{indent}else:")
                lines.append(draw(block(depth - 1, False, indent + "    ")))
        elif kind == "for" and depth:
            lines.append(f"{indent}for k in range({draw(st.integers(1, 4))}):")
            lines.append(draw(block(depth - 1, barriers, indent + "    ")))
        else:
            lines.append(f"{indent}acc = acc * 0.5 + a")
    return "\n".join(lines)


@st.composite
def kernel_source(draw: st.DrawFn) -> str:
    return "\n".join(
        [
            "import cubepy as cb", "", "@cb.kernel", "def random_kernel(x: cb.Array, out: cb.Array, count: cb.Array):",
            "    i = cb.ABSOLUTE_POS", "    t = cb.UNIT_POS", "    s = cb.shared(4, cb.f32)", "    a = x[i]",
            "    b = x[i + 1]", "    acc = a - b", "    n = 1", "    k = 0", "    v = cb.splat(a, 4)",
            draw(block(2, True, "    ")), "    out[i] = acc", "    count[i] = n", "",
        ]
    )  # fmt: skip


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


@settings(max_examples=20)
@given(source=kernel_source())
def test_both_backends_agree_on_random_kernels(source: str) -> None:
    kernel = load(source)
    x = np.random.default_rng(1).standard_normal(12).astype(np.float32)
    results = []
    for device in ("cpu", "python"):
        out, count = np.zeros(12, np.float32), np.zeros(12, np.int32)
        kernel[3, 4](x, out, count, device=device)
        results.append((out, count))
    (cpu, cpu_count), (python, python_count) = results
    np.testing.assert_array_equal(cpu_count, python_count, err_msg=source)
    np.testing.assert_allclose(cpu, python, rtol=1e-5, atol=1e-6, err_msg=source)
