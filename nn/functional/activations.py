"""Functions of elements, and softmax.

Those that take several steps compute narrow floats in f32 and round once. With `inplace` the tensor
that is given has the result from here on, as `assign_` does it; memory is saved by programs.
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import float_for
from cubepy.nn import arguments
from cubepy.tensor import Tensor, apply, as_tensor
from cubepy.tensor.control.composed import composed
from cubepy.tensor.namespace import where


def gelu(input: Any, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit; `approximate` is "none" (error function) or "tanh".

    Example:
        >>> gelu([-1.0, 0.0, 1.0])
        tensor([-0.15865523,  0.        ,  0.8413448 ])
    """
    return as_tensor(input).gelu(approximate)


def relu(input: Any, inplace: bool = False) -> Tensor:
    """max(x, 0).

    Example:
        >>> relu([-1.0, 0.0, 1.0])
        tensor([0., 0., 1.])
    """
    return arguments.in_place(input, apply("relu", as_tensor(input)), inplace)


def silu(input: Any, inplace: bool = False) -> Tensor:
    """x / (1 + exp(-x)).

    Example:
        >>> silu([-1.0, 0.0, 1.0])
        tensor([-0.26894143,  0.        ,  0.7310586 ])
    """
    return arguments.in_place(input, apply("silu", as_tensor(input)), inplace)


def sigmoid(input: Any) -> Tensor:
    """1 / (1 + exp(-x)).

    Example:
        >>> sigmoid([-1.0, 0.0, 1.0])
        tensor([0.26894143, 0.5       , 0.7310586 ])
    """
    return apply("sigmoid", as_tensor(input))


def tanh(input: Any) -> Tensor:
    """Hyperbolic tangent.

    Example:
        >>> tanh([-1.0, 0.0, 1.0])
        tensor([-0.7615942,  0.       ,  0.7615942])
    """
    return apply("tanh", as_tensor(input))


