"""The loss of connectionist temporal classification, CTC."""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, LaunchError, ShapeError
from cubepy.kernels.recurrent.alignments import ctc_forward, ctc_gradient
from cubepy.nn import arguments
from cubepy.nn.functional.distances import reduced
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.array import constant
from cubepy.tensor.gradients.functional import through_formula
from cubepy.tensor.modes import mode
from cubepy.tensor.namespace import arange, concat, stack, where
from cubepy.tensor.record import recording_here

LEAST = -1e30
"""The logarithm of nothing, where differences with infinity would be no numbers."""


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the logarithm of the probability of a sequence of labels, over all ways to spread them
    over the steps of a longer sequence (Graves et al., 2006).

    Args:
        log_probs: (T, N, C) or, of one sequence, (T, C): logarithms of probabilities, such as
            `log_softmax` gives.
        targets: labels as integers: (N, S), or those of all sequences in one row; (S,) of one.
        input_lengths: of each sequence, up to T: (N,) or a number; a tensor or a list.
        target_lengths: how many labels each has: the same.
        blank: the class between labels.
        reduction: "none", "sum", or "mean": each over the number of its labels, then over all.
        zero_infinity: whether sequences that are too short for their labels count as 0, with
            gradients of 0, and not as infinite.

    Returns:
        A number; with "none" (N,).

    Raises:
        ShapeError: shapes or lengths that do not go together.
        DTypeError: labels that are no integers.
        LaunchError: a blank that is no class.

    The gradient is that of the loss by `log_probs`, whatever they are; torch's is that by what
    `log_softmax` was given. Through a `log_softmax` both are the same.

    Example:
        >>> import cubepy as cb
        >>> log = cb.tensor([[0.5, 0.5], [0.5, 0.5]]).log()  # two steps, of 4 ways 3 give "1"
        >>> round(ctc_loss(log, [1], 2, 1).exp().item(), 4)
        1.3333
    """
    x, labels = as_tensor(log_probs), as_tensor(targets)
    if x.ndim == 2:
        given = input_lengths, target_lengths
        one, other = (as_tensor(np.asarray(_host(n))).reshape(1) for n in given)
        found = ctc_loss(
            x.unsqueeze(1), labels.reshape(1, -1), one, other, blank, reduction, zero_infinity
        )
        return found.reshape(())
    if x.ndim != 3 or not x.shape[0]:
        raise ShapeError(f"ctc_loss takes (T, N, C) or (T, C) with steps, not {x.shape}")
    if not labels.dtype.is_int:
        raise DTypeError(f"labels are integers, not {labels.dtype.name}{labels.shape}")
    if arguments.size("blank", blank) >= x.shape[2]:
        raise LaunchError(f"blank must be one of {x.shape[2]} classes, not {blank}")
    n = x.shape[1]
    steps = _lengths("input_lengths", input_lengths, x, x.shape[0])
    if labels.ndim == 2:
        longest = labels.shape[1]
        if labels.shape[0] != n:
            raise ShapeError(f"{n} sequences have no targets of shape {labels.shape}")
        counts = _lengths("target_lengths", target_lengths, x, longest)
        starts = arange(n, dtype="i64", device=x.device) * longest
    elif labels.ndim == 1:
        counts = _lengths("target_lengths", target_lengths, x, labels.size)
        known = _known(target_lengths)
        if known is not None and int(known.sum()) > labels.size:
            raise ShapeError(f"{labels.size} targets are not the {int(known.sum())} of all lengths")
        longest = labels.size if known is None else int(known.max(initial=0))
        starts = counts.cumsum(0) - counts
    else:
        raise ShapeError(f"targets are (N, S) or in one row, not of shape {labels.shape}")
    wide = arguments.widened(x)
    flat = concat([labels.reshape(-1).to(x.device).astype("i64"), counts[:1] * 0])
    loss = _ctc(wide, flat, stack([starts, steps, counts]), longest, blank)
    if arguments.flag("zero_infinity", zero_infinity):
        loss = where(loss == float("inf"), 0.0, loss)
    if reduction == "mean":
        return reduced((loss / counts.clip(1).astype(loss.dtype)).mean(), "none", x)
    return reduced(loss, reduction, x)


def _host(lengths: Any) -> Any:
    """What is no tensor as it is; a tensor where its elements may be asked for."""
    return lengths.numpy() if isinstance(lengths, Tensor) and not recording_here() else lengths


def _known(lengths: Any) -> np.ndarray | None:
    """Lengths as numbers, where they are known without waiting for a GPU or fixing a program."""
    if isinstance(lengths, Tensor):
        if recording_here() or lengths.device.backend not in ("cpu", "python"):
            return None
        return lengths.numpy()
    return np.asarray(lengths)


def _lengths(name: str, lengths: Any, x: Tensor, most: int) -> Tensor:
    """A length for each sequence, beside the input."""
    known = _known(lengths)
    found = as_tensor(lengths if known is None else known)
    if found.shape != (x.shape[1],) or not found.dtype.is_int:
        raise ShapeError(
            f"{name} are {x.shape[1]} integers, not {found.dtype.name}{found.shape}",
            hint="one for each sequence of log_probs (T, N, C)",
        )
    if known is not None and known.size and not 0 <= known.min() <= known.max() <= most:
        raise ShapeError(f"{name} are from 0 to {most}, not {known.min()} to {known.max()}")
    return found.to(x.device).astype("i64")


@cb.custom_vjp
def _ctc(log: Tensor, labels: Tensor, sequences: Tensor, most: int, blank: int) -> Tensor:
    """The losses of all sequences, of at most `most` labels each; `sequences` (3, N) are where the
    labels of each begin, its steps, and how many labels it has.
    """
    return _forward(log, labels, sequences, most, blank)[0]  # type: ignore[no-any-return]


def _forward(log: Tensor, labels: Tensor, sequences: Tensor, most: int, blank: int) -> Any:
    t, n, _ = log.shape
    alpha, loss = cb.kernel_call(
        ctc_forward[max(n, 1), 1],
        *(log, labels, sequences, blank),
        cb.TensorSpec((t, n, 2 * most + 1), log.dtype),
        cb.TensorSpec((n,), log.dtype),
    )
    return loss, (log, labels, sequences, most, blank, alpha, loss)


def _backward(saved: Any, grad: Tensor) -> tuple[Any, ...]:
    log, labels, sequences, most, blank, alpha, loss = saved
    if mode.enabled:
        (found,) = through_formula(
            lambda x: [formula(x, labels, sequences, most, blank)], [log], [grad]
        )
    else:
        _, found = cb.kernel_call(
            ctc_gradient[max(log.shape[1], 1), 1],
            *(log, labels, sequences, blank, alpha, loss, grad),
            cb.TensorSpec(alpha.shape[1:], log.dtype),
            cb.TensorSpec(log.shape, log.dtype),
        )
    return found, *([None] * 4)


_ctc.defvjp(_forward, _backward)


def formula(log: Tensor, labels: Tensor, sequences: Tensor, most: int, blank: int) -> Tensor:
    """The losses in ops of tensors, step by step: for gradients of gradients."""
    t, n, _ = log.shape
    starts, steps, counts = sequences.unbind(0)
    s = arange(2 * most + 1, dtype="i64", device=log.device)
    index = (starts.unsqueeze(1) + s // 2).clip(0, labels.size - 1)
    own = labels[index.reshape(-1)].reshape(n, -1)
    classes = where(s % 2 == 1, own, blank)
    before = concat([classes[:, :2] * 0 - 1, classes[:, :-2]], axis=1)[:, : classes.shape[1]]
    skips = (s % 2 == 1) & (s > 1) & (classes != before)
    least = constant(LEAST, log.dtype)
    said = log.gather(2, classes.unsqueeze(0).expand(t, n, classes.shape[1]))
    alpha = where(s < 2, said[0], least)
    edge = alpha[:, :1] * 0 + LEAST
    for step in range(1, t):
        one = concat([edge, alpha[:, :-1]], axis=1)
        two = concat([edge, one[:, :-1]], axis=1)
        new = stack([alpha, one, where(skips, two, least)]).logsumexp(0) + said[step]
        alpha = where((steps > step).unsqueeze(1), new, alpha)
    ends = (s == (counts * 2).unsqueeze(1)) | (s == (counts * 2 - 1).unsqueeze(1))
    return -where(ends, alpha, least).logsumexp(1)
