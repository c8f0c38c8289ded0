"""Products, layers and arithmetic of codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy import tensor as T
from cubepy.lang.dtypes import f32
from cubepy.models.onnx.ops.microsoft.heads import projected
from cubepy.models.onnx.ops.quantization import (
    centered,
    dequantize_linear,
    dynamic,
    integer_product,
    quantize_linear,
    requantized,
)
from cubepy.models.onnx.ops.sequence.recurrent import begun, cells_in, laid_out, lstm_of, ordered
from cubepy.models.onnx.records import Call, dtype_of, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply
from cubepy.tensor.control.recurrence import serves

MS = "com.microsoft"
WIDE, FEW = 256, 4
"""States from which on, and sequences up to which, an LSTM of codes rounds all sequences to one
range; else each has its own."""

operator("QuantizeLinear", domain=MS, plain=True)(quantize_linear)
operator("DequantizeLinear", domain=MS, plain=True)(dequantize_linear)


def codes_of(packed: Tensor, bits: int) -> Tensor:
    """Codes in bytes, low bits first, along the last axis."""
    if bits == 8:
        return packed
    mask = (1 << bits) - 1
    parts = [apply("rshift", packed, T.full_like(packed, k)) & mask for k in range(0, 8, bits)]
    return T.stack(parts, axis=-1).reshape(*packed.shape[:-1], packed.shape[-1] * len(parts))


@operator("MatMulNBits", domain=MS)
def matmul_nbits(
    call: Call,
    x: Tensor,
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    group: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """x times the transpose of a matrix (N, K) of codes with scales by blocks of K."""
    n, k, bits, block = call["N"], call["K"], call.get("bits", 4), call["block_size"]
    if bits not in (2, 4, 8):
        raise call.refuse(f"{bits} bits; 2, 4 and 8 are possible")
    blocks = -(-k // block)
    codes = codes_of(packed.reshape(n, blocks, -1), bits).astype(x.dtype)
    if zeros is None:
        point: Any = float(1 << (bits - 1))
    elif zeros.dtype.is_float:
        point = zeros.reshape(n, blocks, 1).astype(x.dtype)
    else:
        rows = zeros.reshape(n, -1)
        point = codes_of(rows, bits)[:, :blocks].reshape(n, blocks, 1).astype(x.dtype)
    by = scales.reshape(n, blocks, 1).astype(x.dtype)
    if group is None:
        weight = ((codes - point) * by).reshape(n, blocks * block)[:, :k]
    else:  # each column has the scale of its group
        at = group.astype("i64")
        if isinstance(point, Tensor):
            point = apply("take", point.reshape(n, blocks), at, axis=1)
        by = apply("take", by.reshape(n, blocks), at, axis=1)
        weight = (codes.reshape(n, blocks * block)[:, :k] - point) * by
    made = x @ weight.T
    return made if bias is None else made + bias


@operator("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(
    call: Call,
    x: Tensor,
    weight: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """A product of a tensor that is quantized on the way with a matrix of codes."""
    codes, by, point = dynamic(x)
    return scaled_product(codes, by, point, weight, scale, zero, bias)


@operator("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(
    call: Call,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """A product of codes as floats."""
    return scaled_product(a, a_scale, a_zero, b, b_scale, b_zero, bias)


def scaled_product(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """A product of codes times both scales."""
    made = integer_product(centered(a, a_zero), centered(b, b_zero, len(b.shape) - 1))
    factor = a_scale.reshape(()) * (
        b_scale if b_scale.shape and b_scale.shape[0] > 1 else b_scale.reshape(())
    )
    made = made.astype(factor.dtype) * factor
    return made if bias is None else made + bias


@operator("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    p: Tensor | None,
    w_scale: Tensor,
    w_zero: Tensor,
    r_scale: Tensor,
    r_zero: Tensor,
) -> Any:
    """An LSTM with matrices (directions, inputs, gates) of codes; inputs and states are rounded to
    codes of their range.
    """
    w, r = _matrix(w, w_scale, w_zero), _matrix(r, r_scale, r_zero)
    products = (lambda d, t: rounded(t) @ w[d]), (lambda d, t: rounded(t) @ r[d])
    return lstm_of(call, x, r.shape[1], (b, lengths, h, c, p), products)


def rounded(x: Tensor) -> Tensor:
    """A tensor with the values that its codes of 8 bits mean."""
    codes, scale, zero = dynamic(x)
    return (codes.astype("f32") - zero.astype("f32")) * scale


def _matrix(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    lengths = (codes.shape[0], 1, -1)
    by, point = scale.reshape(*lengths), zero.astype("f32").reshape(*lengths)
    return (codes.astype("f32") - point) * by


@operator("IntegerLSTM", domain="cubepy")
def integer_lstm(
    call: Call,
    x: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    h: Tensor | None,
    c: Tensor | None,
    p: Tensor | None,
    *matrices: Tensor,
) -> Any:
    """`DynamicQuantizeLSTM` by signed codes, whose columns were summed before."""
    given, states = matrices[:3], matrices[3:]

    def product(parts: tuple[Tensor, ...], d: int, t: Tensor) -> Tensor:
        codes, sums, scale = (part[d] for part in parts)
        found, by, zero = dynamic(t)
        made = apply("matmul_codes", found, codes) - zero.astype("i32") * sums
        return made.astype("f32") * (by * scale)

    if set(cells_in(call, "lstm")) == {"lstm"} and not call.get("input_forget", 0):
        made = _codes_at_once(call, x, (b, lengths, h, c, p), given, states)
        if made is not None:
            return made
    products = (lambda d, t: product(given, d, t)), (lambda d, t: product(states, d, t))
    return lstm_of(call, x, states[0].shape[1], (b, lengths, h, c, p), products)


def _codes_at_once(
    call: Call,
    x: Tensor,
    others: tuple[Tensor | None, ...],
    given: tuple[Tensor, ...],
    states: tuple[Tensor, ...],
) -> tuple[Any, ...] | None:
    """All steps of an LSTM of codes in one launch; None where that is not for it.

    Args:
        call: the node.
        x: inputs.
        others: biases, lengths, first states and cells, peepholes.
        given, states: codes, sums of columns and scales, of inputs and of states.
    """
    b, lengths, h, c, p = others
    width = states[0].shape[1]
    x, first = begun(call, x, width, h, c)
    if not serves(x, b, p, *first) or x.dtype is not f32:
        return None

    def in_order(t: Tensor) -> Tensor:
        parts = [t[..., k * width : (k + 1) * width] for k in (0, 2, 3, 1)]
        return T.concat(parts, axis=-1)

    def widened(scale: Tensor) -> Tensor:
        return scale.expand(scale.shape[0], 4 * width)

    count = states[0].shape[0]
    codes, sums = (T.concat([in_order(t)[d] for d in range(count)], axis=-1) for t in given[:2])
    scale = in_order(widened(given[2])).reshape(-1)
    found, by, zero = dynamic(x)
    made = (apply("matmul_codes", found, codes) - zero.astype("i32") * sums).astype("f32")
    gates = made * (by * scale)
    if b is not None:
        gates = gates + in_order(b[:, : 4 * width] + b[:, 4 * width :]).reshape(-1)
    weights = in_order(states[0]), in_order(states[1]), in_order(widened(states[2]))
    holes = None if p is None else ordered(p, (0, 2, 1), width)
    back = call.get("direction", "forward") == "reverse"
    joint = WIDE < width and 1 < x.shape[1] <= FEW  # as onnxruntime does, whatever its threads
    y, *last = apply(
        "recurrence_of_codes", gates, *weights, holes, lengths, *first, reverse=back, joint=joint
    )
    return laid_out(call, y, last)


@operator("QAttention", domain=MS)
def qattention(
    call: Call,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    w_scale: Tensor,
    mask: Tensor | None = None,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    old: Tensor | None = None,
) -> Any:
    """Attention whose joined projection is a product of codes."""
    made = scaled_product(x, x_scale, x_zero, weight, w_scale, w_zero, bias)
    return projected(call, made, mask, old, None)


@operator("GatherBlockQuantized", domain=MS)
def gather_block_quantized(
    call: Call, data: Tensor, index: Tensor, scales: Tensor, zeros: Tensor | None = None
) -> Tensor:
    """Rows of codes by index, as floats."""
    axis, along = call.get("gather_axis", 0), call.get("quantize_axis", 1)
    bits, block = call.get("bits", 4), call.get("block_size", 128)
    rank = len(data.shape)
    if axis % rank != 0 or along % rank != rank - 1:
        raise call.refuse("another gather axis than the first, or quantize axis than the last")
    at = index.astype("i64")
    packed = data.dtype.kind == "u" and data.dtype.bits == 8
    rows = apply("take", data, at, axis=0)
    codes = codes_of(rows, bits) if packed else rows
    by = apply("take", scales, at, axis=0)
    point: Any = float(1 << (bits - 1)) if packed else 0.0
    if zeros is not None:
        found = apply("take", zeros, at, axis=0)
        found = codes_of(found, bits) if packed else found
        point = found[..., : by.shape[-1]].astype(by.dtype).repeat_interleave(block, -1)
        point = point[..., : codes.shape[-1]]
    factor = by.repeat_interleave(block, -1)[..., : codes.shape[-1]]
    return (codes.astype(by.dtype) - point) * factor


def floats(codes: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Codes as the numbers that they mean."""
    return centered(codes, zero) * scale.astype("f32").reshape(())


