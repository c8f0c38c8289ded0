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

from cubepy.tensor.array import Tensor, apply, as_tensor, concat, tensor, where
from cubepy.tensor.execute import register
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph, Node
from cubepy.tensor.module import CallableModule
from cubepy.tensor.record import Recorder, record
from cubepy.tensor.storage import Dense, Storage

sys.modules[__name__].__class__ = CallableModule

__all__ = [
    "Dense",
    "Graph",
    "Node",
    "Recorder",
    "Storage",
    "Tensor",
    "apply",
    "as_tensor",
    "concat",
    "execute",
    "record",
    "register",
    "tensor",
    "where",
]
