"""Atomic updates on AMD GPUs: as on others, with sums of floats in one instruction."""

from __future__ import annotations

from typing import Any

from cubepy.backends.gpu.ops.atomics import ORDER, atomic_cas, read_modify_write

__all__ = ["atomic_cas", "atomic_rmw"]


def _add_float(b: Any, pointer: Any, v: Any) -> Any:
    """What lets LLVM take one instruction is added to the text (`lowering.device_text`)."""
    return b.atomic_rmw("fadd", pointer, v, ORDER)


atomic_rmw = read_modify_write(_add_float)
