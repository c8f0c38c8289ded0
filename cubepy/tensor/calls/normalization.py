"""Normalisations of tensors."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import number_of, whole, wholes
from cubepy.lang.dtypes import f64
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.table import call_of
from cubepy.tensor.modes import no_grad


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


@call_of("rms_norm")
def rms_norm(input: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Tensor:
    """`rms_norm`."""
    x = as_tensor(input)
    step = (2.0**-52 if x.dtype is f64 else 2.0**-23) if eps is None else number_of(eps, "eps")
    return apply(  # type: ignore[no-any-return]
        "rms_norm",
        x,
        optional(weight),
        normalized_shape=wholes(normalized_shape, "normalized_shape"),
        eps=step,
    )


@call_of("group_norm")
def group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Tensor:
    """`group_norm`."""
    how = {"groups": whole(num_groups, "num_groups"), "eps": number_of(eps, "eps")}
    return apply(  # type: ignore[no-any-return]
        "group_norm", as_tensor(input), optional(weight), optional(bias), **how
    )


@call_of("batch_norm")
def batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any,
    bias: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """`batch_norm`; running values that are tensors get new values, arrays are written."""
    x, w, b, step = as_tensor(input), optional(weight), optional(bias), number_of(eps, "eps")
    if not training:
        given = [optional(running_mean), optional(running_var)]
        if any(v is None for v in given):
            raise ShapeError(
                "batch_norm needs running_mean and running_var where it is not training"
            )
        return apply("channel_norm", x, *given, w, b, eps=step)  # type: ignore[no-any-return]
    y, mean, var = apply("batch_norm", x, w, b, eps=step)
    n = x.size // max(x.shape[1], 1)
    share = number_of(momentum, "momentum")
    with no_grad():
        _move(running_mean, mean.detach(), share)
        _move(running_var, var.detach() * (n / max(n - 1, 1)), share)
    return y  # type: ignore[no-any-return]


def _move(running: Any, fresh: Tensor, share: float) -> None:
    """Running values towards those of a batch."""
    if running is None:
        return
    old = as_tensor(running)
    new = old + (fresh - old) * share
    if isinstance(running, Tensor):
        running.assign_(new)
    else:
        running[...] = new.numpy()
