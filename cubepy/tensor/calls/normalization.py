"""Normalisations of tensors."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.entry.arguments import number_of, whole, wholes
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.table import call_of


@call_of("softmax")
def softmax(x: Any, axis: int) -> Tensor:
    """`softmax`."""
    return apply("softmax", as_tensor(x), axis=whole(axis, "axis"))  # type: ignore[no-any-return]


@call_of("log_softmax")
def log_softmax(x: Any, axis: int) -> Tensor:
    """`log_softmax`."""
    return apply(  # type: ignore[no-any-return]
        "log_softmax", as_tensor(x), axis=whole(axis, "axis")
    )


def optional(value: Any) -> Tensor | None:
    """A tensor, or None."""
    return None if value is None else as_tensor(value)


@call_of("layer_norm")
def layer_norm(x: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Tensor:
    """`layer_norm`."""
    return apply(  # type: ignore[no-any-return]
        "layer_norm",
        as_tensor(x),
        optional(weight),
        optional(bias),
        normalized_shape=wholes(normalized_shape, "normalized_shape"),
        eps=number_of(eps, "eps"),
    )
