"""Vector instructions of the table, with what may be done to their operands and results: lanes
exchanged (DPP), parts of registers (SDWA, op_sel), clamping, two at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.backends.hip.emulator import numbers
from tests.backends.hip.emulator.meaning.cross_lane import exchanged
from tests.backends.hip.emulator.meaning.vector_table import COMPARISONS, TABLE, by_truth
from tests.backends.hip.emulator.operands import (
    EXEC,
    M32,
    SIZE,
    TYPES,
    U32,
    Operand,
    listed,
    operand,
    split,
)
from tests.backends.hip.emulator.program import Step
from tests.backends.hip.emulator.registers import (
    Reader,
    Writer,
    reader,
    scalar_reader,
    scalar_writer,
    writer,
)
from tests.backends.hip.emulator.wave import Wave

SUFFIX = re.compile(r"_(e32|e64|e64_dpp|dpp|sdwa|dpp8|e64_dpp8)$")
Later = Callable[[Wave], Callable[[], None]]
"""Reads and computes now; what it gives writes the result."""
_ACCUMULATING = re.compile(r"v_(fmac|mac|fmaak|fmamk|madak|madmk)_(f16|f32|f64)")
_FACTORS = {("mul", "2"): 2.0, ("mul", "4"): 4.0, ("div", "2"): 0.5}
_PART = {"B": 8, "W": 16}


def _function(name: str, ops: list[Operand], modifiers: dict[str, str]) -> Any:
    """Kind of the result, kinds of the operands, function, operands; None if it is not known."""
    if name == "v_dot4c_i32_i8":
        dot = lambda a, b, c: numbers.dot4(a, b, c, (True, True))
        return "u32", ("u32", "u32", "u32"), dot, [*ops, ops[0]]
    if found := _ACCUMULATING.fullmatch(name):
        kind = found[2]
        sources = [*ops[:3], ops[0]] if found[1] in ("fmac", "mac") else ops
        fused = not found[1].startswith("ma")
        return kind, (kind,) * 3, numbers.FMA[kind] if fused else numbers.unfused, sources
    if name in ("v_bitop3_b32", "v_bitop3_b16"):
        kind, table = f"u{name[-2:]}", int(modifiers["bitop3"], 0)
        return kind, (kind,) * 3, lambda a, b, c: by_truth(table, a, b, c), ops
    return (*TABLE[name], ops) if name in TABLE else None


def part_of(w: Wave, o: Operand, part: str, kind: str) -> np.ndarray:
    """A byte or a half of a register (SDWA)."""
    width = _PART[part[0]]
    word = w.raw(o, 1) >> U32(width * int(part[5])) & U32((1 << width) - 1)
    if o.sext:
        word = (word.astype(np.int32) << 32 - width >> 32 - width).view(U32)
    x = word.astype(np.uint16).view(TYPES[kind]) if SIZE[kind] == 2 else word.view(TYPES[kind])
    x = np.abs(x) if o.mag else x
    return -x if o.neg else x


def _part_reader(o: Operand, kind: str, part: str) -> Reader:
    return lambda w: part_of(w, o, part, kind)


def _into_part(w: Wave, o: Operand, x: np.ndarray, modifiers: dict[str, str]) -> np.ndarray:
    """A result in a byte or a half of its register (SDWA), as the whole register."""
    part = modifiers["dst_sel"]
    width = _PART[part[0]]
    at, mask = width * int(part[5]), (1 << width) - 1
    word = np.ascontiguousarray(x).view(f"u{x.itemsize}").astype(U32) & U32(mask)
    out = word << U32(at)
    unused = modifiers.get("dst_unused", "UNUSED_PAD")
    if unused == "UNUSED_PRESERVE":
        return out | w.v[o.at] & U32(~(mask << at) & M32)
    if unused == "UNUSED_SEXT":
        return (out.astype(np.int32) << 32 - width - at >> 32 - width - at).view(U32)
    return out


def later(name: str, text: str) -> Later | None:
    """An instruction of the table whose result is written by what it gives: the two of a pair read
    before either writes.
    """
    base = SUFFIX.sub("", name).replace("v_dual_", "v_")
    texts, modifiers = split(text)
    found = _function(base, [operand(t) for t in texts], modifiers)
    if found is None:
        return None
    kind, kinds, function, ops = found
    target, sources = ops[0], list(zip(ops[1:], kinds, strict=False))
    lanes_move = "dpp" in name
    factor = next((f for (k, v), f in _FACTORS.items() if modifiers.get(k) == v), None)
    halves = listed(modifiers, "op_sel", [])
    parts = [modifiers.get(f"src{k}_sel", "DWORD") for k in range(3)]
    short = SIZE[kind] == 2
    into = modifiers.get("dst_sel", "DWORD") != "DWORD"
    clamped = "clamp" in modifiers and kind in numbers.FMA
    if "clamp" in modifiers and not clamped:
        function = _saturated(base)
    upper = halves[len(kinds)] if len(halves) > len(kinds) else None

    def run(w: Wave) -> Callable[[], None]:
        values, on = [], w.on
        for k, (o, t) in enumerate(sources):
            if parts[k] != "DWORD":
                x = part_of(w, o, parts[k], t)
            else:
                x = w.get(o, t, halves[k] if k < len(halves) and SIZE[t] == 2 else 0)
            if lanes_move and k == 0:
                x, on = exchanged(w, x, on, modifiers)
            values.append(x)
        y = function(*values)
        y = y if factor is None else y * TYPES[kind](factor)
        if clamped:
            y = np.where(np.isnan(y), 0, np.clip(y, 0, 1)).astype(y.dtype)
        if into:
            whole = _into_part(w, target, y, modifiers)
            return lambda: w.put(target, whole, "u32", on=on)
        clear = short and w.gpu.major == 9  # CDNA clears the upper half
        y = y.copy() if y.base is not None else y  # a register that the other of a pair may write
        return lambda: w.put(target, y, kind, upper, on, clear)

    return run


def _saturated(name: str) -> Callable[..., Any]:
    """A sum or difference of integers that stops at the ends of their range.

    Raises:
        NotImplementedError: another instruction.
    """
    found = re.fullmatch(r"v_(add|sub|subrev)_(?:nc_)?([ui])(16|32)", name)
    if found is None:
        raise NotImplementedError(f"{name} with clamp")
    kind = np.dtype(f"{'int' if found[2] == 'i' else 'uint'}{found[3]}")
    ends = np.iinfo(kind)

    def function(a: Any, b: Any) -> Any:
        x, y = (v.view(kind).astype(np.int64) for v in (a, b))
        exact = x + y if found[1] == "add" else (x - y if found[1] == "sub" else y - x)
        return np.clip(exact, ends.min, ends.max).astype(kind).view(a.dtype)

    return function


def vector(name: str, text: str) -> Step | None:
    """The meaning of an instruction of the table, or None."""
    return _direct(name, text) or _whole(later(name, text))


def _whole(found: Later | None) -> Step | None:
    if found is None:
        return None
    known = found
    return lambda w: known(w)()


def _direct(name: str, text: str) -> Step | None:
    """The meaning of an instruction of the table that reads whole operands and writes a whole
    result: most are.
    """
    found = _parts(name, text)
    if found is None:
        return None
    put, compute = found
    return lambda w: put(w, compute(w), w.on)


def _parts(name: str, text: str) -> tuple[Writer, Reader] | None:
    """What writes the result of such an instruction, and what computes it."""
    texts, modifiers = split(text)
    base = SUFFIX.sub("", name).replace("v_dual_", "v_")
    if name == "v_dual_cndmask_b32":
        return _chosen_by_vcc([operand(t) for t in texts])
    found = None if modifiers else _function(base, [operand(t) for t in texts], modifiers)
    if found is None or "dpp" in name or "sdwa" in name or SIZE[found[0]] == 2:
        return None
    kind, kinds, function, (target, *sources) = found
    put = writer(target, kind)
    reads = [reader(o, t) for o, t in zip(sources, kinds, strict=False)]
    if len(reads) == 1:
        (x,) = reads
        return put, lambda w: function(x(w))
    if len(reads) == 2:
        x, y = reads
        return put, lambda w: function(x(w), y(w))
    if len(reads) == 3:
        x, y, z = reads
        return put, lambda w: function(x(w), y(w), z(w))
    return put, lambda w: function(*[read(w) for read in reads])


def pair(line: str) -> Step | None:
    """Two instructions at once (RDNA's VOPD): both read before either writes."""
    instructions = [part.strip().partition(" ")[::2] for part in line.split("::")]
    halves = [_parts(*instruction) for instruction in instructions]
    if halves[0] is None or halves[1] is None:
        return None
    (put, compute), (put_other, compute_other) = halves

    def run(w: Wave) -> None:
        x, y = compute(w), compute_other(w)
        if x.base is not None:  # perhaps the register that the other one writes
            x = x.copy()
        put_other(w, y, w.on)
        put(w, x, w.on)

    return run


def _chosen_by_vcc(ops: list[Operand]) -> tuple[Writer, Reader]:
    no, yes = reader(ops[1], "u32"), reader(ops[2], "u32")
    return writer(ops[0], "u32"), lambda w: np.where(w.lanes_of(w.vcc), yes(w), no(w))


def compare(name: str, text: str) -> Step | None:
    """v_cmp and v_cmpx: a mask of lanes, or the lanes that run."""
    texts, modifiers = split(text)
    ops = [operand(t) for t in texts]
    found = re.fullmatch(r"v_cmp(x?)_(\w+)_(\w+)", SUFFIX.sub("", name))
    if found is None or (found[2] not in COMPARISONS and found[2] != "class"):
        return None
    running, condition, kind = bool(found[1]), found[2], found[3]
    if len(ops) == 2:
        ops.insert(0, Operand("exec" if running else "vcc"))
    second = "u32" if condition == "class" else kind
    test = numbers.classed if condition == "class" else COMPARISONS[condition]
    halves = listed(modifiers, "op_sel", [0, 0])
    parts = [modifiers.get(f"src{k}_sel", "DWORD") for k in range(2)]
    lanes_move = "dpp" in name

    reads = [
        _part_reader(o, t, part) if part != "DWORD" else reader(o, t, half if SIZE[t] == 2 else 0)
        for o, t, part, half in zip(ops[1:3], (kind, second), parts, halves, strict=False)
    ]
    put = {size: scalar_writer(ops[0], size) for size in (1, 2)}

    def run(w: Wave) -> None:
        a, b, on = reads[0](w), reads[1](w), w.on
        if lanes_move:
            a, on = exchanged(w, a, on, modifiers)
        found = test(a, b)
        word, size = w.bits(found if w.full and on is w.on else found & on), w.size // 32
        if not running:
            put[size](w, word)
            return
        w.put_scalar(operand("exec"), word, 2)
        if ops[0].at != EXEC:
            w.put_scalar(ops[0], word, size)

    return run


def choose(name: str, text: str) -> Step | None:
    """v_cndmask: by a mask of lanes."""
    texts, modifiers = split(text)
    ops = [operand(t) for t in texts]
    mask = ops[3] if len(ops) > 3 else operand("vcc")
    changed = any(o.neg or o.mag for o in ops[1:3])
    kind = {16: "f16" if changed else "u16", 32: "f32" if changed else "u32"}[
        16 if "b16" in name else 32
    ]
    halves, lanes_move = listed(modifiers, "op_sel", [0, 0]), "dpp" in name
    into = modifiers.get("dst_sel", "DWORD") != "DWORD"
    parts = [modifiers.get(f"src{k}_sel", "DWORD") for k in range(2)]
    no, yes = (
        _part_reader(o, kind, part) if part != "DWORD" else reader(o, kind, half)
        for o, part, half in zip(ops[1:3], parts, halves, strict=False)
    )
    masks, put = {size: scalar_reader(mask, size) for size in (1, 2)}, writer(ops[0], kind)

    def run(w: Wave) -> None:
        a, b, on = no(w), yes(w), w.on
        if lanes_move:
            a, on = exchanged(w, a, on, modifiers)
        y = np.where(w.lanes_of(masks[w.size // 32](w)), b, a)
        put(w, _into_part(w, ops[0], y, modifiers).view(TYPES[kind]) if into else y, on)

    return run


def move(name: str, text: str) -> Step | None:
    """v_mov_b32, whose registers CDNA may count from an index."""
    plain = vector(name, text)
    ops = [operand(t) for t in split(text)[0]]

    def run(w: Wave) -> None:
        if w.index is None:
            assert plain is not None
            plain(w)
            return
        count, source, target = w.index
        x = w.get(ops[1].register(count) if source else ops[1], "u32")
        w.put(ops[0].register(count) if target else ops[0], x, "u32")

    return run


def move_relative(name: str, text: str) -> Step | None:
    """v_movrels, v_movreld: registers counted from M0."""
    ops = [operand(t) for t in split(text)[0]]
    source, target = "rels" in name, "reld" in name or "relsd" in name

    def run(w: Wave) -> None:
        count = w.scalar(operand("m0"), 1)
        x = w.get(ops[1].register(count) if source else ops[1], "u32")
        w.put(ops[0].register(count) if target else ops[0], x, "u32")

    return run
