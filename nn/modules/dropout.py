"""Dropout."""

from __future__ import annotations

from typing import Any

from cubepy.nn import arguments
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor


class Dropout(Module):
    """Zeroes elements with probability p while training; the identity otherwise.

    Example:
        >>> drop = Dropout(0.5)
        >>> sorted(set(drop([1.0] * 100).numpy().tolist()))  # what is kept is scaled by 1 / (1 - p)
        [0.0, 2.0]
        >>> drop.eval()([1.0, 1.0])
        tensor([1., 1.])
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = arguments.number("p, the probability of dropout,", p, 0, 1)
        self.inplace = inplace

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout1d(Dropout):
    """Dropout of whole channels of (N, C, L), or of (C, L).

    Example:
        >>> import numpy as np
        >>> Dropout1d().eval()(np.ones((1, 2, 3), np.float32)).shape
        (1, 2, 3)
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Dropout of whole channels of (N, C, H, W).

    Example:
        >>> import numpy as np
        >>> Dropout2d().eval()(np.ones((1, 2, 3, 3), np.float32)).shape
        (1, 2, 3, 3)
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(Dropout):
    """Dropout of whole channels of (N, C, D, H, W), or of (C, D, H, W).

    Example:
        >>> import numpy as np
        >>> Dropout3d().eval()(np.ones((1, 2, 3, 3, 3), np.float32)).shape
        (1, 2, 3, 3, 3)
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(Dropout):
    """Dropout to the lower end of selu, which keeps mean and variance.

    Example:
        >>> import numpy as np
        >>> AlphaDropout().eval()(np.ones(2, np.float32))
        tensor([1., 1.])
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(Dropout):
    """`AlphaDropout` of whole channels of (N, C, ...).

    Example:
        >>> import numpy as np
        >>> FeatureAlphaDropout().eval()(np.ones((1, 2), np.float32))
        tensor([[1., 1.]])
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
