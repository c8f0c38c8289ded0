"""Functions of tensors with the names, argument order and defaults of `torch.nn.functional`.

Arguments may be tensors or anything that `cb.tensor` takes; results are tensors.

Example:
    >>> from cubepy.nn import functional as F
    >>> F.linear([[1.0, 2.0]], [[3.0, 4.0]], activation="relu", residual=[[100.0]])
    tensor([[111.]])
    >>> F.ACTIVATIONS[0]
    'gelu'
"""

from __future__ import annotations

from cubepy.nn.functional.activations import (
    celu,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
)
from cubepy.nn.functional.attention import attention_with_weights, scaled_dot_product_attention
from cubepy.nn.functional.columns import fold, unfold
from cubepy.nn.functional.distances import (
    cosine_embedding_loss,
    cosine_similarity,
    huber_loss,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from cubepy.nn.functional.dropout import alpha_dropout, dropout, feature_dropout
from cubepy.nn.functional.linear import ACTIVATIONS, embedding, linear
from cubepy.nn.functional.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    kl_div,
    nll_loss,
    one_hot,
)
from cubepy.nn.functional.normalization import group_norm, instance_norm, layer_norm, normalize
from cubepy.nn.functional.sampling import affine_grid, grid_sample
from cubepy.nn.functional.shapes import pixel_shuffle, pixel_unshuffle
from cubepy.nn.functional.windows import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    interpolate,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

__all__ = [
    "ACTIVATIONS",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "alpha_dropout",
    "attention_with_weights",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "feature_dropout",
    "fold",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "relu",
    "relu6",
    "scaled_dot_product_attention",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "unfold",
]
