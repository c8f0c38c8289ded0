"""What makes `cubepy.tensor` a package and the name that users make tensors with."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from cubepy.lang.dtypes import DTypeLike
from cubepy.tensor import array, graph, ir, namespace, storage
from cubepy.tensor import execute as executing
from cubepy.tensor import record as recording
from cubepy.tensor.array import Tensor


class CallableModule(ModuleType):
    """A module that makes a tensor when it is called."""

    def __call__(
        self,
        data: Any,
        dtype: DTypeLike | None = None,
        device: Any = None,
        *,
        requires_grad: bool = False,
    ) -> Tensor:
        return array.tensor(data, dtype, device, requires_grad=requires_grad)

    if TYPE_CHECKING:
        Dense = storage.Dense
        Graph = ir.Graph
        Node = ir.Node
        Recorder = recording.Recorder
        Storage = storage.Storage
        Tensor = array.Tensor
        apply = staticmethod(array.apply)
        as_tensor = staticmethod(array.as_tensor)
        concat = staticmethod(namespace.concat)
        execute = staticmethod(graph.execute)
        record = staticmethod(recording.record)
        register = staticmethod(executing.register)
        where = staticmethod(namespace.where)


if TYPE_CHECKING:
    tensor: CallableModule
