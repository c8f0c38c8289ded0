"""How builtins become IR, one file for a family of them; importing a file registers its rules."""

from cubepy.compiler.lower import (
    atomics,
    casts,
    inquiries,
    lines,
    loops,
    math,
    mathematics,
    memory,
    planes,
)
from cubepy.compiler.lower.hardware import amx, barriers, cluster, mma, tma, wgmma

__all__ = [
    "amx",
    "atomics",
    "barriers",
    "casts",
    "cluster",
    "inquiries",
    "lines",
    "loops",
    "math",
    "mathematics",
    "memory",
    "mma",
    "planes",
    "tma",
    "wgmma",
]
