"""The functions that generated code calls: `from cubepy.backends.llvm.ops import *`."""

from __future__ import annotations

from cubepy.backends.llvm.ops import amx, debug, formulas
from cubepy.backends.llvm.ops.lines import lanes, pairs, partition
from cubepy.backends.llvm.ops.memory import atomics, elements, masked
from cubepy.backends.llvm.ops.numbers import arithmetic, casts, division, integer
from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.types import Line, Ptr

_MODULES = (
    elements,
    masked,
    casts,
    arithmetic,
    division,
    integer,
    pairs,
    partition,
    amx,
    lanes,
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
