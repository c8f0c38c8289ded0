"""The functions that generated code for AMD GPUs calls besides those of every target."""

from __future__ import annotations

from cubepy.backends.gpu.ops import debug, memory, words
from cubepy.backends.hip.ops import approximate, atomics, integer, mma, plane, topology
from cubepy.backends.llvm.ops.registry import Op

_MODULES = (topology, approximate, memory, plane, atomics, integer, debug, mma, words)
OPS: dict[str, Op] = {
    name: value
    for module in _MODULES
    for name, value in vars(module).items()
    if isinstance(value, Op)
}
"""Every op by its name."""

globals().update(OPS)
__all__ = ["OPS", *OPS]  # noqa: PLE0604
