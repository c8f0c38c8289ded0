"""The bytes of a code object are the instructions of the text that the emulator runs: one by one,
as tinygrad's decoder reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cubepy.backends.gpu.codegen.elf import sections
from cubepy.backends.hip.backend import offline
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.backends.hip.offline import compile_for
from cubepy.lang.dtypes import as_dtype
from tests.backends.hip import test_compile as kernels
from tests.conformance.test_matrix import product

FAMILIES = {"gfx90a": "cdna", "gfx942": "cdna", "gfx950": "cdna", "gfx1100": "rdna3"}
UNKNOWN = {("gfx1100", "buffer_gl0_inv"): 8}
"""Instructions that the decoder's tables lack, and their bytes."""
X = np.zeros(1000, np.float32)
CASES = {
    "axpy": (kernels.axpy, (2.0, X, X, X)),
    "total": (kernels.total, (X, X[:1])),
    "reversed_in_cube": (kernels.reversed_in_cube, (X, X)),
    "powers": (kernels.powers, (X, X)),
    "product": (product, ()),
}
REGISTER = re.compile(r"\b[sv](?:(\d+)\b(\.h)?|\[(\d+)[:\]])")
HIGH = 128
"""What is added to a register of which the upper half is meant."""


def of_text(assembly: str) -> Iterator[tuple[list[str], set[int]]]:
    """The instructions of a kernel: their names, of which some have two, and the first registers of
    their operands.
    """
    for line in assembly[: assembly.index("\t.section")].splitlines():
        if re.match(r"\t[a-z]", line):
            names = [bare(part.split()[0]) for part in line.partition(";")[0].split("::")]
            yield names, registers(line.partition(";")[0])


def registers(text: str) -> set[int]:
    """Numbers of registers, but 0, which the decoder does not print everywhere. It calls scalars
    that come from lanes vectors, so that kinds are not looked at.
    """
    found = {int(one or first) + HIGH * bool(high) for one, high, first in REGISTER.findall(text)}
    return found - {0, HIGH}


def bare(name: str) -> str:
    """A name without what says which encoding was taken."""
    name = re.sub(r"_(e32|e64|dpp|dpp8|dpp16|sdwa)$", "", name.lower())
    return re.sub(r"(mfma_\w+x\d+)_", r"\1", name)  # and spelled as before CDNA 3


def names_of(instruction: Any) -> list[str]:
    """Of an instruction that was decoded; of one that does two things, both."""
    ops = [getattr(instruction, op, None) for op in ("op", "opx", "opy")]
    return [bare(op.name) for op in ops if op is not None]


def compare(name: str, data: bytes, assembly: str) -> None:
    """Decode instruction after instruction beside the text."""
    reason = "the decoder comes with tinygrad"
    decode, at = pytest.importorskip("tinygrad.renderer.amd", reason=reason).decode_inst, 0
    for names, named in of_text(assembly):
        if (name, names[0]) in UNKNOWN:
            at += UNKNOWN[name, names[0]]
            continue
        found = decode(data[at:], FAMILIES.get(name, "rdna4"))
        assert names_of(found) == names, f"{at} bytes in: {found!r}"
        assert named <= registers(repr(found)), f"{at} bytes in: {found!r} is not on {named}"
        at += found.size()


def compiled(case: str, name: str) -> tuple[bytes, str]:
    """A kernel's code, as bytes and as text."""
    kernel, given = CASES[case]
    more: dict[str, Any] = {}
    if case == "product":
        m = offline(name).matrix_instruction("f16")
        assert m is not None
        words = (np.zeros(s, np.uint16) for s in ((m.rows, m.depth), (m.depth, m.columns)))
        given = (*words, np.zeros((m.rows, m.columns), np.float32))
        more = {"m": m, "dtype": as_dtype("f16")}
    units = offline(name).plane_size if more else 256
    code = compile_for(name, kernel, units, *given, **more)
    return sections(code.binary)[".text"].data, code.assembly


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("case", CASES)
def test_bytes_are_the_text_that_is_run(case: str, name: str) -> None:
    compare(name, *compiled(case, name))


def test_other_bytes_are_found() -> None:
    data, text = compiled("axpy", "gfx942")
    other = bytearray(data)
    other[12 + 8] ^= 2  # of an operand of the fourth instruction
    with pytest.raises(AssertionError, match="bytes in"):
        compare("gfx942", bytes(other), text)
