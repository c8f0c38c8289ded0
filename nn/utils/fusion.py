"""Layers and the batch norms behind them as one layer, for models that are trained.

Example:
    >>> from cubepy import nn
    >>> net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    >>> one = fuse_linear_bn_eval(*net)
    >>> bool(abs(one([[1.0, 2.0, 3.0]]) - net([[1.0, 2.0, 3.0]])).max() < 1e-6)
    True
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import ArgumentError
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, no_grad


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what it and the batch norm behind it do.

    Args:
        conv: a convolution that does not train.
        bn: a batch norm with running values that does not train.
        transpose: whether the convolution is a transposed one.

    Returns:
        A copy of the convolution with other weights.

    Raises:
        ArgumentError: one of them trains, or there are no running values.

    Example:
        >>> from cubepy import nn
        >>> net = nn.Sequential(nn.Conv1d(3, 2, 3, bias=False), nn.BatchNorm1d(2)).eval()
        >>> fuse_conv_bn_eval(*net).bias.shape
        (2,)
    """
    return _fused(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what it and the batch norm behind it do; see `fuse_conv_bn_eval`."""
    return _fused(linear, bn, 0)


def _fused(layer: Module, bn: Any, axis: int) -> Module:
    if layer.training or bn.training:
        raise ArgumentError("layers that train are not fused", hint="call eval() before")
    if bn.running_mean is None:
        raise ArgumentError("the batch norm has no running values")
    made = layer.clone()
    with no_grad():
        scale = (bn.running_var + bn.eps).rsqrt()
        scale = scale if bn.weight is None else scale * bn.weight
        shift = -bn.running_mean if layer.bias is None else layer.bias - bn.running_mean
        shift = shift * scale if bn.bias is None else shift * scale + bn.bias
        weight: Tensor = layer.weight
        groups = getattr(layer, "groups", 1) if axis else 1
        lengths = [1] * weight.ndim
        lengths[axis] = weight.shape[axis]
        if groups > 1:  # filters of each group have rows of their own
            scale = scale.reshape(groups, 1, weight.shape[axis]).expand(
                groups, weight.shape[0] // groups, weight.shape[axis]
            )
            lengths[0] = weight.shape[0]
        made.weight = Parameter((weight * scale.reshape(*lengths)).astype(weight.dtype))
        made.bias = Parameter(shift.astype(weight.dtype))
    return made
