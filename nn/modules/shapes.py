"""Other shapes and orders of the same elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.nn import arguments
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor, as_tensor


class Flatten(Module):
    """Axes from `start_dim` to `end_dim` as one.

    Example:
        >>> import numpy as np
        >>> Flatten()(np.ones((2, 3, 4), np.float32)).shape
        (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Any) -> Tensor:
        """(N, ...) -> (N, product of the others) by default."""
        return as_tensor(input).flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One axis as several.

    Example:
        >>> import numpy as np
        >>> Unflatten(1, (3, -1))(np.ones((2, 12), np.float32)).shape
        (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Any) -> Tensor:
        """Axis `dim` takes the lengths `unflattened_size`."""
        x = as_tensor(input)
        at = self.dim % x.ndim
        return x.reshape(*x.shape[:at], *self.unflattened_size, *x.shape[at + 1 :])

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class PixelShuffle(Module):
    """(..., C * r * r, H, W) -> (..., C, H * r, W * r).

    Example:
        >>> PixelShuffle(2)([[[1.0]], [[2.0]], [[3.0]], [[4.0]]])
        tensor([[[1., 2.],
                 [3., 4.]]])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = arguments.size("upscale_factor", upscale_factor, 1)

    def forward(self, input: Any) -> Tensor:
        """As `functional.pixel_shuffle`."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(..., C, H * r, W * r) -> (..., C * r * r, H, W).

    Example:
        >>> PixelUnshuffle(2)([[[1.0, 2.0], [3.0, 4.0]]]).shape
        (4, 1, 1)
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = arguments.size("downscale_factor", downscale_factor, 1)

    def forward(self, input: Any) -> Tensor:
        """As `functional.pixel_unshuffle`."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Channels of `groups` groups in turns.

    Example:
        >>> ChannelShuffle(2)([[[1.0], [2.0], [3.0], [4.0]]]).flatten()
        tensor([1., 3., 2., 4.])
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = arguments.size("groups", groups, 1)

    def forward(self, input: Any) -> Tensor:
        """As `functional.channel_shuffle`."""
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"


class Unfold(Module):
    """The windows of images as columns.

    Example:
        >>> Unfold((1, 2))([[[1.0, 2.0, 3.0]]])
        tensor([[1., 2.],
                [2., 3.]])
    """

    def __init__(
        self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.kernel_size, self.dilation = kernel_size, dilation
        self.padding, self.stride = padding, stride

    def forward(self, input: Any) -> Tensor:
        """As `functional.unfold`."""
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, padding={self.padding}, stride={self.stride}"


class Fold(Unfold):
    """Images as the sums of windows that are columns.

    Example:
        >>> Fold((1, 3), (1, 2))([[1.0, 2.0], [2.0, 3.0]])
        tensor([[[1., 4., 3.]]])
    """

    def __init__(
        self,
        output_size: Any,
        kernel_size: Any,
        dilation: Any = 1,
        padding: Any = 0,
        stride: Any = 1,
    ) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: Any) -> Tensor:
        """As `functional.fold`."""
        how = (self.kernel_size, self.dilation, self.padding, self.stride)
        return F.fold(input, self.output_size, *how)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, {super().extra_repr()}"
