"""f32 products of any strides whose K teams, and cubes of a cluster, share: emulated, compiled, and
chosen by a model of costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.kernels.matmul.gpu.simt_costs import (
    CHOICES,
    MULTISTAGE,
    ROOM,
    Sizes,
    candidates,
    chosen,
    copied,
)
from cubepy.kernels.matmul.gpu.simt_multistage import (
    SimtMultistage,
    SimtMultistageRoutine,
    simt_multistage_product,
)
from cubepy.kernels.matmul.problem import Product
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="printing code for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.backend import offline
from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from tests.backends.cuda.disassembler import needs_sass
from tests.backends.cuda.emulator.device import emulated
from tests.backends.cuda.thorough import some

RNG = np.random.default_rng()
PLANS = [SimtMultistage(t.rows, t.columns, t.high, t.teams) for t in MULTISTAGE]
SMALL = PLANS[2]
EMULATED = [
    SMALL,
    replace(SMALL, parts=3),
    replace(PLANS[3], parts=2),
    replace(SMALL, teams=1, depth=16, stages=4),
    replace(SMALL, teams=2, stages=2, parts=5),
]


KINDS: dict[str, tuple[Callable[[int, int], tuple[int, int]], Callable[[Any], Any]]] = {
    "rows": (lambda m, n: (m, n), lambda x: x),
    "columns": (lambda m, n: (n, m), lambda x: x.T),
    "parts": (lambda m, n: (m, n + 5), lambda x: x[:, 3:-2]),
    "back": (lambda m, n: (m, n), lambda x: x[::-1]),
    "turned back": (lambda m, n: (n, m), lambda x: x[:, ::-1].T),
    "steps": (lambda m, n: (m, 2 * n), lambda x: x[:, ::2]),
}
"""How operands lie: the shape of what they are a view of, and the view."""


@pytest.mark.parametrize("plan", some(EMULATED, 0, 2), ids=str)
def test_random_sizes_and_layouts(plan: SimtMultistage) -> None:
    """Tiles that hang over, stages that do, ranges of K of different lengths, and every order."""
    kinds = [str(RNG.choice([*KINDS])) for _ in range(2)]
    m, n = (int(RNG.integers(1, 80)) for _ in range(2))
    k = int(RNG.integers(64, 128)) * plan.parts
    if RNG.integers(2):
        m, n = -(-m // 4) * 4, -(-n // 4) * 4
    given = [
        RNG.standard_normal(KINDS[kind][0](*shape), np.float32)
        for kind, shape in zip(kinds, ((m, k), (k, n)), strict=True)
    ]
    a, b = (KINDS[kind][1](x) for kind, x in zip(kinds, given, strict=True))
    bias = RNG.standard_normal(n).astype(np.float32)
    with emulated() as gpu, force("matmul", "simt_multistage", plan):
        x, y = (KINDS[kind][1](upload(v, gpu)) for kind, v in zip(kinds, given, strict=True))
        got = K.matmul(x, y, bias=upload(bias, gpu), activation="relu").numpy()
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0)
    assert np.abs(got - want).max() <= 1e-5 * math.sqrt(k) * 4, (kinds, m, n, k)


def test_batches_of_which_one_is_everyones() -> None:
    m, n, k = 20, 36, 70
    a, b = (RNG.standard_normal(s, np.float32) for s in ((3, m, k), (1, k, n)))
    with emulated() as gpu, force("matmul", "simt_multistage", replace(SMALL, parts=2)):
        got = K.matmul(upload(a, gpu), upload(b, gpu)).numpy()
        x, y = (upload(v, gpu).transpose(0, 2, 1) for v in (b, a))
        turned = K.matmul(x, y).numpy()
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)
    np.testing.assert_allclose(turned, want.transpose(0, 2, 1), rtol=0, atol=1e-4)


@needs_sass
@pytest.mark.parametrize("plan", some(PLANS, 1, 2), ids=lambda p: f"{p.rows}x{p.columns}")
def test_nothing_spills_and_sums_stay_in_registers(plan: SimtMultistage) -> None:
    """A loop of products and little else, with one cube a core, or two of small tiles."""
    a = np.zeros((1, 256, 256), np.float32)
    pair = plan.rows * plan.columns <= 64 * 64
    for made in (
        replace(plan, cubes=1 + pair),
        replace(plan, parts=5, b_along_k=False, b_whole=True, bias=True),
        replace(plan, a_along_k=False, b_along_k=False, a_whole=True),
    ):
        code = compile_for(
            "sm_90a", simt_multistage_product, made.units, a.ravel(), a.ravel(), a,
            a[0, 0] if made.bias else None, None, 1.0, 256, (0, 256, 1), (0, 256, 1), made, mode="unchecked",
        )  # fmt: skip
        held, found = usage(code.cubin), count(code.sass, "FFMA", "LDL", "STL", "LDGSTS")
        assert held.stack == found["LDL"] == found["STL"] == 0
        assert held.registers * made.units * made.cubes <= 65536
        assert 4 * made.shared * made.cubes <= 227 * 1024
        assert found["FFMA"] >= 4 * made.high * 4 * 8
        assert found["LDGSTS"] > 0


def problem(m: int, k: int, n: int, layout: Any = "rows", aligned: bool = True) -> Product:
    return Product("cuda", m, k, n, 1, "f32", "f32", layout, aligned=aligned)


def test_it_is_taken_where_it_is_quicker() -> None:
    """As measured on an H200: long K of few tiles, and no large products along K."""
    routine, properties = SimtMultistageRoutine(), offline("sm_90a")
    for p in (problem(384, 4096, 384), problem(195, 5627, 618, aligned=False)):
        assert routine.supports(p, properties) is None
        first = next(routine.blueprints(p, properties))
        assert first.parts > 1
    for p in (problem(4096, 4096, 4096, "columns"), problem(256, 1024, 1024, "columns")):
        assert not list(routine.blueprints(p, properties))
    for p in (problem(384, 4096, 384)._replace(tf32=True), problem(8, 8, 8)._replace(a="f64")):
        assert "f32" in str(routine.supports(p, properties))
    assert all(p.parts == 1 for p in routine.blueprints(problem(384, 4096, 384), offline("sm_80")))


def test_the_model_of_costs() -> None:
    """More work is never quicker, and clusters are of as many cubes as find room."""
    properties = offline("sm_90a")
    cores, none = properties.cores, replace(properties, features=frozenset({"copy_async"}))
    seen = set()
    for _ in range(100):
        m, k, n = (int(x) for x in np.exp(RNG.uniform(0, math.log(8192), 3)))
        p = Sizes(
            m, k, n, 1, str(RNG.choice(["rows", "columns", "strided"])), bool(RNG.integers(2))
        )
        for more in (p._replace(m=2 * m), p._replace(n=2 * n), p._replace(k=2 * k)):
            assert min(copied(more, cores)) >= min(copied(p, cores))
        costs = [cost for cost, _, _ in candidates(p, cores, True)]
        assert costs == sorted(costs)
        for _, number, parts in candidates(p, cores, True):
            assert parts == 1 or MULTISTAGE[number].tiles(p) * parts <= ROOM[parts] * cores
            assert parts == 1 or k >= 64 * parts
        whole = problem(m, k, n, p.layout, p.aligned)
        choice = chosen(whole, properties)
        seen.add(choice.routine)
        assert choice in CHOICES
        assert chosen(whole, none).routine in ("simt", "simt_multistage")
        assert choice.routine != "fma" or (p.aligned and p.layout == "columns")
    assert len(seen) >= 3
