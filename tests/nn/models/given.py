"""What models are given, and how gradients are kept: drawn by NumPy alone, so that the script that
asks torch draws the same.
"""

from __future__ import annotations

import math
import zlib

import numpy as np


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The weight of a name: f32 numbers; scales of norms lie about 1, variances above 0.5."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    numbers = rng.standard_normal(shape)
    if name.endswith("running_var"):
        numbers = np.abs(numbers) + 0.5
    elif len(shape) == 1:
        about = 1.0 if name.endswith(("weight", "gamma")) else 0.0
        numbers = about + 0.1 * numbers
    else:
        numbers = numbers / math.sqrt(math.prod(shape[1:]))
    return numbers.astype(np.float32)


def inputs() -> dict[str, np.ndarray]:
    """What each model is given."""
    rng = np.random.default_rng(5)
    padded = rng.integers(2, 50, (2, 12))
    padded[1, 8:] = 1
    return {
        "roberta": padded,
        "gpt2": rng.integers(0, 50, (2, 12)),
        "llama": rng.standard_normal((2, 9, 16)).astype(np.float32),
        "vit": rng.standard_normal((2, 3, 16, 16)).astype(np.float32),
        "resnet50": rng.standard_normal((2, 3, 64, 64)).astype(np.float32),
        "resnet50_trained": rng.standard_normal((4, 3, 64, 64)).astype(np.float32),
        "convnext": rng.standard_normal((2, 3, 32, 32)).astype(np.float32),
        "mobilenetv2": rng.standard_normal((2, 3, 32, 32)).astype(np.float32),
        "mobilenetv2_trained": rng.standard_normal((4, 3, 32, 32)).astype(np.float32),
        "lstm": rng.integers(0, 30, (2, 10)),
        "transformer": padded[::-1].copy(),
    }


def summary(name: str, array: np.ndarray) -> np.ndarray:
    """An array by its norm and its products with four random vectors, over the root of its size."""
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 1)
    flat = array.astype(np.float64).reshape(-1)
    vectors = rng.standard_normal((4, flat.size))
    return np.concatenate([[np.linalg.norm(flat)], vectors @ flat])


def along(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """What the gradients of a result are asked along."""
    return np.random.default_rng(zlib.crc32(name.encode())).uniform(-1, 1, shape)
