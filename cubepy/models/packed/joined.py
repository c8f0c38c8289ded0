"""Layers that read the same rows: one launch for queries, keys and values, and one for the gate and
what it lets through, where all weights are in blocks, activations become bytes and rows are few. On
a GPU packed queries, keys and values are one weight, for any rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.errors import KernelTypeError, ShapeError
from cubepy.kernels.movement.concat import concat
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.lang.dtypes import f32, promote
from cubepy.models.packed.integer_kernels import gated_product, joined_products
from cubepy.models.packed.storage import ROWS, Blocks, rounded
from cubepy.nn import Linear
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.storage import Quantized, one_weight, parts_of_one
from cubepy.runtime.device import gpu_of
from cubepy.runtime.memory.pool import empty
from cubepy.tensor import Tensor, apply, register
from cubepy.tensor.ops.op import Spec, define


def fits(x: Tensor, layers: Sequence[Linear]) -> bool:
    """Whether layers can be joined for these rows: blocks of one length, bytes, no bias."""
    stores = [layer.weight.value.storage for layer in layers]
    blocks = [s for s in stores if isinstance(s, Blocks) and s.activations == "int8" and s.shape[0]]
    return (
        0 < math.prod(x.shape[:-1]) <= ROWS
        and not x.requires_grad
        and x.dtype is f32
        and all(layer.bias is None for layer in layers)
        and len(blocks) == len(layers)
        and len({s.blocks.elements for s in blocks}) == 1
    )


def aligned(x: Tensor, layers: Sequence[Linear]) -> bool:
    """Whether layers are one product for these rows: those of `fits`, and packed ones on a GPU that
    can be one weight, without bias.
    """
    found = [layer.weight.value.storage for layer in layers]
    stores = [store for store in found if isinstance(store, Quantized)]
    if len(stores) < len(found):
        return fits(x, layers)
    return (
        gpu_of(stores[0].device) is not None
        and 0 not in x.shape
        and not x.requires_grad
        and all(layer.bias is None for layer in layers)
        and len({s.device for s in stores}) == len({s.dtype for s in stores}) == 1
        and parts_of_one(stores)
    )


def side_by_side(x: Tensor, layers: Sequence[Linear]) -> list[Tensor]:
    """What layers give, of `aligned`."""
    found = apply("packed_side_by_side", x, *(layer.weight for layer in layers))
    ends = np.cumsum([layer.weight.shape[0] for layer in layers]).tolist()
    return [found[..., a:b] for a, b in zip([0, *ends], ends, strict=False)]


def gated(x: Tensor, gate: Linear, up: Linear, activation: str | None) -> Tensor:
    """activation(gate(x)) * up(x), of `fits`."""
    return apply("packed_gate", x, gate.weight, up.weight, activation=activation)  # type: ignore[no-any-return]


def _dense(*_: Any, **__: Any) -> Any:
    raise KernelTypeError("layers are joined where their weights are in blocks")


@define("opaque", {"packed_side_by_side": _dense})
def _side_by_side(x: Spec, *weights: Spec) -> Spec:
    _check(x, weights)
    dtype = promote(x.dtype, weights[0].dtype)
    return Spec((*x.shape[:-1], sum(w.shape[0] for w in weights)), dtype)


@define("opaque", {"packed_gate": _dense})
def _gate(x: Spec, gate: Spec, up: Spec, activation: str | None) -> Spec:
    _check(x, (gate, up))
    if gate.shape != up.shape:
        raise ShapeError(f"a gate {gate.shape} and what it lets through {up.shape}")
    return Spec((*x.shape[:-1], gate.shape[0]), f32)


def _check(x: Spec, weights: Sequence[Spec]) -> None:
    for weight in weights:
        if not x.shape or weight.shape[1:] != x.shape[-1:]:
            raise ShapeError(f"layers of an input {x.shape} and a weight {weight.shape}")


@register("packed_side_by_side", "blocks")
def _run_side_by_side(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, *weights = inputs
    given = contiguous(x.dense())
    rows = given.reshape(-1, given.shape[-1])
    plans = tuple(w.blueprint(len(rows)) for w in weights)
    counts = [w.shape[0] for w in weights]
    out = empty((*given.shape[:-1], sum(counts)), np.float32)
    cubes = sum(-(-n // plans[0].lanes) for n in counts)
    arrays = [a for w in weights for a in (w.raw, w.halves)]
    joined_products[cubes, 1](
        *rounded(rows, plans[0]), *arrays, out.reshape(len(rows), -1), plans, mode="unchecked"
    )
    return out


@register("packed_side_by_side", "quantized")
def _run_quantized(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, *weights = inputs
    dtype = promote(x.dtype, weights[0].dtype).numpy
    given = x.dense()
    if parts_of_one(weights):
        return quantized_linear(given, one_weight(weights), dtype=dtype)
    return concat([quantized_linear(given, w.weight, dtype=dtype) for w in weights], -1)


@register("packed_gate", "blocks")
def _run_gate(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, gate, up = inputs
    given = contiguous(x.dense())
    rows = given.reshape(-1, given.shape[-1])
    function = None if attrs["activation"] is None else ACTIVATIONS[attrs["activation"]]
    plans = gate.blueprint(len(rows), function), up.blueprint(len(rows))
    out = empty((*given.shape[:-1], gate.shape[0]), np.float32)
    arrays = (gate.raw, gate.halves, up.raw, up.halves)
    gated_product[-(-gate.shape[0] // plans[0].lanes), 1](
        *rounded(rows, plans[0]), *arrays, out.reshape(len(rows), -1), plans, mode="unchecked"
    )
    return out
