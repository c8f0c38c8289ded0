"""The emulator's vector instructions beside AMD's pseudo-code, which tinygrad's package brings (taken
out of AMD's documents): edge values and random bits. Skipped where the package is not installed.
"""

from __future__ import annotations

import importlib
import zlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.backends.hip.emulator.meaning.vector_table import TABLE
from tests.backends.hip.emulator.operands import FLOATS, SIZE, TYPES
from tests.backends.hip.pseudo_code import Number, Unknown, combined, function_of, nearest, number

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
ROUGH = ("rcp", "rsq", "sqrt", "log", "exp", "sin", "cos")
"""Approximate instructions: the documents allow errors."""
LOOSE = {
    "v_fract_f16": "a result that rounds to 1 is the number below it",
    "v_fract_f32": "a result that rounds to 1 is the number below it",
    "v_ldexp_f16": "the power of two is said to be rounded to f16 first",
}
"""Where the pseudo-code is looser than the documents around it, and how."""


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


def difference(name: str, text: str) -> str | None:
    """How an instruction differs from its pseudo-code; None: not at all.

    Raises:
        Unknown: the pseudo-code is not understood.
    """
    kind, kinds, function = TABLE[name]
    said = function_of(text)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    operands = [lanes(k, rng) for k in kinds]
    n = min(len(x) for x in operands)
    operands = [np.ascontiguousarray(x[:n]) for x in operands]
    with np.errstate(all="ignore"):
        got = np.asarray(function(*(x.copy() for x in operands)))
        rows = zip(*(as_numbers(x, k) for x, k in zip(operands, kinds, strict=True)), strict=True)
        for lane, row in enumerate(rows):
            want, have = said(*row), got[lane]
            bits = 8 * SIZE[kind]
            if kind in FLOATS and np.isnan(have) and want.kind == "f" and np.isnan(want.value):
                continue
            mine = int(np.asarray(have, TYPES[kind]).view(f"u{SIZE[kind]}"))
            if mine != want.raw() & ((1 << bits) - 1):
                given = ", ".join(str(x.value) for x in row)
                return f"{name}({given}) is {have}, the document says {want.value}"
    return None


@pytest.mark.parametrize(("family", "least"), [("cdna", 110), ("rdna3", 120), ("rdna4", 120)])
def test_vector_instructions_are_those_of_the_documents(family: str, least: int) -> None:
    said, wrong, compared = codes(family), {}, []
    for name in TABLE:
        if name not in said or name.split("_")[1] in ROUGH or name in LOOSE:
            continue
        try:
            found = difference(name, said[name])
        except Unknown:
            continue
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
    with pytest.raises(Unknown):
        function_of("for i in 0 : 31 do\nD0.u32 = S0.u32\nendfor")


def test_a_wrong_instruction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "v_add3_u32", ("u32", ("u32",) * 3, lambda a, b, c: a + b - c))
    assert "the document says" in str(difference("v_add3_u32", "D0.u32 = S0.u32 + S1.u32 + S2.u32"))


def test_fractions_are_rounded_to_even() -> None:
    for x in (1.0, 1.5, 65504.0, 6e-8, -2.5e-7, 1e-5):
        assert nearest(Fraction(x), 16) == np.float16(x)
    assert nearest(Fraction(2049), 16) == 2048 and nearest(Fraction(2051), 16) == 2052
    assert np.isinf(nearest(Fraction(70000), 16))
