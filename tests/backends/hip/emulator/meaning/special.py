"""Vector instructions with masks among their operands: carries, and the steps of a division."""

from __future__ import annotations

import re

import numpy as np

from tests.backends.hip.emulator import numbers
from tests.backends.hip.emulator.meaning.cross_lane import exchanged
from tests.backends.hip.emulator.meaning.vector import SUFFIX
from tests.backends.hip.emulator.operands import M32, TYPES, U32, Operand, listed, operand, split
from tests.backends.hip.emulator.program import Step
from tests.backends.hip.emulator.registers import reader, scalar_reader, scalar_writer, writer
from tests.backends.hip.emulator.wave import Wave


def carry(name: str, text: str) -> Step | None:
    """Sums and differences that take or give a bit of every lane."""
    base = SUFFIX.sub("", name)
    texts, modifiers = split(text)
    ops, lanes_move = [operand(t) for t in texts], "dpp" in name
    if "sdwa" in name:
        return None
    takes = "_ci_" in base or base.startswith(("v_addc", "v_subb"))
    less, reverse = base.startswith("v_sub"), "rev" in base

    left, right = (reader(o, "u32") for o in ops[2:4])
    mask = {k: scalar_reader(ops[4], k) for k in (1, 2)} if takes else {}
    put, put_mask = writer(ops[0], "u32"), {k: scalar_writer(ops[1], k) for k in (1, 2)}

    def run(w: Wave) -> None:
        on, a, b = w.on, left(w).astype(np.int64), right(w).astype(np.int64)
        if lanes_move:
            a, on = exchanged(w, a, on, modifiers)
        a, b = (b, a) if reverse else (a, b)
        total = a - b if less else a + b
        if takes:
            c = w.lanes_of(mask[w.size // 32](w))
            total = total - c if less else total + c
        out = w.bits(((total < 0) if less else (total > M32)) & on)
        put(w, total.astype(U32), on)
        put_mask[w.size // 32](w, out)

    return run


def multiply_add(name: str, text: str) -> Step:
    """v_mad_u64_u32, v_mad_i64_i32: a product of words and a sum of 64 bits."""
    ops = [operand(t) for t in split(text)[0]]
    sign = "i64" in name
    word, wide = ("i32", "i64") if sign else ("u32", "u64")
    left, right, third = reader(ops[2], word), reader(ops[3], word), reader(ops[4], wide)
    put, put_mask = writer(ops[0], wide), {k: scalar_writer(ops[1], k) for k in (1, 2)}

    def run(w: Wave) -> None:
        product = left(w).astype(TYPES[wide]) * right(w)
        c = third(w)
        total = product + c
        beyond = total < product
        if sign:  # below zero
            one, both = (product < 0) != (c < 0), (product < 0) & (c < 0)
            beyond = both | (one & (total < 0))
        put(w, total, w.on)
        put_mask[w.size // 32](w, w.bits(beyond & w.on))

    return run


def division_scale(name: str, text: str) -> Step:
    ops, kind = [operand(t) for t in split(text)[0]], name[12:15]

    def run(w: Wave) -> None:
        given = [w.get(o, kind) for o in ops[2:5]]
        out, flag = given[0].copy(), np.zeros(w.size, bool)
        out[w.on], flag[w.on] = numbers.division_scale(*(x[w.on] for x in given), kind)
        w.put(ops[0], out, kind)
        w.put_scalar(ops[1], w.bits(flag), w.size // 32)

    return run


def division_step(name: str, text: str) -> Step:
    """v_div_fmas: a fused product and sum, scaled back where vcc says so."""
    ops, kind = [operand(t) for t in split(text)[0]], name[11:14]
    step, bias = (64, 127) if kind == "f32" else (128, 1023)

    def run(w: Wave) -> None:
        a, b, c = (w.get(o, kind) for o in ops[1:4])
        y = numbers.FMA[kind](a, b, c)
        up = np.frexp(c.astype(np.float64))[1] - 1 + bias > bias
        scaled = numbers.ldexp(y, np.where(up, step, -step))
        w.put(ops[0], np.where(w.lanes_of(w.vcc), scaled, y), kind)

    return run


def dot_of_bytes(name: str, text: str) -> Step:
    """v_dot4_i32_iu8: each operand has signs or not, as `neg_lo` says."""
    texts, modifiers = split(text)
    ops, signs = [operand(t) for t in texts], listed(modifiers, "neg_lo", [0, 0, 0])
    how = bool(signs[0]), bool(signs[1])
    return lambda w: w.put(ops[0], numbers.dot4(*(w.get(o, "u32") for o in ops[1:4]), how), "u32")


def dot_of_halves(name: str, text: str) -> Step:
    """v_dot2: two products of f16 or bf16, summed in f32."""
    ops, wide = [operand(t) for t in split(text)[0]], "bf16" in name

    def part(w: Wave, o: Operand, k: int) -> np.ndarray:
        u = w.get(o, "u32") >> U32(16 * k) & U32(0xFFFF)
        x = (u << U32(16)).view(np.float32) if wide else u.astype(np.uint16).view(np.float16)
        return x.astype(np.float64)

    def run(w: Wave) -> None:
        total = w.get(ops[3] if len(ops) > 3 else ops[0], "f32").astype(np.float64)
        for k in (0, 1):
            total = total + part(w, ops[1], k) * part(w, ops[2], k)
        w.put(ops[0], total.astype(np.float32), "f32")

    return run


def mixed(name: str, text: str) -> Step:
    """v_fma_mix: operands that are f16 or f32 each, fused in f32."""
    texts, modifiers = split(text)
    ops = [operand(t) for t in texts]
    upper = listed(modifiers, "op_sel", [0, 0, 0])
    short = listed(modifiers, "op_sel_hi", [0, 0, 0])
    half = re.search(r"mix(lo|hi)", name)

    def run(w: Wave) -> None:
        values = [
            w.get(o, "f16", upper[k]).astype(np.float32) if short[k] else w.get(o, "f32")
            for k, o in enumerate(ops[1:4])
        ]
        y = numbers.FMA["f32"](*values)
        if half is None:
            w.put(ops[0], y, "f32")
        else:
            w.put(ops[0], y.astype(np.float16), "f16", half=int(half[1] == "hi"))

    return run
