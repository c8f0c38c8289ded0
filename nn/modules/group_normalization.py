"""Normalisation of groups of channels, and of every channel of every sample."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, as_tensor


class GroupNorm(Module):
    """Normalisation of groups of channels of each sample (Wu and He, 2018).

    Args:
        num_groups: it divides the channels.
        num_channels: of the input, on axis 1.
        eps: added to the variance.
        affine: whether there is a learned scale and shift of each channel.

    Attributes:
        weight, bias: (num_channels,), or None.

    Example:
        >>> GroupNorm(1, 2)([[1.0, 3.0]]).numpy().round(3)
        array([[-1.,  1.]], dtype=float32)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
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
        self.bias = Parameter(init.constant(shape, 0.0)) if self.affine else None

    def forward(self, input: Any) -> Tensor:
        """(N, num_channels, ...) -> the same."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class _InstanceNorm(Module):
    ranks: tuple[int, ...] = ()

    def __init__(self, num_features: int, eps: float = 1e-5, *, affine: bool = False) -> None:
        super().__init__()
        self.num_features = arguments.size("num_features", num_features, 1)
        self.eps = arguments.number("eps", eps, 0)
        self.affine = arguments.flag("affine", affine)
        shape = (num_features,)
        self.weight = Parameter(init.constant(shape, 1.0)) if self.affine else None
        self.bias = Parameter(init.constant(shape, 0.0)) if self.affine else None

    def forward(self, input: Any) -> Tensor:
        """(N, num_features, ...) -> the same."""
        x = as_tensor(input)
        if x.ndim not in self.ranks or x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}) cannot take an input of shape "
                f"{x.shape}"
            )
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, affine={self.affine}"


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of each channel of each sample of (N, C, L) (Ulyanov et al., 2016).

    There are no running values.

    Example:
        >>> import numpy as np
        >>> InstanceNorm1d(3)(np.ones((2, 3, 8), np.float32)).shape
        (2, 3, 8)
    """

    ranks = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each channel of each sample of (N, C, H, W) (Ulyanov et al., 2016).

    There are no running values.

    Example:
        >>> import numpy as np
        >>> InstanceNorm2d(3)(np.ones((2, 3, 8, 8), np.float32)).shape
        (2, 3, 8, 8)
    """

    ranks = (4,)


class InstanceNorm3d(_InstanceNorm):
    """Normalisation of each channel of each sample of (N, C, D, H, W) (Ulyanov et al., 2016).

    There are no running values.

    Example:
        >>> import numpy as np
        >>> InstanceNorm3d(3)(np.ones((2, 3, 8, 8, 8), np.float32)).shape
        (2, 3, 8, 8, 8)
    """

    ranks = (5,)


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
