"""Linear layers, and rows of tables."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.tensor import Tensor, apply, as_tensor, no_grad
from cubepy.tensor.namespace import arange, full, searchsorted, where, zeros


def optional(value: Any) -> Tensor | None:
    """A tensor; None stays."""
    return None if value is None else as_tensor(value)


def linear(
    input: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    residual: Any = None,
) -> Tensor:
    """`activation(input @ weight.T + bias) + residual`, in one pass.

    Args:
        input: (..., in_features).
        weight: (out_features, in_features), of any storage, such as quantized.
        bias: (out_features,) or None.
        activation: "gelu", "gelu_tanh", "relu", "silu", "sigmoid" or "tanh", or None.
        residual: (..., out_features) to add at the end, or None.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> linear([[1.0, 2.0]], [[3.0, 4.0]], [0.5])
        tensor([[11.5]])
    """
    if activation is not None and activation not in ACTIVATIONS:
        raise LaunchError(
            f"there is no activation {activation!r}", hint=f"use one of {', '.join(ACTIVATIONS)}"
        )
    return apply(
        "linear",
        as_tensor(input),
        as_tensor(weight),
        optional(bias),
        optional(residual),
        activation=activation,
    )


ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "sigmoid", "tanh")


def embedding(
    input: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table: (..., width) for integer indices (...) and a weight (entries, width).

    Args:
        input: the indices.
        weight: the table; a tensor, if `max_norm` shall change it.
        padding_idx: of a row that gets no gradient.
        max_norm: rows that are looked up and have a larger norm are scaled to it first, in the
            table.
        norm_type: p of this norm.
        scale_grad_by_freq: whether the gradient of a row is divided by how often it is looked up.
        sparse: gradients are whole tables, either way.

    Raises:
        ShapeError: no such row for padding.
        OutOfBoundsError: an index is negative or not below the number of entries. On a GPU, which
            is not waited for, it gives zeros, and this error in validate mode or with
            CUBEPY_DEBUG=1.

    Example:
        >>> embedding([2, 0], [[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]])
        tensor([[3. , 3.5],
                [1. , 1.5]])
    """
    index, table = as_tensor(input), as_tensor(weight)
    arguments.flag("sparse", sparse)
    if max_norm is not None:
        _shortened(table, index, arguments.number("max_norm", max_norm, 0), norm_type)
    rows: Tensor = apply("embedding", index, table)
    if arguments.flag("scale_grad_by_freq", scale_grad_by_freq):
        rows = _by_frequency(rows, index, table.shape[0])
    if padding_idx is None:
        return rows
    return where(index.unsqueeze(-1) == row_of(padding_idx, table), rows.detach(), rows)


def _shortened(table: Tensor, index: Tensor, most: float, order: float) -> None:
    """Scale the rows that are looked up to a norm of at most `most`, in the table."""
    with no_grad():
        flat = index.reshape(-1).astype("i64")
        rows = apply("embedding", flat, table.detach())
        norms = arguments.widened(rows).norm(order, -1, keepdim=True)
        scales = where(norms > most, most / (norms + 1e-7), 1.0).astype(rows.dtype)
        table.assign_(
            table.detach().scatter(0, flat.unsqueeze(1).expand(rows.shape), rows * scales)
        )


def _by_frequency(rows: Tensor, index: Tensor, entries: int) -> Tensor:
    """The same rows, whose gradients are divided by how often they are looked up."""
    flat = index.reshape(-1).astype("i64")
    ones = full(flat.shape, 1, dtype=rows.dtype, device=rows.device)
    counts = zeros((entries,), dtype=rows.dtype, device=rows.device).index_add(0, flat, ones)
    share = 1 / apply("embedding", index, counts.unsqueeze(1))
    return rows.detach() + (rows - rows.detach()) * share


def row_of(padding_idx: int, table: Tensor) -> int:
    """The index of padding, counted from the front.

    Example:
        >>> row_of(-1, as_tensor([[1.0], [2.0]]))
        1
    """
    entries = table.shape[0]
    if not -entries <= padding_idx < entries:
        raise ShapeError(f"padding_idx {padding_idx} is no row of a table of {entries}")
    return padding_idx % entries


BAGS = ("sum", "mean", "max")


