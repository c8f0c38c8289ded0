"""Functions with hard edges, and those along an axis, as modules."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor, as_tensor


class Hardswish(Module):
    """x * hardsigmoid(x).

    Example:
        >>> Hardswish()([0.0, 3.0])
        tensor([0., 3.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.hardswish(input, self.inplace)


class Hardsigmoid(Module):
    """x / 6 + 1 / 2, limited to [0, 1].

    Example:
        >>> Hardsigmoid()([-4.0, 0.0])
        tensor([0. , 0.5])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.hardsigmoid(input, self.inplace)


class Hardtanh(Module):
    """x, limited to [min_val, max_val].

    Example:
        >>> Hardtanh()([-3.0, 0.5])
        tensor([-1. ,  0.5])
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.min_val = min_val
        self.max_val = max_val

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Tanhshrink(Module):
    """x - tanh(x).

    Example:
        >>> Tanhshrink()([1.0]).numpy().round(4)
        array([0.2384], dtype=float32)
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.tanhshrink(input)


class Softshrink(Module):
    """x, brought nearer to 0 by lambd; 0 where it is as near.

    Example:
        >>> Softshrink()([-1.0, 0.25])
        tensor([-0.5,  0. ])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Hardshrink(Module):
    """x; 0 where it is within [-lambd, lambd].

    Example:
        >>> Hardshrink()([-1.0, 0.25])
        tensor([-1.,  0.])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"lambd={self.lambd}"


class Softmax(Module):
    """exp(x) / sum(exp(x)) along an axis.

    Example:
        >>> Softmax()([[0.0, 0.0]])
        tensor([[0.5, 0.5]])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along an axis.

    Example:
        >>> LogSoftmax()([[0.0, 200.0]])
        tensor([[-200.,    0.]])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Module):
    """softmax(-x) along an axis.

    Example:
        >>> Softmin()([[0.0, 100.0]])
        tensor([[1., 0.]])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GLU(Module):
    """The first half of an axis times the sigmoid of the second.

    Example:
        >>> GLU()([[3.0, 0.0]])
        tensor([[1.5]])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Threshold(Module):
    """x where it is above the threshold, else the value.

    Example:
        >>> Threshold(2.0, -1.0)([1.0, 3.0])
        tensor([-1.,  3.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.threshold, self.value = threshold, value

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class Softmax2d(Module):
    """Softmax over the channels of images, (N, C, H, W) or (C, H, W).

    Example:
        >>> Softmax2d()([[[0.0]], [[0.0]]])
        tensor([[[0.5]],
                [[0.5]]])
    """

    def forward(self, input: Any) -> Tensor:
        """Images -> the same shape.

        Raises:
            ShapeError: another number of axes.
        """
        x = as_tensor(input)
        if x.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d takes (N, C, H, W) or (C, H, W), not {x.shape}")
        return F.softmax(x, -3)


class RReLU(Module):
    """x above 0, and below x times a slope, which is drawn while training.

    Example:
        >>> RReLU(0.25, 0.75).eval()([-4.0, 2.0])
        tensor([-2.,  2.])
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"
