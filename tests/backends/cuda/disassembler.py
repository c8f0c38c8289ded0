"""Tests that read machine code need NVIDIA's disassembler."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.codegen.disassemble import tool
from cubepy.errors import BackendCompileError


def has_disassembler() -> bool:
    """Whether SASS can be read here."""
    try:
        tool()
    except BackendCompileError:
        return False
    return True


needs_sass = pytest.mark.skipif(not has_disassembler(), reason="reading SASS needs cuobjdump")
