"""Mixtures of experts: each row goes through the few networks that a router picks for it, with
weights that are floats or codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy import tensor as T
from cubepy.models.onnx.ops.microsoft.quantized import codes_of
from cubepy.models.onnx.records import Call, operator
from cubepy.models.packed.picked import in_order, stacked
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply

MS = "com.microsoft"
NEAR = 0.01
"""The jitter of the sparse mixer, half of how far a score may be from the largest one."""
PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.relu(),
    "relu2": lambda x: x.relu() * x.relu(),
    "gelu": lambda x: x.gelu("tanh"),
    "silu": lambda x: x * x.sigmoid(),
    "identity": lambda x: x,
}
"""Activations of one number, by name."""


class Network:
    """The matrices of one product of all experts.

    Attributes:
        stack: (experts * rows, columns).
        bias: (experts, rows), or None.
        rows: outputs of an expert.
    """

    def __init__(self, stack: Tensor, bias: Tensor | None, rows: int) -> None:
        self.stack, self.bias, self.rows = stack, bias, rows

    def __call__(self, x: Tensor, which: Tensor, order: Any) -> Tensor:
        """Each row by the matrix of its expert."""
        found = stacked(x, self.stack, which, self.rows, order)
        if self.bias is None:
            return found
        return found + apply("take", self.bias.astype("f32"), which, axis=0)


def network_of(
    call: Call, weight: Tensor, bias: Tensor | None, experts: int, columns: int
) -> Network:
    """Matrices (experts, rows, columns); also those that a file says to lie the other way round,
    whose bytes do not.

    Raises:
        ModelError: they have other lengths.
    """
    if len(weight.shape) != 3 or weight.shape[0] != experts or not columns:
        raise call.refuse(f"weights {weight.shape} of {experts} experts, whose rows have {columns}")
    each = weight.shape[1] * weight.shape[2]
    rows = each // columns
    if rows * columns != each or not each:
        raise call.refuse(f"weights {weight.shape} are no matrices of rows of {columns}")
    return Network(weight.reshape(experts * rows, columns), bias, rows)


@operator("MoE", domain=MS)
def moe(
    call: Call,
    x: Tensor,
    scores: Tensor,
    first: Tensor,
    first_bias: Tensor | None,
    second: Tensor,
    second_bias: Tensor | None = None,
    third: Tensor | None = None,
    third_bias: Tensor | None = None,
) -> Tensor:
    """Experts whose weights are floats."""
    experts, width = first.shape[0], x.shape[-1]
    up = network_of(call, first, first_bias, experts, width)
    beside = None
    if third is not None:
        beside = network_of(call, third, third_bias, experts, width)
    inner = second.shape[1] * second.shape[2] // max(width, 1) if len(second.shape) == 3 else 0
    down = network_of(call, second, second_bias, experts, inner)
    return mixed(call, x, shared(call, scores, experts, None), (up, beside, down))


@operator("QMoE", domain=MS)
def qmoe(
    call: Call,
    x: Tensor,
    scores: Tensor,
    first: Tensor,
    first_scales: Tensor | None,
    first_bias: Tensor | None,
    second: Tensor,
    second_scales: Tensor | None,
    second_bias: Tensor | None = None,
    third: Tensor | None = None,
    third_scales: Tensor | None = None,
    third_bias: Tensor | None = None,
    first_zeros: Tensor | None = None,
    second_zeros: Tensor | None = None,
    third_zeros: Tensor | None = None,
    weights: Tensor | None = None,
    first_global: Tensor | None = None,
    second_global: Tensor | None = None,
    *others: Tensor | None,
) -> Tensor:
    """Experts whose weights are codes, which become floats in each call; those of constants are
    `PackedExperts`.
    """
    if call.get("weights_prepacked", -1) == 1:
        raise call.refuse("weights in the order of a GPU's kernels (weights_prepacked 1)")
    if any(other is not None for other in others):
        raise call.refuse("scales of activations (fc1_act_scale and the like)")
    given = [
        (first, first_scales, first_zeros, first_global, first_bias),
        (third, third_scales, third_zeros, None, third_bias),
        (second, second_scales, second_zeros, second_global, second_bias),
    ]
    made: list[Network | None] = []
    for name, (codes, scales, zeros, whole, bias) in zip((1, 3, 2), given, strict=True):
        if codes is None:
            made.append(None)
            continue
        floats = of_codes(call, name, codes, scales, zeros, whole)
        made.append(network_of(call, floats, bias, first.shape[0], floats.shape[-1]))
    return mixed(call, x, shared(call, scores, first.shape[0], weights), tuple(made))


def bits_of(call: Call, name: int) -> int:
    """How many bits the weights of a product have."""
    bits: int = call.get(f"fc{name}_expert_weight_bits", call.get("expert_weight_bits", 4))
    if bits not in (2, 3, 4, 8):
        raise call.refuse(f"{bits} bits; 2, 3, 4 and 8 are possible")
    return bits


def of_codes(
    call: Call,
    name: int,
    codes: Tensor,
    scales: Tensor | None,
    zeros: Tensor | None,
    whole: Tensor | None,
) -> Tensor:
    """The numbers (experts, rows, columns) that codes mean."""
    kind, block = call.get("quant_type", "int"), call.get("block_size", 0)
    if kind not in ("int", "fp8"):
        raise call.refuse(f"the quant_type {kind!r}; int and fp8 are possible")
    if len(codes.shape) != 3:
        raise call.refuse(f"weights of the shape {codes.shape}")
    experts, rows = codes.shape[:2]
    if kind == "fp8":
        if block > 0 and scales is not None:
            columns = codes.shape[2]
            if scales.shape != (experts, -(-rows // block), -(-columns // block)):
                raise call.refuse(f"scales {scales.shape} of {codes.shape} in blocks of {block}")
            by = scales.astype("f32").repeat_interleave(min(block, rows), 1)
            by = by[:, :rows].repeat_interleave(min(block, columns), 2)[..., :columns]
            return codes.astype("f32") * by
        if whole is None:
            raise call.refuse("codes of fp8 without scales")
        return codes.astype("f32") * whole.reshape(experts, 1, 1)
    if scales is None:
        raise call.refuse("codes without scales")
    bits = bits_of(call, name)
    found = unpacked(codes, bits)
    columns = found.shape[-1]
    by = scales.reshape(experts, rows, -1).astype("f32")
    blocks = by.shape[2]
    if columns % max(blocks, 1) or (block and blocks != columns // block):
        raise call.refuse(f"{blocks} scales for rows of {columns} in blocks of {block}")
    point: Any = float(1 << (bits - 1))
    if zeros is not None and len(zeros.shape) == 2:
        point = unpacked(zeros, bits)[:, :rows].reshape(experts, rows, 1, 1).astype("f32")
    elif zeros is not None:
        point = unpacked(zeros, bits)[..., :blocks].reshape(experts, rows, blocks, 1).astype("f32")
    wide = found.astype("f32").reshape(experts, rows, blocks, -1)
    return ((wide - point) * by.unsqueeze(-1)).reshape(experts, rows, columns)


def unpacked(packed: Tensor, bits: int) -> Tensor:
    """Codes in bytes each, of a stream of bits, low ones first, along the last axis."""
    if bits != 3:
        return codes_of(packed, bits)
    count = packed.shape[-1] * 8 // 3
    single = codes_of(packed, 1)[..., : 3 * count].reshape(*packed.shape[:-1], count, 3)
    low, middle, high = (single[..., k] for k in range(3))
    return low + middle * 2 + high * 4


@operator("PackedExperts", domain="cubepy")
def packed_experts(
    call: Call,
    x: Tensor,
    scores: Tensor,
    first_bias: Tensor | None = None,
    second_bias: Tensor | None = None,
    third_bias: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """`QMoE` whose codes stay packed."""
    module, experts = call["module"], call["experts"]
    made: list[Network | None] = []
    for name, bias in (("fc1", first_bias), ("fc3", third_bias), ("fc2", second_bias)):
        stack = getattr(module, name, None)
        if stack is None:
            made.append(None)
        else:
            made.append(Network(stack, bias, stack.shape[0] // experts))
    return mixed(call, x, shared(call, scores, experts, weights), tuple(made))


def shared(
    call: Call, scores: Tensor, experts: int, weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The shares (rows, k) of the experts that each row chose, and which these are."""
    k = call.get("k", 1)
    if len(scores.shape) != 2 or scores.shape[1] != experts or not 1 <= k <= experts:
        raise call.refuse(f"{k} of {experts} experts, by scores {scores.shape}")
    logits = scores.astype("f32")
    if call.get("use_sparse_mixer", 0):
        if k != 2:
            raise call.refuse(f"the sparse mixer picks 2 experts, not {k}")
        return sparse_mixer(logits)
    if weights is None:
        shares, which = logits.softmax(-1).topk(k)
    else:
        _, which = logits.topk(k)
        shares = apply("gather", weights.astype("f32"), which, axis=1)
    if call.get("normalize_routing_weights", 0):
        total = shares.sum(-1, keepdims=True)
        shares = T.where(total == 0, T.zeros_like(shares), shares / total)
    return shares, which


