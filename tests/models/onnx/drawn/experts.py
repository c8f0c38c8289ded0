"""Mixtures of experts, drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.onnx.drawn.node import Drawn, floats, yes

ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")


def _begun(rng: Any) -> tuple[dict[str, Any], int, int]:
    """Attributes, the number of experts, and rows of the first matrix for each of the second."""
    experts = int(rng.integers(1, 9))
    name = str(rng.choice(ACTIVATIONS))
    how: dict[str, Any] = {"activation_type": name, "k": int(rng.integers(1, min(experts, 4) + 1))}
    if name == "swiglu":
        how["swiglu_fusion"] = 1
        if yes(rng):
            how |= {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}
    return how, experts, 2 if name == "swiglu" else 1


def _rows(rng: Any, width: int) -> Any:
    lengths = (int(rng.integers(1, 24)),) if yes(rng) else tuple(rng.integers(1, 5, 2).tolist())
    return floats(rng, *lengths, width)


def experts_of_floats(rng: Any) -> Drawn:
    """`MoE`: few rows and many, with biases and without; also with shapes that say that matrices
    lie the other way round.
    """
    how, experts, times = _begun(rng)
    width, inner = (int(rng.integers(1, n)) for n in (40, 50))
    if yes(rng):
        how["normalize_routing_weights"] = 1
    x = _rows(rng, width)
    count = x.size // width
    first = floats(rng, experts, times * inner, width, by=width**-0.5)
    second = floats(rng, experts, width, inner, by=inner**-0.5)
    if yes(rng, 0.2) and width != inner:
        first = first.reshape(experts, width, times * inner)
        second = second.reshape(experts, inner, width)
    given: list[Any] = [("x", x), ("scores", floats(rng, count, experts))]
    constant = "=" if yes(rng) else ""
    given += [(f"{constant}w1", first)]
    given.append(("=b1", floats(rng, experts, times * inner)) if yes(rng) else None)
    given += [(f"{constant}w2", second)]
    given.append(("=b2", floats(rng, experts, width)) if yes(rng) else None)
    return Drawn("MoE", how, given, [np.float32])


def experts_of_codes(rng: Any) -> Drawn:
    """`QMoE` of 2, 4 and 8 bits, scales by row and by block, zero points. onnxruntime's CPU
    divides shares by their sum whatever the node says, and rounds activations to bytes where codes
    of 2 and 8 bits have blocks.
    """
    how, experts, times = _begun(rng)
    bits, block = int(rng.choice([2, 4, 8])), int(rng.choice([0, 16, 32, 64]))
    how |= {"expert_weight_bits": bits, "normalize_routing_weights": 1}
    if block:
        how["block_size"] = block
        width, inner = (int(rng.integers(1, 4)) * block for _ in range(2))
    else:
        width, inner = (int(rng.integers(1, 20)) * 8 for _ in range(2))
    x = _rows(rng, width)
    count = x.size // width
    given: list[Any] = [("x", x), ("scores", floats(rng, count, experts))]
    points: list[Any] = []
    zeros = yes(rng)
    for n, (rows, columns) in enumerate([(times * inner, width), (width, inner)], 1):
        codes = rng.integers(0, 256, (experts, rows, columns * bits // 8)).astype(np.uint8)
        blocks = (columns // block,) if block else ()
        by = (rng.random((experts, rows, *blocks)) * 2.0**-bits).astype(np.float32)
        given += [(f"=w{n}", codes), (f"=s{n}", by)]
        given.append((f"=b{n}", floats(rng, experts, rows)) if yes(rng) else None)
        shape = (rows, -(-blocks[0] * bits // 8)) if block else (-(-rows * bits // 8),)
        packed = rng.integers(0, 256, (experts, *shape)).astype(np.uint8)
        points.append((f"=z{n}", packed) if zeros else None)
    given += [None] * 3 + points + [None]
    if yes(rng, 0.3):
        given.append(("weights", rng.random((count, experts)).astype(np.float32)))
        how["normalize_routing_weights"] = int(yes(rng))
    drawn = Drawn("QMoE", how, given, [np.float32])
    if block and bits != 4:
        drawn.far = 3e-2
    return drawn
