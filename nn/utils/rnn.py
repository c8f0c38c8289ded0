"""Sequences of several lengths in one tensor.

Example:
    >>> import cubepy as cb
    >>> a, b = cb.tensor([1, 2, 3]), cb.tensor([4])
    >>> pad_sequence([a, b], batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    >>> pack_sequence([a, b]).data
    tensor([1, 4, 2, 3])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.kernels.entry.options import shown
from cubepy.nn.functional.padding import pad
from cubepy.nn.modules.packed import PackedSequence, rows_of
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import stack

__all__ = [
    "PackedSequence",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class Lengths(NamedTuple):
    """Sequences in the order of falling lengths."""

    lengths: np.ndarray
    order: np.ndarray | None
    back: np.ndarray | None


def pad_sequence(
    sequences: Sequence[Any],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences side by side, the shorter ones with a number behind them, or before.

    Args:
        sequences: tensors (L, ...), of any L each.
        batch_first: (N, L, ...) instead of (L, N, ...).
        padding_value: the number.
        padding_side: "right" or "left".

    Raises:
        ArgumentError: no sequences, or another side.

    Example:
        >>> pad_sequence([[1, 2], [3]], batch_first=True, padding_value=-1, padding_side="left")
        tensor([[ 1,  2],
                [-1,  3]])
    """
    given = [as_tensor(s) for s in sequences]
    if not given:
        raise ArgumentError("there are no sequences")
    if padding_side not in ("right", "left"):
        raise ArgumentError(f"padding_side is 'right' or 'left', not {shown(padding_side)}")
    longest = max(s.shape[0] for s in given)
    rows = []
    for s in given:
        missing = longest - s.shape[0]
        widths = [0, 0] * (s.ndim - 1)
        widths += [0, missing] if padding_side == "right" else [missing, 0]
        rows.append(pad(s, widths, value=padding_value) if missing else s)
    return stack(rows, axis=0 if batch_first else 1)


def unpad_sequence(padded_sequences: Any, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences of `pad_sequence`.

    Example:
        >>> unpad_sequence([[1, 2], [3, 0]], [2, 1], batch_first=True)
        [tensor([1, 2]), tensor([3])]
    """
    x = as_tensor(padded_sequences)
    x = x if batch_first else x.transpose(0, 1)
    return [x[n, :length] for n, length in enumerate(_numbers(lengths, x.shape[0]).tolist())]


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Sequences without what is behind them, step by step, as recurrent layers take them.

    Args:
        input: (L, N, ...), or (N, L, ...) with `batch_first`.
        lengths: of each sequence, on the host: a list, an array or a tensor.
        batch_first: see `input`.
        enforce_sorted: whether lengths must fall; else sequences are sorted, and sorted back by
            `pad_packed_sequence`.

    Raises:
        ArgumentError: lengths that do not fall, though they must.
        ShapeError: lengths of another number, or longer than the sequences, or 0.

    Example:
        >>> pack_padded_sequence([[1, 2, 3], [4, 0, 0]], [3, 1], batch_first=True).batch_sizes
        array([2, 1, 1])
    """
    x = as_tensor(input)
    if x.ndim < 2:
        raise ShapeError(f"padded sequences have a length and a batch, not the shape {x.shape}")
    x = x.transpose(0, 1) if batch_first else x
    found = _sorted(_numbers(lengths, x.shape[1]), enforce_sorted)
    if found.lengths.min(initial=1) < 1 or found.lengths.max(initial=1) > x.shape[0]:
        raise ShapeError(f"lengths are from 1 to {x.shape[0]}, not {found.lengths.tolist()}")
    if found.order is not None:
        x = x[:, as_tensor(found.order)]
    return _packed(x, found)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, np.ndarray]:
    """The padded sequences of a packed one, in their first order, and their lengths.

    Args:
        sequence: what `pack_padded_sequence` or a recurrent layer gives.
        batch_first: (N, L, ...) instead of (L, N, ...).
        padding_value: what is behind sequences.
        total_length: L, if not that of the longest sequence.

    Raises:
        ArgumentError: it is no packed sequence.
        ShapeError: a total length below that of a sequence.

    Example:
        >>> x, lengths = pad_packed_sequence(pack_sequence([[1, 2, 3], [4]]), batch_first=True)
        >>> x, lengths
        (tensor([[1, 2, 3],
                [4, 0, 0]]), array([3, 1]))
    """
    if not isinstance(sequence, PackedSequence):
        raise ArgumentError(f"it is no PackedSequence: {shown(sequence)}")
    x, lengths = sequence.padded(padding_value)
    if total_length is not None:
        if total_length < x.shape[0]:
            raise ShapeError(f"total_length is at least {x.shape[0]}, not {total_length}")
        widths = [0, 0] * (x.ndim - 1) + [0, total_length - x.shape[0]]
        x = pad(x, widths, value=padding_value)
    if sequence.unsorted_indices is not None:
        x, lengths = x[:, as_tensor(sequence.unsorted_indices)], lengths[sequence.unsorted_indices]
    return (x.transpose(0, 1) if batch_first else x), lengths


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """`pack_padded_sequence` of sequences that are not padded.

    Example:
        >>> pack_sequence([[1], [2, 3]], enforce_sorted=False).sorted_indices
        array([1, 0])
    """
    given = [as_tensor(s) for s in sequences]
    lengths = [s.shape[0] for s in given]
    return pack_padded_sequence(pad_sequence(given), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one.

    Example:
        >>> unpack_sequence(pack_sequence([[1, 2], [3]]))
        [tensor([1, 2]), tensor([3])]
    """
    x, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(x, lengths, batch_first=True)


def _packed(x: Tensor, found: Lengths) -> PackedSequence:
    """(L, N, ...) of falling lengths, step by step."""
    sizes = (found.lengths[None] > np.arange(found.lengths.max(initial=0))[:, None]).sum(1)
    flat = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
    data = flat[as_tensor(rows_of(sizes, x.shape[1]))]
    return PackedSequence(data, sizes, found.order, found.back)


def _sorted(lengths: np.ndarray, enforced: bool) -> Lengths:
    if enforced:
        if (np.diff(lengths) > 0).any():
            raise ArgumentError(
                f"lengths fall, not {lengths.tolist()}", hint="enforce_sorted=False sorts them"
            )
        return Lengths(lengths, None, None)
    order = np.argsort(-lengths, kind="stable")
    return Lengths(lengths[order], order, np.argsort(order))


def _numbers(lengths: Any, count: int) -> np.ndarray:
    found = lengths.numpy() if isinstance(lengths, Tensor) else np.asarray(lengths)
    if found.shape != (count,):
        raise ShapeError(f"there are {count} sequences, but lengths of shape {found.shape}")
    return found.astype(np.int64)
