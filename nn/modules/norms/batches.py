"""Normalisation over the batch."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import f32, f64
from cubepy.nn import arguments
from cubepy.nn.modules.norms.rows import as_promoted
from cubepy.nn.modules.norms.running import RunningNorm
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, apply, no_grad
from cubepy.tensor.record import recording_here


class BatchNorm(RunningNorm):
    """Base of batch norms: normalisation of each channel over the batch."""

    def forward(self, input: Any) -> Tensor:
        """(N, num_features, ...) -> the same; training normalises by the batch and moves the
        running values.

        Raises:
            ShapeError: another number of axes or channels, or one value per channel while training.
        """
        x = self.checked(input)
        channels = (1, self.num_features) + (1,) * (x.ndim - 2)
        mean, var = self.running_mean, self.running_var
        wide = arguments.widened(x)
        if self.training or not self.track_running_stats:
            if self._at_once(x):
                return self._as_op(x)
            mean, var = self._of_batch(wide)
        scale = (arguments.widened(var) + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        y = (wide - mean.reshape(*channels)) * scale.reshape(*channels)
        if self.bias is not None:
            y = y + self.bias.reshape(*channels)
        return y if wide is x else as_promoted(y, x, self.running_mean, self.weight, self.bias)

    def _at_once(self, x: Tensor) -> bool:
        """Whether all is one op: outside of programs, which fuse the formula, on the host."""
        given = [t for t in (x, self.weight, self.bias) if t is not None]
        alike = {(t.dtype, t.storage.kind) for t in given} == {(x.dtype, "dense")}
        return alike and x.dtype in (f32, f64) and gpu_of(x.device) is None and not recording_here()

    def _as_op(self, x: Tensor) -> Tensor:
        """What the formula below gives, by the op."""
        count = self._count(x)
        y, mean, var = apply("batch_norm", x, self.weight, self.bias, eps=self.eps)
        if self.track_running_stats:
            with no_grad():
                self.moved(mean, var * (count / (count - 1)))
        return y  # type: ignore[no-any-return]

    def _count(self, x: Tensor) -> int:
        """Values of each channel."""
        count = x.size // x.shape[1]
        if count < 2:
            raise ShapeError(
                f"batch normalisation trains on more than 1 value per channel, not {count}"
            )
        return count

    def _of_batch(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and biased variance of each channel; the running variance takes the unbiased one."""
        axes = (0, *range(2, len(x.shape)))
        count = self._count(x)
        mean = x.mean(axis=axes, keepdims=True)
        var = ((x - mean) ** 2).mean(axis=axes)
        mean = mean.reshape(self.num_features)
        if self.track_running_stats:
            with no_grad():
                self.moved(mean, var * (count / (count - 1)))
        return mean, var


class BatchNorm1d(BatchNorm):
    """Normalisation of each channel over the batch, for inputs (N, C) and (N, C, L).

    Example:
        >>> norm = BatchNorm1d(1)
        >>> norm([[1.0], [3.0]]).numpy().round(3).tolist()
        [[-1.0], [1.0]]
        >>> norm.running_mean  # a tenth of the way to 2
        tensor([0.2])
    """

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """Normalisation of each channel over the batch, for inputs (N, C, H, W).

    Example:
        >>> import numpy as np
        >>> BatchNorm2d(3).eval()(np.ones((1, 3, 2, 2), np.float32)).shape
        (1, 3, 2, 2)
    """

    ranks = (4,)


class BatchNorm3d(BatchNorm):
    """Normalisation of each channel over the batch, for inputs (N, C, D, H, W).

    Example:
        >>> import numpy as np
        >>> BatchNorm3d(3).eval()(np.ones((1, 3, 2, 2, 2), np.float32)).shape
        (1, 3, 2, 2, 2)
    """

    ranks = (5,)