def _of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def run(
        call: Call,
        a: Tensor,
        a_scale: Tensor,
        a_zero: Tensor,
        b: Tensor,
        b_scale: Tensor,
        b_zero: Tensor,
        y_scale: Tensor,
        y_zero: Tensor | None = None,
    ) -> Tensor:
        made = function(floats(a, a_scale, a_zero), floats(b, b_scale, b_zero))
        return codes_like(made, a, y_scale, y_zero)

    return run


def codes_like(x: Tensor, like: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Numbers as codes of a dtype."""
    zero = T.zeros((), dtype=like.dtype, device=like.device) if zero is None else zero
    return requantized(x, scale.astype("f32").reshape(()), zero.reshape(()), dtype_of(zero))


operator("QLinearAdd", domain=MS)(_of_two(lambda a, b: a + b))
operator("QLinearMul", domain=MS)(_of_two(lambda a, b: a * b))


def _of_one(function: Callable[[Call, Tensor], Tensor]) -> Callable[..., Tensor]:
    def run(
        call: Call,
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor | None,
        y_scale: Tensor,
        y_zero: Tensor | None = None,
    ) -> Tensor:
        return codes_like(function(call, floats(x, x_scale, x_zero)), x, y_scale, y_zero)

    return run


def _global_mean(call: Call, x: Tensor) -> Tensor:
    if call.get("channels_last", 0):
        return x.mean(axis=tuple(range(1, len(x.shape) - 1)), keepdims=True)
    return x.mean(axis=tuple(range(2, len(x.shape))), keepdims=True)


def _leaky(call: Call, x: Tensor) -> Tensor:
    return x.maximum(0) + x.minimum(0) * call.get("alpha", 0.01)


operator("QLinearSigmoid", domain=MS)(_of_one(lambda call, x: x.sigmoid()))
operator("QLinearLeakyRelu", domain=MS)(_of_one(_leaky))
operator("QLinearGlobalAveragePool", domain=MS)(_of_one(_global_mean))


@operator("QLinearSoftmax", domain=MS)
def qlinear_softmax(
    call: Call, x: Tensor, x_scale: Tensor, x_zero: Tensor | None, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    """Softmax of codes."""
    made = apply("softmax", floats(x, x_scale, x_zero), axis=call.get("axis", -1) % len(x.shape))
    return codes_like(made, x, y_scale, y_zero)


@operator("QLinearConcat", domain=MS)
def qlinear_concat(call: Call, y_scale: Tensor, y_zero: Tensor, *given: Tensor) -> Tensor:
    """Codes of several scales joined."""
    groups = [given[k : k + 3] for k in range(0, len(given), 3)]
    made = T.concat([floats(*one) for one in groups], axis=call["axis"])
    return codes_like(made, given[0], y_scale, y_zero)
