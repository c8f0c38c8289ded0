"""What the gradient of an op is: a function beside its rule (a vector-Jacobian product)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepy.tensor.ops import OPS
from cubepy.tensor.storage import Storage
from cubepy.tensor.value import Handle


class Backward:
    """A call as its gradient sees it.

    Args:
        inputs, results: tensors; or values, of which `read` makes tensors when somebody looks.

    Attributes:
        attrs: its attributes.
        needs: for each input, whether its gradient is wanted.
    """

    __slots__ = ("_inputs", "_read", "_results", "attrs", "needs")

    def __init__(
        self,
        inputs: tuple[Any, ...],
        results: Sequence[Any],
        attrs: dict[str, Any],
        needs: tuple[bool, ...],
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        self._inputs, self._results, self.attrs, self.needs = inputs, results, attrs, needs
        self._read = read, read

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Tensors; None for absent ones."""
        read, other = self._read
        if read is not None:
            self._inputs = tuple([None if v is None else read(v) for v in self._inputs])
            self._read = None, other
        return self._inputs

    @property
    def results(self) -> Sequence[Any]:
        """Tensors; None for those that nobody kept."""
        other, read = self._read
        if read is not None:
            self._results = [None if v is None else read(v) for v in self._results]
            self._read = other, None
        return self._results

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


def summed_to(grad: Any, like: Handle | Storage) -> Any:
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
