"""The gradients of attention on GPUs: the routines, in order of preference."""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.config import config
from cubepy.kernels.attention.gpu import operands
from cubepy.kernels.attention.gpu import unfused_backward as matrices
from cubepy.kernels.attention.gpu.unfused_backward import log_sums
from cubepy.kernels.attention.problem import AttentionGradients, empty_gradients
from cubepy.kernels.attention.sm90 import backward
from cubepy.kernels.movement.copy import copy
from cubepy.tune import GpuRoutine

__all__ = ["ROUTINES", "log_sums"]


class Hopper(GpuRoutine):
    """By `wgmma`, without a matrix of scores."""

    name = "hopper"

    def unfit(self, p: AttentionGradients, properties: cb.DeviceProperties) -> str | None:
        """16-bit floats in widths of multiples of 8, and masks that all heads share."""
        if config.deterministic:
            return "gradients of queries are added up in no fixed order"
        plan = self.plan(p, properties)
        if plan is None:
            return "for `wgmma`, 16 bits, widths up to 256, and masks that all heads share"
        return "a mask needs a positive scale" if plan.mask != "none" and p.scale <= 0 else None

    def plan(self, p: AttentionGradients, properties: cb.DeviceProperties) -> Any:
        """The blueprint, or None."""
        arrays = (p.query, p.key, p.value, p.grad)
        return backward.plan_for(*arrays, p.causal, properties, p.mask, p.kind)

    def launch(self, p: AttentionGradients, properties: cb.DeviceProperties) -> tuple[Any, ...]:
        """Three passes."""
        plan, inputs = self.plan(p, properties), (p.grad, p.query, p.key, p.value)
        do, q, k, v = (a if operands.copyable(a) else copy(a) for a in inputs)
        out = p.result if p.result.strides[3] == p.result.itemsize else copy(p.result)
        found = empty_gradients(p.query, p.key, p.value)
        backward.launch(p._replace(grad=do, query=q, key=k, value=v, result=out), found, plan)
        return found


class Matrices(GpuRoutine):
    """By products, with matrices of scores in pieces."""

    name = "matrices"

    def launch(self, p: AttentionGradients, properties: cb.DeviceProperties) -> tuple[Any, ...]:
        """Any dtype and width."""
        return matrices.gradients(p)


ROUTINES = {"attention_gradients": (Hopper(), Matrices())}
