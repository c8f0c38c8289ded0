"""What the gradient of an op is: a function beside its rule (a vector-Jacobian product)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.tensor.ops import OPS
from cubepy.tensor.value import Handle


class Backward:
    """A call as its gradient sees it.

    Attributes:
        inputs: tensors; None for absent ones.
        results: tensors; None for those that nobody kept.
        attrs: its attributes.
        needs: for each input, whether its gradient is wanted.
    """

    __slots__ = ("attrs", "inputs", "needs", "results")

    def __init__(
        self,
        inputs: tuple[Any, ...],
        results: list[Any],
        attrs: dict[str, Any],
        needs: tuple[bool, ...],
    ) -> None:
        self.inputs, self.results, self.attrs, self.needs = inputs, results, attrs, needs

    @property
    def result(self) -> Any:
        """The (first) result."""
        return self.results[0]


Vjp = Callable[..., Any]
"""Of a `Backward` and, for each result, the gradient by it (None where there is none); gives the
gradient by each input, None where there is none or it is not wanted. A gradient may have the shape
that the inputs broadcast to, and another float dtype: whoever asks sums and converts it."""


FOLLOWS: set[str] = set()
"""Ops whose gradients do what follows from the specs of what they read, attributes and needs alone,
and are of many ops."""


def vjp(*names: str, follows: bool = False) -> Callable[[Vjp], Vjp]:
    """Say that the function below is the gradient of ops; `follows`: see `FOLLOWS`."""

    def put(function: Vjp) -> Vjp:
        for name in names:
            OPS[name].vjp = function
        if follows:
            FOLLOWS.update(names)
        return function

    return put


def summed_to(grad: Any, like: Handle) -> Any:
    """A gradient of a broadcast tensor as one of the tensor itself: of its shape and dtype."""
    shape = like.shape
    if grad.shape != shape:
        lead = grad.ndim - len(shape)
        stretched = [d + lead for d, n in enumerate(shape) if n == 1 and grad.shape[d + lead] != 1]
        axes = (*range(lead), *stretched)
        grad = grad.sum(axis=axes, keepdims=True) if axes else grad
        if grad.shape != shape:
            grad = grad.reshape(shape)
    return grad if grad.dtype is like.dtype else grad.astype(like.dtype)


def through(op: str, x: Any, grad: Any, **attrs: Any) -> Any:
    """The gradient by `x` of something whose gradient by `op(x)` is `grad`."""
    y = x._unary(op, **attrs)
    return OPS[op].vjp(Backward((x,), [y], attrs, (True,)), grad)  # type: ignore[misc]
