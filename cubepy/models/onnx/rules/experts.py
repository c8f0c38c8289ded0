"""Experts of constant codes as stacks of matrices that stay packed."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy import nn
from cubepy.models.formats.onnx import Node
from cubepy.models.onnx.constants import Constant
from cubepy.models.onnx.rewriting import OURS, Rewriting, host_of
from cubepy.models.onnx.rules.nbits import FLOATS, packed
from cubepy.models.packed import picked_codes  # noqa: F401  what reads stacks of codes
from cubepy.models.packed.nbits import BlockCodes, bytes_of
from cubepy.runtime.device import current, gpu_of
from cubepy.tensor import Tensor

INPUTS = {"fc1": (2, 3, 11), "fc2": (5, 6, 12), "fc3": (8, 9, 13)}
"""Inputs of QMoE that are codes, scales and zero points, by product."""
WHOLE = (128, 64, 32, 16)
"""Lengths of blocks where a scale holds for a row."""


def experts_of(graph: Rewriting, node: Node) -> Node | None:
    """QMoE of constant codes of integers; None for others."""
    given, names = node.attributes, (*node.inputs, *[""] * 21)[:21]
    if given.get("quant_type", "int") != "int" or given.get("weights_prepacked", -1) == 1:
        return None
    if any(names[15:]) or not names[2] or not names[5]:
        return None
    stacks: dict[str, BlockCodes] = {}
    experts = 0
    for key, numbers in INPUTS.items():
        if not names[numbers[0]]:
            continue
        values: list[Any] = [
            host_of(graph.constants.get(names[k])) if names[k] else None for k in numbers
        ]
        if any(names[k] and v is None for k, v in zip(numbers, values, strict=True)):
            return None
        bits = given.get(f"{key}_expert_weight_bits", given.get("expert_weight_bits", 4))
        found = stack_of(values, bits, given.get("block_size", 0))
        if found is None or experts not in (0, values[0].shape[0]):
            return None
        stacks[key], experts = found, values[0].shape[0]
    made, here = nn.Module(), current()
    for key, storage in stacks.items():
        weight = Tensor(storage)
        setattr(made, key, nn.Parameter(weight.to(here) if gpu_of(here) else weight, False))
    for name in {names[k] for numbers in INPUTS.values() for k in numbers if names[k]}:
        old = graph.constants.get(name)
        if isinstance(old, Constant) and graph.uses[name] == 2:
            graph.scope.parameters.pop(old.key, None)
    graph.scope.modules[graph.free(graph.scope.prefix + names[2])] = made
    inputs = tuple(names[k] for k in (0, 1, 4, 7, 10, 14))
    said = {**given, "module": made, "experts": experts}
    return Node("PackedExperts", OURS, node.name, inputs, node.outputs, said)


def stack_of(values: list[Any], bits: int, block: int) -> BlockCodes | None:
    """Codes (experts, rows, bytes) with their scales and zero points as one matrix; None where they
    do not go.
    """
    codes, scales, zeros = values
    if codes.dtype != np.uint8 or codes.ndim != 3 or 0 in codes.shape or bits not in (2, 3, 4, 8):
        return None
    if scales is None or scales.dtype.name not in FLOATS:
        return None
    experts, rows, nbytes = codes.shape
    columns, count = nbytes * 8 // bits, experts * rows
    blocks = scales.size // count
    if scales.size != blocks * count or not blocks or columns % blocks:
        return None
    length = columns // blocks
    if block and length != block or blocks > 1 and (length < 16 or length & (length - 1)):
        return None
    points = points_of(zeros, (experts, rows, blocks), bits)
    if points is None:
        return None
    flat, by = codes.reshape(count, nbytes), scales.reshape(count, blocks).astype(np.float32)
    if bits == 3:
        wide = of_three_bits(flat)
        flat, bits = packed(np.pad(wide, ((0, 0), (0, columns % 2))), 4), 4
    if blocks == 1:  # a scale holds for a row
        length = next((n for n in WHOLE if columns % n == 0), WHOLE[0])
        parts = -(-columns // length)
        behind = parts * length * bits // 8 - flat.shape[1]
        flat = np.pad(flat, ((0, 0), (0, behind))) if behind else flat
        by, points = np.repeat(by, parts, axis=1), np.repeat(points, parts, axis=1)
    return BlockCodes(np.ascontiguousarray(flat), by, points, columns, bits, length)


def points_of(zeros: Any, lengths: tuple[int, int, int], bits: int) -> np.ndarray | None:
    """Zero points (experts * rows, blocks) as floats; None where they do not go."""
    experts, rows, blocks = lengths
    if zeros is None:
        return np.full((experts * rows, blocks), 1 << (bits - 1), np.float32)
    if zeros.dtype != np.uint8 or zeros.ndim not in (2, 3) or zeros.shape[0] != experts:
        return None
    by_rows = zeros.ndim == 2  # one for each row, side by side
    wanted = (experts, -(-rows * bits // 8)) if by_rows else (experts, rows, -(-blocks * bits // 8))
    if zeros.shape != wanted or by_rows and blocks != 1:
        return None
    found = of_three_bits(zeros) if bits == 3 else bytes_of(zeros, bits)
    found = found[:, :rows] if by_rows else found[..., :blocks]
    return np.ascontiguousarray(found.reshape(experts * rows, blocks), np.float32)


def of_three_bits(packed: np.ndarray) -> np.ndarray:
    """Codes in bytes each, of a stream of three bits, low ones first, along the last axis.

    Example:
        >>> of_three_bits(np.array([[0x88, 0xC6, 0xFA]], np.uint8))
        array([[0, 1, 2, 3, 4, 5, 6, 7]], dtype=uint8)
    """
    single = np.unpackbits(packed, axis=-1, bitorder="little")
    count = single.shape[-1] // 3
    found = single[..., : 3 * count].reshape(*packed.shape[:-1], count, 3)
    return np.asarray(found @ np.array([1, 2, 4], np.uint8), np.uint8)
