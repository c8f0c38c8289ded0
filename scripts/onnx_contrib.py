"""Compares operators of `com.microsoft` with onnxruntime, on small random models.

python scripts/onnx_contrib.py [part of a name ...]
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnxruntime as ort

from cubepy.models.onnx import load
from tests.models.onnx.writer import graph, model, node, tensor, value

RNG = np.random.default_rng(3)


def f(*shape: int) -> Any:
    """Normal numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Any:
    """Codes without signs."""
    return RNG.integers(0, 256, shape, np.uint8)


def i8(*shape: int) -> Any:
    """Codes with signs."""
    return RNG.integers(-128, 128, shape, np.int8)


def s(number: float) -> Any:
    """A scale."""
    return np.float32(number)


B, L, H, D = 2, 5, 4, 16
W = H * D
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], np.int32)
CASES: dict[str, tuple[str, dict[str, Any], list[Any], int]] = {
    "Gelu": ("Gelu", {}, [f(3, 7)], 1),
    "BiasGelu": ("BiasGelu", {}, [f(3, 8), f(8)], 1),
    "FastGelu": ("FastGelu", {}, [f(3, 8), f(8)], 1),
    "QuickGelu": ("QuickGelu", {}, [f(3, 8)], 1),
    "SkipLayerNormalization": (
        "SkipLayerNormalization",
        {"epsilon": 1e-5},
        [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)],
        1,
    ),
    "SkipSimplified": (
        "SkipSimplifiedLayerNormalization",
        {"epsilon": 1e-5},
        [f(2, 3, 8), f(2, 3, 8), f(8)],
        1,
    ),
    "FusedMatMul": ("FusedMatMul", {"alpha": 0.5, "transB": 1}, [f(2, 3, 4), f(2, 5, 4)], 1),
    "FusedConv": (
        "FusedConv",
        {"activation": "Relu", "kernel_shape": [3, 3]},
        [f(1, 2, 6, 6), f(3, 2, 3, 3), f(3)],
        1,
    ),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul",
        {},
        [f(3, 16), i8(16, 8), s(0.02), np.int8(0), f(8)],
        1,
    ),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        {},
        [u8(3, 16), i8(16, 8), s(0.1), s(0.02), np.uint8(3), np.int8(0), f(8)],
        1,
    ),
    "MatMulNBits": (
        "MatMulNBits",
        {"K": 64, "N": 8, "bits": 4, "block_size": 32},
        [f(3, 64), u8(8, 2, 16), np.abs(f(16)), u8(8)],
        1,
    ),
    "Attention": ("Attention", {"num_heads": H}, [f(B, L, W), f(W, 3 * W), f(3 * W), MASK], 1),
    "Attention causal": (
        "Attention",
        {"num_heads": H, "unidirectional": 1},
        [f(B, L, W), f(W, 3 * W), f(3 * W)],
        1,
    ),
    "Attention past": (
        "Attention",
        {"num_heads": H, "unidirectional": 1},
        [f(B, L, W), f(W, 3 * W), f(3 * W), None, f(2, B, H, 3, D)],
        2,
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention",
        {"num_heads": H},
        [f(B, L, W), f(B, 6, W), f(B, 6, W), f(3 * W)],
        1,
    ),
    "MultiHeadAttention bias": (
        "MultiHeadAttention",
        {"num_heads": H},
        [f(B, L, W), f(B, 6, W), f(B, 6, W), None, None, f(B, H, L, 6)],
        1,
    ),
    "GroupQueryAttention prompt": (
        "GroupQueryAttention",
        {"num_heads": H, "kv_num_heads": 2, "do_rotary": 1},
        [
            f(B, L, W),
            f(B, L, 2 * D),
            f(B, L, 2 * D),
            f(B, 2, 0, D),
            f(B, 2, 0, D),
            np.full(B, L - 1, np.int32),
            np.array(L, np.int32),
            f(16, D // 2),
            f(16, D // 2),
        ],
        3,
    ),
    "GroupQueryAttention next": (
        "GroupQueryAttention",
        {"num_heads": H, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": 4},
        [
            f(B, 1, W),
            f(B, 1, 2 * D),
            f(B, 1, 2 * D),
            f(B, 2, 6, D),
            f(B, 2, 6, D),
            np.full(B, 6, np.int32),
            np.array(7, np.int32),
            f(16, D // 2),
            f(16, D // 2),
        ],
        3,
    ),
    "RotaryEmbedding": (
        "RotaryEmbedding",
        {"interleaved": 1},
        [f(B, L, W), np.array([3], np.int64), f(16, D // 2), f(16, D // 2)],
        1,
    ),
    "RotaryEmbedding 4d": (
        "RotaryEmbedding",
        {},
        [f(B, H, L, D), np.tile(np.arange(L), (B, 1)), f(16, D // 2), f(16, D // 2)],
        1,
    ),
    "QAttention": (
        "QAttention",
        {"num_heads": H},
        [
            u8(B, L, W),
            i8(W, 3 * W),
            f(3 * W),
            s(0.02),
            s(0.01),
            np.full(B, L, np.int32),
            np.uint8(120),
            np.int8(0),
        ],
        1,
    ),
    "GatherBlockQuantized": (
        "GatherBlockQuantized",
        {"bits": 4, "block_size": 16, "gather_axis": 0, "quantize_axis": 1},
        [u8(10, 16), np.array([[1, 7], [3, 3]], np.int64), np.abs(f(10, 2)), u8(10, 1)],
        1,
    ),
    "QLinearAdd": (
        "QLinearAdd",
        {},
        [u8(3, 4), s(0.1), np.uint8(5), u8(3, 4), s(0.2), np.uint8(9), s(0.3), np.uint8(1)],
        1,
    ),
    "QLinearMul": (
        "QLinearMul",
        {},
        [i8(3, 4), s(0.1), np.int8(5), i8(3, 4), s(0.2), np.int8(9), s(1.3), np.int8(1)],
        1,
    ),
    "QLinearSigmoid": (
        "QLinearSigmoid",
        {},
        [u8(3, 4), s(0.05), np.uint8(120), s(0.004), np.uint8(0)],
        1,
    ),
    "QLinearLeakyRelu": (
        "QLinearLeakyRelu",
        {"alpha": 0.1},
        [u8(3, 4), s(0.05), np.uint8(120), s(0.04), np.uint8(20)],
        1,
    ),
    "QLinearGlobalAveragePool": (
        "QLinearGlobalAveragePool",
        {},
        [u8(1, 3, 4, 4), s(0.05), np.uint8(120), s(0.04), np.uint8(120)],
        1,
    ),
    "QLinearSoftmax": (
        "QLinearSoftmax",
        {"axis": -1, "opset": 13},
        [u8(3, 6), s(0.05), np.uint8(120), s(1 / 256), np.uint8(0)],
        1,
    ),
    "QLinearConcat": (
        "QLinearConcat",
        {"axis": 1},
        [s(0.1), np.uint8(7), u8(2, 3), s(0.05), np.uint8(1), u8(2, 2), s(0.2), np.uint8(9)],
        1,
    ),
}


def compared(name: str) -> str:
    """What a case comes to."""
    op, how, given, count = CASES[name]
    names = ["_" if v is None else f"i{k}" for k, v in enumerate(given)]
    outputs = [f"o{k}" for k in range(count)]
    feeds, constants = {}, []
    for k, array in enumerate(given):
        if array is None:
            continue
        array = np.asarray(array)
        first = k == 0 or array.ndim >= 4 or array.dtype in (np.int32, np.int64)
        if first and array.dtype != np.int8:
            feeds[f"i{k}"] = array
        else:
            constants.append(tensor(f"i{k}", array))
    kinds = {"o0": given[0].dtype if op.startswith("QLinear") and op != "QLinearConcat" else None}
    if op == "QLinearConcat":
        kinds["o0"] = np.dtype(np.uint8)
    made = graph(
        [node(op, " ".join(names), " ".join(outputs), "com.microsoft", **how)],
        [value(n, a.dtype, a.shape) for n, a in feeds.items()],
        [value(o, kinds.get(o) or np.float32) for o in outputs],
        constants,
    )
    data = model(made, com_microsoft=1)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        expected = ort.InferenceSession(data, options).run(outputs, feeds)
    except Exception as error:
        return f"onnxruntime refuses: {str(error)[:160]}"
    found = load(data)(**feeds)
    worst = 0.0
    for o, theirs in zip(outputs, expected, strict=True):
        ours = found[o].numpy()
        if ours.shape != theirs.shape:
            return f"{o}: shape {ours.shape}, expected {theirs.shape}"
        far = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max(initial=0)
        worst = max(worst, float(far / max(np.abs(theirs.astype(np.float64)).max(initial=0), 1e-6)))
    return f"{worst:.1e}"


def main() -> None:
    """Compare all cases, or those that are named."""
    for name in CASES:
        if len(sys.argv) > 1 and not any(part in name for part in sys.argv[1:]):
            continue
        try:
            text = compared(name)
        except Exception as error:
            text = f"FAILED {type(error).__name__}: {str(error)[:300]}"
        print(f"{name}: {text}", flush=True)


if __name__ == "__main__":
    main()
