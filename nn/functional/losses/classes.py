"""Losses of probabilities and classes. All are computed from logarithms, in f32 or f64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, LaunchError, OutOfBoundsError, ShapeError
from cubepy.nn import arguments
from cubepy.nn.functional.activations import log_softmax, logsigmoid
from cubepy.nn.functional.distances import reduced
from cubepy.tensor import Tensor, apply, as_tensor
from cubepy.tensor.control.composed import composed
from cubepy.tensor.custom.vjp import custom_vjp
from cubepy.tensor.namespace import arange, where
from cubepy.tensor.record import recording_here


@composed
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(input) of the target's class.

    Args:
        input: (C,), (N, C) or (N, C, ...): a number for each class.
        target: classes as integers of shape (), (N,) or (N, ...); or probabilities of the input's
            shape.
        weight: of each class, (C,).
        ignore_index: targets of this class do not count.
        reduction: "none", "mean" (by the weights of the targets) or "sum".
        label_smoothing: which part of the target is spread over all classes.

    Returns:
        A number; with "none" the shape of the classes.

    Raises:
        ShapeError: shapes that do not go together.
        DTypeError: targets that are neither classes nor probabilities of the input's shape.

    Example:
        >>> round(cross_entropy([[0.0, 0.0], [200.0, 0.0]], [0, 1]).item(), 4)
        100.3466
        >>> round(cross_entropy([[0.0, 0.0]], [[0.5, 0.5]], label_smoothing=0.1).item(), 4)
        0.6931
    """
    x, t = as_tensor(input), as_tensor(target)
    smooth = arguments.number("label_smoothing", label_smoothing, 0, 1)
    if not x.ndim:
        raise ShapeError("cross_entropy: the input has no axis of classes")
    axis = min(x.ndim - 1, 1)
    if target_rows(x, t, axis, smooth):
        return _negative_log(None, t, weight, ignore_index, reduction, smooth, axis, x)
    log = log_softmax(arguments.widened(x), axis)
    if t.shape == x.shape and t.dtype.is_float:
        share = arguments.widened(t) * (1 - smooth) + smooth / x.shape[axis]
        if weight is not None:
            share = share * _by_class(weight, x, axis)
        loss = -(log * share).sum(axis=axis)
        if reduction == "mean":
            return reduced(loss.sum() / max(loss.size, 1), "none", x)
        return reduced(loss, reduction, x)
    return _negative_log(log, t, weight, ignore_index, reduction, smooth, axis, x)


@composed
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-input of the target's class; the input is what `log_softmax` gives.

    Args:
        input: (C,), (N, C) or (N, C, ...): logarithms of probabilities.
        target: classes as integers of shape (), (N,) or (N, ...).
        weight: of each class, (C,).
        ignore_index: targets of this class do not count.
        reduction: "none", "mean" (by the weights of the targets) or "sum".

    Example:
        >>> nll_loss([[-1.0, -2.0], [-3.0, -4.0]], [0, 1])
        tensor(2.5)
    """
    x, axis = as_tensor(input), min(as_tensor(input).ndim - 1, 1)
    log = arguments.widened(x)
    return _negative_log(log, as_tensor(target), weight, ignore_index, reduction, 0.0, axis, x)


def _by_class(weight: Any, x: Tensor, axis: int) -> Tensor:
    """Weights of classes beside the input."""
    w = arguments.widened(as_tensor(weight)).to(x.device)
    if w.shape != (x.shape[axis],):
        raise ShapeError(f"a weight for each of {x.shape[axis]} classes, not {w.shape}")
    return w.reshape(w.size, *(1,) * (x.ndim - axis - 1))


def target_rows(x: Tensor, target: Tensor, axis: int, smooth: float) -> bool:
    """Whether logarithms of the targets' probabilities alone are asked for, of rows on a GPU: there
    no kernel holds a whole row, and the logarithms of all would go through memory.
    """
    if x.device.backend in ("cpu", "python") or axis != x.ndim - 1 or smooth:
        return False
    return target.dtype.is_int and target.shape == x.shape[:-1] and x.size > 0


@custom_vjp
def _of_target(x: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms of the probabilities of chosen classes, of rows, and those of the sums of
    exponentials.
    """
    sums = apply("logsumexp", x, axis=x.ndim - 1, keepdims=False, wide=True)
    own = apply("gather", x, chosen.unsqueeze(-1), axis=x.ndim - 1).squeeze(-1)
    return arguments.widened(own) - sums, sums


def _of_target_forward(x: Tensor, chosen: Tensor) -> Any:
    found = _of_target.function(x, chosen)
    return found, (x, chosen, found[1])


