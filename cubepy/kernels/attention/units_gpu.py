"""Which matrix units of a GPU can take the arrays of an attention."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.attention.gpu import flash_fragments_plan as fragments
from cubepy.kernels.attention.gpu import flash_mma_plan as planes
from cubepy.kernels.attention.problem import Units
from cubepy.kernels.attention.sm90 import plan as hopper
from cubepy.runtime.device import DeviceProperties


def units_for(
    q: Any, k: Any, v: Any, mask: Any, kind: str, causal: bool, factor: float, p: DeviceProperties
) -> Units:
    """The matrix units of a device that can take the arrays."""
    if "mma" not in p.features:
        return "fragments" if fragments.plan_for(q, k, v, kind, causal, p) is not None else ""
    # A mask is added before scores are scaled there, and hidden scores are less than others before
    # they are.
    if (kind == "none" or factor > 0) and max(q.shape[3], v.shape[3]) % 8 == 0:
        if hopper.plan_for(q, k, v, causal, p, mask, kind) is not None:
            return "wgmma"
    return "mma" if planes.plan_for(q, k, v, mask, kind, causal, p) is not None else ""
