"""Layers that normalise over the last axes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import ml_dtypes

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import promote
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, as_tensor


def as_promoted(y: Tensor, *inputs: Tensor | None) -> Tensor:
    """What was computed in f32, in the dtype that its inputs promote to."""
    return y.astype(functools.reduce(promote, [t.dtype for t in inputs if t is not None]))


class LayerNorm(Module):
    """Normalisation over the last axes, with a learned scale and shift.

    Attributes:
        weight, bias: of shape `normalized_shape`, or None.

    Example:
        >>> LayerNorm(2)([[1.0, 3.0]]).numpy().round(3)
        array([[-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.normalized_shape = arguments.shape("normalized_shape", normalized_shape)
        self.eps = arguments.number("eps", eps, 0)
        self.elementwise_affine = arguments.flag("elementwise_affine", elementwise_affine)
        shape, biased = (
            self.normalized_shape,
            self.elementwise_affine and arguments.flag("bias", bias),
        )
        self.weight = Parameter(init.constant(shape, 1.0)) if self.elementwise_affine else None
        self.bias = Parameter(init.constant(shape, 0.0)) if biased else None

    def forward(self, input: Any) -> Tensor:
        """Any shape that ends with `normalized_shape` -> the same."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class RMSNorm(Module):
    """Division by the root of the mean square over the last axes, with a learned scale.

    Args:
        normalized_shape: the last axes of the input.
        eps: added to the mean square; None is the epsilon of the input's dtype.
        elementwise_affine: whether there is a scale.

    Attributes:
        weight: of shape `normalized_shape`, or None.

    Example:
        >>> RMSNorm(2, eps=0.0)([[3.0, 3.0]])
        tensor([[1., 1.]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        self.normalized_shape = arguments.shape("normalized_shape", normalized_shape)
        self.eps = None if eps is None else arguments.number("eps", eps, 0)
        self.elementwise_affine = arguments.flag("elementwise_affine", elementwise_affine)
        self.weight = (
            Parameter(init.constant(self.normalized_shape, 1.0))
            if self.elementwise_affine
            else None
        )

    def forward(self, input: Any) -> Tensor:
        """Any shape that ends with `normalized_shape` -> the same.

        Raises:
            ShapeError: the input ends with other axes.
        """
        x, n = as_tensor(input), len(self.normalized_shape)
        if tuple(x.shape[len(x.shape) - n :]) != self.normalized_shape:
            raise ShapeError(
                f"RMSNorm over {self.normalized_shape} cannot take an input of shape "
                f"{tuple(x.shape)}"
            )
        eps = float(ml_dtypes.finfo(x.dtype.numpy).eps) if self.eps is None else self.eps
        wide = arguments.widened(x)
        y = wide * ((wide * wide).mean(axis=tuple(range(-n, 0)), keepdims=True) + eps).rsqrt()
        y = y if self.weight is None else y * self.weight
        return y if wide is x else as_promoted(y, x, self.weight)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )
