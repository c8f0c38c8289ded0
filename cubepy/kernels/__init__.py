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

import importlib
import sys
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

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
    "gru",
    "index_put",
    "interpolate",
    "interpolate_input",
    "layer_norm",
    "log_softmax",
    "logsumexp",
    "lstm",
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
    "rnn",
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

_FAMILIES = {
    "attention.attention": "attention",
    "attention.gradients": "attention_forward attention_gradients",
    "convolution.conv": "conv1d conv2d conv3d",
    "convolution.cpu.filters": "prepack_filter",
    "convolution.gradients": "conv_input conv_weight",
    "convolution.transposed": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "elementwise.activations": "gelu",
    "elementwise.map": "map",
    "indexing.embedding": "embedding",
    "indexing.gather": "gather select take_along_axis",
    "indexing.scatter": "index_put scatter",
    "interpolate.interpolate": "interpolate interpolate_input",
    "matmul.matmul": "matmul",
    "matmul.prepack": "prepack",
    "movement.concat": "concat flip",
    "movement.copy": "copy",
    "movement.pad": "pad",
    "movement.transpose": "transpose",
    "normalization.layer_norm": "layer_norm",
    "normalization.norms": "batch_norm group_norm log_softmax rms_norm",
    "normalization.softmax": "softmax",
    "pooling.avg_pool": (
        "adaptive_avg_pool1d adaptive_avg_pool1d_input adaptive_avg_pool2d "
        "adaptive_avg_pool2d_input adaptive_avg_pool3d adaptive_avg_pool3d_input avg_pool1d "
        "avg_pool1d_input avg_pool2d avg_pool2d_input avg_pool3d avg_pool3d_input"
    ),
    "pooling.max_pool": (
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d max_pool1d max_pool2d "
        "max_pool3d"
    ),
    "pooling.max_pool_gradient": (
        "adaptive_max_pool1d_input adaptive_max_pool2d_input adaptive_max_pool3d_input "
        "max_pool1d_input max_pool2d_input max_pool3d_input"
    ),
    "random.distributions": "Generator bernoulli manual_seed normal randint uniform",
    "recurrent.layers": "gru lstm rnn",
    "reduce.arg": "argmax argmin",
    "reduce.reduce": "max mean min prod sum",
    "reduce.statistics": "all any logsumexp norm std var",
    "scan.scan": "cumprod cumsum",
    "sort.sort": "argsort sort",
    "sort.topk": "topk",
}
"""The functions of each module, which is loaded when one of them is used first."""
_MODULES = {"functions": "cubepy.kernels.primitives.functions", "views": "cubepy.lang.views"}
_of = {name: module for module, names in _FAMILIES.items() for name in names.split()}


class _Library(ModuleType):
    """The library, in which folders that are named as a function do not hide it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _of or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found: Any = importlib.import_module(_MODULES[name])
    elif name in _of:
        found = getattr(importlib.import_module(f"cubepy.kernels.{_of[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if isinstance(found, FunctionType):
        found.explain = partial(explain, found)  # type: ignore[attr-defined]
    globals()[name] = found
    return found


def load() -> None:
    """Load the whole library: all of its operations are known from then on (`cubepy.tune.OPS`)."""
    for name in __all__:
        getattr(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


sys.modules[__name__].__class__ = _Library