def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    *,
    mode: str = "mean",
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Sums, means or maxima of rows of a table, over bags of indices.

    Args:
        input: indices (B, n): B bags of n; or (n,), which `offsets` cut into bags.
        weight: (entries, width).
        offsets: (B,): where each bag begins; the first is 0.
        mode: "sum", "mean" or "max" of each bag; an empty one is zeros.
        per_sample_weights: of each index, of the input's shape; for "sum".
        include_last_offset: whether `offsets` ends with the number of indices.
        padding_idx: an index that does not count.
        max_norm, norm_type, scale_grad_by_freq, sparse: as of `embedding`.

    Returns:
        (B, width).

    Raises:
        ShapeError: offsets beside indices of two axes, or none beside those of one; weights of
            another shape.
        ArgumentError: another mode, or weights in one other than "sum".
        OutOfBoundsError: as for `embedding`.

    Example:
        >>> table = [[1.0, 1.5], [2.0, 2.5], [3.0, 3.5]]
        >>> embedding_bag([[0, 1], [2, 2]], table)
        tensor([[1.5, 2. ],
                [3. , 3.5]])
        >>> embedding_bag([0, 1, 2], table, [0, 1], mode="sum")
        tensor([[1. , 1.5],
                [5. , 6. ]])
    """
    index, table = as_tensor(input), as_tensor(weight)
    if mode not in BAGS:
        raise ArgumentError(f"mode is one of {', '.join(BAGS)}, not {shown(mode)}")
    if index.ndim not in (1, 2) or (index.ndim == 1) != (offsets is not None):
        raise ShapeError(
            "embedding_bag takes indices (B, n), or (n,) and offsets, not "
            f"{index.shape}{'' if offsets is None else ' and offsets'}"
        )
    if padding_idx is not None and padding_idx < 0:
        padding_idx += table.shape[0]
    rows = embedding(index, table, None, max_norm, norm_type, scale_grad_by_freq, sparse)
    counts = None if padding_idx is None else index != padding_idx
    if per_sample_weights is not None:
        each = as_tensor(per_sample_weights)
        if mode != "sum":
            raise ArgumentError(f"weights of samples are for the mode sum, not {mode}")
        if each.shape != index.shape:
            raise ShapeError(f"indices of shape {index.shape} have no weights of {each.shape}")
        rows = rows * each.unsqueeze(-1)
    if index.ndim == 2:
        return _bags_of_rows(rows, counts, mode)
    begins = as_tensor(offsets).to(index.device)
    if begins.ndim != 1:
        raise ShapeError(f"offsets are one axis, not {begins.shape}")
    bags = begins.shape[0] - arguments.flag("include_last_offset", include_last_offset)
    number = searchsorted(begins[:bags], arange(index.shape[0], device=index.device), side="right")
    return _bags_of_numbers(rows, counts, mode, number - 1, bags)


def _bags_of_rows(rows: Tensor, counts: Tensor | None, mode: str) -> Tensor:
    """Over axis 1 of (B, n, width), of the indices that count."""
    if not rows.shape[1]:
        return zeros((rows.shape[0], rows.shape[2]), dtype=rows.dtype, device=rows.device)
    if mode == "max":
        if counts is None:
            found = rows
        else:
            found = where(counts.unsqueeze(2), rows, -math.inf)
        best = found.detach().argmax(axis=1, keepdims=True)
        largest = rows.gather(1, best).squeeze(1)
        return largest if counts is None else where(counts.any(axis=1, keepdims=True), largest, 0.0)
    if counts is None:
        return rows.sum(axis=1) if mode == "sum" else rows.mean(axis=1)
    total = where(counts.unsqueeze(2), rows, 0.0).sum(axis=1)
    if mode == "sum":
        return total
    return total / counts.sum(axis=1, keepdims=True).clip(1).astype(total.dtype)


def _bags_of_numbers(
    rows: Tensor, counts: Tensor | None, mode: str, number: Tensor, bags: int
) -> Tensor:
    """Over the rows (n, width) of each bag, by their bags' numbers."""
    empty = zeros((bags, rows.shape[1]), dtype=rows.dtype, device=rows.device)
    ones = full((rows.shape[0],), 1, dtype=rows.dtype, device=rows.device)
    if counts is not None:
        ones = counts.astype(rows.dtype)
    many = empty[:, 0].index_add(0, number, ones).unsqueeze(1)
    if mode == "max":
        low = full(empty.shape, -math.inf, dtype=rows.dtype, device=rows.device)
        given = rows if counts is None else where(counts.unsqueeze(1), rows, -math.inf)
        wide = number.unsqueeze(1).expand(rows.shape)
        return where(many > 0, low.scatter(0, wide, given, "max"), 0.0)
    given = rows if counts is None else where(counts.unsqueeze(1), rows, 0.0)
    total = empty.index_add(0, number, given)
    return total if mode == "sum" else total / many.clip(1)


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Tensor:
    """x1 A x2 + b for each output.

    Args:
        input1, input2: (..., in1_features) and (..., in2_features).
        weight: A, (out_features, in1_features, in2_features).
        bias: b, (out_features,) or None.

    Returns:
        (..., out_features).

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> bilinear([[1.0, 2.0]], [[3.0]], [[[1.0], [1.0]]])
        tensor([[9.]])
    """
    x, y, a = as_tensor(input1), as_tensor(input2), as_tensor(weight)
    if a.ndim != 3 or not x.ndim or not y.ndim or (x.shape[-1], y.shape[-1]) != a.shape[1:]:
        raise ShapeError(f"bilinear: {x.shape} and {y.shape} do not go with a weight {a.shape}")
    if x.shape[:-1] != y.shape[:-1]:
        raise ShapeError(f"bilinear: {x.shape} and {y.shape} differ in their first axes")
    rows = x.unsqueeze(-2).unsqueeze(-2) @ a  # (..., out, 1, in2)
    found = (rows.squeeze(-2) @ y.unsqueeze(-1)).squeeze(-1)
    return found if bias is None else found + as_tensor(bias)
