"""Activations, normalisations, products and convolutions that a file has in one node."""

from __future__ import annotations

from typing import Any

from cubepy.models.onnx.ops.images.convolution import convolved
from cubepy.models.onnx.records import Call, axis_of, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply

MS = "com.microsoft"


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
    """alpha A B, of transposed matrices on demand."""
    if call.get("transBatchA", 0) or call.get("transBatchB", 0):
        raise call.refuse("transposed batches")
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
    """The activation that a fused node names."""
    name = call.get("activation", "")
    given = call.get("activation_params", [])
    alpha = given[0] if given else call.get("activation_alpha", 0.01)
    if name == "Clip":
        return x.maximum(given[0]).minimum(given[1])
    if name == "HardSigmoid":
        return (x * given[0] + given[1]).maximum(0).minimum(1)
    if name == "LeakyRelu":
        return x.maximum(0) + x.minimum(0) * alpha
    plain = {"": lambda: x, "Relu": x.relu, "Sigmoid": x.sigmoid, "Tanh": x.tanh, "Gelu": x.gelu}
    if name not in plain:
        raise call.refuse(f"the activation {name!r}")
    return plain[name]()
