"""Layers that normalise: over the last axes, over the batch, over groups of channels."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import promote
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, as_tensor, no_grad


def _as_promoted(y: Tensor, *inputs: Tensor | None) -> Tensor:
    """What was computed in f32, in the dtype that its inputs promote to."""
    return y.astype(functools.reduce(promote, [t.dtype for t in inputs if t is not None]))


class LayerNorm(Module):
    """Normalisation over the last axes, with a learned scale and shift.

    Attributes:
        weight, bias: of shape `normalized_shape`, or None.

    Example:
        >>> LayerNorm(2)([[1.0, 3.0]]).numpy().round(3)
        array([[-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.normalized_shape = arguments.shape("normalized_shape", normalized_shape)
        self.eps = arguments.number("eps", eps, 0)
        self.elementwise_affine = arguments.flag("elementwise_affine", elementwise_affine)
        shape, biased = (
            self.normalized_shape,
            self.elementwise_affine and arguments.flag("bias", bias),
        )
        self.weight = Parameter(init.constant(shape, 1.0)) if self.elementwise_affine else None
        self.bias = Parameter(init.constant(shape, 0.0)) if biased else None

    def forward(self, input: Any) -> Tensor:
        """Any shape that ends with `normalized_shape` -> the same."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class RMSNorm(Module):
    """Division by the root of the mean square over the last axes, with a learned scale.

    Args:
        normalized_shape: the last axes of the input.
        eps: added to the mean square; None is the epsilon of the input's dtype.
        elementwise_affine: whether there is a scale.

    Attributes:
        weight: of shape `normalized_shape`, or None.

    Example:
        >>> RMSNorm(2, eps=0.0)([[3.0, 3.0]])
        tensor([[1., 1.]])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        self.normalized_shape = arguments.shape("normalized_shape", normalized_shape)
        self.eps = None if eps is None else arguments.number("eps", eps, 0)
        self.elementwise_affine = arguments.flag("elementwise_affine", elementwise_affine)
        self.weight = (
            Parameter(init.constant(self.normalized_shape, 1.0))
            if self.elementwise_affine
            else None
        )

    def forward(self, input: Any) -> Tensor:
        """Any shape that ends with `normalized_shape` -> the same.

        Raises:
            ShapeError: the input ends with other axes.
        """
        x, n = as_tensor(input), len(self.normalized_shape)
        if tuple(x.shape[len(x.shape) - n :]) != self.normalized_shape:
            raise ShapeError(
                f"RMSNorm over {self.normalized_shape} cannot take an input of shape "
                f"{tuple(x.shape)}"
            )
        eps = float(ml_dtypes.finfo(x.dtype.numpy).eps) if self.eps is None else self.eps
        wide = arguments.widened(x)
        y = wide * ((wide * wide).mean(axis=tuple(range(-n, 0)), keepdims=True) + eps).rsqrt()
        y = y if self.weight is None else y * self.weight
        return y if wide is x else _as_promoted(y, x, self.weight)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class _BatchNorm(Module):
    ranks: tuple[int, ...] = ()
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features = arguments.size("num_features", num_features)
        self.eps, self.momentum = (
            arguments.number("eps", eps, 0),
            None if momentum is None else arguments.number("momentum", momentum, 0, 1),
        )
        self.affine = arguments.flag("affine", affine)
        self.weight = Parameter(init.constant((num_features,), 1.0)) if self.affine else None
        self.bias = Parameter(init.constant((num_features,), 0.0)) if self.affine else None
        self.track_running_stats = arguments.flag("track_running_stats", track_running_stats)
        kept: dict[str, Any] = {
            "running_mean": np.zeros(num_features, np.float32),
            "running_var": np.ones(num_features, np.float32),
            "num_batches_tracked": np.asarray(0, np.int64),
        }
        for name, first in kept.items():
            self.register_buffer(name, first if self.track_running_stats else None)

    def forward(self, input: Any) -> Tensor:
        """(N, num_features, ...) -> the same; training normalises by the batch and moves the
        running values.

        Raises:
            ShapeError: another number of axes or channels, or one value per channel while training.
        """
        x = as_tensor(input)
        rank, channels = len(x.shape), (1, self.num_features) + (1,) * (len(x.shape) - 2)
        if rank not in self.ranks or x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}) cannot take an input of shape "
                f"{x.shape}"
            )
        mean, var = self.running_mean, self.running_var
        wide = arguments.widened(x)
        if self.training or not self.track_running_stats:
            mean, var = self._of_batch(wide)
        scale = (arguments.widened(var) + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        y = (wide - mean.reshape(*channels)) * scale.reshape(*channels)
        if self.bias is not None:
            y = y + self.bias.reshape(*channels)
        return y if wide is x else _as_promoted(y, x, self.running_mean, self.weight, self.bias)

    def _of_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and biased variance of each channel; the running variance takes the unbiased one."""
        axes = (0, *range(2, len(x.shape)))
        count = int(np.prod([x.shape[a] for a in axes]))
        if count < 2:
            raise ShapeError(
                f"batch normalisation trains on more than 1 value per channel, not {count}"
            )
        mean = x.mean(axis=axes, keepdims=True)
        var = ((x - mean) ** 2).mean(axis=axes)
        mean = mean.reshape(self.num_features)
        if self.track_running_stats:
            with no_grad():
                self._move(mean, var * (count / (count - 1)))
        return mean, var

    def _move(self, mean: Tensor, var: Tensor) -> None:
        """Running values move towards those of a batch; without a momentum, to the mean of all.
        The handles stay, so that programs have them as states.
        """
        self.num_batches_tracked.assign_(self.num_batches_tracked + 1)
        m: Any = self.momentum
        keep, take = (1 - m, m) if m is not None else (None, None)
        for running, value in ((self.running_mean, mean), (self.running_var, var)):
            old = arguments.widened(running)
            if m is None:
                share = 1 / self.num_batches_tracked.astype("f64")
                keep, take = (1 - share).astype(old.dtype), share.astype(value.dtype)
            running.assign_((old * keep + value * take).astype(running.dtype))

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
            + ("" if self.track_running_stats else ", track_running_stats=False")
        )


class BatchNorm1d(_BatchNorm):
    """Normalisation of each channel over the batch, for inputs (N, C) and (N, C, L).

    Example:
        >>> norm = BatchNorm1d(1)
        >>> norm([[1.0], [3.0]]).numpy().round(3).tolist()
        [[-1.0], [1.0]]
        >>> norm.running_mean  # a tenth of the way to 2
        tensor([0.2])
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalisation of each channel over the batch, for inputs (N, C, H, W).

    Example:
        >>> import numpy as np
        >>> BatchNorm2d(3).eval()(np.ones((1, 3, 2, 2), np.float32)).shape
        (1, 3, 2, 2)
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalisation of each channel over the batch, for inputs (N, C, D, H, W).

    Example:
        >>> import numpy as np
        >>> BatchNorm3d(3).eval()(np.ones((1, 3, 2, 2, 2), np.float32)).shape
        (1, 3, 2, 2, 2)
    """

    ranks = (5,)
