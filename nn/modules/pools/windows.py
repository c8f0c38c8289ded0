"""Pools and interpolation as modules."""

from __future__ import annotations

from typing import Any

from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor


class _MaxPool(Module):
    axes = 2

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, input: Any) -> Any:
        """(N, C, ...) -> (N, C, ...); with `return_indices` the positions, too."""
        how = (self.kernel_size, self.stride, self.padding, self.dilation)
        function = getattr(F, f"max_pool{self.axes}d")
        return function(input, *how, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    axes = 2

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: float | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Any) -> Tensor:
        """(N, C, ...) -> (N, C, ...)."""
        how = (self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        function = getattr(F, f"avg_pool{self.axes}d")
        return function(input, *how, self.divisor_override)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AdaptiveMaxPool(Module):
    axes = 2

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Any) -> Any:
        """(N, C, ...) -> (N, C, *output_size); with `return_indices` the positions, too."""
        function = getattr(F, f"adaptive_max_pool{self.axes}d")
        return function(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPool(Module):
    axes = 2

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Any) -> Tensor:
        """(N, C, ...) -> (N, C, *output_size)."""
        function = getattr(F, f"adaptive_avg_pool{self.axes}d")
        return function(input, self.output_size)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class MaxPool1d(_MaxPool):
    """The largest value of each window of (N, C, L).

    Example:
        >>> import numpy as np
        >>> MaxPool1d(2)(np.ones((2, 3, 8), np.float32)).shape
        (2, 3, 4)
    """

    axes = 1


class MaxPool2d(_MaxPool):
    """The largest value of each window of (N, C, H, W).

    Example:
        >>> import numpy as np
        >>> MaxPool2d(2)(np.ones((2, 3, 8, 8), np.float32)).shape
        (2, 3, 4, 4)
    """

    axes = 2


class MaxPool3d(_MaxPool):
    """The largest value of each window of (N, C, D, H, W).

    Example:
        >>> import numpy as np
        >>> MaxPool3d(2)(np.ones((2, 3, 8, 8, 8), np.float32)).shape
        (2, 3, 4, 4, 4)
    """

    axes = 3


class AvgPool1d(_AvgPool):
    """The mean of each window of (N, C, L).

    Example:
        >>> import numpy as np
        >>> AvgPool1d(2)(np.ones((2, 3, 8), np.float32)).shape
        (2, 3, 4)
    """

    axes = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of (N, C, H, W).

    Example:
        >>> import numpy as np
        >>> AvgPool2d(2)(np.ones((2, 3, 8, 8), np.float32)).shape
        (2, 3, 4, 4)
    """

    axes = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of (N, C, D, H, W).

    Example:
        >>> import numpy as np
        >>> AvgPool3d(2)(np.ones((2, 3, 8, 8, 8), np.float32)).shape
        (2, 3, 4, 4, 4)
    """

    axes = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest value of each of `output_size` parts of (N, C, L).

    Example:
        >>> import numpy as np
        >>> AdaptiveMaxPool1d(3)(np.ones((2, 3, 8), np.float32)).shape
        (2, 3, 3)
    """

    axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest value of each of `output_size` parts of (N, C, H, W).

    Example:
        >>> import numpy as np
        >>> AdaptiveMaxPool2d(3)(np.ones((2, 3, 8, 8), np.float32)).shape
        (2, 3, 3, 3)
    """

    axes = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest value of each of `output_size` parts of (N, C, D, H, W).

    Example:
        >>> import numpy as np
        >>> AdaptiveMaxPool3d(3)(np.ones((2, 3, 8, 8, 8), np.float32)).shape
        (2, 3, 3, 3, 3)
    """

    axes = 3


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of each of `output_size` parts of (N, C, L).

    Example:
        >>> import numpy as np
        >>> AdaptiveAvgPool1d(3)(np.ones((2, 3, 8), np.float32)).shape
        (2, 3, 3)
    """

    axes = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of each of `output_size` parts of (N, C, H, W).

    Example:
        >>> import numpy as np
        >>> AdaptiveAvgPool2d(3)(np.ones((2, 3, 8, 8), np.float32)).shape
        (2, 3, 3, 3)
    """

    axes = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of each of `output_size` parts of (N, C, D, H, W).

    Example:
        >>> import numpy as np
        >>> AdaptiveAvgPool3d(3)(np.ones((2, 3, 8, 8, 8), np.float32)).shape
        (2, 3, 3, 3, 3)
    """

    axes = 3


class Upsample(Module):
    """Images of another size; see `functional.interpolate`.

    Example:
        >>> Upsample(scale_factor=2)([[[1.0, 2.0]]])
        tensor([[[1., 1., 2., 2.]]])
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Any) -> Tensor:
        """(N, C, ...) -> (N, C, ...)."""
        how = self.size, self.scale_factor, self.mode, self.align_corners
        return F.interpolate(input, *how, self.recompute_scale_factor)

    def extra_repr(self) -> str:
        return f"size={self.size}, scale_factor={self.scale_factor}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images of another size, by the nearest pixel.

    Example:
        >>> UpsamplingNearest2d(scale_factor=2)([[[[1.0, 2.0]]]]).shape
        (1, 1, 2, 4)
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Images of another size, by straight lines; the corners lie on each other.

    Example:
        >>> UpsamplingBilinear2d((1, 3))([[[[1.0, 3.0]]]])
        tensor([[[[1., 2., 3.]]]])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class LPPool1d(Module):
    """(sum of x^p)^(1/p) of each window of (N, C, L).

    Example:
        >>> LPPool1d(2, 2)([[[3.0, 4.0]]])
        tensor([[[5.]]])
    """

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type, self.kernel_size = norm_type, kernel_size
        self.stride, self.ceil_mode = stride, ceil_mode

    def forward(self, input: Any) -> Tensor:
        """As `functional.lp_pool1d`."""
        how = (self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
        return F.lp_pool1d(input, *how)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}"


class LPPool2d(LPPool1d):
    """(sum of x^p)^(1/p) of each window of (N, C, H, W).

    Example:
        >>> LPPool2d(2, (1, 2))([[[[3.0, 4.0]]]])
        tensor([[[[5.]]]])
    """

    def forward(self, input: Any) -> Tensor:
        """As `functional.lp_pool2d`."""
        how = (self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
        return F.lp_pool2d(input, *how)


class LPPool3d(LPPool1d):
    """(sum of x^p)^(1/p) of each window of (N, C, D, H, W).

    Example:
        >>> LPPool3d(2, (1, 1, 2))([[[[[3.0, 4.0]]]]])
        tensor([[[[[5.]]]]])
    """

    def forward(self, input: Any) -> Tensor:
        """As `functional.lp_pool3d`."""
        how = (self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
        return F.lp_pool3d(input, *how)
