"""Attention by AMD's matrix units: right on emulated GPUs, its instructions and registers for every
processor, and how it meets the banks of shared memory. No GPU is needed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.backends.hip.backend import offline
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.backends.hip.offline import compile_for
from cubepy.kernels.attention.gpu import flash_fragments as fragments
from cubepy.kernels.attention.gpu.flash_fragments_plan import (
    FragmentAttention,
    fits,
    owns_queries,
    rounded,
    shapes,
    unfit,
)
from cubepy.kernels.attention.gradients import attention_forward
from cubepy.kernels.attention.problem import described
from cubepy.kernels.attention.routines import guess
from cubepy.kernels.attention.routines_gpu import Fragments
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from cubepy.tune import force
from tests.backends.cuda.thorough import THOROUGH, by_turns, some
from tests.backends.hip.emulator.banks import met_banks
from tests.backends.hip.emulator.device import emulated
from tests.kernels.attention.exact import exact

BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
EMULATED = tuple(KNOWN) if THOROUGH else ("gfx942", "gfx1100")


@dataclass(frozen=True)
class Case:
    """A problem: heads of queries and of keys, lengths, widths, and what may be seen."""

    dtype: np.dtype
    heads: int
    groups: int
    length: int
    seen: int
    depth: int
    width: int
    causal: bool = False
    mask: str = "none"


CASES = [
    Case(F16, 1, 1, 20, 40, 32, 32),
    Case(BF16, 4, 2, 37, 70, 33, 40, True),
    Case(BF16, 2, 1, 37, 70, 40, 24, False, "bool"),
    Case(F16, 2, 1, 20, 70, 64, 33, True, "float"),
    Case(F16, 1, 1, 5, 65, 136, 144, False, "bool"),
    Case(BF16, 1, 1, 70, 130, 64, 64, True, "bool"),
]


def drawn(case: Case, seed: int = 1) -> tuple[Any, ...]:
    """Queries, keys, values and the mask, of which one row sees nothing."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.standard_normal(shape, F32).astype(case.dtype)
    q = draw(1, case.heads, case.length, case.depth)
    k, v = (draw(1, case.groups, case.seen, n) for n in (case.depth, case.width))
    mask: Any = None
    if case.mask == "bool":
        mask = rng.random((1, 1, case.length, case.seen)) < 0.6
        mask[..., 3, :] = False
    if case.mask == "float":
        mask = rng.standard_normal((case.length, case.seen), F32)
        mask[:, 2] = -np.inf
    return q, k, v, mask


def there(x: Any) -> Any:
    """An array on the current device."""
    return None if x is None else device_array.upload(x, devices.current())


def check(case: Case, name: str) -> None:
    """The result and the log-sum-exp on an emulated GPU, against f64."""
    q, k, v, mask = drawn(case)
    with emulated(name), cb.use(name), force("attention", "fragments"):
        out, lse = attention_forward(*map(there, (q, k, v)), case.causal, None, there(mask))
        out, lse = out.numpy().astype(np.float64), lse.numpy()
    right, right_lse = exact(q, k, v, mask, case.causal)
    assert np.linalg.norm(out - right) <= 4e-3 * np.linalg.norm(right)
    sees = np.isfinite(right_lse)
    assert np.abs(lse[sees] - right_lse[sees]).max() < 1e-5
    assert not out[~sees].any() and np.isneginf(lse[~sees]).all()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_are_those_of_float64(case: Case) -> None:
    for name in by_turns(EMULATED, CASES.index(case), len(EMULATED)):
        check(case, name)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
def test_every_shape_of_tiles(name: str) -> None:
    """Larger cubes than small cases would take, and the smaller instruction."""
    case = Case(F16, 1, 1, 40, 100, 40, 48, True)
    p = offline(name)
    for shape in some(list(shapes("f16", case.length, 40, 48, p)), 0, 2):
        with force("attention", "fragments", **vars(shape)):
            check(case, name)


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
def test_heads_inside_of_positions_and_a_mask_for_all_heads(name: str) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.standard_normal((2, 30, 2, 32), F32).astype(F16) for _ in range(3))
    mask = rng.random((2, 1, 1, 30)) < 0.7
    with emulated(name), cb.use(name), force("attention", "fragments"):
        moved = (there(a).transpose(0, 2, 1, 3) for a in (q, k, v))
        got = K.attention(*moved, there(mask)).numpy().astype(np.float64)
    right, _ = exact(*(a.transpose(0, 2, 1, 3) for a in (q, k, v)), mask, False)
    assert np.linalg.norm(got - right) <= 1e-3 * np.linalg.norm(right)


def test_numbers_beyond_the_ends_do_not_count() -> None:
    """A view whose memory goes on with NaN, along both axes."""
    whole = np.full((1, 1, 64, 64), np.nan, F16)
    rng = np.random.default_rng(3)
    whole[:, :, :40, :40] = rng.standard_normal((40, 40))
    with emulated("gfx942"), cb.use("gfx942"), force("attention", "fragments"):
        x = there(whole)[:, :, :40, :40]
        got = K.attention(x, x, x).numpy().astype(np.float64)
    part = whole[:, :, :40, :40]
    np.testing.assert_allclose(got, exact(part, part, part, None, False)[0], rtol=0, atol=4e-3)


