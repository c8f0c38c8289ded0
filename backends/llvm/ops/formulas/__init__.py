"""The rest of C's and CUDA's functions of numbers, exact to the last bits; scalars and lines."""

from __future__ import annotations

from cubepy.backends.llvm.ops.formulas import angles, exponentials, logarithms, roots, signs, words

MODULES = (angles, exponentials, logarithms, roots, signs, words)
