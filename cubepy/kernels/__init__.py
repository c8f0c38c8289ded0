"""The kernel library: functions of NumPy arrays (or tensors) whose work is done by kernels of the
language.

Every kernel is in the folder of its family; the functions here choose one, lay out its launch and
check shapes.
Each says why, too: `K.matmul.explain(a, b)` (see `cubepy.tune.explain`).

Example:
    >>> import numpy as np
    >>> from cubepy import kernels as K
    >>> K.softmax(np.zeros((1, 4), np.float32))
    array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
"""

from __future__ import annotations

from functools import partial
from types import FunctionType

from cubepy.kernels.attention.attention import attention
from cubepy.kernels.attention.gradients import attention_forward, attention_gradients
from cubepy.kernels.convolution.conv import conv1d, conv2d, conv3d
from cubepy.kernels.convolution.cpu.filters import prepack_filter
from cubepy.kernels.convolution.gradients import conv_input, conv_weight
from cubepy.kernels.convolution.transposed import (
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from cubepy.kernels.elementwise.activations import gelu
from cubepy.kernels.elementwise.map import map
from cubepy.kernels.indexing.embedding import embedding
from cubepy.kernels.indexing.gather import gather, select, take_along_axis
from cubepy.kernels.indexing.scatter import index_put, scatter
from cubepy.kernels.interpolate.interpolate import interpolate, interpolate_input
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.matmul.prepack import prepack
from cubepy.kernels.movement.concat import concat, flip
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.movement.pad import pad
from cubepy.kernels.movement.transpose import transpose
from cubepy.kernels.normalization.layer_norm import layer_norm
from cubepy.kernels.normalization.norms import batch_norm, group_norm, log_softmax, rms_norm
from cubepy.kernels.normalization.softmax import softmax
from cubepy.kernels.pooling.avg_pool import (
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
from cubepy.kernels.pooling.max_pool import (
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from cubepy.kernels.pooling.max_pool_gradient import (
    adaptive_max_pool1d_input,
    adaptive_max_pool2d_input,
    adaptive_max_pool3d_input,
    max_pool1d_input,
    max_pool2d_input,
    max_pool3d_input,
)
from cubepy.kernels.primitives import functions
from cubepy.kernels.random.distributions import (
    Generator,
    bernoulli,
    manual_seed,
    normal,
    randint,
    uniform,
)
from cubepy.kernels.reduce.arg import argmax, argmin
from cubepy.kernels.reduce.reduce import max, mean, min, prod, sum
from cubepy.kernels.reduce.statistics import all, any, logsumexp, norm, std, var
from cubepy.kernels.scan.scan import cumprod, cumsum
from cubepy.kernels.sort.sort import argsort, sort
from cubepy.kernels.sort.topk import topk
from cubepy.lang import views
from cubepy.tune.explain import explain

__all__ = [
    "Generator",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool1d_input",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_input",
    "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_input",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_input",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_input",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_input",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "attention",
    "attention_forward",
    "attention_gradients",
    "avg_pool1d",
    "avg_pool1d_input",
    "avg_pool2d",
    "avg_pool2d_input",
    "avg_pool3d",
    "avg_pool3d_input",
    "batch_norm",
    "bernoulli",
    "concat",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_input",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "conv_weight",
    "copy",
    "cumprod",
    "cumsum",
    "embedding",
    "flip",
    "functions",
    "gather",
    "gelu",
    "group_norm",
    "index_put",
    "interpolate",
    "interpolate_input",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "manual_seed",
    "map",
    "matmul",
    "max",
    "max_pool1d",
    "max_pool1d_input",
    "max_pool2d",
    "max_pool2d_input",
    "max_pool3d",
    "max_pool3d_input",
    "mean",
    "min",
    "norm",
    "normal",
    "pad",
    "prepack",
    "prepack_filter",
    "prod",
    "randint",
    "rms_norm",
    "scatter",
    "select",
    "softmax",
    "sort",
    "std",
    "sum",
    "take_along_axis",
    "topk",
    "transpose",
    "uniform",
    "var",
    "views",
]

for _name in __all__:
    if isinstance(_function := globals()[_name], FunctionType):
        _function.explain = partial(explain, _function)  # type: ignore[attr-defined]
