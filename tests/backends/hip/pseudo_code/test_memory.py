"""Loads, stores and atomics beside AMD's pseudo-code: what a line of assembly leaves in memory and in
the registers of a wave, of which some lanes are off.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.backends.hip.emulator import Gpu
from tests.backends.hip.emulator.meaning.atomics import UPDATE
from tests.backends.hip.emulator.operands import M32, operand
from tests.backends.hip.pseudo_code.functions import program_of
from tests.backends.hip.pseudo_code.test_waves import Bytes, Setting, texts
from tests.backends.hip.pseudo_code.values import Number, number

ADDRESS, DATA, MORE, RESULT = 2, 4, 8, 12
"""Vector registers: a word, four of them, four, four."""
SLOT, ROOM = 64, 1 << 15
OFFSETS = (3, 5)
FAR = (0, 16)
LEFT_OUT = re.compile(
    r"swizzle|permute|addtid|append|consume|ordered|block|bvh|xchg_?2|condxchg|mskor|gs_reg"
)
"""Lanes that exchange words are judged with waves; LLVM is not asked for the others."""
LEAST = {"cdna": 146, "rdna3": 144, "rdna4": 139}
"""How many are compared, by family."""


def cases(family: str) -> Iterator[tuple[str, str, str]]:
    """Name, line and text of instructions of shared memory and arrays."""
    for name, text in texts(family).items():
        if LEFT_OUT.search(name):
            continue
        if re.match(r"ds_(read|load)", name):
            yield name, f"{name} v[12:15], v2{offsets(name)}", text
        elif re.match(r"ds_(write|store)(?!xchg)", name):
            two = ", v[8:11]" if re.search(r"(write|store)_?2", name) else ""
            yield name, f"{name} v2, v[4:7]{two}{offsets(name)}", text
        elif name.startswith("ds_"):
            rtn = "v[12:15], " if "_rtn" in name or "xchg" in name else ""
            two = ", v[8:11]" if re.search(r"cmpst|cmpstore", name) else ""
            yield name, f"{name} {rtn}v2, v[4:7]{two}", text
        elif name.startswith("global_load_"):
            yield name, f"{name} v[12:15], v2, s[2:3] offset:3", text
        elif name.startswith("global_store_"):
            yield name, f"{name} v2, v[4:7], s[2:3]", text
        elif name.startswith("global_atomic_"):
            yield name, f"{name} v[12:15], v2, v[4:7], s[2:3] sc0", text


def places(name: str) -> tuple[int, int]:
    """The two places of an instruction that goes to two: no lane's are another one's."""
    return FAR if "st64" in name or "stride64" in name else OFFSETS


def offsets(name: str) -> str:
    if re.search(r"(read|write|load|store)_?2", name):
        first, second = places(name)
        return f" offset0:{first} offset1:{second}"
    return " offset:3"


def prepared(family: str, name: str, line: str) -> tuple[Setting, np.ndarray, int]:
    """A wave whose lanes go to slots of their own, but for atomics; the memory, and where it is."""
    setting = Setting(family, line)
    w, rng = setting.wave, setting.rng
    content = rng.standard_normal(ROOM // 4).astype(np.float32).view(np.uint8)
    if "f64" in name:
        content = rng.standard_normal(ROOM // 8).view(np.uint8)
    w.v[DATA : DATA + 8] = rng.standard_normal((8, w.size)).astype(np.float32).view(np.uint32)
    if "f64" in name:
        numbers = rng.standard_normal((4, w.size)).view(np.uint32).reshape(4, w.size, 2)
        w.v[DATA : DATA + 8] = numbers.transpose(0, 2, 1).reshape(8, w.size)
    shared = name.startswith("ds_")
    if "atomic" in name or (shared and not re.search("read|write|load|store_", name)):
        w.v[ADDRESS] = rng.integers(0, 8, w.size) * SLOT
        some = rng.random(w.size) < 0.3  # so that comparisons find what they look for
        words = content.view(np.uint32)
        for at in (DATA, DATA + 2, MORE):
            w.v[at, some] = words[w.v[ADDRESS, some] // 4]
            w.v[at + 1, some] = words[w.v[ADDRESS, some] // 4 + 1]
    else:
        w.v[ADDRESS] = rng.permutation(w.size) * SLOT
    if shared:
        w.cube.shared.bytes = content
        return setting, content, 0
    base = content.ctypes.data
    setting.chip.memory.add(base, content.nbytes)
    w.put_scalar(operand("s[2:3]"), base, 2)
    return setting, content, base


def wanted(setting: Setting, name: str, line: str, text: str, memory: Any, base: int) -> np.ndarray:
    """The result's registers by the document; it changes the memory."""
    w, body = setting.wave, program_of(text)
    names = setting.names()
    rows = names["VGPR"].bank
    out = rows[RESULT : RESULT + 4]

    def four(at: int, lane: int) -> Number:
        return number(sum(int(rows[at + k, lane]) << 32 * k for k in range(4)), "u", 128)

    fixed = 3 if " offset:3" in line else 0
    for lane in np.flatnonzero(w.on).tolist():
        at = base + int(rows[ADDRESS, lane])
        there = number(at + (fixed if base or "OFFSET" not in text else 0), "u", 64)
        before = four(RESULT, lane)
        stores = "store" in name and "global" in name
        mine = names | {
            "ADDR": there, "SADDR": there, "vgpr_a": there, "v_addr": there, "s_saddr": there,
            "offset": Number(0), "DATA": four(DATA, lane), "DATA2": four(MORE, lane),
            "VDATA": four(DATA, lane) if stores else before, "RETURN_DATA": before,
            "OFFSET": number(fixed, "u", 32), "OFFSET0": number(places(name)[0], "u", 32),
            "OFFSET1": number(places(name)[1], "u", 32), "MEM": Bytes(memory, base),
            "CalcGlobalAddr": lambda *_, a=there: a, "CalcDsAddr": lambda a, *_: a,
        }  # fmt: skip
        body(mine)
        for result in ("VDATA", "RETURN_DATA"):
            x = mine[result]
            if x is not before and not stores and f"v[{RESULT}" in line:
                bits = x.bits if x.bits <= 128 else 128
                raw = before.raw() & ~((1 << bits) - 1) | x.raw() & (1 << bits) - 1
                for k in range(4):
                    out[k, lane] = raw >> 32 * k & M32
    return out