def _of_target_backward(saved: Any, grads: Any) -> tuple[Tensor, None]:
    """With p the probabilities, the classes' own minus p times the gradient of the first; and p
    times that of the second.
    """
    x, chosen, sums = saved
    of_one, of_sums = (g.unsqueeze(-1) for g in grads)
    p = (arguments.widened(x) - sums.unsqueeze(-1)).exp()
    classes = arange(x.shape[-1], dtype="i32", device=x.device)
    mine = classes == chosen.astype("i32").unsqueeze(-1)
    return (where(mine, of_one, 0) + p * (of_sums - of_one)).astype(x.dtype), None


_of_target.defvjp(_of_target_forward, _of_target_backward)


def _negative_log(
    log: Tensor | None,
    target: Tensor,
    weight: Any,
    ignored: int,
    reduction: str,
    smooth: float,
    axis: int,
    x: Tensor,
) -> Tensor:
    """The loss by logarithms of probabilities and classes."""
    if not target.dtype.is_int:
        raise DTypeError(
            f"classes are integers, not {target.dtype.name}{target.shape}",
            hint=f"probabilities have the input's shape {x.shape}",
        )
    if target.shape != (*x.shape[:axis], *x.shape[axis + 1 :]):
        one = (*x.shape[:axis], *x.shape[axis + 1 :])
        raise ShapeError(
            f"an input of shape {x.shape}, with classes along axis {axis}, has a target of shape "
            f"{one}, not {target.shape}",
            hint=f"probabilities have the input's shape {x.shape}",
        )
    counted = target != ignored
    chosen = where(counted, target, 0)
    try:
        if log is None:
            total, _ = _of_target(x, chosen)
        else:
            total = apply("gather", log, chosen.unsqueeze(axis), axis=axis).squeeze(axis)
    except OutOfBoundsError as error:
        error.message = f"classes are 0 to {x.shape[axis] - 1} or {ignored}: {error.message}"
        raise
    if weight is None:
        counts = counted.astype(total.dtype)
    else:
        each = _by_class(weight, x, axis).reshape(-1)
        of_targets = apply("gather", each, chosen.reshape(-1), axis=0)
        counts = where(counted, of_targets.reshape(target.shape), 0)
    total = where(counted, total * counts, 0)
    if smooth and log is not None:
        spread = log if weight is None else log * _by_class(weight, x, axis)
        spread = where(counted, spread.sum(axis=axis), 0)
        total = total * (1 - smooth) + spread * (smooth / x.shape[axis])
    if reduction == "mean":
        return reduced(-(total.sum() / counts.sum()), "none", x)
    return reduced(-total, reduction, x)


_LEAST = {32: 1e-38, 64: 1e-300}


@composed
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean"
) -> Tensor:
    """-(y log p + (1 - y) log(1 - p)); logarithms count as at least -100.

    Args:
        input: probabilities p.
        target: y, from 0 to 1, of the same shape.
        weight: of each element, broadcast.
        reduction: "none", "mean" or "sum".

    Raises:
        ShapeError: shapes that differ.

    Example:
        >>> binary_cross_entropy([0.5, 0.0], [1.0, 1.0], reduction="none").numpy().round(4)
        array([  0.6931, 100.    ], dtype=float32)
    """
    x, y = as_tensor(input), as_tensor(target)
    if x.shape != y.shape:
        raise ShapeError(f"an input of shape {x.shape} has no target of shape {y.shape}")
    p, y = arguments.widened(x), arguments.widened(y)
    least = _LEAST[p.dtype.bits]

    def log(q: Tensor) -> Tensor:
        found = q > least
        return where(found, where(found, q, 1).log().clip(-100.0), -100.0)

    loss = -(y * log(p) + (1 - y) * log(1 - p))
    if weight is not None:
        loss = loss * arguments.widened(as_tensor(weight))
    return reduced(loss, reduction, x)


@composed
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
) -> Tensor:
    """The same of p = sigmoid(input), exact for inputs of any size.

    Args:
        input: logits.
        target: y, from 0 to 1, of the same shape.
        weight: of each element, broadcast.
        reduction: "none", "mean" or "sum".
        pos_weight: by which the part with y is multiplied, broadcast.

    Raises:
        ShapeError: shapes that differ.

    Example:
        >>> binary_cross_entropy_with_logits([0.0, 200.0], [1.0, 0.0], reduction="none")
        tensor([  0.6931472, 200.       ])
    """
    x, y = as_tensor(input), as_tensor(target)
    if x.shape != y.shape:
        raise ShapeError(f"an input of shape {x.shape} has no target of shape {y.shape}")
    z, y = arguments.widened(x), arguments.widened(y)
    log = logsigmoid(z)
    if pos_weight is None:
        loss = (1 - y) * z - log
    else:
        loss = (1 - y) * z - log * ((arguments.widened(as_tensor(pos_weight)) - 1) * y + 1)
    if weight is not None:
        loss = loss * arguments.widened(as_tensor(weight))
    return reduced(loss, reduction, x)


