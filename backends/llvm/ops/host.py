"""What the processor that compiles has; the machine code is for it."""

from __future__ import annotations

from functools import cache

from numba.core.registry import cpu_target


@cache
def host_features() -> frozenset[str]:
    """LLVM's names of the host's instructions, such as "avx512f"."""
    features = cpu_target.target_context.codegen().magic_tuple()[2]
    return frozenset(f[1:] for f in features.split(",") if f.startswith("+"))