def compiled(name: str, dtype: str, depth: int, width: int, mask: str, few: bool = False) -> str:
    """The assembly for heads of a depth and a width, as it is launched."""
    p, kind = offline(name), as_dtype(dtype)
    shape = next(shapes(dtype, 20 if few else 512, depth, width, p))
    m = p.matrix_instruction(dtype, shape.side)
    assert m is not None and fits(m, shape, depth, width, p)
    plan = FragmentAttention(
        kind,
        m.rows,
        shape.planes,
        p.plane_size,
        shape.keys,
        *rounded(depth, min(width, shape.columns), m),
        mask != "none",
        mask,
        depth % 32 == 0,
        shape.held,
    )
    blocks = lambda n: np.zeros((1, 2, 512, -(-n // 8) * 8), np.uint16)
    marks = {"none": None, "bool": np.zeros((1, 2, 512, 512), np.bool_)}
    marks["float"] = np.zeros((1, 2, 512, 512), F32)
    out, lse = np.zeros((1, 2, 512, plan.width), kind.numpy), np.zeros((1, 2, 512), F32)
    arrays = blocks(depth), blocks(depth), blocks(plan.width), marks[mask], out, lse
    code = compile_for(
        name, fragments.fragment_attend, plan.units, *arrays, 0.1, 1, plan, mode="unchecked"
    )
    assert code.text.shared_bytes <= min(p.max_shared_memory, 65536)
    return str(code.assembly)


WIDTHS = [(64, 64), (128, 128), (256, 256), (96, 96), (33, 40), (192, 128), (32, 32)]
MASKS = [("f16", "none"), ("bf16", "float"), ("f16", "bool"), ("bf16", "none")]


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize(("dtype", "mask"), MASKS)
def test_nothing_spills(name: str, dtype: str, mask: str) -> None:
    turn = 3 * list(KNOWN).index(name) + MASKS.index((dtype, mask))
    for depth, width in by_turns(WIDTHS, turn, len(WIDTHS)):
        for few in (False, True) if THOROUGH else (False,):
            text = compiled(name, dtype, depth, width, mask, few)
            spilled = [int(n) for n in re.findall(r"_spill_count: *(\d+)", text)]
            assert spilled and not any(spilled), (depth, width, few)
            assert not re.search(r"^\t(flat|scratch|buffer_(load|store))_", text, re.M)


PRODUCTS = {"gfx90a": 64, "gfx942": 64, "gfx950": 32, "gfx1100": 32, "gfx1201": 32}
"""Matrix instructions of a plane for a block of keys, heads of 128: of 64 keys and 32 queries on
CDNA, of 32 and 16 on RDNA.
"""


@pytest.mark.parametrize("name", KNOWN)
def test_instructions_of_a_block(name: str) -> None:
    text = compiled(name, "f16", 128, 128, "none")
    found = Counter(re.findall(r"^\t([a-z]\w+)", text, re.M))
    assert sum(n for i, n in found.items() if "mfma" in i or "wmma" in i) == PRODUCTS[name]
    read = "ds_load_b128" if name.startswith("gfx1") else "ds_read_b128"
    reads = {"gfx950": 32, "gfx1100": 64}.get(name, 32)
    assert found[read] == reads  # each feeds one instruction or two; two feed one of RDNA 3's
    exchanged = [i for i in found if i.startswith(("ds_bpermute", "v_permlanex16", "ds_swizzle"))]
    assert exchanged  # maxima of a query's units, and the operand of RDNA 3


@pytest.mark.turns(6)
@pytest.mark.parametrize("name", EMULATED)
def test_no_bank_is_met_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met = met_banks(monkeypatch)
    check(Case(F16, 1, 1, 70, 70, 64, 64), name)
    assert len(met) > 100 and set(met) == {1}


@pytest.mark.parametrize("name", KNOWN)
def test_the_routine_follows_from_dtypes_and_widths(name: str) -> None:
    p = offline(name)
    with emulated(name), cb.use(name):
        for case in CASES:
            q, k, v, mask = drawn(case)
            full = (
                None if mask is None else np.broadcast_to(mask, (1, case.heads, *mask.shape[-2:]))
            )
            problem = described(q, k, v, full, case.mask, case.causal, 0.1)
            assert (problem.units, guess(problem)) == ("fragments", "fragments")
            assert Fragments().supports(problem, p) is None
        for dtype, width in ((F32, 64), (F16, 264)):
            q = np.zeros((1, 1, 40, width), dtype)
            problem = described(q, q, q, None, "none", False, 0.1)
            assert (problem.units, guess(problem)) == ("", "lines")
    assert "264" in str(unfit("f16", 264, 64, p)) and "f32" in str(unfit("f32", 64, 64, p))


@pytest.mark.parametrize("name", KNOWN)
def test_fragments_of_other_layouts_are_not_taken(name: str) -> None:
    p = offline(name)
    for m in p.matrix_instructions:
        assert owns_queries(m, p.plane_size) == (m.bits == 16)
    m = p.matrix_instruction("f16")
    assert m is not None
    turned = replace(m, c=m.c.transposed)
    assert not owns_queries(turned, p.plane_size) and not owns_queries(m, 2 * p.plane_size)


def test_nvidia_keeps_its_own() -> None:
    from cubepy.backends.cuda.backend import offline as nvidia

    p = nvidia("sm_90a")
    assert "no fragments" in str(unfit("f16", 64, 64, p))
    q = np.zeros((1, 1, 40, 64), F16)
    with cb.use("cpu"):
        problem = described(q, q, q, None, "none", False, 1 / math.sqrt(64))
    assert Fragments().supports(problem, p) is not None
