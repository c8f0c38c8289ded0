"""The functions that generated code for NVIDIA GPUs calls besides those of every target."""

from __future__ import annotations

from cubepy.backends.cuda.ops import (
    approximate,
    atomics,
    barriers,
    cluster,
    copy_async,
    debug,
    extremes,
    integer,
    mma,
    plane,
    prefetch,
    tma,
    topology,
    wgmma,
)
from cubepy.backends.gpu.ops import memory
from cubepy.backends.llvm.ops.registry import Op

_MODULES = (
    topology,
    approximate,
    extremes,
    memory,
    prefetch,
    plane,
    atomics,
    integer,
    debug,
    mma,
    copy_async,
    barriers,
    tma,
    wgmma,
    cluster,
)
OPS: dict[str, Op] = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if isinstance(value, Op)
}
"""Every op by its name."""

globals().update(OPS)
__all__ = ["OPS", *OPS]  # noqa: PLE0604
