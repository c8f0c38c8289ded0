"""The functions that generated code calls: `from cubepy.backends.llvm.ops import *`."""

from __future__ import annotations

from cubepy.backends.llvm.ops import (
    arithmetic,
    atomics,
    casts,
    debug,
    division,
    formulas,
    integer,
    lanes,
    masked,
    memory,
    pairs,
    partition,
    tiles,
    trigonometry,
    vectormath,
)
from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.types import Line, Ptr

_MODULES = (
    memory,
    masked,
    casts,
    arithmetic,
    division,
    integer,
    pairs,
    partition,
    tiles,
    lanes,
    vectormath,
    trigonometry,
    atomics,
    debug,
    *formulas.MODULES,
)
OPS: dict[str, Op] = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if isinstance(value, Op)
}
"""Every op by its name."""

globals().update(OPS)
__all__ = ["OPS", "Line", "Ptr", *OPS]  # noqa: PLE0604
