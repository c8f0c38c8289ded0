"""The last step of every matmul on a GPU: scale, bias, activation and residual of a few neighbours
of the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cubepy as cb


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """The part of a blueprint that says how a product ends:
    `activation(alpha * sum + bias) + residual`.

    Attributes:
        bias, residual: whether there are any.
        activation: a function of the kernel language, or None.
        scaled: alpha is not 1.
    """

    bias: bool = False
    residual: bool = False
    activation: Any = None
    scaled: bool = False


@cb.func
def finish_line(value, out, bias, residual, alpha, batch, row, column, blueprint):
    """out[batch, row, column:] = `activation(alpha * value + bias) + residual` for a line of the
    sums.

    The blueprint says which of them there are: `scaled`, `bias`, `activation`, `residual`. What
        lies beyond the
    result is not written.
    """
    left = cb.select(row < out.shape[1], cb.max(out.shape[2] - column, 0), 0)
    if blueprint.scaled:
        value = value * alpha
    if blueprint.bias:
        value = value + cb.cast(bias.load((column,), len(value), valid=left), cb.f32)
    if blueprint.activation is not None:
        value = blueprint.activation(value)
    if blueprint.residual:
        value = value + cb.cast(residual.load((batch, row, column), len(value), valid=left), cb.f32)
    out.store((batch, row, column), cb.cast(value, out.dtype), valid=left)
