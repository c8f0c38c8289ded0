"""`Parameter`: a tensor that a module learns."""

from __future__ import annotations

from typing import Any

from cubepy.nn import arguments
from cubepy.tensor import Tensor, as_tensor


class Parameter(Tensor):
    """A tensor that modules list among their parameters when it is assigned to one of their
    attributes.

    Args:
        data: a tensor or anything that `cb.tensor` takes; the memory is shared.
        requires_grad: whether training changes it; integers and packed weights are never trained.

    Example:
        >>> from cubepy import nn
        >>> model = nn.Module()
        >>> model.scale = Parameter([1.0, 2.0])
        >>> [name for name, _ in model.named_parameters()]
        ['scale']
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        super().__init__(as_tensor(data).storage)
        wanted = arguments.flag("requires_grad", requires_grad)
        if wanted and self.dtype.is_float and self.storage.kind == "dense":
            self.requires_grad_()

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
