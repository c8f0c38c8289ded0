"""Linear layers, and rows of tables."""

from __future__ import annotations

from typing import Any

from cubepy.errors import LaunchError
from cubepy.tensor import Tensor, apply, as_tensor


def optional(value: Any) -> Tensor | None:
    """A tensor; None stays."""
    return None if value is None else as_tensor(value)


def linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
) -> Tensor:
    """`activation(input @ weight.T + bias) + residual`, in one pass.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features), of any storage, such as quantized.
        bias: (out_features,) or None.
        activation: "gelu", "gelu_tanh", "relu", "silu", "sigmoid" or "tanh", or None.
        residual: (..., out_features) to add at the end, or None.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> linear([[1.0, 2.0]], [[3.0, 4.0]], [0.5])
        tensor([[11.5]])
    """
    if activation is not None and activation not in ACTIVATIONS:
        raise LaunchError(
            f"there is no activation {activation!r}", hint=f"use one of {', '.join(ACTIVATIONS)}"
        )
    return apply(
        "linear",
        as_tensor(input),
        as_tensor(weight),
        optional(bias),
        optional(residual),
        activation=activation,
    )


ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "sigmoid", "tanh")


def embedding(input: Any, weight: Any) -> Tensor:
    """Rows of a table: (..., width) for integer indices (...) and a weight (entries, width).

    Raises: OutOfBoundsError: an index is negative or not below the number of entries. On a GPU,
        which is not waited for, it gives zeros, and this error in validate mode or with
        CUBEPY_DEBUG=1.

    Example:
        >>> embedding([2, 0], [[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]])
        tensor([[3. , 3.5],
                [1. , 1.5]])
    """
    return apply("embedding", as_tensor(input), as_tensor(weight))
