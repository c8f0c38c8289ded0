"""The emulator's vector instructions beside AMD's pseudo-code, which tinygrad's package brings (taken
out of AMD's documents): edge values and random bits. Skipped where the package is not installed.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.backends.hip.emulator.meaning.vector_table import TABLE
from tests.backends.hip.emulator.operands import FLOATS, SIZE, TYPES
from tests.backends.hip.pseudo_code.functions import function_of
from tests.backends.hip.pseudo_code.values import Number, Unknown, combined, nearest, number

EDGES = (0, 1, 2, 3, 7, 15, 16, 24, 31, 32, 63, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x3C00, 0x7C00)
WIDE = (
    0x7F800000,
    0x3F800000,
    0x80000000,
    0x7FFFFFFF,
    0xFFFFFFFF,
    0x00800000,
    0x007FFFFF,
    0x4B000001,
)
ROUGH = ("rcp", "rsq", "sqrt", "log", "exp")
"""Approximate instructions, which may be off by an ulp; and what is subnormal is zero."""
ANGLES = ("sin", "cos")
"""Instructions whose angle the pseudo-code rounds: small ones are compared."""


def half_is_lost(x: Number) -> bool:
    """Whether x + 0.5 is rounded."""
    t, value = TYPES[f"f{x.bits}"], float(x.value)
    return math.isfinite(value) and Fraction(value) + Fraction(1, 2) != Fraction(
        float(t(value) + t(0.5))
    )


Loose = tuple[str, Callable[[list[Number], Number], bool]]
SUBNORMAL: Loose = (
    "the exponent of a subnormal or zero is in its bits; elsewhere it is that of frexp in C",
    lambda row, want: abs(row[0].value) < np.finfo(TYPES[f"f{row[0].bits}"]).tiny,
)
UP_TO_ONE: Loose = (
    "a result that rounds to 1 is the number below it",
    lambda row, want: bool(want.value == 1),
)
ROUNDED: Loose = (
    "a zero has the sign of what was rounded, and the half that is added to it is not lost",
    lambda row, want: bool(want.value == 0 or half_is_lost(row[0])),
)
OVERFLOW: Loose = (
    "a quotient that overflows comes as a NaN, and is infinity",
    lambda row, want: math.isnan(row[0].value),
)
ZEROS: Loose = (
    "of two zeros, one is said to equal the other; elsewhere, -0 to be less",
    lambda row, want: sum(x.value == 0 for x in row) > 1,
)
LOOSE: dict[str, Loose] = {
    **dict.fromkeys(("v_fract_f16", "v_fract_f32"), UP_TO_ONE),
    **{f"v_rndne_f{bits}": ROUNDED for bits in (16, 32, 64)},
    **{f"v_div_fixup_f{bits}": OVERFLOW for bits in (16, 32, 64)},
    **{f"v_{name}_f{bits}": ZEROS for name in ("min", "max", "min3", "max3", "med3")
       for bits in (16, 32, 64)},
    **{f"v_frexp_{what}_f{bits}": SUBNORMAL for bits in (16, 32, 64)
       for what in ("mant", f"exp_i{min(bits, 32)}")},
    "v_cvt_pk_bf16_f32": (
        "which NaN it is",
        lambda row, want: any(math.isnan(x.value) for x in row),
    ),
    "v_ldexp_f16": (
        "the power of two is said to be rounded to f16 first",
        lambda row, want: not -14 <= row[1].value <= 15,
    ),
}  # fmt: skip
"""Where the pseudo-code is looser than the documents around it, and how: for which operands."""


def lanes(kind: str, rng: Any) -> np.ndarray:
    """Edge values and random bits of a kind."""
    size = SIZE[kind]
    edges = [e for e in (*EDGES, *WIDE) if e < 1 << 8 * size]
    words = np.concatenate([edges, rng.integers(0, 1 << 8 * size, 60, np.uint64, endpoint=False)
                            if size < 8 else rng.integers(0, 2**63, 60, np.uint64)])  # fmt: skip
    return rng.permutation(words.astype(f"u{size}"))[:64].view(TYPES[kind])


def codes(family: str) -> dict[str, str]:
    """Pseudo-code of a family's vector instructions by name, as the emulator calls them."""
    package = "tinygrad.runtime.autogen.amd"
    pytest.importorskip("tinygrad", reason="AMD's pseudo-code comes with tinygrad")
    table = importlib.import_module(f"{package}.{family}.str_pcode").PCODE
    found: dict[str, str] = {}
    for key, text in table.items():
        if type(key).__name__.startswith(("VOP1", "VOP2", "VOP3")):
            name = key.name.lower().removesuffix("_e32").removesuffix("_e64")
            found.setdefault(name, text)
    return found


def as_numbers(column: np.ndarray, kind: str) -> list[Number]:
    letter, bits = kind[0], 8 * SIZE[kind]
    return [number(int(x), letter, bits) for x in column.view(f"u{SIZE[kind]}")]


def instructions_of(said: dict[str, str]) -> dict[str, Any]:
    """A family's instructions as functions that others call."""
    found: dict[str, Any] = {}
    for name, text in said.items():
        with contextlib.suppress(Unknown):
            found[name] = function_of(text, found)
    return found


