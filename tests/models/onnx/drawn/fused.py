"""Several operators in one node, drawn; and all kinds of draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.onnx.drawn import attention, caches, codes, experts, tabular
from tests.models.onnx.drawn.node import Drawn, floats, yes


def skip_norm(rng: Any) -> Drawn:
    """Layer and RMS norm of sums, of two and three axes, skips that are broadcast."""
    plain = yes(rng)
    width, batch, count = (int(rng.integers(1, n)) for n in (40, 4, 6))
    three = yes(rng, 0.7)
    shape = (batch, count, width) if three else (count, width)
    other = [shape, (1, *shape[1:]), shape[1:]][int(rng.integers(3))] if three else shape
    given: list[Any] = [
        ("x", floats(rng, *shape)),
        ("s", floats(rng, *other)),
        ("=g", floats(rng, width)),
    ]
    if plain:
        given.append(("=b", floats(rng, width)) if yes(rng) else None)
    given.append(("=c", floats(rng, width)) if yes(rng) else None)
    how = {"epsilon": float(rng.choice([1e-12, 1e-5, 0.1]))} if yes(rng, 0.8) else {}
    op = "SkipLayerNormalization" if plain else "SkipSimplifiedLayerNormalization"
    outputs: list[Any] = [np.float32]
    if yes(rng):
        outputs += [None, None, np.float32]
    return Drawn(op, how, given, outputs)


def embedded(rng: Any) -> Drawn:
    """`EmbedLayerNormalization` with masks, segments and positions, and without."""
    batch, count, wide, words = (int(rng.integers(1, n)) for n in (4, 8, 40, 30))

    def rows(below: int, *shape: int) -> Any:
        return rng.integers(0, below, shape).astype(np.int32)

    segments = yes(rng, 0.7)
    given: list[Any] = [("w", rows(words, batch, count))]
    given.append(("s", rows(2, batch, count)) if segments else None)
    given += [("=wt", floats(rng, words, wide)), ("=pt", floats(rng, count + 3, wide))]
    given.append(("=st", floats(rng, 2, wide)) if segments else None)
    given += [("=g", floats(rng, wide)), ("=b", floats(rng, wide))]
    given.append(("m", rows(2, batch, count)) if yes(rng) else None)
    given.append(("p", rows(count + 3, batch if yes(rng) else 1, count)) if yes(rng, 0.4) else None)
    outputs: list[Any] = [np.float32, np.int32]
    if yes(rng, 0.4):
        outputs.append(np.float32)
    return Drawn("EmbedLayerNormalization", {"epsilon": 1e-5}, given, outputs)


def fused(rng: Any) -> Drawn:
    """Products, convolutions and activations in one node."""
    op = str(
        rng.choice(
            [
                "FusedMatMul",
                "FusedGemm",
                "FusedConv",
                "BiasGelu",
                "FastGelu",
                "QuickGelu",
                "TransposeMatMul",
            ]
        )
    )
    a, b, c, d = (int(rng.integers(1, n)) for n in (4, 6, 8, 9))
    how: dict[str, Any] = {}
    if op in ("FusedMatMul", "TransposeMatMul"):
        ta, tb = yes(rng), yes(rng)
        how = {"transA": int(ta), "transB": int(tb)}
        how |= {"alpha": 0.5} if yes(rng) else {}
        x, y = ((a, c, b) if ta else (a, b, c)), ((a, d, c) if tb else (a, c, d))
        if op == "FusedMatMul" and yes(rng, 0.3):  # the batch lies between
            how |= {"transBatchA": 1}
            x = (c, a, b) if ta else (b, a, c)
        if op == "FusedMatMul" and yes(rng, 0.3):
            how |= {"transBatchB": 1}
            y = (d, a, c) if tb else (c, a, d)
        given: list[Any] = [("a", floats(rng, *x)), ("b", floats(rng, *y))]
        return Drawn(op, how, given, [np.float32])
    name = str(
        rng.choice(
            [
                "Relu",
                "Sigmoid",
                "Tanh",
                "LeakyRelu",
                "HardSigmoid",
                "Clip",
                "Elu",
                "Softplus",
                "Softsign",
                "ThresholdedRelu",
            ]
        )
    )
    if op == "FusedGemm":
        ta, tb = yes(rng), yes(rng)
        how = {"transA": int(ta), "transB": int(tb), "alpha": 0.5, "beta": 2.0, "activation": name}
        if name in ("LeakyRelu", "Elu", "ThresholdedRelu"):
            how["activation_alpha"] = 0.3
        if name == "HardSigmoid":
            how |= {"activation_alpha": 0.3, "activation_beta": 0.4}
        given = [
            ("a", floats(rng, *((c, b) if ta else (b, c)))),
            ("b", floats(rng, *((d, c) if tb else (c, d)))),
        ]
        given.append(
            ("c", floats(rng, *[(b, d), (d,), (b, 1), ()][int(rng.integers(4))]))
            if yes(rng, 0.7)
            else None
        )
    elif op == "FusedConv":
        how = {"kernel_shape": [2, 2], "activation": name}
        params = {
            "LeakyRelu": [0.3],
            "HardSigmoid": [0.3, 0.4],
            "Clip": [-0.5, 0.7],
            "Elu": [0.3],
            "ThresholdedRelu": [0.3],
        }
        how |= {"activation_params": params[name]} if name in params else {}
        given = [("x", floats(rng, a, b, c + 2, d + 2)), ("=w", floats(rng, 3, b, 2, 2))]
        given += [("=b", floats(rng, 3)) if yes(rng) else None]
        given += [("z", floats(rng, a, 3, c + 1, d + 1)) if yes(rng, 0.3) else None]
    else:
        given = [("x", floats(rng, a, b, c))]
        if op == "BiasGelu" or op == "FastGelu" and yes(rng):
            given.append(("=b", floats(rng, c)))
        how = {"alpha": 1.3} if op == "QuickGelu" and yes(rng) else {}
    return Drawn(op, how, given, [np.float32])


def standard(rng: Any) -> Drawn:
    """Operators that ONNX has by now, and matrices."""
    kind = str(rng.choice("Trilu Range GatherND GridSample Pad ExpandDims Inverse CDist".split()))
    a, b = (int(n) for n in rng.integers(1, 6, 2))
    how: dict[str, Any] = {}
    if kind == "Trilu":
        how = {"upper": int(yes(rng))}
        given = [("x", floats(rng, 2, a, b)), ("=k", np.array(rng.integers(-2, 3)))]
    elif kind == "Range":
        numbers = zip(("=first", "=end", "=step"), (1.0, 1.0 + a * 0.5, 0.5), strict=True)
        given = [(n, np.float32(v)) for n, v in numbers]
    elif kind == "GatherND":
        index = rng.integers(0, min(a, b), (3, int(rng.integers(1, 3))))
        given = [("x", floats(rng, a, b, 2)), ("i", index)]
    elif kind == "GridSample":
        how = {"mode": str(rng.choice(["bilinear", "nearest", "bicubic"]))}
        how["padding_mode"] = str(rng.choice(["zeros", "border", "reflection"]))
        how["align_corners"] = int(yes(rng))
        given = [("x", floats(rng, 1, 2, a + 2, b + 2)), ("g", floats(rng, 1, 3, 2, 2, by=0.5))]
    elif kind == "Pad":
        how = {"mode": str(rng.choice(["constant", "reflect", "edge"]))}
        pads = ("=p", rng.integers(0, 3, 4))
        given = [("x", floats(rng, a + 2, b + 2)), pads, ("=v", np.array([0.5], np.float32))]
    elif kind == "ExpandDims":
        given = [("x", floats(rng, a, b)), ("=axis", np.array(rng.integers(-3, 3), np.int32))]
    elif kind == "Inverse":
        given = [("x", floats(rng, 2, a, a) + 3 * np.eye(a, dtype=np.float32))]
    else:
        how = {"metric": str(rng.choice(["euclidean", "sqeuclidean"]))}
        given = [("x", floats(rng, a, 7)), ("y", floats(rng, b, 7))]
    return Drawn(kind, how, given, [np.float32], far=1e-4)


DRAWS: dict[str, Any] = {
    "GroupQueryAttention": attention.group_query_attention,
    "MultiHeadAttention": attention.multi_head_attention,
    "Attention": attention.joined_attention,
    "QAttention": attention.quantized_attention,
    "RotaryEmbedding": attention.rotary,
    "Attention 23": attention.standard_attention,
    "Attention 24": lambda rng: attention.standard_attention(rng, 24),
    "RotaryEmbedding 23": lambda rng: attention.rotary(rng, standard=True),
    "SkipLayerNormalization": skip_norm,
    "MatMulNBits": codes.product_of_bits,
    "MatMulBnb4": codes.product_of_tables,
    "MoE": experts.experts_of_floats,
    "QMoE": experts.experts_of_codes,
    "GatherBlockQuantized": codes.gathered_blocks,
    "DynamicQuantizeLSTM": codes.lstm_of_codes,
    "QLinear": codes.linear_codes,
    "EmbedLayerNormalization": embedded,
    "Fused": fused,
    "GroupQueryAttention caches": caches.cached_attention,
    "TreeEnsembleRegressor": tabular.tree_regressor,
    "TreeEnsembleClassifier": tabular.tree_classifier,
    "TreeEnsemble 5": tabular.tree_ensemble,
    "Linear": tabular.linear,
    "SupportVectors": tabular.support_vectors,
    "Features": tabular.features,
    "Standard": standard,
}
