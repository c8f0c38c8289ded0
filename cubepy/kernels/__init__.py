"""The kernel library: functions of NumPy arrays (or tensors) whose work is done by kernels of the language.

Every kernel is in the file of its family; the functions here choose one, lay out its launch and check shapes.

Example:
    >>> import numpy as np
    >>> from cubepy import kernels as K
    >>> K.softmax(np.zeros((1, 4), np.float32))
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels import functions
from cubepy.kernels.arguments import array_of
from cubepy.kernels.attention import attention
from cubepy.kernels.attention_gradient import attention_forward, attention_gradients
from cubepy.kernels.concat import concat, flip
from cubepy.kernels.convolution import conv1d, conv2d, conv3d
from cubepy.kernels.convolution_backward import (
    conv_input,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    conv_weight,
)  # fmt: skip
from cubepy.kernels.convolution_filters import prepack_filter
from cubepy.kernels.elementwise import copy, map
from cubepy.kernels.embedding import embedding
from cubepy.kernels.gather import gather, select, take_along_axis
from cubepy.kernels.matmul import matmul, prepack
from cubepy.kernels.movement import transpose
from cubepy.kernels.normalise import layer_norm, softmax
from cubepy.kernels.norms import batch_norm, group_norm, log_softmax, rms_norm
from cubepy.kernels.pad import pad
from cubepy.kernels.pool_average import (
    adaptive_avg_pool1d,
    adaptive_avg_pool1d_input,
    adaptive_avg_pool2d,
    adaptive_avg_pool2d_input,
    adaptive_avg_pool3d,
    adaptive_avg_pool3d_input,
    avg_pool1d,
    avg_pool1d_input,
    avg_pool2d,
    avg_pool2d_input,
    avg_pool3d,
    avg_pool3d_input,
)
from cubepy.kernels.pool_max import (
    adaptive_max_pool1d,
    adaptive_max_pool1d_input,
    adaptive_max_pool2d,
    adaptive_max_pool2d_input,
    adaptive_max_pool3d,
    adaptive_max_pool3d_input,
    max_pool1d,
    max_pool1d_input,
    max_pool2d,
    max_pool2d_input,
    max_pool3d,
    max_pool3d_input,
)
from cubepy.kernels.random import Generator, bernoulli, manual_seed, normal, randint, uniform
from cubepy.kernels.reduce import argmax, argmin, max, mean, min, prod, sum
from cubepy.kernels.resample import interpolate, interpolate_input  # fmt: skip
from cubepy.kernels.scan import cumprod, cumsum
from cubepy.kernels.scatter import index_put, scatter
from cubepy.kernels.sort import argsort, sort, topk
from cubepy.kernels.statistics import all, any, logsumexp, norm, std, var
from cubepy.lang import views


def gelu(x: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """Gaussian error linear unit, as `torch.nn.functional.gelu`.

    Args:
        x: array of floats.
        approximate: "none" (with the error function) or "tanh".
        out: array to write, x itself included.

    Raises:
        ShapeError: another `approximate`, or a shape of `out` that does not fit.
        DTypeError: x holds integers.

    Example:
        >>> import numpy as np
        >>> gelu(np.zeros(2, np.float32))
        array([0., 0.], dtype=float32)
    """
    forms = {"none": functions.gelu_erf, "tanh": functions.gelu_tanh}
    if not isinstance(approximate, str) or approximate not in forms:
        raise ShapeError(f'approximate is "none" or "tanh", not {approximate!r}')
    dtype = array_of(x, "x").dtype
    if dtype.kind in "iub":
        raise DTypeError(f"x must hold floats, not {dtype}", hint="x.astype(np.float32)")
    return map(forms[approximate], x, out=out)


__all__ = [
    "Generator", "adaptive_avg_pool1d", "adaptive_avg_pool1d_input", "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_input", "adaptive_avg_pool3d", "adaptive_avg_pool3d_input", "adaptive_max_pool1d",
    "adaptive_max_pool1d_input", "adaptive_max_pool2d", "adaptive_max_pool2d_input", "adaptive_max_pool3d",
    "adaptive_max_pool3d_input", "all", "any", "argmax", "argmin", "argsort", "attention", "attention_forward",
    "attention_gradients", "avg_pool1d",
    "avg_pool1d_input", "avg_pool2d", "avg_pool2d_input", "avg_pool3d", "avg_pool3d_input", "batch_norm", "bernoulli",
    "concat", "conv1d", "conv2d", "conv3d", "conv_input", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "conv_weight", "copy", "cumprod", "cumsum", "embedding", "flip", "functions", "gather", "gelu", "group_norm",
    "index_put", "interpolate", "interpolate_input", "layer_norm", "log_softmax", "logsumexp", "manual_seed", "map",
    "matmul", "max", "max_pool1d", "max_pool1d_input", "max_pool2d", "max_pool2d_input", "max_pool3d",
    "max_pool3d_input", "mean", "min", "norm", "normal", "pad", "prepack", "prepack_filter", "prod", "randint",
    "rms_norm", "scatter", "select", "softmax", "sort", "std", "sum", "take_along_axis", "topk", "transpose",
    "uniform", "var", "views",
]  # fmt: skip
