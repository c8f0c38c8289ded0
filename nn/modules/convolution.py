"""Convolutions as modules."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import LaunchError, ShapeError
from cubepy.kernels.entry.arguments import per_axis
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor

MODES = "zeros", "reflect", "replicate", "circular"
"""What is around images: zeros, or what `functional.pad` adds in the mode of this name."""


class _Convolution(Module):
    axes = 2
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
    ) -> None:
        super().__init__()
        self.in_channels = arguments.size("in_channels", in_channels, 1)
        self.out_channels = arguments.size("out_channels", out_channels, 1)
        self.groups = arguments.size("groups", groups, 1)
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"groups must divide the channels, but {groups} does not divide {in_channels} and "
                f"{out_channels}"
            )
        modes = ("zeros",) if self.transposed else MODES
        if padding_mode not in modes:
            raise LaunchError(f"padding_mode is {' or '.join(modes)}, not {shown(padding_mode)}")
        self.padding_mode = padding_mode
        self.kernel_size = per_axis(kernel_size, self.axes, "kernel_size", 1)
        self.stride = per_axis(stride, self.axes, "stride", 1)
        text = isinstance(padding, str)
        self.padding = padding if text else per_axis(padding, self.axes, "padding", 0)
        self.dilation = per_axis(dilation, self.axes, "dilation", 1)
        given, made = in_channels, out_channels
        if self.transposed:
            given, made = made, given
        shape = (made, given // groups, *self.kernel_size)
        bound = init.linear_bound(math.prod(shape[1:]))
        self.weight = Parameter(init.uniform(shape, bound))
        biased = arguments.flag("bias", bias)
        self.bias = Parameter(init.uniform((out_channels,), bound)) if biased else None

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding!r}, dilation={self.dilation}, "
            f"groups={self.groups}, bias={self.bias is not None}"
            + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode}")
        )


class _Conv(_Convolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
        )

    def forward(self, input: Any) -> Tensor:
        """(N, in_channels, ...) -> (N, out_channels, ...)."""
        function = getattr(F, f"conv{self.axes}d")
        given, padding = input, self.padding
        if self.padding_mode != "zeros":
            given, padding = F.pad(input, self._widths(), self.padding_mode), 0
        how = (self.stride, padding, self.dilation, self.groups)
        return function(given, self.weight, self.bias, *how)  # type: ignore[no-any-return]

    def _widths(self) -> list[int]:
        """What is added before and behind each axis, the last one first."""
        found = []
        for k, d, n in zip(
            self.kernel_size[::-1], self.dilation[::-1], range(self.axes)[::-1], strict=True
        ):
            if self.padding == "same":
                found += [d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2]
            else:
                found += [0 if self.padding == "valid" else self.padding[n]] * 2
        return found


class _ConvTranspose(_Convolution):
    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
        )
        self.output_padding = per_axis(output_padding, self.axes, "output_padding", 0)

    def forward(self, input: Any) -> Tensor:
        """(N, in_channels, ...) -> (N, out_channels, ...)."""
        function = getattr(F, f"conv_transpose{self.axes}d")
        how = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        return function(input, self.weight, self.bias, *how)  # type: ignore[no-any-return]


class Conv1d(_Conv):
    """Convolution of (N, C, L).

    Attributes:
        weight: (out_channels, in_channels / groups, ...).
        bias: (out_channels,) or None.

    Example:
        >>> import numpy as np
        >>> Conv1d(3, 4, 3, padding=1, stride=2)(np.ones((1, 3, 8), np.float32)).shape
        (1, 4, 4)
    """

    axes = 1


class Conv2d(_Conv):
    """Convolution of (N, C, H, W).

    Attributes:
        weight: (out_channels, in_channels / groups, ...).
        bias: (out_channels,) or None.

    Example:
        >>> import numpy as np
        >>> Conv2d(3, 4, 3, padding=1, stride=2)(np.ones((1, 3, 4, 4), np.float32)).shape
        (1, 4, 2, 2)
    """

    axes = 2


class Conv3d(_Conv):
    """Convolution of (N, C, D, H, W).

    Attributes:
        weight: (out_channels, in_channels / groups, ...).
        bias: (out_channels,) or None.

    Example:
        >>> import numpy as np
        >>> Conv3d(3, 4, 3, padding=1, stride=2)(np.ones((1, 3, 4, 4, 4), np.float32)).shape
        (1, 4, 2, 2, 2)
    """

    axes = 3


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution of (N, C, L).

    Attributes:
        weight: (in_channels, out_channels / groups, ...).
        bias: (out_channels,) or None.

    Example:
        >>> import numpy as np
        >>> ConvTranspose1d(3, 4, 2, stride=2)(np.ones((1, 3, 4), np.float32)).shape
        (1, 4, 8)
    """

    axes = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution of (N, C, H, W).

    Attributes:
        weight: (in_channels, out_channels / groups, ...).
        bias: (out_channels,) or None.

    Example:
        >>> import numpy as np
        >>> ConvTranspose2d(3, 4, 2, stride=2)(np.ones((1, 3, 4, 4), np.float32)).shape
        (1, 4, 8, 8)
    """

    axes = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution of (N, C, D, H, W).

    Attributes:
        weight: (in_channels, out_channels / groups, ...).
        bias: (out_channels,) or None.

    Example:
        >>> import numpy as np
        >>> ConvTranspose3d(3, 4, 2, stride=2)(np.ones((1, 3, 2, 2, 2), np.float32)).shape
        (1, 4, 4, 4, 4)
    """

    axes = 3
