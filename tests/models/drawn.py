"""Weights of small models, drawn by NumPy from their names, so that no file has to hold them."""

from __future__ import annotations

import zlib

import numpy as np


def noise(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Normal f32 numbers of a name, such as an image."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return np.asarray(rng.standard_normal(shape), np.float32)


def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The weight of a name: of norms around 1, of matrices by the numbers that they sum."""
    values = noise(name, shape)
    if len(shape) < 2:
        norm = name.endswith("weight") or "lambda" in name or "layer_scale" in name
        values = (1.0 if norm else 0.0) + 0.2 * values
    else:
        values = values / np.sqrt(np.prod(shape[1:]))
    found: np.ndarray = np.asarray(values, np.float16).astype(np.float32)
    return found
