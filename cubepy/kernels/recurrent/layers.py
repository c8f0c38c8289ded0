"""Recurrent layers: products of all inputs, then all steps in one launch."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.kernels.elementwise.map import map
from cubepy.kernels.entry.arguments import array_of, float_array
from cubepy.kernels.entry.dispatch import placed
from cubepy.kernels.entry.results import wrapper
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.functions import add
from cubepy.kernels.recurrent.problem import GATES
from cubepy.kernels.recurrent.recurrence import packed, recurrence
from cubepy.runtime import memory


@placed
def lstm(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    h: Any = None,
    c: Any = None,
    *,
    lengths: Any = None,
    reverse: bool = False,
) -> tuple[Any, Any, Any]:
    """Long short-term memory along a sequence (Hochreiter and Schmidhuber, 1997), in one or both
    directions: c' = f c + i n and h' = o tanh(c').

    Args:
        x: inputs (T, B, I), floats.
        w_ih: (D, 4 * H, I): the gates input, forget, cell, output, as of `torch.nn.LSTM`.
        w_hh: (D, 4 * H, H).
        b_ih, b_hh: (D, 4 * H), or None.
        h, c: the first states, (D, B, H); zeros by default.
        lengths: steps of each sequence, (B,) integers; all by default.
        reverse: a single direction begins at the end; the second of two always does.

    Returns:
        The h of all steps (T, B, D * H), zeros behind a sequence's end; the last h and c (D, B, H).

    Raises:
        ShapeError: shapes that do not go together.
        DTypeError: arrays of other dtypes than x, or lengths that are no integers.

    Example:
        >>> import numpy as np
        >>> y, h, c = lstm(np.ones((3, 1, 2)), np.ones((1, 4, 2)), np.zeros((1, 4, 1)))
        >>> y.shape, np.allclose(y[-1], h[0]), bool(c[0, 0, 0] > 2)
        ((3, 1, 1), True, True)
    """
    given = x, w_ih, w_hh, b_ih, b_hh
    y, h, c = _layer("lstm", given, (h, c), lengths, reverse)
    return y, h, c


@placed
def gru(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    h: Any = None,
    *,
    lengths: Any = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Gated recurrent units along a sequence (Cho et al., 2014); h' = (1 - z) n + z h, where the
    reset gate weighs the product of states in n.

    Args:
        x, h, lengths, reverse: see `lstm`.
        w_ih: (D, 3 * H, I): the gates reset, update, new, as of `torch.nn.GRU`.
        w_hh, b_ih, b_hh: (D, 3 * H, H) and (D, 3 * H).

    Returns:
        The h of all steps (T, B, D * H), and the last h (D, B, H).

    Raises:
        ShapeError, DTypeError: as for `lstm`.

    Example:
        >>> import numpy as np
        >>> w, v, h = np.zeros((1, 3, 2)), np.zeros((1, 3, 1)), np.full((1, 1, 1), 8.0)
        >>> y, h = gru(np.ones((3, 1, 2)), w, v, h=h)
        >>> y[:, 0, 0].tolist()
        [4.0, 2.0, 1.0]
    """
    y, h = _layer("gru", (x, w_ih, w_hh, b_ih, b_hh), (h,), lengths, reverse)
    return y, h


@placed
def rnn(
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any = None,
    b_hh: Any = None,
    h: Any = None,
    *,
    nonlinearity: str = "tanh",
    lengths: Any = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """h' = tanh(W x + b + V h + c) along a sequence (Elman, 1990).

    Args:
        x, h, lengths, reverse: see `lstm`.
        w_ih, w_hh, b_ih, b_hh: (D, H, I), (D, H, H) and (D, H).
        nonlinearity: "tanh" or "relu".

    Returns:
        The h of all steps (T, B, D * H), and the last h (D, B, H).

    Raises:
        ShapeError, DTypeError: as for `lstm`.
        ArgumentError: another nonlinearity.

    Example:
        >>> import numpy as np
        >>> x, w = np.ones((3, 1, 1)), np.ones((1, 1, 1))
        >>> rnn(x, w, w, nonlinearity="relu")[0][:, 0, 0].tolist()
        [1.0, 2.0, 3.0]
    """
    if nonlinearity not in ("tanh", "relu"):
        raise ArgumentError(f'nonlinearity is "tanh" or "relu", not {nonlinearity!r}')
    y, h = _layer(nonlinearity, (x, w_ih, w_hh, b_ih, b_hh), (h,), lengths, reverse)
    return y, h


def _layer(
    cell: str, given: tuple[Any, ...], states: tuple[Any, ...], lengths: Any, reverse: bool
) -> list[Any]:
    """What a cell gives: all steps, and the last states."""
    wrap, inputs = wrapper(*given), float_array(given[0], "x")
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    w, v, b, c = (
        None if a is None else array_of(a, name) for a, name in zip(given[1:], names, strict=True)
    )
    first = [None if s is None else array_of(s, n) for s, n in zip(states, "hc", strict=False)]
    steps = None if lengths is None else array_of(lengths, "lengths")
    width = _checked(cell, inputs, dict(zip(names, (w, v, b, c), strict=True)), first, steps)
    assert w is not None and v is not None
    directions, rows = v.shape[0], GATES[cell] * width
    if b is not None and c is not None and cell != "gru":
        b, c = map(add, b, c), None
    length, batch, features = inputs.shape
    bias = None if b is None else contiguous(b).reshape(directions * rows)
    flat = contiguous(inputs).reshape(length * batch, features)
    matrix = contiguous(w).reshape(directions * rows, features)
    fused = None if inputs.dtype.itemsize == 8 else bias  # the epilogue has no f64
    gates = matmul(flat, matrix.T, bias=fused)
    if fused is not bias:
        gates = map(add, gates, bias)
    gates = gates.reshape(length, batch, directions * rows)
    shape = (directions, batch, width)
    begun = tuple(_zeros(shape, inputs.dtype) if s is None else s for s in first)
    made = recurrence(cell, gates, packed(v, cell), c, None, steps, begun, bool(reverse))
    return [wrap(part) for part in made]


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    out = memory.empty(shape, dtype)
    out[...] = 0
    return out


def _checked(cell: str, x: Any, weights: dict[str, Any], states: list[Any], lengths: Any) -> int:
    """The width of the states, if all shapes and dtypes go together."""
    v = weights["w_hh"]
    if x.ndim != 3:
        raise ShapeError(f"{cell}: x is (length, batch, features), not {x.shape}")
    if v is None or v.ndim != 3 or v.shape[0] not in (1, 2) or not v.shape[2]:
        shape = None if v is None else v.shape
        raise ShapeError(f"{cell}: w_hh is (directions, gates, width), 1 or 2 first, not {shape}")
    directions, _, width = v.shape
    rows = GATES[cell] * width
    wanted = {
        "w_ih": (directions, rows, x.shape[2]),
        "w_hh": (directions, rows, width),
        "b_ih": (directions, rows),
        "b_hh": (directions, rows),
    }
    found = dict(weights)
    for name, state in zip("hc", states, strict=False):
        found[name], wanted[name] = state, (directions, x.shape[1], width)
    for name, array in found.items():
        if array is None and name == "w_ih" or array is not None and array.shape != wanted[name]:
            shape = None if array is None else array.shape
            raise ShapeError(f"{cell}: {name} of shape {wanted[name]} expected, not {shape}")
        if array is not None and array.dtype != x.dtype:
            raise DTypeError(f"{cell}: {name} is {array.dtype}, but x is {x.dtype}")
    if lengths is not None and (lengths.shape != (x.shape[1],) or lengths.dtype.kind not in "iu"):
        raise (DTypeError if lengths.dtype.kind not in "iu" else ShapeError)(
            f"{cell}: lengths are {x.shape[1]} integers, not {lengths.dtype}{list(lengths.shape)}"
        )
    return int(width)
