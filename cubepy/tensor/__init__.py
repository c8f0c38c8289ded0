"""Tensors: arrays whose operations are nodes of one serialisable op IR, run at once on the kernel
library.

The module can be called: `cb.tensor([1.0, 2.0])` makes a tensor, `cubepy.tensor.record` is its
recorder.

Example:
    >>> import cubepy as cb
    >>> x = cb.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> (x @ x.T).sum(axis=0)
    tensor([16., 36.])
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cubepy.tensor import linalg, namespace
from cubepy.tensor.array import Tensor, apply, as_tensor, tensor
from cubepy.tensor.control import projected, recurrence
from cubepy.tensor.control.checkpoint import checkpoint
from cubepy.tensor.control.cond import cond
from cubepy.tensor.control.scan import scan
from cubepy.tensor.control.while_loop import while_loop
from cubepy.tensor.custom.kernel_call import kernel_call
from cubepy.tensor.custom.vjp import custom_vjp
from cubepy.tensor.execute import register
from cubepy.tensor.generator import Generator
from cubepy.tensor.gradients import (
    attention,
    convolution,
    elementwise,
    functional,
    indexing,
    mathematics,
    movement,
    normalization,
    order,
    pooling,
    products,
    reductions,
)
from cubepy.tensor.gradients.functional import grad, grad_of, value_and_grad
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph, Node
from cubepy.tensor.modes import enable_grad, is_grad_enabled, no_grad, set_grad_enabled
from cubepy.tensor.module import CallableModule
from cubepy.tensor.namespace import *
from cubepy.tensor.namespace.dtypes import __array_api_version__, __array_namespace_info__
from cubepy.tensor.program.form import TensorSpec
from cubepy.tensor.program.jit import jit
from cubepy.tensor.record import Recorder, record
from cubepy.tensor.storage import Dense, Storage

sys.modules[__name__].__class__ = CallableModule

_GRADIENTS = (
    attention,
    convolution,
    elementwise,
    functional,
    indexing,
    mathematics,
    movement,
    normalization,
    order,
    pooling,
    products,
    projected,
    recurrence,
    reductions,
)
"""Imported for the gradients that they add to ops."""

__all__ = [
    "Dense",
    "Generator",
    "Graph",
    "Node",
    "Recorder",
    "Storage",
    "Tensor",
    "TensorSpec",
    "__array_api_version__",
    "__array_namespace_info__",
    "apply",
    "as_tensor",
    "checkpoint",
    "cond",
    "custom_vjp",
    "enable_grad",
    "execute",
    "explain",
    "grad",
    "grad_of",
    "is_grad_enabled",
    "jit",
    "kernel_call",
    "linalg",
    "no_grad",
    "record",
    "register",
    "scan",
    "set_grad_enabled",
    "tensor",
    "value_and_grad",
    "while_loop",
]
__all__ += namespace.__all__

if TYPE_CHECKING:
    from cubepy.tensor.explained.explain import explain
else:

    def __getattr__(name: str) -> Any:
        if name == "explain":  # few programs ask
            return import_module("cubepy.tensor.explained.explain").explain
        raise import_module("cubepy.elsewhere").missing("cubepy.tensor", name)
