"""From a line of assembly to a function of a wave, by families of instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from tests.backends.hip.emulator.meaning import cross_lane, special
from tests.backends.hip.emulator.meaning.access import access, shared_access
from tests.backends.hip.emulator.meaning.atomics import global_atomic, shared_atomic
from tests.backends.hip.emulator.meaning.matrix import matrix
from tests.backends.hip.emulator.meaning.packed import packed
from tests.backends.hip.emulator.meaning.scalar import scalar
from tests.backends.hip.emulator.meaning.vector import (
    choose,
    compare,
    move,
    move_relative,
    pair,
    vector,
)
from tests.backends.hip.emulator.meaning.vector_table import TABLE
from tests.backends.hip.emulator.operands import U32, Operand, operand, split
from tests.backends.hip.emulator.program import BARRIER, END, IGNORED, Program, Step
from tests.backends.hip.emulator.wave import Wave

FAMILIES: list[tuple[str, Callable[[str, str], Step | None]]] = [
    ("v_mov_b32", move),
    ("v_movrel", move_relative),
    ("v_cmp", compare),
    ("v_cndmask", choose),
    ("v_div_scale", special.division_scale),
    ("v_div_fmas", special.division_step),
    ("v_dot4_i32_iu8", special.dot_of_bytes),
    ("v_dot2", special.dot_of_halves),
    ("v_fma_mix", special.mixed),
    ("v_mad_mix", special.mixed),
    ("v_mad_u64_u32", special.multiply_add),
    ("v_mad_i64_i32", special.multiply_add),
    ("v_mad_co", special.multiply_add),
    ("v_add_co", special.carry),
    ("v_addc_co", special.carry),
    ("v_sub_co", special.carry),
    ("v_subb_co", special.carry),
    ("v_subrev_co", special.carry),
    ("v_subbrev_co", special.carry),
    ("v_readfirstlane", cross_lane.read_first),
    ("v_readlane", cross_lane.read_lane),
    ("v_writelane", cross_lane.write_lane),
    ("v_swap_b32", cross_lane.swap),
    ("v_permlane64", cross_lane.permute_halves),
    ("v_permlane16_swap", cross_lane.permute_swap),
    ("v_permlane32_swap", cross_lane.permute_swap),
    ("v_permlane16", cross_lane.permute_row),
    ("v_permlanex16", cross_lane.permute_row),
    ("v_mbcnt", cross_lane.count_below),
    ("v_pk_", packed),
    ("v_mfma", matrix),
    ("v_wmma", matrix),
    ("v_", vector),
    ("ds_bpermute", cross_lane.shared_permute),
    ("ds_permute", cross_lane.shared_permute),
    ("ds_swizzle", cross_lane.shared_swizzle),
    ("ds_", shared_access),
    ("global_atomic", global_atomic),
    ("flat_atomic", global_atomic),
    ("global_", access),
    ("flat_", access),
    ("scratch_", access),
    ("buffer_", access),
]
"""The first one that a name begins with."""


CHANGED = re.compile(r"_(dpp8?|sdwa)$")
CHANGING = (move, compare, choose, vector, special.carry)
"""What knows of operands from other lanes or of parts of registers."""


def meaning(program: Program, line: str, major: int) -> Step:
    """What a line of assembly does.

    Raises:
        NotImplementedError: it is not known.
    """
    name, _, text = line.strip().partition(" ")
    if name.startswith("s_") and "::" not in line:
        step = _of_scalars(program, name, text.strip())
    else:
        step = _of_vectors(line.strip(), major)
    if step is None:
        raise NotImplementedError(f"no meaning for: {line}")
    return step


def _of_scalars(program: Program, name: str, text: str) -> Step | None:
    if name == "s_endpgm":
        return lambda w: END
    if name in ("s_barrier", "s_barrier_wait"):
        return lambda w: BARRIER
    if name.startswith(IGNORED):
        return lambda w: None
    if name.startswith("s_set_gpr_idx"):
        return _indexed(name, text)
    return scalar(program, name, text)


@lru_cache(1 << 16)
def _of_vectors(line: str, major: int) -> Step | None:
    """What a line without labels does: the same in every program."""
    if "::" in line:
        return pair(line)
    name, _, text = line.partition(" ")
    text = text.strip()
    if name.startswith(IGNORED):
        return lambda w: None
    if name.startswith("v_s_"):
        return _of_one(name, text)
    if name.startswith("ds_") and not name.startswith(("ds_bpermute", "ds_permute", "ds_swizzle")):
        return shared_access(name, text) or shared_atomic(name, text, major)
    family = next((f for start, f in FAMILIES if name.startswith(start)), None)
    if family is None or (CHANGED.search(name) and family not in CHANGING):
        return None
    return family(name, text)


def _indexed(name: str, text: str) -> Step | None:
    """CDNA: registers of moves are counted from an index from here on."""
    texts = split(text)[0]
    if name == "s_set_gpr_idx_off":
        return lambda w: setattr(w, "index", None)
    if name not in ("s_set_gpr_idx_on", "s_set_gpr_idx_idx"):
        return None
    count = Operand(texts[0])
    modes = ("SRC0" in texts[1], "DST" in texts[1]) if len(texts) > 1 else None

    def run(w: Wave) -> None:
        w.index = (w.scalar(count, 1) & 255, *(modes or (w.index or (0, False, False))[1:]))

    return run


def _of_one(name: str, text: str) -> Step | None:
    """v_s_exp_f32 and the like: a vector function of a scalar."""
    ops = [operand(t) for t in split(text)[0]]
    known = TABLE.get(name.replace("v_s_", "v_"))
    if known is None or known[1] != ("f32",):
        return None

    def run(w: Wave) -> None:
        x = np.array([w.scalar(ops[1], 1)], U32).view(np.float32)
        w.put_scalar(ops[0], int(known[2](x).view(U32)[0]), 1)

    return run
