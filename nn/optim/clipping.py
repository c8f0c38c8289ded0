"""Gradients that are kept small, between `backward()` and `step()`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, LaunchError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.tensor import Tensor, as_tensor, no_grad


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale the gradients of all parameters by one number, so that the norm of all together is at
    most `max_norm`.

    Args:
        parameters: a tensor, or several; those without a gradient do not count.
        max_norm: what is allowed.
        norm_type: 2, 1, `math.inf` or another p of the norm.
        error_if_nonfinite: whether a norm that is infinite or NaN is an error, which is waited for.

    Returns:
        The norm before.

    Raises:
        LaunchError: `error_if_nonfinite`, and the norm is not finite.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([3.0, 4.0])
        >>> (x * x).sum().backward()
        >>> nn.utils.clip_grad_norm_(x, 1.0), x.grad.numpy().round(4)
        (tensor(10.), array([0.6, 0.8], dtype=float32))
    """
    max_norm, p = (
        arguments.number("max_norm", max_norm, 0),
        arguments.number("norm_type", norm_type),
    )
    given = _with_gradients(parameters)
    if not given:
        return as_tensor(np.float32(0))
    with no_grad():
        total: Any = None
        for t in given:
            grad = arguments.widened(t.grad)
            if p == math.inf:
                part = abs(grad).max()
            else:
                part = (grad * grad if p == 2 else abs(grad) ** p).sum()
            part = part.to(given[0].device)
            if total is None:
                total = part
            else:
                total = part._binary("maximum", total) if p == math.inf else total + part
        norm = total if p == math.inf or p == 1 else total.sqrt() if p == 2 else total ** (1 / p)
        if arguments.flag("error_if_nonfinite", error_if_nonfinite):
            if not math.isfinite(norm.item()):
                raise LaunchError(f"the norm of the gradients is {norm.item()}")
        factor = (max_norm / (norm + 1e-6)).clip(max=1.0)
        for t in given:
            t.grad.assign_(t.grad * factor.to(t.device))
    return norm


def clip_grad_value_(parameters: Any, clip_value: float) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value].

    Args:
        parameters: a tensor, or several; those without a gradient do not count.
        clip_value: what is allowed.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([0.25, -4.0])
        >>> (x * x).sum().backward()
        >>> nn.utils.clip_grad_value_(x, 1.0)
        >>> x.grad
        tensor([ 0.5, -1. ])
    """
    limit = arguments.number("clip_value", clip_value, 0)
    with no_grad():
        for t in _with_gradients(parameters):
            t.grad.assign_(t.grad.clip(-limit, limit))


def _with_gradients(parameters: Any) -> list[Any]:
    several = not isinstance(parameters, Tensor) and isinstance(parameters, Iterable)
    given = list(parameters) if several else [parameters]
    for t in given:
        if not isinstance(t, Tensor):
            raise ArgumentError(
                f"parameters are tensors, not {shown(t)}", hint="give model.parameters()"
            )
    return [t for t in given if t.grad is not None]
