"""Linear layers, tables of vectors, and what has no parameters at all."""

from __future__ import annotations

from typing import Any

from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, apply, as_tensor


class Linear(Module):
    """`x @ weight.T + bias`.

    Args:
        in_features, out_features: lengths of the last axis of input and output.
        bias: whether there is one.

    Attributes:
        weight: (out_features, in_features); its storage may be quantized.
        bias: (out_features,) or None.

    Raises:
        ShapeError: a negative length.
        ArgumentError: a length that is no integer.

    Example:
        >>> Linear(3, 2)
        Linear(in_features=3, out_features=2, bias=True)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features = arguments.size("in_features", in_features)
        self.out_features = arguments.size("out_features", out_features)
        bound = init.linear_bound(self.in_features)
        self.weight = Parameter(init.uniform((self.out_features, self.in_features), bound))
        biased = arguments.flag("bias", bias)
        self.bias = Parameter(init.uniform((self.out_features,), bound)) if biased else None

    def forward(self, input: Any, activation: str | None = None, residual: Any = None) -> Tensor:
        """(..., in_features) -> (..., out_features); `activation` and `residual` as in
        `functional.linear`.
        """
        if activation is not None or residual is not None or not isinstance(input, Tensor):
            return F.linear(input, self.weight, self.bias, activation=activation, residual=residual)
        return apply("linear", input, self.weight, self.bias, None, activation=None)

    def extra_repr(self) -> str:
        text = (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
        kind = self.weight.storage.kind
        return text if kind == "dense" else f"{text}, storage={kind}"


class Bilinear(Module):
    """x1 A x2 + b for each output.

    Attributes:
        weight: (out_features, in1_features, in2_features).
        bias: (out_features,) or None.

    Example:
        >>> Bilinear(2, 3, 4)([[1.0, 2.0]], [[1.0, 2.0, 3.0]]).shape
        (1, 4)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.in1_features = arguments.size("in1_features", in1_features, 1)
        self.in2_features = arguments.size("in2_features", in2_features, 1)
        self.out_features = arguments.size("out_features", out_features)
        bound = init.linear_bound(self.in1_features)
        shape = (self.out_features, self.in1_features, self.in2_features)
        self.weight = Parameter(init.uniform(shape, bound))
        biased = arguments.flag("bias", bias)
        self.bias = Parameter(init.uniform((self.out_features,), bound)) if biased else None

    def forward(self, input1: Any, input2: Any) -> Tensor:
        """(..., in1_features), (..., in2_features) -> (..., out_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )


class Identity(Module):
    """What comes, goes; arguments of other layers are accepted.

    Example:
        >>> Identity(54, bias=True)([1.0, 2.0])
        tensor([1., 2.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return as_tensor(input)
