"""Activations, normalisations, products and convolutions that a file has in one node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cubepy import tensor as T
from cubepy.models.onnx.ops.images.convolution import convolved
from cubepy.models.onnx.records import Call, axis_of, operator, record_of
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply

MS = "com.microsoft"
ACTIVATIONS = frozenset(
    "Relu Sigmoid Tanh Gelu LeakyRelu HardSigmoid Elu Softplus Softsign ThresholdedRelu".split()
)
"""Operators that a fused node may name."""


@operator("Gelu", domain=MS)
def gelu(call: Call, x: Tensor) -> Tensor:
    """x Phi(x)."""
    return x.gelu()


@operator("BiasGelu", domain=MS)
def bias_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    """Gelu of a sum."""
    return (x + bias).gelu()


@operator("FastGelu", domain=MS)
def fast_gelu(call: Call, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """Gelu by its tanh, of a sum."""
    return (x if bias is None else x + bias).gelu("tanh")


@operator("QuickGelu", domain=MS)
def quick_gelu(call: Call, x: Tensor) -> Tensor:
    """x sigmoid(alpha x)."""
    return x * (x * call.get("alpha", 1.702)).sigmoid()


@operator("SkipLayerNormalization", domain=MS)
def skip_layer_norm(
    call: Call,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
) -> Any:
    """Layer norm of a sum, and (as the fourth result) the sum."""
    total = x + skip if bias is None else x + skip + bias
    eps = call.get("epsilon", 1e-12)
    made = apply("layer_norm", total, gamma, beta, normalized_shape=gamma.shape, eps=eps)
    return made, None, None, total


@operator("SkipSimplifiedLayerNormalization", domain=MS)
def skip_rms_norm(
    call: Call, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None
) -> Any:
    """RMS norm of a sum, and (as the fourth result) the sum."""
    total = x + skip if bias is None else x + skip + bias
    eps = call.get("epsilon", 1e-12)
    made = apply("rms_norm", total, gamma, normalized_shape=gamma.shape, eps=eps)
    return made, None, None, total


@operator("SimplifiedLayerNormalization", domain=MS)
def rms_norm(call: Call, x: Tensor, gamma: Tensor) -> Tensor:
    """Divided by the root of the mean square."""
    axis = axis_of(call.get("axis", -1), len(x.shape))
    eps = call.get("epsilon", 1e-5)
    return apply("rms_norm", x, gamma, normalized_shape=x.shape[axis:], eps=eps)


@operator("FusedMatMul TransposeMatMul", domain=MS)
def fused_matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """alpha A B, of transposed matrices on demand; rows may lie before the batch."""
    a, b = (
        t.moveaxis(0, -2) if call.get(f"transBatch{name}", 0) and len(t.shape) > 2 else t
        for name, t in (("A", a), ("B", b))
    )
    a = a.transpose(-1, -2) if call.get("transA", 0) and len(a.shape) > 1 else a
    b = b.transpose(-1, -2) if call.get("transB", 0) and len(b.shape) > 1 else b
    alpha = call.get("alpha", 1.0)
    return a @ b if alpha == 1 else (a @ b) * alpha


@operator("FusedGemm", domain=MS)
def fused_gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """An activation of alpha A B + beta C."""
    a = a.T if call.get("transA", 0) else a
    b = b.T if call.get("transB", 0) else b
    made = (a @ b) * call.get("alpha", 1.0)
    made = made if c is None else made + c * call.get("beta", 1.0)
    return activated(call, made)


@operator("FusedConv", domain=MS)
def fused_conv(
    call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None, add: Tensor | None = None
) -> Tensor:
    """An activation of a convolution and what is added to it."""
    made = convolved(call, x, w, bias)
    return activated(call, made if add is None else made + add)


def activated(call: Call, x: Tensor) -> Tensor:
    """The activation that a fused node names, with the operator's own numbers by default."""
    name = call.get("activation", "")
    if not name:
        return x
    given = call.get("activation_params", [])
    if name == "Clip":
        return x.maximum(given[0]).minimum(given[1])
    found = record_of("", name, 13)
    if name not in ACTIVATIONS or found is None:
        raise call.refuse(f"the activation {name!r}")
    numbers = dict(zip(("alpha", "beta"), given, strict=False))
    for key in ("alpha", "beta"):
        if f"activation_{key}" in call.node.attributes:
            numbers[key] = call[f"activation_{key}"]
    attributes = {k: v for k, v in call.node.attributes.items() if k not in ("alpha", "beta")}
    node = replace(call.node, attributes=attributes | numbers)
    made: Tensor = found.run(Call(node, call.version, call.opsets), x)
    return made


@operator("EmbedLayerNormalization", domain=MS)
def embed_layer_norm(
    call: Call,
    words: Tensor,
    segments: Tensor | None,
    word_table: Tensor,
    position_table: Tensor,
    segment_table: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
) -> Any:
    """Layer norm of the sum of rows of words, positions and segments; also how many words each
    mask has, and the sum.
    """
    count = words.shape[1]
    total = apply("take", word_table, words.astype("i64"), axis=0)
    if positions is None:
        total = total + position_table[:count]
    else:
        total = total + apply("take", position_table, positions.astype("i64"), axis=0)
    if segments is not None and segment_table is not None:
        total = total + apply("take", segment_table, segments.astype("i64"), axis=0)
    eps = call.get("epsilon", 1e-12)
    made = apply("layer_norm", total, gamma, beta, normalized_shape=gamma.shape, eps=eps)
    seen = T.zeros((words.shape[0],), dtype="i32", device=words.device)
    if mask is not None:
        seen = (mask != 0).astype("i32").sum(axis=1).astype("i32")
    return made, seen, total
