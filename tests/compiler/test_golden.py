"""The generated code of a few small kernels, kept in `golden`; CUBEPY_UPDATE_GOLDEN=1 rewrites
the files.

A change of the generated code is often wanted. It should be seen, though: read the difference
before updating.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb

FOLDER = Path(__file__).parent / "golden"
F = np.float32
X, OUT, N = np.zeros(64, F), np.zeros(64, F), np.zeros(64, np.int32)


@cb.kernel
def axpy(alpha, x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = alpha * x[i] + out[i]


@cb.kernel
def lines(x: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS * lanes
    v = x.load(i, lanes)
    out.store(i, cb.select(v > 0, v, 0.1 * v))


@cb.kernel
def line_loop(x: cb.Array, out: cb.Array, first, *, lanes: cb.Comptime[int]):
    for k, valid in cb.lines(first, x.size, lanes):
        out.store(k, x.load(k, lanes, valid=valid) * 2, valid=valid)


@cb.kernel
def cube_sum(x: cb.Array, out: cb.Array):
    s = cb.shared(cb.CUBE_DIM, cb.f32)
    t = cb.UNIT_POS
    s[t] = x[cb.ABSOLUTE_POS]
    n = cb.CUBE_DIM // 2
    while n > 0:
        cb.sync_cube()
        if t < n:
            s[t] += s[t + n]
        n //= 2
    if t == 0:
        out[cb.CUBE_POS] = s[0]


@cb.func
def first_above(x, limit):
    for i in range(x.size):
        if x[i] > limit:
            return i
    return -1


@cb.kernel
def searches(x: cb.Array, n: cb.Array, *, times: cb.Comptime[int] = 2):
    for k in cb.unroll(range(times)):
        n[k] = first_above(x, k * 0.5)


@cb.kernel
def histogram(n: cb.Array, counts: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < n.size:
        cb.atomic_add(counts, n[i] % counts.size, 1)


CASES: dict[str, tuple[Any, Any, tuple, dict[str, Any]]] = {
    "axpy": (axpy, (4, 16), (2.0, X, OUT), {}),
    "axpy_strided_unchecked": (axpy, (4, 16), (2.0, X[::2], OUT[::2]), {"mode": "unchecked"}),
    "lines": (lines, (8, 1), (X, OUT), {"lanes": 8}),
    "line_loop": (line_loop, (8, 1), (X, OUT, 0), {"lanes": 8, "mode": "unchecked"}),
    "cube_sum": (cube_sum, (4, 16), (X, OUT), {}),
    "searches": (searches, (1, 1), (X, N), {}),
    "histogram": (histogram, (4, 16), (N, np.zeros(8, np.int64)), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_generated_code_is_as_it_was(name: str) -> None:
    kernel, grid, args, keywords = CASES[name]
    compare(name, kernel.inspect(*args, grid=grid, device="cpu", **keywords).python)


def compare(name: str, code: str) -> None:
    code = re.sub(re.escape(str(Path(__file__).parent)) + r"[/\\]", "", code)
    path = FOLDER / f"{name}.py.txt"
    if os.environ.get("CUBEPY_UPDATE_GOLDEN"):
        path.write_text(code)
    assert path.exists(), "run once with CUBEPY_UPDATE_GOLDEN=1"
    assert code == path.read_text(), "run with CUBEPY_UPDATE_GOLDEN=1 if the change is wanted"


ON_A_GPU = ("axpy", "lines", "line_loop", "cube_sum", "histogram")


@pytest.mark.parametrize("name", ON_A_GPU)
def test_generated_code_for_a_gpu_is_what_it_was(name: str) -> None:
    from cubepy.backends.cuda.offline import compile_for

    kernel, (_, units), args, kwargs = CASES[name]
    compare(f"cuda_{name}", compile_for("sm_90a", kernel, units, *args, **kwargs).text.text)
