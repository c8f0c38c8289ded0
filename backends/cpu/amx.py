"""Leave to use the matrix unit of an Intel CPU: its registers are large, and Linux keeps them for
who asks.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

TILES = frozenset({"amx-tile", "amx-bf16", "amx-int8"})
"""LLVM's names of what `cb.tile_dot` needs."""
_ARCH_PRCTL, _REQUEST, _TILE_DATA = (
    158,
    0x1023,
    18,
)  # a system call of x86-64, what is asked of it, and for which state


@cache
def tiles_granted() -> bool:
    """Whether this process, with all its threads, may use the tiles' registers; the first call asks
    the system.

    Source: the Linux kernel's documentation, arch/x86/xstate.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    if not sys.platform.startswith("linux"):
        return sys.platform == "win32"  # which gives them to whoever uses them
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
