"""The kernel library: functions of NumPy arrays (or tensors) whose work is done by kernels of the language.

Every kernel is in the file of its family; the functions here choose one, lay out its launch and check shapes.
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels import functions, views
from cubepy.kernels.attention import attention
from cubepy.kernels.elementwise import copy, map
from cubepy.kernels.embedding import embedding
from cubepy.kernels.matmul import matmul, prepack
from cubepy.kernels.movement import transpose
from cubepy.kernels.normalise import layer_norm, softmax
from cubepy.kernels.pool import max_pool2d
from cubepy.kernels.reduce import argmax, argmin, max, mean, min, prod, sum


def gelu(x: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """Gaussian error linear unit, as `torch.nn.functional.gelu`.

    Args:
        x: array of floats.
        approximate: "none" (with the error function) or "tanh".
        out: array to write, x itself included.

    Example:
        >>> import numpy as np
        >>> gelu(np.zeros(2, np.float32))
        array([0., 0.], dtype=float32)
    """
    forms = {"none": functions.gelu_erf, "tanh": functions.gelu_tanh}
    if approximate not in forms:
        raise ShapeError(f'approximate is "none" or "tanh", not {approximate!r}')
    return map(forms[approximate], x, out=out)


__all__ = [
    "argmax", "argmin", "attention", "copy", "embedding", "functions", "gelu", "layer_norm", "map", "matmul", "max",
    "max_pool2d", "mean", "min", "prepack", "prod", "softmax", "sum", "transpose", "views",
]  # fmt: skip
