"""AMD's matrix cores: which instruction a processor has for a dtype, and which elements of its
matrices each unit holds.

Layouts are those of AMD's instruction set documents: CDNA 3
(section "Matrix Core Instruction Set Architecture"), RDNA 3 and 4 ("Wave Matrix Multiply
Accumulate"). Where along the depth a unit's elements are does not matter to the product, as long as
a and b agree: all of a unit's are said to be neighbours.
"""

from __future__ import annotations

from functools import cache

from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.runtime.fragments import Fragment, MatrixInstruction, doubling, instruction

_CDNA_2 = {
    ("f16", 16): ("mfma.f32.16x16x16f16", "half", 16),
    ("f16", 32): ("mfma.f32.32x32x8f16", "half", 8),
    ("bf16", 16): ("mfma.f32.16x16x16bf16.1k", "i16", 16),
    ("bf16", 32): ("mfma.f32.32x32x8bf16.1k", "i16", 8),
    ("i8", 16): ("mfma.i32.16x16x16i8", "i32", 16),
    ("i8", 32): ("mfma.i32.32x32x8i8", "i32", 8),
}
_CDNA_3 = _CDNA_2 | {
    ("i8", 16): ("mfma.i32.16x16x32.i8", "i64", 32),
    ("i8", 32): ("mfma.i32.32x32x16.i8", "i64", 16),
}
_RDNA_3 = {
    ("f16", 16): ("wmma.f32.16x16x16.f16", "half", 16),
    ("bf16", 16): ("wmma.f32.16x16x16.bf16", "i16", 16),
    ("i8", 16): ("wmma.i32.16x16x16.iu8", "i32", 16),
}
INTRINSICS = {
    "gfx90a": _CDNA_2,
    "gfx942": _CDNA_3,
    "gfx950": {
        ("f16", 16): ("mfma.f32.16x16x32.f16", "half", 32),
        ("f16", 32): ("mfma.f32.32x32x16.f16", "half", 16),
        ("bf16", 16): ("mfma.f32.16x16x32.bf16", "bfloat", 32),
        ("bf16", 32): ("mfma.f32.32x32x16.bf16", "bfloat", 16),
        ("i8", 16): ("mfma.i32.16x16x64.i8", "i32", 64),
        ("i8", 32): ("mfma.i32.32x32x32.i8", "i32", 32),
        ("fp8_e4m3", 16): ("mfma.f32.16x16x32.fp8.fp8", "i64", 32),
        ("fp8_e4m3", 32): ("mfma.f32.32x32x16.fp8.fp8", "i64", 16),
        ("fp8_e5m2", 16): ("mfma.f32.16x16x32.bf8.bf8", "i64", 32),
        ("fp8_e5m2", 32): ("mfma.f32.32x32x16.bf8.bf8", "i64", 16),
    },
    "gfx1100": _RDNA_3,
    "gfx1201": _RDNA_3
    | {
        ("fp8_e4m3", 16): ("wmma.f32.16x16x16.fp8.fp8", "i32", 16),
        ("fp8_e5m2", 16): ("wmma.f32.16x16x16.bf8.bf8", "i32", 16),
    },
}
"""By dtype and by rows, which are as many as columns: LLVM's name of the instruction (less
"llvm.amdgcn"), what it takes a and b as, and its depth.

FP8 of gfx942 is another encoding (FNUZ), which the language does not have.
"""
_NEIGHBOURS = {9: 2, 11: 0, 12: 3}
"""By generation, the binary logarithm of how many neighbouring rows of the sums a unit holds."""


@cache
def instructions(architecture: Architecture) -> tuple[MatrixInstruction, ...]:
    """The products that a processor has."""
    table = INTRINSICS[architecture.name].items()
    return tuple(_instruction(architecture, *key, depth) for key, (_, _, depth) in table)


def _instruction(
    architecture: Architecture, dtype: str, side: int, depth: int
) -> MatrixInstruction:
    bits = side.bit_length() - 1
    groups = architecture.plane.bit_length() - 1 - bits
    alike = groups if architecture.major == 11 else 0  # groups of units that hold the same a and b
    each = depth.bit_length() - 1 - (groups - alike)
    split = doubling(1 << each, groups - alike, 1) + ((0, 0),) * alike
    a = Fragment(doubling(1, bits, 0) + split, doubling(1, each, 1))
    rows, first = doubling(1, bits, 0), _NEIGHBOURS[architecture.major]
    of_groups = rows[first : first + groups]
    c = Fragment(doubling(1, bits, 1) + of_groups, rows[:first] + rows[first + groups :])
    return instruction(dtype, a, a.transposed, c)
