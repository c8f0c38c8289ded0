"""Similarities and distances of vectors as modules."""

from __future__ import annotations

from typing import Any

from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along an axis.

    Example:
        >>> CosineSimilarity()([[3.0, 4.0]], [[4.0, 3.0]])
        tensor([0.96])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Any, x2: Any) -> Tensor:
        """As `functional.cosine_similarity`."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, eps={self.eps}"


class PairwiseDistance(Module):
    """The norm of x1 - x2 + eps over the last axis.

    Example:
        >>> PairwiseDistance(eps=0.0)([[0.0, 1.0]], [[3.0, 5.0]])
        tensor([5.])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Any, x2: Any) -> Tensor:
        """As `functional.pairwise_distance`."""
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)

    def extra_repr(self) -> str:
        return f"p={self.p}, eps={self.eps}, keepdim={self.keepdim}"
