"""Dropout."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments, init
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import where


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p); the identity unless
    training.

    Example:
        >>> dropout([1.0, 2.0], training=False)
        tensor([1., 2.])
        >>> dropout([1.0, 2.0], p=1.0)
        tensor([0., 0.])
    """
    p, training = (
        arguments.number("p, the probability of dropout,", p, 0, 1),
        arguments.flag("training", training),
    )
    x = as_tensor(input)
    if not training or p == 0:
        return x
    return arguments.in_place(input, init.dropout_generator(x.device).dropout(x, p), inplace)


def feature_dropout(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout of whole channels, of any number of axes behind them.

    Args:
        input: (N, C, ...).
        p: of each channel of each sample.
        training: otherwise the identity.

    Example:
        >>> import numpy as np
        >>> x = feature_dropout(np.ones((1, 8, 2, 2), np.float32)).numpy()
        >>> bool((x.min(axis=(2, 3)) == x.max(axis=(2, 3))).all())
        True
    """
    p = arguments.number("p, the probability of dropout,", p, 0, 1)
    x = as_tensor(input)
    if not arguments.flag("training", training) or p == 0:
        return x
    shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
    kept = init.dropout_generator(x.device).bernoulli(1 - p, shape, x.dtype)
    return x * kept * (1 / (1 - p) if p < 1 else 0.0)


def alpha_dropout(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout to the lower end of selu; mean and variance stay (Klambauer et al., 2017).

    Example:
        >>> alpha_dropout([1.0, 2.0], training=False)
        tensor([1., 2.])
    """
    return arguments.in_place(input, _to_low_end(input, p, training, False), inplace)


def feature_alpha_dropout(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """The same of whole channels of (N, C, ...).

    Example:
        >>> feature_alpha_dropout([[1.0, 2.0]], training=False)
        tensor([[1., 2.]])
    """
    return arguments.in_place(input, _to_low_end(input, p, training, True), inplace)


def _to_low_end(input: Any, p: float, training: bool, channels: bool) -> Tensor:
    p = arguments.number("p, the probability of dropout,", p, 0, 1)
    x = as_tensor(input)
    if not arguments.flag("training", training) or p == 0:
        return x
    if p == 1:
        return x * 0.0
    low = -1.7580993408473766
    a = (1 / (1 - p) / (1 + p * low * low)) ** 0.5
    shape = (*x.shape[:2], *(1,) * (x.ndim - 2)) if channels else x.shape
    kept = init.dropout_generator(x.device).bernoulli(1 - p, shape) != 0
    return where(kept, x, low) * a - a * p * low


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of (N, C, L), or of (C, L).

    Raises:
        ShapeError: another number of axes.

    Example:
        >>> dropout1d([[[1.0, 2.0]]], training=False)
        tensor([[[1., 2.]]])
    """
    made = _of_channels("dropout1d", input, p, training, (2, 3), 2)
    return arguments.in_place(input, made, inplace)


def dropout2d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of (N, C, H, W); of (N, C, L), too, as in torch.

    Raises:
        ShapeError: another number of axes.

    Example:
        >>> dropout2d([[[[1.0, 2.0]]]], training=False)
        tensor([[[[1., 2.]]]])
    """
    made = _of_channels("dropout2d", input, p, training, (3, 4), 0)
    return arguments.in_place(input, made, inplace)


def dropout3d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout of whole channels of (N, C, D, H, W), or of (C, D, H, W).

    Raises:
        ShapeError: another number of axes.

    Example:
        >>> dropout3d([[[[[1.0, 2.0]]]]], training=False)
        tensor([[[[[1., 2.]]]]])
    """
    made = _of_channels("dropout3d", input, p, training, (4, 5), 4)
    return arguments.in_place(input, made, inplace)


def _of_channels(
    name: str, input: Any, p: float, training: bool, ranks: tuple[int, ...], alone: int
) -> Tensor:
    """`feature_dropout` of inputs of some ranks, of which one has no batch."""
    x = as_tensor(input)
    if x.ndim not in ranks:
        raise ShapeError(f"{name} takes inputs of {ranks[0]} or {ranks[1]} axes, not {x.shape}")
    if x.ndim == alone:
        return feature_dropout(x.unsqueeze(0), p, training).squeeze(0)
    return feature_dropout(x, p, training)