def differences(family: str) -> tuple[list[str], list[str], dict[str, str]]:
    """What was compared, what differs, and why what is left out is."""
    compared, wrong, left = [], [], {}
    for name, line, text in cases(family):
        try:
            setting, content, base = prepared(family, name, line)
        except NotImplementedError:
            left[name] = "no meaning"
            continue
        copy = content.copy()
        want = wanted(setting, name, line, text, copy, base)
        setting.run()
        have = setting.wave.v[RESULT : RESULT + 4]
        if not np.array_equal(copy, content) or not np.array_equal(want, have):
            wrong.append(line)
        compared.append(name)
    return compared, wrong, left


@pytest.mark.parametrize(("family", "least"), LEAST.items())
def test_memory_is_that_of_the_documents(family: str, least: int) -> None:
    compared, wrong, left = differences(family)
    assert not wrong
    assert len(compared) >= least, left


def test_a_wrong_atomic_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(UPDATE, "inc", lambda old, v: old + type(old)(1))
    _, wrong, _ = differences("rdna3")
    assert [line.split()[0] for line in wrong] == [
        "ds_inc_u32", "ds_inc_rtn_u32", "ds_inc_u64", "ds_inc_rtn_u64", "global_atomic_inc_u32",
        "global_atomic_inc_u64",
    ]  # fmt: skip


def test_a_load_one_byte_too_far_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    access = sys.modules[f"{Gpu.__module__.rpartition('.')[0]}.meaning.access"]
    known = access.got
    monkeypatch.setattr(access, "got", lambda memory, there, size: known(memory, there + 1, size))
    compared, wrong, _ = differences("cdna")
    loads = [name for name in compared if re.search("read|load", name)]
    assert len(wrong) == len(loads) > 20
