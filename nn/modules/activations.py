"""Smooth and piecewise linear functions of elements, as modules."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments
from cubepy.nn import functional as F
from cubepy.nn.init import constant
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor


class GELU(Module):
    """Gaussian error linear unit; `approximate` is "none" or "tanh".

    Example:
        >>> GELU()([-1.0, 0.0, 1.0])
        tensor([-0.15865523,  0.        ,  0.8413448 ])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
            raise ShapeError(f'approximate is "none" or "tanh", not {approximate!r}')
        self.approximate = approximate

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class ReLU(Module):
    """max(x, 0).

    Example:
        >>> ReLU()([-1.0, 0.0, 1.0])
        tensor([0., 0., 1.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.relu(input, self.inplace)


class SiLU(Module):
    """x / (1 + exp(-x)).

    Example:
        >>> SiLU()([-1.0, 0.0, 1.0])
        tensor([-0.26894143,  0.        ,  0.7310586 ])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.silu(input, self.inplace)


class Tanh(Module):
    """Hyperbolic tangent.

    Example:
        >>> Tanh()([-1.0, 0.0, 1.0])
        tensor([-0.7615942,  0.       ,  0.7615942])
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.tanh(input)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Example:
        >>> Sigmoid()([0.0])
        tensor([0.5])
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.sigmoid(input)


class ReLU6(Module):
    """x, limited to [0, 6].

    Example:
        >>> ReLU6()([-1.0, 7.0])
        tensor([0., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.relu6(input, self.inplace)


class LeakyReLU(Module):
    """x where it is positive, else negative_slope * x.

    Example:
        >>> LeakyReLU(0.5)([-1.0, 7.0])
        tensor([-0.5,  7. ])
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.negative_slope = negative_slope

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class PReLU(Module):
    """x where it is positive, else weight * x with a learned weight.

    Args:
        num_parameters: 1, or one for each channel (axis 1).
        init: the first value.

    Attributes:
        weight: (num_parameters,).

    Example:
        >>> PReLU()([-1.0, 1.0])
        tensor([-0.25,  1.  ])
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.num_parameters = arguments.size("num_parameters", num_parameters, 1)
        self.weight = Parameter(constant((self.num_parameters,), init))

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class ELU(Module):
    """x where it is positive, else alpha * (exp(x) - 1).

    Example:
        >>> ELU()([-1.0, 1.0]).numpy().round(4)
        array([-0.6321,  1.    ], dtype=float32)
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.alpha = alpha

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class CELU(Module):
    """x where it is positive, else alpha * (exp(x / alpha) - 1).

    Example:
        >>> CELU(2.0)([-1.0, 1.0]).numpy().round(4)
        array([-0.7869,  1.    ], dtype=float32)
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.alpha = alpha

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class SELU(Module):
    """Scaled elu that keeps mean 0 and variance 1.

    Example:
        >>> SELU()([-1.0, 1.0]).numpy().round(4)
        array([-1.1113,  1.0507], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.selu(input, self.inplace)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.

    Example:
        >>> Softplus()([0.0]).numpy().round(4)
        array([0.6931], dtype=float32)
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softsign(Module):
    """x / (1 + |x|).

    Example:
        >>> Softsign()([-1.0, 3.0])
        tensor([-0.5 ,  0.75])
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.softsign(input)


class Mish(Module):
    """x * tanh(softplus(x)).

    Example:
        >>> Mish()([1.0]).numpy().round(4)
        array([0.8651], dtype=float32)
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.mish(input, self.inplace)


class LogSigmoid(Module):
    """log(sigmoid(x)).

    Example:
        >>> LogSigmoid()([0.0]).numpy().round(4)
        array([-0.6931], dtype=float32)
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.logsigmoid(input)
