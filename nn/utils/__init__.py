"""What PyTorch has under this name: gradients that are clipped, parameters as vectors, or computed
of others (`parametrizations`, `parametrize`), sequences of several lengths (`rnn`).

Example:
    >>> from cubepy import nn
    >>> x = nn.Parameter([3.0, 4.0])
    >>> (x * x).sum().backward()
    >>> nn.utils.clip_grad_norm_([x], max_norm=1.0)
    tensor(10.)
"""

from __future__ import annotations

from cubepy.nn.optim.clipping import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from cubepy.nn.utils import parametrizations, parametrize, rnn
from cubepy.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from cubepy.nn.utils.older import (
    remove_spectral_norm,
    remove_weight_norm,
    skip_init,
    spectral_norm,
    weight_norm,
)
from cubepy.nn.utils.vectors import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_linear_bn_eval",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]
