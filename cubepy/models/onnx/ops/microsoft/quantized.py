"""Products, layers and arithmetic of codes."""

from __future__ import annotations

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
)
from cubepy.models.onnx.ops.sequence.recurrent import begun, cells_in, laid_out, lstm_of, ordered
from cubepy.models.onnx.records import Call, axis_of, operator
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply
from cubepy.tensor.control.recurrence import serves

MS = "com.microsoft"
WIDE, FEW = 256, 4
"""States from which on, and sequences up to which, an LSTM of codes rounds all sequences to one
range; else each has its own."""

_TWELFTHS = (0, 0.0625, 8, 12, 4, 6, 2, 3)
_QUARTILES = (
    (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453)
    + (-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0)
    + (0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224)
    + (0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
)
BNB4 = (tuple(sign * n / 12 for sign in (1, -1) for n in _TWELFTHS), _QUARTILES)
"""What codes of FP4 and of NF4 mean (Dettmers et al., 2023)."""

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


@operator("MatMulBnb4", domain=MS)
def matmul_bnb4(call: Call, x: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    """x times the transpose of a matrix (N, K) of codes of a table, scaled by blocks of what lies
    in a row; of two codes in a byte the first is the higher half.
    """
    n, k, block, kind = call["N"], call["K"], call["block_size"], call["quant_type"]
    if kind not in (0, 1) or min(n, k, block) < 1 or n * k > 2 * packed.size:
        raise call.refuse(f"a matrix ({n}, {k}) of type {kind} in {packed.size} bytes")
    table = T.asarray(BNB4[kind], dtype="f32", device=x.device)
    flat = packed.reshape(-1)
    low, high = flat & 15, apply("rshift", flat, T.full_like(flat, 4))
    codes = T.stack([high, low], axis=-1).reshape(-1)[: n * k]
    by = scales.reshape(-1).astype("f32")[: -(-n * k // block)]
    by = by.repeat_interleave(min(block, n * k), 0)[: n * k]
    weight = (apply("take", table, codes.astype("i64"), axis=0) * by).reshape(n, k)
    made = x.astype("f32") @ (weight.T if call.get("transB", 1) else weight)
    return made.astype(x.dtype)


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
    rank = len(data.shape)
    axis, along = (
        axis_of(call.get("gather_axis", 0), rank),
        axis_of(call.get("quantize_axis", 1), rank),
    )
    bits, block = call.get("bits", 4), call.get("block_size", 128)
    packed = data.dtype.kind == "u" and data.dtype.bits == 8
    if packed and along != rank - 1:
        raise call.refuse("codes in bytes that are quantized along another axis than the last")
    at = index.astype("i64")
    if axis == along:  # its elements are taken when they are numbers
        return taken(numbers(data, scales, zeros, bits, block, along, packed), at, axis)
    parts = [None if t is None else taken(t, at, axis) for t in (data, scales, zeros)]
    codes, by, zeros = parts
    assert codes is not None and by is not None
    along += len(at.shape) - 1 if along > axis else 0
    return numbers(codes, by, zeros, bits, block, along, packed)


def taken(x: Tensor, at: Tensor, axis: int) -> Tensor:
    """What an index takes along an axis, in whose place its axes come."""
    return apply("take", x, at, axis=axis)


def numbers(
    data: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bits: int,
    block: int,
    axis: int,
    packed: bool,
) -> Tensor:
    """Codes as the numbers that they mean, with scales for blocks along an axis."""
    codes = codes_of(data, bits) if packed else data
    point: Any = float(1 << (bits - 1)) if packed else 0.0

    def widened(t: Tensor) -> Tensor:
        t = t.astype(scales.dtype).repeat_interleave(block, axis)
        index = tuple([(None, None, None)] * axis + [(None, codes.shape[axis], None)])
        return apply("slice", t, index=index) if t.shape[axis] > codes.shape[axis] else t

    if zeros is not None:
        found = codes_of(zeros, bits)[..., : scales.shape[axis]] if packed else zeros
        point = widened(found)
    return (codes.astype(scales.dtype) - point) * widened(scales)
