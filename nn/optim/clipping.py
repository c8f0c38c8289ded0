"""Gradients that are kept small, between `backward()` and `step()`."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.errors import LaunchError
from cubepy.nn import arguments
from cubepy.tensor import Tensor, as_tensor, no_grad
from cubepy.tensor.control.repeated import Often


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
    given = _with_gradients(parameters)
    grads = [t.grad for t in given]
    if error_if_nonfinite or not all(_on_host(g) for g in grads):
        norm = get_total_norm(grads, norm_type, error_if_nonfinite)
        clip_grads_with_norm_(given, max_norm, norm)
        return norm
    limit = arguments.number("max_norm", max_norm, 0)
    p = arguments.number("norm_type", norm_type)
    norm, scaled = _often(_clipped, p, len(grads))(grads, float(limit), p)
    with no_grad():
        for grad, new in zip(grads, scaled, strict=True):
            grad.assign_(new)
    return norm  # type: ignore[no-any-return]


def _clipped(grads: list[Any], limit: float, p: float) -> tuple[Any, list[Any]]:
    """The norm of gradients, and what these are after they are clipped."""
    with no_grad():
        norm = get_total_norm(grads, p)
        factor = (limit / (norm + 1e-6)).clip(max=1.0)
        return norm, [(grad * factor).astype(grad.dtype) for grad in grads]


def _limited(grads: list[Any], limit: float) -> list[Any]:
    """Gradients within [-limit, limit]."""
    with no_grad():
        return [grad.clip(-limit, limit) for grad in grads]


@lru_cache(64)
def _often(function: Any, *kind: Any) -> Often:
    """A function of gradients as a program, for each kind of calls that is likely to come again."""
    return Often(function)


def _on_host(grad: Any) -> bool:
    return grad.device.backend == "cpu"


def get_total_norm(
    tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """The norm of all elements of several tensors, such as gradients.

    Args:
        tensors: a tensor, or several; 0 of none.
        norm_type: 2, 1, `math.inf` or another p of the norm.
        error_if_nonfinite: whether a norm that is infinite or NaN is an error, which is waited for.

    Raises:
        LaunchError: `error_if_nonfinite`, and the norm is not finite.

    Example:
        >>> import cubepy as cb
        >>> from cubepy import nn
        >>> nn.utils.get_total_norm([cb.tensor([3.0]), cb.tensor([4.0])])
        tensor(5.)
    """
    given, p = arguments.tensors(tensors), arguments.number("norm_type", norm_type)
    if not given:
        return as_tensor(np.float32(0))
    with no_grad():
        total: Any = None
        for tensor in given:
            wide = arguments.widened(tensor)
            if p == math.inf:
                part = abs(wide).max()
            else:
                part = (wide * wide if p == 2 else abs(wide) ** p).sum()
            part = part.to(given[0].device)
            if total is None:
                total = part
            else:
                total = part._binary("maximum", total) if p == math.inf else total + part
        norm = total if p == math.inf or p == 1 else total.sqrt() if p == 2 else total ** (1 / p)
        if arguments.flag("error_if_nonfinite", error_if_nonfinite):
            if not math.isfinite(norm.item()):
                raise LaunchError(f"the norm of the gradients is {norm.item()}")
    return norm  # type: ignore[no-any-return]


def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Any) -> None:
    """Scale the gradients of all parameters by one number, so that a norm which is known already
    becomes `max_norm` at most.

    Args:
        parameters: a tensor, or several; those without a gradient do not count.
        max_norm: what is allowed.
        total_norm: the norm of them, a tensor.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([3.0, 4.0])
        >>> (x * x).sum().backward()
        >>> nn.utils.clip_grads_with_norm_(x, 1.0, nn.utils.get_total_norm(x.grad))
        >>> x.grad.numpy().round(4)
        array([0.6, 0.8], dtype=float32)
    """
    limit = arguments.number("max_norm", max_norm, 0)
    with no_grad():
        factor = (limit / (as_tensor(total_norm) + 1e-6)).clip(max=1.0)
        for t in _with_gradients(parameters):
            t.grad.assign_(t.grad * factor.to(t.device))


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
    grads = [t.grad for t in _with_gradients(parameters)]
    with no_grad():
        limited = _often(_limited, len(grads))(grads, float(limit))
        for grad, new in zip(grads, limited, strict=True):
            grad.assign_(new)


def _with_gradients(parameters: Any) -> list[Any]:
    return [t for t in arguments.tensors(parameters) if t.grad is not None]
