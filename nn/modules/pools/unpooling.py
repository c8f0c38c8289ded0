"""Max pools the other way round, and of windows that are drawn, as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor


class _MaxUnpool(Module):
    axes = 2

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, input: Any, indices: Any, output_size: Sequence[int] | None = None) -> Tensor:
        """Maxima (N, C, ...) and where they were -> (N, C, ...)."""
        function = getattr(F, f"max_unpool{self.axes}d")
        how = (self.kernel_size, self.stride, self.padding, output_size)
        return function(input, indices, *how)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Zeros (N, C, L) with the maxima of `MaxPool1d` where they were.

    Example:
        >>> MaxUnpool1d(2)([[[3.0, 5.0]]], [[[1, 2]]])
        tensor([[[0., 3., 5., 0.]]])
    """

    axes = 1


class MaxUnpool2d(_MaxUnpool):
    """Zeros (N, C, H, W) with the maxima of `MaxPool2d` where they were.

    Example:
        >>> MaxUnpool2d(2)([[[[3.0]]]], [[[[1]]]])
        tensor([[[[0., 3.],
                  [0., 0.]]]])
    """


class MaxUnpool3d(_MaxUnpool):
    """Zeros (N, C, D, H, W) with the maxima of `MaxPool3d` where they were.

    Example:
        >>> MaxUnpool3d((1, 1, 2))([[[[[3.0]]]]], [[[[[1]]]]])
        tensor([[[[[0., 3.]]]]])
    """

    axes = 3


class _FractionalMaxPool(Module):
    axes = 2

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.output_size = kernel_size, output_size
        self.output_ratio, self.return_indices = output_ratio, return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Any) -> Any:
        """(N, C, ...) -> (N, C, ...); with `return_indices` the positions, too."""
        function = getattr(F, f"fractional_max_pool{self.axes}d")
        how = (self.output_size, self.output_ratio, self.return_indices, self._random_samples)
        return function(input, self.kernel_size, *how)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, output_size={self.output_size}, "
            f"output_ratio={self.output_ratio}"
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest value of windows of (N, C, H, W) whose distances are drawn (Graham, 2014).

    Example:
        >>> import numpy as np
        >>> FractionalMaxPool2d(2, output_size=(3, 4))(np.ones((1, 1, 5, 7))).shape
        (1, 1, 3, 4)
    """


class FractionalMaxPool3d(_FractionalMaxPool):
    """The same of (N, C, D, H, W).

    Example:
        >>> import numpy as np
        >>> FractionalMaxPool3d(2, output_ratio=0.5)(np.ones((1, 1, 4, 5, 7))).shape
        (1, 1, 2, 2, 3)
    """

    axes = 3
