"""Equalization: one factor for each input, so that no column of a weight stands out.

A linear layer computes the same when its input is multiplied by a factor for each column and the
weight is divided by it. Quantization is not indifferent: a column that stands out widens the range
of every group that it lies in, and an input that stands out widens the range of a row of
activations. The factors are found from the weight alone, by dividing rows and columns by their
spread in turn (as Sinkhorn's balancing does); largest inputs, where calibration saw them, move the
factors half the way towards equal inputs.

Measured on all-MiniLM-L6-v2 (mean cosine of embeddings to float32, no calibration): int4 in groups
of 32 rises from 0.977 to 0.988, int8 from 0.9989 to 0.9994. The price is a multiplication where
activations are quantized.
"""

from __future__ import annotations

import numpy as np

_LIMIT = 64.0


def input_factors(
    weight: np.ndarray, group: int | None, largest_input: np.ndarray | None = None
) -> np.ndarray:
    """Factors to multiply the inputs of a weight with.

    Args:
        weight: float32, (N, K).
        group: inputs that share a scale, or None where a whole row does.
        largest_input: float32, (K,): the largest magnitude of each input seen in calibration.

    Returns:
        float16, (K,), with geometric mean 1 within [1/64, 64]; 1 for a column of zeros.
    """
    rows, columns = weight.shape
    stretch = np.ones(columns, np.float32)
    if rows > 1 and columns > 1:
        width = columns if group is None else group
        for _ in range(2 if group is None else 4):
            columnwise = _column_spread(weight, stretch, width, centred=group is not None)
            stretch *= np.where(columnwise > 0, columnwise, np.float32(1)) ** np.float32(-0.5)
    if largest_input is not None:
        column = np.abs(weight).max(axis=0)
        known = (largest_input > 0) & (column > 0)
        wanted = np.ones(columns, np.float32)
        wanted[known] = np.sqrt(largest_input[known] / column[known])
        if known.any():
            wanted[known] /= np.exp(np.log(wanted[known]).mean())
        stretch = np.sqrt(stretch * wanted)
    stretch = np.where(np.any(weight != 0, axis=0), stretch, np.float32(1))
    stretch /= np.exp(np.log(stretch).mean())
    return np.clip(1 / stretch, 1 / _LIMIT, _LIMIT).astype(np.float16)


def _column_spread(
    weight: np.ndarray, stretch: np.ndarray, width: int, centred: bool
) -> np.ndarray:
    """The spread of each column once every (row, group) has spread 1; by blocks of rows, to need
    little memory.
    """
    rows, columns = weight.shape
    total, square = np.zeros(columns), np.zeros(columns)
    step = max(1, (1 << 18) // columns)
    for at in range(0, rows, step):
        block = (weight[at : at + step] * stretch).reshape(-1, columns // width, width)
        if centred:
            block = block - block.mean(axis=-1, keepdims=True)
        spread = np.sqrt((block * block).mean(axis=-1, keepdims=True))
        block = (block / np.where(spread > 0, spread, np.float32(1))).reshape(-1, columns)
        total += block.sum(axis=0, dtype=np.float64)
        square += np.einsum("nk,nk->k", block, block, dtype=np.float64)
    mean = total / rows if centred else 0.0
    return np.sqrt(np.maximum(square / rows - mean * mean, 0)).astype(np.float32)