def softmax(input: Any, dim: int = -1, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis, of the elements in a dtype if one is given.

    Example:
        >>> softmax([[0.0, 0.0], [0.0, 100.0]])
        tensor([[0.5, 0.5],
                [0. , 1. ]])
    """
    return as_tensor(input).softmax(dim, dtype)


def _in(x: Tensor, dtype: Any) -> Tensor:
    """In the dtype that was asked for."""
    return x if dtype is None else x.astype(dtype)


def _floats(x: Tensor) -> Tensor:
    """Integers and booleans as floats: what is computed of them may be beyond their dtype."""
    return x if x.dtype.is_float else x.astype(float_for(x.dtype))


def _as_given(y: Tensor, x: Tensor) -> Tensor:
    """What was computed in f32, in the dtype that came."""
    return y if y.dtype is x.dtype or not x.dtype.is_float else y.astype(x.dtype)


def _below(x: Tensor) -> Tensor:
    """min(x, 0), whose slope at 0 is 1."""
    return where(x > 0, 0, x)


def log_softmax(input: Any, dim: int = -1, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along an axis, exact where softmax rounds to 0; a dtype as for `softmax`.

    Example:
        >>> log_softmax([[0.0, 200.0]])
        tensor([[-200.,    0.]])
    """
    return as_tensor(input).log_softmax(dim, dtype)


def softmin(input: Any, dim: int = -1, dtype: Any = None) -> Tensor:
    """softmax(-x).

    Example:
        >>> softmin([[0.0, 100.0]])
        tensor([[1., 0.]])
    """
    return softmax(-_floats(_in(as_tensor(input), dtype)), dim)


@composed
def logsigmoid(input: Any) -> Tensor:
    """log(sigmoid(x)), exact where sigmoid rounds to 0 or 1.

    Example:
        >>> logsigmoid([-200.0, 0.0]).numpy().round(4)
        array([-200.    ,   -0.6931], dtype=float32)
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return _as_given(_below(wide) - where(wide > 0, -wide, wide).exp().log1p(), x)


@composed
def hardtanh(
    input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x, limited to [min_val, max_val]; the slope at the limits is 0.

    Example:
        >>> hardtanh([-3.0, 0.5, 3.0])
        tensor([-1. ,  0.5,  1. ])
    """
    x = as_tensor(input)
    return arguments.in_place(
        input, where(x <= min_val, min_val, where(x >= max_val, max_val, x)), inplace
    )


@composed
def relu6(input: Any, inplace: bool = False) -> Tensor:
    """x, limited to [0, 6].

    Example:
        >>> relu6([-1.0, 1.0, 7.0])
        tensor([0., 1., 6.])
    """
    return arguments.in_place(input, hardtanh(input, 0.0, 6.0), inplace)


@composed
def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where it is positive, else negative_slope * x.

    Example:
        >>> leaky_relu([-1.0, 1.0], 0.25)
        tensor([-0.25,  1.  ])
    """
    x = as_tensor(input)
    return arguments.in_place(
        input, where(x > 0, x, x * arguments.number("negative_slope", negative_slope)), inplace
    )


@composed
def prelu(input: Any, weight: Any) -> Tensor:
    """x where it is positive, else weight * x.

    Args:
        input: of any shape.
        weight: (1,), or one for each channel (axis 1).

    Example:
        >>> prelu([-1.0, 1.0], [0.25])
        tensor([-0.25,  1.  ])
    """
    x, w = as_tensor(input), as_tensor(weight)
    if w.size != 1:
        if x.ndim < 2 or x.shape[1] != w.size:
            raise ShapeError(f"prelu: {w.size} weights for an input of shape {x.shape}")
        w = w.reshape(w.size, *(1,) * (x.ndim - 2))
    return where(x > 0, x, x * w)


@composed
def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1).

    Example:
        >>> elu([-1.0, 1.0]).numpy().round(4)
        array([-0.6321,  1.    ], dtype=float32)
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return arguments.in_place(
        input, _as_given(where(wide > 0, wide, _below(wide).expm1() * alpha), x), inplace
    )


@composed
def selu(input: Any, inplace: bool = False) -> Tensor:
    """Scaled elu that keeps mean 0 and variance 1 (Klambauer et al., 2017).

    Example:
        >>> selu([-1.0, 1.0]).numpy().round(4)
        array([-1.1113,  1.0507], dtype=float32)
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return arguments.in_place(
        input, _as_given(elu(wide, 1.6732632423543772) * 1.0507009873554805, x), inplace
    )


@composed
def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else alpha * (exp(x / alpha) - 1).

    Example:
        >>> celu([-1.0, 1.0], alpha=2.0).numpy().round(4)
        array([-0.7869,  1.    ], dtype=float32)
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return arguments.in_place(
        input, _as_given(where(wide > 0, wide, (_below(wide) / alpha).expm1() * alpha), x), inplace
    )


@composed
def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.

    Example:
        >>> softplus([0.0, 100.0]).numpy().round(4)
        array([  0.6931, 100.    ], dtype=float32)
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    scaled = wide if beta == 1 else wide * beta
    straight = scaled > threshold
    curved = where(straight, 0, scaled).exp().log1p()
    return _as_given(where(straight, wide, curved if beta == 1 else curved / beta), x)


@composed
def softsign(input: Any) -> Tensor:
    """x / (1 + |x|).

    Example:
        >>> softsign([-1.0, 3.0])
        tensor([-0.5 ,  0.75])
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return _as_given(wide / (abs(wide) + 1), x)


@composed
def hardsigmoid(input: Any, inplace: bool = False) -> Tensor:
    """x / 6 + 1 / 2, limited to [0, 1].

    Example:
        >>> hardsigmoid([-4.0, 0.0, 1.5])
        tensor([0.  , 0.5 , 0.75])
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return arguments.in_place(input, _as_given(relu6(wide + 3) / 6, x), inplace)


@composed
def hardswish(input: Any, inplace: bool = False) -> Tensor:
    """x * hardsigmoid(x).

    Example:
        >>> hardswish([-4.0, 0.0, 3.0])
        tensor([-0.,  0.,  3.])
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return arguments.in_place(input, _as_given(wide * (relu6(wide + 3) / 6), x), inplace)


@composed
def mish(input: Any, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)) (Misra, 2019).

    Example:
        >>> mish([0.0, 1.0]).numpy().round(4)
        array([0.    , 0.8651], dtype=float32)
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return arguments.in_place(input, _as_given(wide * softplus(wide).tanh(), x), inplace)


@composed
def tanhshrink(input: Any) -> Tensor:
    """x - tanh(x).

    Example:
        >>> tanhshrink([0.0, 1.0]).numpy().round(4)
        array([0.    , 0.2384], dtype=float32)
    """
    x = as_tensor(input)
    wide = arguments.widened(x)
    return _as_given(wide - wide.tanh(), x)


@composed
def softshrink(input: Any, lambd: float = 0.5) -> Tensor:
    """x, brought nearer to 0 by lambd; 0 where it is as near.

    Example:
        >>> softshrink([-1.0, 0.25, 2.0])
        tensor([-0.5,  0. ,  1.5])
    """
    x = _floats(as_tensor(input))
    return where(abs(x) <= lambd, 0, where(x > 0, x - lambd, x + lambd))


@composed
def hardshrink(input: Any, lambd: float = 0.5) -> Tensor:
    """x; 0 where it is within [-lambd, lambd].

    Example:
        >>> hardshrink([-1.0, 0.25, 2.0])
        tensor([-1.,  0.,  2.])
    """
    x = as_tensor(input)
    return where(abs(_floats(x)) <= lambd, 0, x)


@composed
def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above the threshold, else the value.

    Example:
        >>> threshold([1.0, 3.0], 2.0, -1.0)
        tensor([-1.,  3.])
    """
    x = as_tensor(input)
    return arguments.in_place(input, where(x <= threshold, value, x), inplace)


@composed
def glu(input: Any, dim: int = -1) -> Tensor:
    """The first half of an axis times the sigmoid of the second (Dauphin et al., 2017).

    Raises:
        ShapeError: the axis has an odd length.

    Example:
        >>> glu([[3.0, 0.0]])
        tensor([[1.5]])
    """
    x = as_tensor(input)
    n = x.shape[dim]
    if n % 2:
        raise ShapeError(f"glu halves an axis; axis {dim} of {x.shape} has an odd length")
    lead = (slice(None),) * (dim % x.ndim)
    return x[(*lead, slice(0, n // 2))] * sigmoid(x[(*lead, slice(n // 2, n))])
