"""AMD's matrix cores: which instruction a processor has for a dtype, and which elements of its
matrices each unit holds.

All multiply 16 rows by 16 columns. Layouts are those of AMD's instruction set documents: CDNA 3
(section "Matrix Core Instruction Set Architecture"), RDNA 3 and 4 ("Wave Matrix Multiply
Accumulate"). Where along the depth a unit's elements are does not matter to the product, as long as
a and b agree: all of a unit's are said to be neighbours.
"""

from __future__ import annotations

from functools import cache

from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.runtime.fragments import BITS, Fragment, MatrixInstruction, doubling, instruction

SIDE = 4
"""The binary logarithm of rows and of columns."""
_CDNA_2 = {
    "f16": ("mfma.f32.16x16x16f16", "half", 16),
    "bf16": ("mfma.f32.16x16x16bf16.1k", "i16", 16),
    "i8": ("mfma.i32.16x16x16i8", "i32", 16),
}
_CDNA_3 = _CDNA_2 | {"i8": ("mfma.i32.16x16x32.i8", "i64", 32)}
_RDNA_3 = {
    "f16": ("wmma.f32.16x16x16.f16", "half", 16),
    "bf16": ("wmma.f32.16x16x16.bf16", "i16", 16),
    "i8": ("wmma.i32.16x16x16.iu8", "i32", 16),
}
INTRINSICS = {
    "gfx90a": _CDNA_2,
    "gfx942": _CDNA_3,
    "gfx950": {
        "f16": ("mfma.f32.16x16x32.f16", "half", 32),
        "bf16": ("mfma.f32.16x16x32.bf16", "bfloat", 32),
        "i8": ("mfma.i32.16x16x64.i8", "i32", 64),
        "fp8_e4m3": ("mfma.f32.16x16x32.fp8.fp8", "i64", 32),
        "fp8_e5m2": ("mfma.f32.16x16x32.bf8.bf8", "i64", 32),
    },
    "gfx1100": _RDNA_3,
    "gfx1201": _RDNA_3
    | {
        "fp8_e4m3": ("wmma.f32.16x16x16.fp8.fp8", "i32", 16),
        "fp8_e5m2": ("wmma.f32.16x16x16.bf8.bf8", "i32", 16),
    },
}
"""LLVM's name of the instruction (less "llvm.amdgcn"), what it takes a and b as, and its depth.

FP8 of gfx942 is another encoding (FNUZ), which the language does not have.
"""


@cache
def instructions(architecture: Architecture) -> tuple[MatrixInstruction, ...]:
    """The products that a processor has."""
    table = INTRINSICS[architecture.name]
    return tuple(_instruction(architecture, dtype, depth) for dtype, (_, _, depth) in table.items())


def _instruction(architecture: Architecture, dtype: str, depth: int) -> MatrixInstruction:
    groups = (architecture.plane.bit_length() - 1) - SIDE
    alike = groups if architecture.major == 11 else 0  # groups of units that hold the same a and b
    each = depth.bit_length() - 1 - (groups - alike)
    split = doubling(1 << each, groups - alike, 1) + ((0, 0),) * alike
    a = Fragment(doubling(1, SIDE, 0) + split, doubling(1, each, 1))
    rows = doubling(1, SIDE, 0)
    of_groups, of_elements = rows[SIDE - groups :], rows[: SIDE - groups]
    if architecture.major == 11:
        of_groups, of_elements = rows[:groups], rows[groups:]
    c = Fragment(doubling(1, SIDE, 1) + of_groups, of_elements)
    assert each + BITS[dtype].bit_length() >= 6, "a unit holds whole words"
    return instruction(dtype, a, a.transposed, c)