def near(name: str, kind: str, x: float, have: Any, want: Number) -> bool:
    """Whether an approximate result is as good as it has to be."""
    if name in ANGLES:
        inside = math.isfinite(x) and abs(x) <= 1
        return not inside or bool(abs(have - want.value) <= 8 * np.finfo(TYPES[kind]).eps)
    if name not in ROUGH or not math.isfinite(want.value):
        return False
    info = np.finfo(TYPES[kind])
    off = abs(float(have) - float(want.value))
    return bool(off <= max(np.spacing(abs(want.value)), info.tiny))


def difference(name: str, text: str, instructions: dict[str, Any] | None = None) -> str | None:
    """How an instruction differs from its pseudo-code; None: not at all.

    Raises:
        Unknown: the pseudo-code is not understood.
    """
    kind, kinds, function = TABLE[name]
    said = function_of(text, instructions)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    operands = [lanes(k, rng) for k in kinds]
    n = min(len(x) for x in operands)
    operands = [np.ascontiguousarray(x[:n]) for x in operands]
    with np.errstate(all="ignore"):
        got = np.asarray(function(*(x.copy() for x in operands)))
        rows = zip(*(as_numbers(x, k) for x, k in zip(operands, kinds, strict=True)), strict=True)
        for lane, row in enumerate(rows):
            want, have = said(*row), got[lane]
            if name in LOOSE and LOOSE[name][1](row, want):
                continue
            if near(name.split("_")[1], kind, float(row[0].value), have, want):
                continue
            bits = 8 * SIZE[kind]
            if kind in FLOATS and np.isnan(have) and want.kind == "f" and np.isnan(want.value):
                continue
            mine = int(np.asarray(have, TYPES[kind]).view(f"u{SIZE[kind]}"))
            if mine != want.raw() & ((1 << bits) - 1):
                given = ", ".join(str(x.value) for x in row)
                return f"{name}({given}) is {have}, the document says {want.value}"
    return None


@pytest.mark.parametrize(("family", "least"), [("cdna", 185), ("rdna3", 193), ("rdna4", 203)])
def test_vector_instructions_are_those_of_the_documents(family: str, least: int) -> None:
    """All that the family's document has; some are named in the newest one alone."""
    said, wrong, compared = codes(family), {}, []
    instructions = instructions_of({**codes("rdna4"), **said})
    for name in TABLE:
        if name not in said:
            continue
        found = difference(name, said[name], instructions)
        compared.append(name)
        if found:
            wrong[name] = found
    assert not wrong
    assert len(compared) >= least, compared


def test_pseudo_code_is_read() -> None:
    word = lambda x: number(x, "u", 32)
    shift = function_of("D0.u32 = (S0.u32 << S1.u32[4 : 0].u32) + S2.u32")
    assert shift(word(3), word(33), word(1)).value == 7
    half = function_of("if S0.u32 > 5U then\nD0.u32 = 1U\nelse\nD0.u32 = S0.u32 * 2U\nendif")
    assert [half(word(x)).value for x in (6, 4)] == [1, 8]
    joined = function_of("D0.u32 = 32'U(({ S0.u32, S1.u32 } >> S2.u32[4 : 0].u32) & 0xffffffffLL)")
    assert joined(word(1), word(0), word(4)).value == 1 << 28
    assert combined("+", word(0xFFFFFFFF), word(1)).value == 0
    ones = function_of("tmp = 0U;\nfor i in 0 : 31 do\ntmp += S0[i].u32;\nendfor;\nD0.u32 = tmp")
    assert ones(word(0xF0F)).value == 8
    parts = function_of("D0[31 : 16].f16 = S1.f16;\nD0[15 : 0].f16 = S0.f16")
    assert parts(number(1, "u", 16), number(2, "u", 16)).raw() == 0x20001
    bits = function_of("D0.u32[31 : 0] = S0.u32[0 : 31]")
    assert bits(word(0x80000001)).value == 0x80000001 and bits(word(2)).value == 1 << 30
    far = function_of("F = lambda(x, y) (\nx > y ? x - y : y - x);\nD0.u32 = F(S0.u32, S1.u32)")
    assert far(word(3), word(7)).value == 4
    for text in ("D0.u32 = S0.u32 ??", "wait until it is done", "D0.u32 = unheard_of(S0.u32)"):
        with pytest.raises(Unknown):
            function_of(text)(word(1))


def test_a_wrong_instruction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "v_add3_u32", ("u32", ("u32",) * 3, lambda a, b, c: a + b - c))
    assert "the document says" in str(difference("v_add3_u32", "D0.u32 = S0.u32 + S1.u32 + S2.u32"))


def test_fractions_are_rounded_to_even() -> None:
    for x in (1.0, 1.5, 65504.0, 6e-8, -2.5e-7, 1e-5):
        assert nearest(Fraction(x), 16) == np.float16(x)
    assert nearest(Fraction(2049), 16) == 2048 and nearest(Fraction(2051), 16) == 2052
    assert np.isinf(nearest(Fraction(70000), 16))