@composed
def kl_div(input: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Kullback-Leibler divergence: target * (log target - input), of which 0 log 0 is 0.

    Args:
        input: logarithms of probabilities.
        target: probabilities, or their logarithms where `log_target`.
        reduction: "none", "mean", "sum", or "batchmean": the sum over the length of axis 0.
        log_target: see `target`.

    Example:
        >>> kl_div([[-1.0, -2.0]], [[0.0, 1.0]], reduction="batchmean")
        tensor(2.)
    """
    x, t = as_tensor(input), as_tensor(target)
    log, t = arguments.widened(x), arguments.widened(t)
    if arguments.flag("log_target", log_target):
        loss = t.exp() * (t - log)
    else:
        some = t > 0
        loss = where(some, t * (where(some, t, 1).log() - log), 0)
    if reduction == "batchmean":
        return reduced(loss.sum() / (x.shape[0] if x.ndim else 1), "none", x)
    return reduced(loss, reduction, x)


def one_hot(tensor: Any, num_classes: int = -1) -> Tensor:
    """Rows of zeros (i64) with a one where an integer says.

    Args:
        tensor: integers of any shape.
        num_classes: how many classes there are; -1: as many as are needed, which a program
            (`cb.jit`) does not know.

    Raises:
        LaunchError: an integer that is no class, for which programs, which do not look, give
            zeros; no number of classes in a program.

    Example:
        >>> one_hot([2, 0])
        tensor([[0, 0, 1],
                [1, 0, 0]])
    """
    x = as_tensor(tensor)
    if num_classes != -1:
        arguments.size("num_classes", num_classes, 1)
    if recording_here():
        if num_classes == -1:
            raise LaunchError(
                "one_hot needs num_classes in a program, which does not know the largest integer",
                hint="write one_hot(x, num_classes)",
            )
        n = num_classes
    else:
        values = x.numpy()
        most, least = (int(values.max()), int(values.min())) if values.size else (-1, 0)
        n = most + 1 if num_classes == -1 else num_classes
        if most >= n or least < 0:
            raise LaunchError(f"classes are 0 to {n - 1}; the largest integer is {most}")
    if not x.dtype.is_float:
        x = x.astype("i64")  # the classes may be more than integers of its dtype
    classes = as_tensor(np.arange(n, dtype=x.dtype.numpy)).to(x.device)
    return (x.unsqueeze(-1) == classes).astype("i64")


@composed
def gaussian_nll_loss(
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log var + (input - target)^2 / var) / 2: of targets with a normal distribution.

    Args:
        input: expected values, of any shape.
        target: of the same shape, broadcast.
        var: variances: a number, of the input's shape, or without its last axis, or with one of
            length 1; they count as at least eps.
        full: whether log(2 pi) / 2 is added.
        eps: see `var`.
        reduction: "none", "mean" or "sum".

    Raises:
        ShapeError: variances of another shape.

    Example:
        >>> gaussian_nll_loss([1.0, 2.0], [2.0, 4.0], [1.0, 1.0])
        tensor(1.25)
    """
    x, t, v = as_tensor(input), as_tensor(target), as_tensor(var)
    wide, spread = arguments.widened(x), arguments.widened(v)
    if spread.ndim and spread.shape != x.shape:
        if spread.shape == x.shape[:-1]:
            spread = spread.unsqueeze(-1)
        elif spread.shape != (*x.shape[:-1], 1):
            raise ShapeError(f"an input of shape {x.shape} has no variances of shape {v.shape}")
    kept = spread.detach()
    spread = spread + (kept.clip(arguments.number("eps", eps, 0)) - kept)
    difference = wide - arguments.widened(t)
    loss = (spread.log() + difference * difference / spread) * 0.5
    if arguments.flag("full", full):
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction, x)


@composed
def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """input - target * log(input): of targets with a Poisson distribution.

    Args:
        input: expected counts, or their logarithms where `log_input`.
        target: counts, broadcast.
        log_input: see `input`.
        full: whether Stirling's approximation of log(target!) is added, of targets above 1.
        eps: added to an input before its logarithm.
        reduction: "none", "mean" or "sum".

    Example:
        >>> poisson_nll_loss([0.0, 0.0], [1.0, 2.0])
        tensor(1.)
    """
    x, t = as_tensor(input), arguments.widened(as_tensor(target))
    wide, eps = arguments.widened(x), arguments.number("eps", eps, 0)
    if arguments.flag("log_input", log_input):
        loss = wide.exp() - t * wide
    else:
        loss = wide - t * (wide + eps).log()
    if arguments.flag("full", full):
        many = t > 1
        n = where(many, t, 2.0)
        loss = loss + where(many, n * n.log() - n + (n * (2 * math.pi)).log() * 0.5, 0.0)
    return reduced(loss, reduction, x)
