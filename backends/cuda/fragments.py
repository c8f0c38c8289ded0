"""Which elements of `mma.sync`'s matrices each unit of a plane holds (PTX ISA, "Matrix Fragments
for mma.m16n8k16" and its neighbours).
"""

from __future__ import annotations

from functools import cache

from cubepy.runtime.fragments import BITS, Fragment, MatrixInstruction, doubling, instruction


@cache
def instructions(features: frozenset[str]) -> tuple[MatrixInstruction, ...]:
    """The products that a GPU with these features has."""
    if "mma" not in features:
        return ()
    return tuple(_instruction(d) for d in BITS if "tma" in features or not d.startswith("fp8"))


def _instruction(dtype: str) -> MatrixInstruction:
    """Four words of a, two of b; neighbours along the depth share a word."""
    each = 32 // BITS[dtype]
    lanes = doubling(each, 2, 1) + doubling(1, 3, 0)
    in_word = doubling(1, each.bit_length() - 1, 1)
    a = Fragment(lanes, (*in_word, (8, 0), (0, 4 * each)))
    b = Fragment(lanes, (*in_word, (0, 4 * each)))
    c = Fragment(doubling(2, 2, 1) + doubling(1, 3, 0), ((0, 1), (8, 0)))
    return instruction(dtype, a, b.transposed, c)
