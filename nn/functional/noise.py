"""Functions that draw random numbers besides dropout, from the same generator
(`nn.init.manual_seed`).
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import DTypeError, LaunchError
from cubepy.nn import arguments, init
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import arange, where

_LEAST = 2.0**-25
"""Of what is drawn: half of the step between two numbers."""


def gumbel_softmax(
    logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Samples of classes through which gradients go (Jang et al., 2017; Maddison et al., 2017).

    Args:
        logits: (..., C): logarithms of probabilities, up to a number.
        tau: the temperature, above 0; small ones are nearer to one class.
        hard: whether the result is one class; the gradient is that of the soft one.
        eps: not used, as in torch.
        dim: the axis of classes.

    Returns:
        Rows that sum to 1, of the logits' shape.

    Raises:
        DTypeError: logits that are no floats.
        LaunchError: a temperature of 0 or below.

    Example:
        >>> y = gumbel_softmax([[0.0, 2.0, 1.0]], hard=True)
        >>> y.shape, sorted(y.tolist()[0])
        ((1, 3), [0.0, 0.0, 1.0])
    """
    x, tau = as_tensor(logits), arguments.number("tau", tau, 0)
    if not x.dtype.is_float:
        raise DTypeError(f"gumbel_softmax takes floats, not {x.dtype.name}")
    if tau == 0:
        raise LaunchError("tau must be above 0", hint="hard=True gives one class")
    wide = arguments.widened(x)
    drawn = init.dropout_generator(x.device).uniform(x.shape, dtype=wide.dtype)
    gumbel = -(-(1 - drawn).log()).clip(_LEAST).log()
    soft = ((wide + gumbel) / tau).softmax(dim)
    if arguments.flag("hard", hard):
        best = soft.detach().argmax(axis=dim, keepdims=True)
        at = x._dim(dim, "gumbel_softmax")
        classes = arange(x.shape[at], device=x.device)
        one = classes.reshape(-1, *(1,) * (x.ndim - at - 1)) == best
        soft = one.astype(soft.dtype) - soft.detach() + soft
    return soft.astype(x.dtype)


def rrelu(
    input: Any,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """x above 0; below, x times a slope: in training one drawn for each element, else the mean.

    Args:
        input: of any shape.
        lower, upper: between which slopes are drawn.
        training: see above.
        inplace: whether a tensor that is given has the result, too.

    Raises:
        LaunchError: a lower slope above the upper one.

    Example:
        >>> rrelu([-4.0, 2.0], 0.25, 0.75)
        tensor([-2.,  2.])
        >>> y = rrelu([-4.0, 2.0], 0.25, 0.75, training=True).tolist()
        >>> -3.0 <= y[0] <= -1.0, y[1]
        (True, 2.0)
    """
    low = arguments.number("lower", lower)
    high = arguments.number("upper", upper, low)
    x = as_tensor(input)
    wide = arguments.widened(x)
    slope: Any = (low + high) / 2
    if arguments.flag("training", training):
        slope = init.dropout_generator(x.device).uniform(x.shape, low, high, wide.dtype)
    y = where(wide > 0, wide, wide * slope)
    return arguments.in_place(input, y.astype(x.dtype) if x.dtype.is_float else y, inplace)
