"""`Parameter`: a tensor that a module learns; `Buffer`: one that it has besides."""

from __future__ import annotations

from typing import Any

from cubepy.nn import arguments
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.program.plans.steady import exchange
from cubepy.tensor.value import Value


class Buffer(Tensor):
    """A tensor that belongs to a module and is not learned: assigned to an attribute, it is
    registered as `register_buffer` does it.

    Args:
        data: a tensor or anything that `cb.tensor` takes; the memory is shared.
        persistent: whether it is part of the state dict.

    Example:
        >>> from cubepy import nn
        >>> model = nn.Module()
        >>> model.mean = Buffer([1.0, 2.0])
        >>> [name for name, _ in model.named_buffers()], list(model.state_dict())
        (['mean'], ['mean'])
    """

    __slots__ = ("persistent",)

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        super().__init__(as_tensor(data).storage)
        self.persistent = arguments.flag("persistent", persistent)


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
        wanted = arguments.flag("requires_grad", requires_grad)
        super().__init__(as_tensor(data).storage)
        self._train(wanted)

    def take_over_(self, data: Any) -> Parameter:
        """Let this parameter have other elements, of any dtype, storage and device; whoever holds
        it, such as an optimizer, holds them.

        Example:
            >>> import cubepy as cb
            >>> Parameter([1.0]).take_over_(cb.tensor([2.0], "f16")).dtype
            cb.f16
        """
        wanted = self.requires_grad
        exchange(self, Value(as_tensor(data).storage))
        self._train(wanted)
        return self

    def _train(self, wanted: bool) -> None:
        if wanted and self.dtype.is_float and self.storage.kind == "dense":
            self.requires_grad_()

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
