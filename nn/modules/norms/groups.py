"""Normalisation of groups of channels, and by channels around."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor


class GroupNorm(Module):
    """Normalisation of groups of channels of each sample (Wu and He, 2018).

    Args:
        num_groups: it divides the channels.
        num_channels: of the input, on axis 1.
        eps: added to the variance.
        affine: whether there is a learned scale and shift of each channel.
        bias: whether there is the shift.

    Attributes:
        weight, bias: (num_channels,), or None.

    Example:
        >>> GroupNorm(1, 2)([[1.0, 3.0]]).numpy().round(3)
        array([[-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_groups = arguments.size("num_groups", num_groups, 1)
        self.num_channels = arguments.size("num_channels", num_channels, 1)
        if num_channels % num_groups:
            raise ShapeError(f"{num_groups} groups do not divide {num_channels} channels")
        self.eps = arguments.number("eps", eps, 0)
        self.affine = arguments.flag("affine", affine)
        shape = (num_channels,)
        self.weight = Parameter(init.constant(shape, 1.0)) if self.affine else None
        biased = arguments.flag("bias", bias) and self.affine
        self.bias = Parameter(init.constant(shape, 0.0)) if biased else None

    def forward(self, input: Any) -> Tensor:
        """(N, num_channels, ...) -> the same."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    """Division by a power of the mean of the squares of channels around.

    Example:
        >>> LocalResponseNorm(1, alpha=1.0, beta=0.5, k=0.0)([[[2.0], [4.0]]]).flatten()
        tensor([1., 1.])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = arguments.size("size", size, 1)
        self.alpha, self.beta, self.k = alpha, beta, k

    def forward(self, input: Any) -> Tensor:
        """(N, C, ...) -> the same."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """The same of images (N, C, H, W), under the name of Torch 7.

    Example:
        >>> CrossMapLRN2d(1, alpha=1.0, beta=0.5, k=0.0)([[[[2.0]], [[4.0]]]]).flatten()
        tensor([1., 1.])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
