"""Instructions of whole waves beside AMD's pseudo-code: masks, lanes that read each other,
scalar registers. A line of assembly runs on a wave of random registers of which some lanes are off;
what it leaves is what the document says.
"""

from __future__ import annotations

import importlib
import re
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

from tests.backends.hip.emulator import Gpu
from tests.backends.hip.emulator.gpu import parsed
from tests.backends.hip.emulator.meaning import scalar_table
from tests.backends.hip.emulator.meaning.vector_table import COMPARISONS
from tests.backends.hip.emulator.memory import Shared
from tests.backends.hip.emulator.operands import M32, SIZE, TYPES, operand
from tests.backends.hip.emulator.wave import Cube, Wave
from tests.backends.hip.pseudo_code.functions import MODES, program_of
from tests.backends.hip.pseudo_code.test_vectors import lanes
from tests.backends.hip.pseudo_code.values import Names, Number, Unknown, number
from tests.backends.hip.test_emulator import HEAD

PROCESSORS = {"cdna": "gfx950", "rdna3": "gfx1100", "rdna4": "gfx1201"}
SHARED = 1024
FIRST, SECOND, THIRD, RESULT = 4, 6, 8, 10
"""Registers of operands and results, of two words each; of vectors and of scalars."""


def texts(family: str) -> dict[str, str]:
    """A document's instructions by their names."""
    package = "tinygrad.runtime.autogen.amd"
    pytest.importorskip("tinygrad", reason="AMD's pseudo-code comes with tinygrad")
    table = importlib.import_module(f"{package}.{family}.str_pcode").PCODE
    found: dict[str, str] = {}
    for key, text in table.items():
        found.setdefault(key.name.lower().removesuffix("_e32").removesuffix("_e64"), text)
    return found


class Lanes:
    """`VGPR[lane][register]` of the text: words of a wave's registers."""

    def __init__(self, bank: np.ndarray) -> None:
        self.bank = bank

    def __getitem__(self, lane: int) -> Lane:
        return Lane(self.bank, lane)


class Lane:
    """The registers of a lane."""

    def __init__(self, bank: np.ndarray, lane: int) -> None:
        self.bank, self.lane = bank, lane

    def __getitem__(self, register: int) -> Number:
        return number(int(self.bank[register, self.lane]), "u", 32)

    def __setitem__(self, register: int, value: Number) -> None:
        self.bank[register, self.lane] = value.raw() & M32


class Bytes:
    """`MEM[address]` of the text."""

    def __init__(self, content: np.ndarray, base: int = 0) -> None:
        self.content, self.base = content, base

    def __getitem__(self, address: int) -> Number:
        at = address - self.base
        raw = self.content[at : at + 16].tobytes()
        return number(int.from_bytes(raw, "little"), "u", 128)

    def __setitem__(self, address: int, value: Number) -> None:
        at, size = address - self.base, value.bits // 8
        raw = (value.raw() & (1 << 8 * size) - 1).to_bytes(size, "little")
        self.content[at : at + size] = np.frombuffer(raw, np.uint8)


class Setting:
    """A wave of random registers, before an instruction runs."""

    def __init__(self, family: str, line: str, whole: bool = False) -> None:
        self.rng = np.random.default_rng(zlib.crc32(line.encode()))
        self.chip = Gpu(PROCESSORS[family])
        narrow = self.chip.major > 9
        text = HEAD.format(lines=f"\t{line}", narrow=int(narrow), shared=SHARED)
        self.program = parsed(text, self.chip.major)
        self.memory = self.rng.integers(0, 256, SHARED, np.uint8)
        shared = Shared(self.memory.tobytes(), 1)
        size = 32 if narrow else 64
        self.wave = w = Wave(
            self.program, self.chip, Cube(0, (0, 0, 0), (size, 1, 1), shared), 0, (0, size)
        )
        on = (1 << size) - 1 if whole else int(self.rng.integers(1, 1 << 63)) & ((1 << size) - 1)
        w.put_scalar(operand("exec"), on, 2)
        w.put_scalar(operand("vcc"), int(self.rng.integers(0, 1 << 63)) & ((1 << size) - 1), 2)

    def draw(self, register: int, kind: str) -> None:
        """Edge values and random bits of a kind in a vector register."""
        values, n = lanes(kind, self.rng), self.wave.size
        column = np.resize(values, n)
        self.wave.put(
            operand("v0").register(register), column, kind, on=np.ones(n, bool), clear=True
        )

    def names(self) -> Names:
        """What a text may call the wave's state."""
        w = self.wave
        wide = w.size == 64
        return dict(MODES) | {
            "VGPR": Lanes(w.v.copy()),
            "EXEC": number(w.running, "u", 64),
            "EXEC_LO": number(w.running & M32, "u", 32),
            "VCC": number(w.vcc, "u", 64),
            "SCC": number(w.scc, "u", 1),
            "WAVE32": Number(int(not wide)),
            "WAVE64": Number(int(wide)),
            "instructions": {"s_ff1_i32_b64": first_one, "s_ff1_i32_b32": first_one},
        }

    def run(self) -> None:
        """Run the line."""
        with np.errstate(all="ignore"):
            self.program.code[0](self.wave)

    def word(self, names: Names, lane: int, register: int, words: int) -> Number:
        """An operand of a lane."""
        row = names["VGPR"][lane]
        raw = sum(row[register + k].raw() << 32 * k for k in range(words))
        return number(raw, "u", 32 * words)


def first_one(x: Number) -> Number:
    raw = x.raw()
    return Number((raw & -raw).bit_length() - 1, "i", 32)


def registers(at: int, words: int, letter: str = "v") -> str:
    return f"{letter}{at}" if words == 1 else f"{letter}[{at}:{at + words - 1}]"


@pytest.mark.parametrize("family", PROCESSORS)
def test_comparisons(family: str) -> None:
    """Every comparison of the document, by its mask of lanes."""
    said, compared = texts(family), 0
    for name, text in said.items():
        parts = name.split("_")
        if not name.startswith("v_cmp_") or len(parts) != 4 or parts[3] not in TYPES:
            continue
        condition, kind = parts[2:]
        if condition not in COMPARISONS and condition != "class":
            continue
        second = "u32" if condition == "class" else kind
        words = [max(1, SIZE[k] // 4) for k in (kind, second)]
        wide = 2 if family == "cdna" else 1
        line = (
            f"{name}_e64 {registers(20, wide, 's')}, {registers(FIRST, words[0])}, "
            f"{registers(SECOND, words[1])}"
        )
        setting = Setting(family, line)
        setting.draw(FIRST, kind)
        setting.draw(SECOND, second)
        if condition == "class":
            setting.wave.v[SECOND] &= 0x3FF
        else:
            setting.wave.v[SECOND : SECOND + words[1], ::3] = setting.wave.v[
                FIRST : FIRST + words[0], ::3
            ]
        names, body = setting.names(), program_of(text)
        want = 0
        for lane in range(setting.wave.size):
            if names["EXEC"].value >> lane & 1:
                given = {f"S{k}": setting.word(names, lane, at, words[k])
                         for k, at in enumerate((FIRST, SECOND))}  # fmt: skip
                mine = names | given | {"laneId": Number(lane), "D0": number(0, "u", 64)}
                with np.errstate(all="ignore"):
                    body(mine)
                want |= mine["D0"].raw()
        setting.run()
        assert setting.wave.scalar(operand(registers(20, wide, "s"))) == want, name
        compared += 1
    assert compared >= 81


LANE_BY_LANE = [
    ("cndmask_b32", "v_cndmask_b32_e32 v10, v4, v6, vcc"),
    ("mbcnt_lo_u32_b32", "v_mbcnt_lo_u32_b32 v10, v4, v6"),
    ("mbcnt_hi_u32_b32", "v_mbcnt_hi_u32_b32 v10, v4, v6"),
    ("addc_co_u32", "v_addc_co_u32_e32 v10, vcc, v4, v6, vcc"),
    ("subb_co_u32", "v_subb_co_u32_e32 v10, vcc, v4, v6, vcc"),
    ("subbrev_co_u32", "v_subbrev_co_u32_e32 v10, vcc, v4, v6, vcc"),
    ("add_co_u32", "v_add_co_u32 v10, vcc, v4, v6"),
    ("sub_co_u32", "v_sub_co_u32 v10, vcc, v4, v6"),
    ("subrev_co_u32", "v_subrev_co_u32 v10, vcc, v4, v6"),
    ("add_co_ci_u32", "v_add_co_ci_u32_e32 v10, vcc_lo, v4, v6, vcc_lo"),
    ("sub_co_ci_u32", "v_sub_co_ci_u32_e32 v10, vcc_lo, v4, v6, vcc_lo"),
    ("subrev_co_ci_u32", "v_subrev_co_ci_u32_e32 v10, vcc_lo, v4, v6, vcc_lo"),
    ("pk_add_f16", "v_pk_add_f16 v10, v4, v6"),
    ("pk_mul_f16", "v_pk_mul_f16 v10, v4, v6"),
    ("pk_fma_f16", "v_pk_fma_f16 v10, v4, v6, v8"),
    ("pk_add_u16", "v_pk_add_u16 v10, v4, v6"),
    ("pk_sub_i16", "v_pk_sub_i16 v10, v4, v6"),
    ("pk_mul_lo_u16", "v_pk_mul_lo_u16 v10, v4, v6"),
    ("pk_mad_u16", "v_pk_mad_u16 v10, v4, v6, v8"),
    ("pk_min_i16", "v_pk_min_i16 v10, v4, v6"),
    ("pk_max_u16", "v_pk_max_u16 v10, v4, v6"),
    ("pk_lshlrev_b16", "v_pk_lshlrev_b16 v10, v4, v6"),
    ("pk_lshrrev_b16", "v_pk_lshrrev_b16 v10, v4, v6"),
    ("pk_ashrrev_i16", "v_pk_ashrrev_i16 v10, v4, v6"),
    ("pk_add_f32", "v_pk_add_f32 v[10:11], v[4:5], v[6:7]"),
    ("pk_mul_f32", "v_pk_mul_f32 v[10:11], v[4:5], v[6:7]"),
    ("pk_fma_f32", "v_pk_fma_f32 v[10:11], v[4:5], v[6:7], v[8:9]"),
    ("dot4_u32_u8", "v_dot4_u32_u8 v10, v4, v6, v8"),
]
"""Instructions whose text is that of a lane; they may read and set the mask vcc."""


@pytest.mark.parametrize("family", PROCESSORS)
def test_masks_and_pairs(family: str) -> None:
    said, compared = texts(family), 0
    for short, line in LANE_BY_LANE:
        if f"v_{short}" not in said or ("vcc_lo" in line and family == "cdna"):
            continue
        if family != "cdna":
            line = re.sub(r"\bvcc\b", "vcc_lo", line)
        setting = Setting(family, line)
        words = 2 if "[4:5]" in line else 1
        kind = {"f16": "u32", "f32": "f32"}.get(short[-3:], "u32")
        for at in (FIRST, SECOND, THIRD):
            for k in range(words):
                setting.draw(at + k, kind)
        names, body = setting.names(), program_of(said[f"v_{short}"])
        want = setting.wave.v[RESULT : RESULT + words].copy()
        masks = 0
        for lane in np.flatnonzero(setting.wave.on).tolist():
            given = {
                f"S{k}": setting.word(names, lane, at, words)
                for k, at in enumerate((FIRST, SECOND, THIRD))
            }
            mine = names | given | {"laneId": Number(lane), "D0": number(0, "u", 32 * words)}
            with np.errstate(all="ignore"):
                body(mine)
            masks |= mine["VCC"].raw() & 1 << lane
            for k in range(words):
                want[k, lane] = mine["D0"].raw() >> 32 * k & M32
        setting.run()
        have = setting.wave.v[RESULT : RESULT + words]
        if "_f16" in short or "_f32" in short:
            t = np.float16 if "_f16" in short else np.float32
            np.testing.assert_array_equal(have.view(t), want.view(t), short)
        else:
            np.testing.assert_array_equal(have, want, short)
        if "_co_" in short:
            assert setting.wave.vcc & setting.wave.running == masks, short
        compared += 1
    assert compared >= 22


ACROSS_LANES = [
    ("cdna", "ds_bpermute_b32", "ds_bpermute_b32 v10, v4, v6 offset:8", False),
    ("cdna", "ds_permute_b32", "ds_permute_b32 v10, v4, v6 offset:8", False),
    ("rdna3", "ds_bpermute_b32", "ds_bpermute_b32 v10, v4, v6 offset:8", False),
    ("rdna3", "ds_permute_b32", "ds_permute_b32 v10, v4, v6", False),
    ("rdna4", "ds_bpermute_b32", "ds_bpermute_b32 v10, v4, v6", False),
    ("rdna3", "v_permlane16_b32", "v_permlane16_b32 v10, v6, s30, s31", False),
    ("rdna3", "v_permlanex16_b32", "v_permlanex16_b32 v10, v6, s30, s31", False),
    ("rdna4", "v_permlane16_b32", "v_permlane16_b32 v10, v6, s30, s31", False),
    ("rdna4", "v_permlanex16_b32", "v_permlanex16_b32 v10, v6, s30, s31", False),
    ("cdna", "v_permlane32_swap_b32", "v_permlane32_swap_b32 v10, v6", True),
    ("cdna", "v_permlane16_swap_b32", "v_permlane16_swap_b32 v10, v6", True),
    ("cdna", "v_writelane_b32", "v_writelane_b32 v10, s30, s31", False),
    ("rdna3", "v_writelane_b32", "v_writelane_b32 v10, s30, s31", False),
]


@pytest.mark.parametrize(("family", "name", "line", "whole"), ACROSS_LANES)
def test_lanes_that_read_each_other(family: str, name: str, line: str, whole: bool) -> None:
    setting = Setting(family, line, whole)
    names, w = setting.names(), setting.wave
    offset = 8 if "offset" in line else 0
    names |= {
        "ADDR": Number(FIRST), "DATA0": Number(SECOND), "VDST": number(RESULT, "u", 32),
        "SRC0": number(SECOND, "u", 32), "OFFSET": number(offset, "u", 16),
        "S0": number(w.s[30], "u", 32), "S1": number(w.s[31 if "write" in name else 30], "u", 32),
        "S2": number(w.s[31], "u", 32),
    }  # fmt: skip
    program_of(texts(family)[name])(names)
    setting.run()
    np.testing.assert_array_equal(w.v[:16], names["VGPR"].bank[:16])


@pytest.mark.parametrize("family", PROCESSORS)
@pytest.mark.parametrize("name", ["v_readlane_b32", "v_readfirstlane_b32"])
def test_a_lane_becomes_a_scalar(family: str, name: str) -> None:
    line = f"{name} s20, v6" + (", s31" if "lane_b32" in name and "first" not in name else "")
    setting = Setting(family, line)
    names, w = setting.names(), setting.wave
    names |= {"SRC0": number(SECOND, "u", 32), "S1": number(w.s[31], "u", 32)}
    program_of(texts(family)[name])(names)
    setting.run()
    assert w.s[20] == names["D0"].raw()


def scalar_cases(family: str) -> Iterator[tuple[str, str, list[int]]]:
    """Scalar instructions that emulator and document both have, with the words of their operands."""
    said = texts(family)
    for name in scalar_table.TABLE:
        if name not in said:
            continue
        wide = {place: any(f"{place}.{kind}64" in said[name] for kind in "uib")
                for place in ("S0", "S1", "D0")}  # fmt: skip
        wide["D0"] &= "_i32_b" not in name  # a count, of which the text asks more than is there
        yield name, said[name], [1 + x for x in wide.values()]


def scalar_differences(family: str) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """What was compared, what differs and how, what of the text is not understood."""
    compared, unread, wrong = [], {}, {}
    for name, text, (a, b, out) in scalar_cases(family):
        line = f"{name} {registers(20, out, 's')}, {registers(24, a, 's')}"
        line += f", {registers(26, b, 's')}" if "S1" in text else ""
        try:
            body = program_of(text)
            setting = Setting(family, line)
            for turn in range(40):
                w = setting.wave
                rng = np.random.default_rng(turn)
                for k in range(24, 28):
                    w.s[k] = int(rng.choice([0, 1, 31, 32, 0x7FFFFFFF, 0x80000000, M32, 5])
                                 if rng.random() < 0.4 else rng.integers(0, 1 << 32))  # fmt: skip
                w.scc = int(rng.integers(0, 2))
                names = setting.names()
                for k, (at, n) in enumerate(((24, a), (26, b))):
                    raw = sum(w.s[at + j] << 32 * j for j in range(n))
                    names[f"S{k}"] = number(raw, "u", 32 * n)
                names["D0"] = number(0, "u", 32 * out)
                body(names)
                setting.run()
                have = sum(w.s[20 + j] << 32 * j for j in range(out)), w.scc
                want = names["D0"].raw() & (1 << 32 * out) - 1, names["SCC"].raw() & 1
                if have != want:
                    wrong[line] = f"{have}, the document says {want}"
            compared.append(name)
        except Unknown as error:
            unread[name] = str(error)
    return compared, wrong, unread


@pytest.mark.parametrize("family", PROCESSORS)
def test_scalar_instructions(family: str) -> None:
    compared, wrong, unread = scalar_differences(family)
    assert not wrong and not unread
    assert len(compared) >= 69


def test_a_wrong_scalar_instruction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed.cache_clear()
    add = scalar_table.TABLE["s_add_u32"]
    monkeypatch.setitem(scalar_table.TABLE, "s_add_u32", lambda a, b, c: (add(a, b, c)[0], 0))
    _, wrong, _ = scalar_differences("cdna")
    parsed.cache_clear()
    assert list(wrong) == ["s_add_u32 s20, s24, s26"]
