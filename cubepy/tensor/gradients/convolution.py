"""Gradients of convolutions: each is linear in both of its inputs, and each one's gradients are
the others.
"""

from __future__ import annotations

from typing import Any

from cubepy.tensor.array import apply
from cubepy.tensor.gradients.rules import Backward, vjp

HOW = ("stride", "padding", "dilation", "groups", "precision")


@vjp("conv")
def _conv(b: Backward, g: Any) -> Any:
    x, weight, _ = b.inputs
    how = {name: b.attrs[name] for name in HOW}
    by_x = by_weight = None
    if b.needs[0]:
        by_x = apply("conv_transpose", g, weight, None, size=x.shape[2:], **how)
    if b.needs[1]:
        by_weight = apply("conv_weight", x, g, window=weight.shape[2:], **how)
    return by_x, by_weight, _by_bias(b, g)


@vjp("conv_transpose")
def _conv_transpose(b: Backward, g: Any) -> Any:
    x, weight, _ = b.inputs
    how = {name: b.attrs[name] for name in HOW}
    by_x = by_weight = None
    if b.needs[0]:
        by_x = apply("conv", g, weight, None, **how)
    if b.needs[1]:
        by_weight = apply("conv_weight", g, x, window=weight.shape[2:], **how)
    return by_x, by_weight, _by_bias(b, g)


def _by_bias(b: Backward, g: Any) -> Any:
    return g.sum(axis=(0, *range(2, g.ndim))) if b.needs[2] else None


@vjp("conv_weight")
def _conv_weight(b: Backward, v: Any) -> Any:
    x, g = b.inputs
    how = {name: b.attrs[name] for name in HOW}
    by_x = by_g = None
    if b.needs[0]:
        by_x = apply("conv_transpose", g, v, None, size=x.shape[2:], **how)
    if b.needs[1]:
        by_g = apply("conv", x, v, None, **how)
    return by_x, by_g


@vjp("unfold")
def _unfold(b: Backward, g: Any) -> Any:
    return apply("fold", g, size=b.inputs[0].shape[2:], **b.attrs)


@vjp("fold")
def _fold(b: Backward, g: Any) -> Any:
    return apply("unfold", g, how=b.attrs["how"], counts=b.attrs["counts"])
