"""Normalisation of every channel of every sample."""

from __future__ import annotations

from typing import Any

from cubepy.nn import functional as F
from cubepy.nn.modules.norms.running import RunningNorm
from cubepy.tensor import Tensor, as_tensor


class InstanceNorm(RunningNorm):
    """Base of instance norms. With running values, training moves them and `eval()` normalises by
    them; without, every input is normalised by itself.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, bias=bias)

    def forward(self, input: Any) -> Tensor:
        """(N, num_features, ...) or one sample without the first axis -> the same.

        Raises:
            ShapeError: another number of axes or channels, or one value per channel while training.
        """
        x = as_tensor(input)
        if x.ndim == min(self.ranks):
            return self.forward(x.unsqueeze(0)).squeeze(0)
        x = self.checked(x)
        share: Any = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.assign_(self.num_batches_tracked + 1)
            if share is None:
                share = 1 / self.num_batches_tracked.astype(self.running_mean.dtype)
        return F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            use_input_stats=self.training or not self.track_running_stats,
            momentum=share,
            eps=self.eps,
        )


class InstanceNorm1d(InstanceNorm):
    """Normalisation of each channel of each sample of (N, C, L), or of one (C, L)
    (Ulyanov et al., 2016).

    Example:
        >>> import numpy as np
        >>> InstanceNorm1d(3)(np.ones((2, 3, 8), np.float32)).shape
        (2, 3, 8)
    """

    ranks = (2, 3)


class InstanceNorm2d(InstanceNorm):
    """Normalisation of each channel of each sample of (N, C, H, W), or of one (C, H, W)
    (Ulyanov et al., 2016).

    Example:
        >>> import numpy as np
        >>> InstanceNorm2d(3)(np.ones((2, 3, 8, 8), np.float32)).shape
        (2, 3, 8, 8)
    """

    ranks = (3, 4)


class InstanceNorm3d(InstanceNorm):
    """Normalisation of each channel of each sample of (N, C, D, H, W), or of one (C, D, H, W)
    (Ulyanov et al., 2016).

    Example:
        >>> import numpy as np
        >>> InstanceNorm3d(3)(np.ones((2, 3, 8, 8, 8), np.float32)).shape
        (2, 3, 8, 8, 8)
    """

    ranks = (4, 5)
