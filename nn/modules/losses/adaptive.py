"""A softmax over many classes of which few are frequent."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.nn import arguments
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.modules.containers import ModuleList, Sequential
from cubepy.nn.modules.linear import Linear
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import concat, where
from cubepy.tensor.record import recording_here


class OutputAndLoss(NamedTuple):
    """The logarithm of the probability of each target, and minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax in two steps (Grave et al., 2017): over frequent classes and clusters of others,
    and within a cluster by a narrower layer. Classes are in the order of falling frequency.

    Only rows whose target is in a cluster go through its layer; in programs, which do not know
    targets, all do.

    Args:
        in_features: of a row.
        n_classes: how many.
        cutoffs: where clusters begin, rising.
        div_value: by what the layer of a cluster is narrower than that of the one before.
        head_bias: whether the first step has a bias.

    Attributes:
        head: a linear layer (in_features, cutoffs[0] + clusters).
        tail: of each cluster two linear layers.

    Raises:
        ArgumentError: cutoffs that do not rise between 1 and n_classes - 1.

    Example:
        >>> import numpy as np
        >>> loss = AdaptiveLogSoftmaxWithLoss(8, 100, [10, 50])
        >>> rows = np.ones((3, 8), np.float32)
        >>> loss(rows, [3, 20, 99]).output.shape, loss.log_prob(rows).shape
        ((3,), (3, 100))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
    ) -> None:
        super().__init__()
        self.in_features = arguments.size("in_features", in_features, 1)
        self.n_classes = arguments.size("n_classes", n_classes, 1)
        given = [0, *(arguments.size("cutoffs", c, 1) for c in cutoffs), n_classes]
        if len(given) < 3 or any(b <= a for a, b in itertools.pairwise(given)):
            raise ArgumentError(
                f"cutoffs rise between 1 and {n_classes - 1}, which {list(cutoffs)} do not"
            )
        self.cutoffs = given[1:]
        self.div_value = arguments.number("div_value", div_value, 0)
        self.head_bias = arguments.flag("head_bias", head_bias)
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=self.head_bias)
        self.tail = ModuleList()
        for n, (low, high) in enumerate(self._clusters()):
            width = int(in_features // self.div_value ** (n + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, width, bias=False), Linear(width, high - low, bias=False)
                )
            )

    def _clusters(self) -> list[tuple[int, int]]:
        """Of each cluster the first class, and the one behind the last."""
        return list(zip(self.cutoffs, self.cutoffs[1:], strict=False))

    def forward(self, input: Any, target: Any) -> OutputAndLoss:
        """Rows (N, in_features) and classes (N,), or one of each -> (output, loss).

        Raises:
            ShapeError: other shapes.
            ArgumentError: a target that is no class; programs do not look.
        """
        x, t = as_tensor(input), as_tensor(target)
        if (x.ndim, t.ndim) == (1, 0):
            output, loss = self.forward(x.unsqueeze(0), t.unsqueeze(0))
            return OutputAndLoss(output.squeeze(0), loss)
        if x.ndim != 2 or t.shape != x.shape[:1]:
            raise ShapeError(f"rows of shape {x.shape} have no targets of shape {t.shape}")
        known = None if recording_here() else t.numpy()
        if (
            known is not None
            and known.size
            and not 0 <= known.min() <= known.max() < self.n_classes
        ):
            raise ArgumentError(
                f"targets are from 0 to {self.n_classes - 1}, not {known.min()} to {known.max()}"
            )
        head = F.log_softmax(self.head(x), 1)
        chosen = t.clip(0, self.shortlist_size - 1)
        total: Tensor | None = None
        for n, (low, high) in enumerate(self._clusters()):
            mine = (t >= low) & (t < high)
            chosen = where(mine, self.shortlist_size + n, chosen)
            rows = None if known is None else np.flatnonzero((known >= low) & (known < high))
            if rows is not None and not rows.size:
                continue
            own, within = x, (t - low).clip(0, high - low - 1)
            at = None if rows is None else as_tensor(rows).to(x.device)
            if at is not None:
                own, within = x[at], within[at]
            found = F.log_softmax(self.tail[n](own), 1).gather(1, within.unsqueeze(1)).squeeze(1)
            if at is not None:
                found = (head[:, 0] * 0).index_add(0, at, found)
            found = where(mine, found, 0.0)
            total = found if total is None else total + found
        of_head = head.gather(1, chosen.unsqueeze(1)).squeeze(1)
        output = of_head if total is None else total + of_head
        return OutputAndLoss(output, -output.mean())

    def log_prob(self, input: Any) -> Tensor:
        """The logarithms of the probabilities of all classes, (N, n_classes)."""
        x = as_tensor(input)
        head = F.log_softmax(self.head(x), -1)
        parts = [head[..., : self.shortlist_size]]
        for n, tail in enumerate(self.tail):
            own = F.log_softmax(tail(x), -1)
            parts.append(own + head[..., self.shortlist_size + n].unsqueeze(-1))
        return concat(parts, axis=-1)

    def predict(self, input: Any) -> Tensor:
        """The most probable class of each row, (N,)."""
        return self.log_prob(input).argmax(-1)
