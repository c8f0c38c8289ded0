"""Dropout."""

from __future__ import annotations

from typing import Any

from cubepy.nn import arguments, init
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import where


def dropout(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
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
    kept = (init.generator().random(x.shape) >= p).astype(x.dtype.numpy)
    return x * as_tensor(kept).to(x.device) * (1 / (1 - p) if p < 1 else 0.0)


def feature_dropout(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout of whole channels: what `dropout1d`, `dropout2d` and `dropout3d` are.

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
    kept = (init.generator().random(shape) >= p).astype(x.dtype.numpy)
    return x * as_tensor(kept).to(x.device) * (1 / (1 - p) if p < 1 else 0.0)


def alpha_dropout(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Dropout to the lower end of selu; mean and variance stay (Klambauer et al., 2017).

    Example:
        >>> alpha_dropout([1.0, 2.0], training=False)
        tensor([1., 2.])
    """
    p = arguments.number("p, the probability of dropout,", p, 0, 1)
    x = as_tensor(input)
    if not arguments.flag("training", training) or p == 0:
        return x
    if p == 1:
        return x * 0.0
    low = -1.7580993408473766
    a = (1 / (1 - p) / (1 + p * low * low)) ** 0.5
    kept = as_tensor(init.generator().random(x.shape) >= p).to(x.device)
    return where(kept, x, low) * a - a * p * low
