"""Functions of numbers, exact to the last bits; scalars and lines."""

from __future__ import annotations

from cubepy.backends.llvm.ops.formulas import (
    angles,
    exponentials,
    logarithms,
    roots,
    signs,
    trigonometry,
    vectormath,
    words,
)

MODULES = (vectormath, trigonometry, angles, exponentials, logarithms, roots, signs, words)
