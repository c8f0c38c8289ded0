"""Tables of vectors, looked up by index: alone, and over bags of indices."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.functional.linear import row_of
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, as_tensor


class _Table(Module):
    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        options: tuple[Any, ...],
        given: Any,
    ) -> None:
        super().__init__()
        self.num_embeddings = arguments.size("num_embeddings", num_embeddings)
        self.embedding_dim = arguments.size("embedding_dim", embedding_dim)
        self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse = options
        shape = self.num_embeddings, self.embedding_dim
        first = init.normal(shape) if given is None else as_tensor(given)
        if first.shape != shape:
            raise ShapeError(f"a table of shape {shape} is needed, not {first.shape}")
        self.padding_idx = None if padding_idx is None else row_of(padding_idx, first)
        if self.padding_idx is not None and given is None:
            first[self.padding_idx] = 0.0
        self.weight = Parameter(first)

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, **options: Any) -> Any:
        """A layer with a table that is there already.

        Args:
            embeddings: (num_embeddings, embedding_dim).
            freeze: whether the table stays as it is.
            options: of the layer, by name.

        Raises:
            ShapeError: the table has other axes.
        """
        table = as_tensor(embeddings)
        if table.ndim != 2:
            raise ShapeError(f"a table has two axes, not the shape {table.shape}")
        kind: Any = cls
        made = kind(*table.shape, _weight=table, **options)
        made.weight.requires_grad_(not freeze and table.dtype.is_float)
        return made

    def _options(self) -> tuple[Any, ...]:
        return self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        text += "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return text + ("" if self.max_norm is None else f", max_norm={self.max_norm}")


class Embedding(_Table):
    """A table of vectors, looked up by index.

    Args:
        num_embeddings, embedding_dim: of the table.
        padding_idx: an index whose vector begins as zeros and gets no gradient.
        max_norm: vectors that are looked up and are longer are scaled to this norm, in the table.
        norm_type: p of this norm.
        scale_grad_by_freq: whether gradients are divided by how often a vector is looked up.
        sparse: gradients are whole tables, either way.

    Attributes:
        weight: (num_embeddings, embedding_dim).

    Example:
        >>> Embedding(10, 4)([[1, 2, 3]]).shape
        (1, 3, 4)
        >>> Embedding.from_pretrained([[1.0, 2.0], [3.0, 4.0]])([1])
        tensor([[3., 4.]])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
    ) -> None:
        options = (max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, padding_idx, options, _weight)

    def forward(self, input: Any) -> Tensor:
        """Integers (...) -> (..., embedding_dim).

        Raises:
            OutOfBoundsError: as for `nn.functional.embedding`.
        """
        return F.embedding(input, self.weight, self.padding_idx, *self._options())


class EmbeddingBag(_Table):
    """Sums, means or maxima of vectors of a table, over bags of indices.

    Args:
        num_embeddings, embedding_dim: of the table.
        max_norm, norm_type, scale_grad_by_freq, sparse: as of `Embedding`.
        mode: "sum", "mean" or "max".
        include_last_offset: whether offsets end with the number of indices.
        padding_idx: an index that does not count; its vector begins as zeros.

    Attributes:
        weight: (num_embeddings, embedding_dim).

    Example:
        >>> EmbeddingBag(10, 4)([[1, 2, 3], [4, 5, 6]]).shape
        (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> None:
        options = (max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, padding_idx, options, _weight)
        self.mode = mode
        self.include_last_offset = arguments.flag("include_last_offset", include_last_offset)

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Tensor:
        """As `functional.embedding_bag`."""
        max_norm, norm_type, by_frequency, sparse = self._options()
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=by_frequency,
            sparse=sparse,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"
