"""More elements at the ends of axes, or fewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.kernels.entry.arguments import per_axis
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.tensor import Tensor, apply, as_tensor
from cubepy.tensor.namespace import concat

MODES = ("constant", "reflect", "replicate", "circular")


def pad(
    input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Axes with elements added at their ends; a number below 0 takes elements away.

    Args:
        input: of any shape.
        pad: (before, after) of the last axis, then of the one before it, and so on.
        mode: what is added: the number `value` ("constant"), the elements behind the edge in the
            other order ("reflect"), the edge ("replicate"), or those of the other end ("circular").
        value: by default 0.

    Returns:
        The axes that `pad` names are longer by the sums of their pairs.

    Raises:
        ShapeError: no pairs, more of them than axes, more than an axis has to give, or a
            reflection or a circle of more elements than there are.
        ArgumentError: another mode, or a value in a mode other than "constant".

    Example:
        >>> pad([[1.0, 2.0, 3.0]], (1, 2))
        tensor([[0., 1., 2., 3., 0., 0.]])
        >>> pad([[1.0, 2.0, 3.0]], (2, -1), mode="reflect")
        tensor([[3., 2., 1., 2.]])
        >>> pad([[1.0, 2.0, 3.0]], (1, 2), mode="circular")
        tensor([[3., 1., 2., 3., 1., 2.]])
    """
    x = as_tensor(input)
    widths = _widths(x, pad)
    if mode not in MODES:
        raise ArgumentError(f"mode is one of {', '.join(MODES)}, not {shown(mode)}")
    if mode == "constant":
        fill = 0.0 if value is None else arguments.number("value", value)
        return _added(x, widths, mode, fill)
    if value:
        raise ArgumentError(f"a value is added in the mode constant, not in {mode}")
    for k in range(0, len(widths), 2):
        axis, (before, after) = x.ndim - 1 - k // 2, widths[k : k + 2]
        if mode == "circular":
            x = _around(x, axis, before, after)
        elif min(before, after) < 0:
            x = _continued(x, axis, before, after, mode)
            widths = (*widths[:k], 0, 0, *widths[k + 2 :])
    return x if mode == "circular" else _added(x, widths, mode, 0.0)


def same(x: Tensor, weight: Tensor, how: tuple[Any, ...]) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
    """Image, filters, and (stride, padding, dilation, ...) of a convolution; where the padding
    "same" is of windows that reach further to one side, the image has what is missing behind its
    ends, as in PyTorch, and the padding is the rest.

    Example:
        >>> import cubepy as cb
        >>> x, _, how = same(cb.tensor([[[1.0, 2.0]]]), cb.tensor([[[1.0] * 4]]), (1, "same", 1))
        >>> x, how
        (tensor([[[1., 2., 0.]]]), (1, (1,), 1))
    """
    stride, padding, dilation, *more = how
    if not isinstance(padding, str) or padding != "same":
        return x, weight, how
    steps, spans = (per_axis(v, weight.ndim - 2, "stride", 1) for v in (stride, dilation))
    reach = [d * (k - 1) for d, k in zip(spans, weight.shape[2:], strict=True)]
    if all(r % 2 == 0 for r in reach) or any(s != 1 for s in steps):
        return x, weight, how
    behind = [n for r in reversed(reach) for n in (0, r % 2)]
    return pad(x, behind), weight, (stride, tuple(r // 2 for r in reach), dilation, *more)


def _widths(x: Tensor, pad: Any) -> tuple[int, ...]:
    """Pairs of numbers for axes that there are, which keep some elements."""
    given = pad if isinstance(pad, (tuple, list)) else (pad,)
    widths = tuple(arguments.size("pad", n, -(2**62)) for n in given)
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ShapeError(
            f"pad takes pairs (before, after) for at most {x.ndim} axes, not {tuple(given)}",
            hint="the first pair is of the last axis",
        )
    for k in range(0, len(widths), 2):
        n, (before, after) = x.shape[-1 - k // 2], widths[k : k + 2]
        if n + min(before, 0) + min(after, 0) < 0:
            raise ShapeError(f"pad by {widths[k : k + 2]} takes more than an axis of {n} has")
    return widths


def _added(x: Tensor, widths: tuple[int, ...], mode: str, value: float) -> Tensor:
    if not any(widths):
        return x
    return apply("pad", x, widths=widths, mode=mode, value=value)  # type: ignore[no-any-return]


def _continued(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """An axis with elements away at one end or both, and its edge or reflection at the other."""
    n = x.shape[axis]
    if mode == "reflect" and max(before, after) >= n:
        raise ShapeError(f"an axis of {n} elements reflects fewer than {n}, not {(before, after)}")
    at = np.arange(-before, n + after)
    at = np.abs(at) if mode == "reflect" else at.clip(0, n - 1)
    at = np.where(at > n - 1, 2 * (n - 1) - at, at)
    return x.index_select(axis, as_tensor(at).to(x.device))


def _around(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """An axis that goes on with its other end."""
    n = x.shape[axis]
    x = x.narrow(axis, max(-before, 0), n + min(before, 0) + min(after, 0))
    n, before, after = x.shape[axis], max(before, 0), max(after, 0)
    if max(before, after) > n:
        raise ShapeError(f"a circle of {n} elements goes on for at most {n}, not {(before, after)}")
    parts = [x.narrow(axis, n - before, before), x, x.narrow(axis, 0, after)]
    parts = [part for part in parts if part.shape[axis]]
    return concat(parts, axis=axis) if len(parts) > 1 else x