def sparse_mixer(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest score and the next one, each with its share among those that are near it."""
    shares, chosen = [], []
    left = scores
    for _ in range(2):
        top, which = left.topk(1)
        size = T.maximum(scores.abs(), top.abs())
        remote = (top - scores) / size > 2 * NEAR
        hidden = T.where(remote, T.full_like(left, -float("inf")), left)
        shares.append(apply("gather", hidden.softmax(-1), which, axis=1))
        chosen.append(which)
        numbers = T.arange(scores.shape[1], dtype=which.dtype, device=scores.device)
        left = T.where(numbers == which, T.full_like(left, -float("inf")), left)
    return T.concat(shares, axis=1), T.concat(chosen, axis=1)


def mixed(
    call: Call, x: Tensor, routed: tuple[Tensor, Tensor], networks: tuple[Network | None, ...]
) -> Tensor:
    """Each row through the experts that it chose, by their shares."""
    up, beside, down = networks
    shares, which = routed
    rows = x.reshape(-1, x.shape[-1]).astype("f32")
    if up is None or down is None or shares.shape[0] != rows.shape[0]:
        raise call.refuse(f"scores of {shares.shape[0]} rows for {rows.shape[0]}")
    flat = which.reshape(-1)
    order = in_order(flat, up.stack.shape[0] // up.rows)
    side = None if beside is None else beside(rows, flat, order)
    inner = activated(call, up(rows, flat, order), side)
    if inner.shape[1] != down.stack.shape[1]:
        raise call.refuse(f"{inner.shape[1]} numbers for rows of {down.stack.shape[1]}")
    found = down(inner, flat, order).reshape(*which.shape, -1)
    found = (found * shares.unsqueeze(-1)).sum(1)
    return found.reshape(x.shape).astype(x.dtype)


def activated(call: Call, x: Tensor, side: Tensor | None) -> Tensor:
    """What the second product reads."""
    name, fusion = call.get("activation_type", "relu"), call.get("swiglu_fusion", 0)
    if name in PLAIN:
        made = PLAIN[name](x)
        return made if side is None else made * side
    if name not in ("swiglu", "geglu"):
        raise call.refuse(f"the activation {name!r}")
    if fusion in (1, 2) and side is None and x.shape[1] % 2 == 0:
        half = x.shape[1] // 2
        pairs = x.reshape(-1, half, 2)
        gate, line = (pairs[..., 0], pairs[..., 1]) if fusion == 1 else (x[:, :half], x[:, half:])
    elif fusion == 0 and side is not None and name == "swiglu":
        gate, line = x, side
    else:
        form = "with" if side is not None else "without"
        raise call.refuse(f"{name} with swiglu_fusion {fusion} {form} a third matrix")
    if name == "geglu":
        return gate.gelu("tanh") * line
    alpha, limit = call.get("activation_alpha", 1.0), call.get("swiglu_limit", float("inf"))
    late = call.get("swiglu_limit_after_activation", 0)
    if limit != float("inf"):
        gate = gate if late else gate.minimum(limit)
        line = line.maximum(-limit).minimum(limit)
    opened = gate * (gate * alpha).sigmoid()
    opened = opened.minimum(limit) if late and limit != float("inf") else opened
    return opened * (line + call.get("activation_beta", 0.0))
