"""What norms by running values share: the buffers, and how a batch moves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.nn import arguments, init
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, as_tensor

RUNNING = "running_mean", "running_var", "num_batches_tracked"


class RunningNorm(Module):
    """Base of batch and instance norms.

    Attributes:
        weight, bias: (num_features,), or None.
        running_mean, running_var, num_batches_tracked: buffers, or None.
    """

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
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features = arguments.size("num_features", num_features)
        self.eps = arguments.number("eps", eps, 0)
        self.momentum = None if momentum is None else arguments.number("momentum", momentum, 0, 1)
        self.affine = arguments.flag("affine", affine)
        biased = arguments.flag("bias", bias) and self.affine
        self.weight = Parameter(init.constant((num_features,), 1.0)) if self.affine else None
        self.bias = Parameter(init.constant((num_features,), 0.0)) if biased else None
        self.track_running_stats = arguments.flag("track_running_stats", track_running_stats)
        for name, first in zip(RUNNING, self._first(), strict=True):
            self.register_buffer(name, first if self.track_running_stats else None)

    def _first(self) -> tuple[np.ndarray, ...]:
        """What the buffers begin with."""
        n = self.num_features
        return np.zeros(n, np.float32), np.ones(n, np.float32), np.asarray(0, np.int64)

    def reset_running_stats(self) -> None:
        """Let the running values be those of the beginning."""
        if self.track_running_stats:
            for name, first in zip(RUNNING, self._first(), strict=True):
                old = getattr(self, name)
                old.assign_(as_tensor(first).astype(old.dtype).to(old.device))

    def of_older(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Files of PyTorch before 0.4.1 have no count of batches."""
        count = f"{prefix}{RUNNING[2]}"
        if not self.track_running_stats or count in state or f"{prefix}{RUNNING[0]}" not in state:
            return state
        return {**state, count: self.num_batches_tracked}

    def checked(self, input: Any) -> Tensor:
        """The input as a tensor.

        Raises:
            ShapeError: another number of axes or channels.
        """
        x = as_tensor(input)
        if x.ndim not in self.ranks or x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}) cannot take an input of shape "
                f"{x.shape}"
            )
        return x

    def moved(self, mean: Tensor, var: Tensor) -> None:
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
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )
