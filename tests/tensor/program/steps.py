"""Steps of random programs, written for any array API namespace: ours, op by op and as a program,
and array-api-strict, which is NumPy with nothing beyond the standard.

Values have the shape (rows, columns), or one that broadcasts to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = Callable[[Any, Any, Any], Any]
"""Of a namespace and two values; gives a value."""


def as_f32(xp: Any, x: Any) -> Any:
    return xp.astype(x, xp.float32)


def as_ints(xp: Any, x: Any) -> Any:
    """Small whole numbers of a float."""
    return xp.astype(xp.clip(x, -100.0, 100.0), xp.int32)


EXACT: dict[str, Step] = {
    "add": lambda xp, a, b: a + b,
    "sub": lambda xp, a, b: a - b,
    "mul": lambda xp, a, b: a * b,
    "div": lambda xp, a, b: a / (xp.abs(b) + 1.0),
    "scaled": lambda xp, a, b: a * 0.3 - b,
    "least": lambda xp, a, b: xp.minimum(a, b),
    "most": lambda xp, a, b: xp.maximum(a, b * 0.5),
    "where": lambda xp, a, b: xp.where(a < b, a, b * 2.0),
    "both": lambda xp, a, b: xp.where((a <= b) & (a > 0.0) | (b != a), a, -b),
    "negative": lambda xp, a, b: -a,
    "abs": lambda xp, a, b: xp.abs(a) + b,
    "floor": lambda xp, a, b: xp.floor(a) + xp.ceil(b),
    "trunc": lambda xp, a, b: xp.trunc(a * 3.0),
    "round": lambda xp, a, b: xp.round(a * 2.0),
    "root": lambda xp, a, b: xp.sqrt(xp.abs(a)),
    "square": lambda xp, a, b: xp.square(a) - b,
    "sign": lambda xp, a, b: xp.sign(a) * b,
    "clip": lambda xp, a, b: xp.clip(a, -1.0, 0.75),
    "copysign": lambda xp, a, b: xp.copysign(a, b),
    "reciprocal": lambda xp, a, b: 1.0 / (1.0 + a * a),
    "wide": lambda xp, a, b: xp.astype(a, xp.float64) + b,
    "narrow": lambda xp, a, b: as_f32(xp, a) * 1.5,
    "ints": lambda xp, a, b: as_f32(xp, as_ints(xp, a) * 3 + as_ints(xp, b)),
    "halves": lambda xp, a, b: as_f32(xp, as_ints(xp, a) // 2) + b,
    "bits": lambda xp, a, b: as_f32(xp, (as_ints(xp, a) & 7) ^ (as_ints(xp, b) | 1)),
    "bytes": lambda xp, a, b: as_f32(xp, xp.astype(as_ints(xp, a) + 101, xp.uint8)) - b,
    "booleans": lambda xp, a, b: as_f32(xp, xp.logical_not(a > b)) + a,
    "remainder": lambda xp, a, b: as_f32(xp, as_ints(xp, a) % 5),
}
"""Maps that round as IEEE 754 says, so that all agree bit by bit."""

LONG: dict[str, Step] = {
    "exp": lambda xp, a, b: xp.exp(xp.clip(a, -9.0, 3.0)) + b,
    "log": lambda xp, a, b: xp.log(xp.abs(a) + 0.5),
    "tanh": lambda xp, a, b: xp.tanh(a) * b,
    "sin": lambda xp, a, b: xp.sin(xp.clip(a, -50.0, 50.0)) + xp.cos(xp.clip(b, -50.0, 50.0)),
    "log1p": lambda xp, a, b: xp.log1p(xp.abs(a)) - xp.expm1(xp.clip(b, -3.0, 1.0)),
    "atan2": lambda xp, a, b: xp.atan(a) + b,
    "hypot": lambda xp, a, b: xp.hypot(a, b),
    "logaddexp": lambda xp, a, b: xp.logaddexp(a, b),
    "power": lambda xp, a, b: xp.pow(xp.abs(a) + 0.1, xp.clip(b, -1.0, 1.5)),
}
"""Maps that are right to a few units in the last place."""


def full(xp: Any, x: Any, like: Any) -> Any:
    """Broadcast to (rows, columns)."""
    return x + xp.zeros_like(like)


def softmax(xp: Any, x: Any, axis: int = -1) -> Any:
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def norm(xp: Any, x: Any) -> Any:
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + 1e-2)


def standardised(xp: Any, x: Any) -> Any:
    """A batch norm of columns."""
    centred = x - xp.mean(x, axis=0)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=0) + 1e-2)


def rms_norm(xp: Any, x: Any) -> Any:
    return x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-2)


OTHERS: dict[str, Step] = {
    "sum": lambda xp, a, b: xp.sum(a, axis=-1, keepdims=True) * 0.1 + b,
    "columns": lambda xp, a, b: xp.sum(a, axis=0) * 0.2 - b,
    "column_map": lambda xp, a, b: xp.sum(a * b + a, axis=0) * 0.1 + b,
    "standardised": lambda xp, a, b: standardised(xp, a) * b,
    "mean": lambda xp, a, b: xp.mean(a) + b,
    "greatest": lambda xp, a, b: (
        xp.max(a, axis=0, keepdims=True) - xp.min(b, axis=-1, keepdims=True)
    ),
    "variance": lambda xp, a, b: xp.var(a, axis=-1, keepdims=True) * 0.1 + b,
    "deviation": lambda xp, a, b: xp.std(a + b, axis=0, correction=0),
    "softmax": lambda xp, a, b: softmax(xp, a) * b,
    "softmax_0": lambda xp, a, b: softmax(xp, a, 0) + b,
    "norm": lambda xp, a, b: norm(xp, a) + b,
    "rms_norm": lambda xp, a, b: rms_norm(xp, a * 2.0),
    "cross_entropy": lambda xp, a, b: (
        a - xp.log(xp.sum(xp.exp(a - xp.max(a)), axis=-1, keepdims=True))
    ),
    "matmul": lambda xp, a, b: (a @ xp.permute_dims(b, (1, 0))) @ b / 30.0,
    "gram": lambda xp, a, b: a @ xp.tanh(xp.matrix_transpose(b) @ a / 10.0),
    "reversed": lambda xp, a, b: a[::-1, :] + xp.flip(b, axis=1),
    "rolled": lambda xp, a, b: xp.roll(a, 1, axis=-1) * b,
    "sliced": lambda xp, a, b: xp.concat([a[:1, :], b[1:, :]], axis=0),
    "strided": lambda xp, a, b: xp.concat([a[:, ::2], b[:, 1::2]], axis=1),
    "reshaped": lambda xp, a, b: xp.reshape(xp.permute_dims(a, (1, 0)), a.shape) + b,
    "row": lambda xp, a, b: a[-1, :] * b,
    "column": lambda xp, a, b: a[:, :1] - b,
    "stacked": lambda xp, a, b: xp.sum(xp.stack([a, b, a * b]), axis=0),
    "doubled": lambda xp, a, b: xp.concat([a * b - a, a * 0.5 + b], axis=0)[: a.shape[0], :],
    "mirrored": lambda xp, a, b: (
        xp.concat([-a, b], axis=0) * 0.5 + xp.concat([b, a * 2.0], axis=0)
    )[: a.shape[0], :],
    "taken": lambda xp, a, b: xp.take(a, xp.asarray([0] * a.shape[1]), axis=1) + b,
    "sorted": lambda xp, a, b: xp.sort(a, axis=-1) - b,
    "scanned": lambda xp, a, b: xp.cumulative_sum(a, axis=1) * 0.1 + b,
    "tiled": lambda xp, a, b: (
        xp.tile(a[:, :1], (1, a.shape[1])) + xp.repeat(b[:1, :], a.shape[0], axis=0)
    ),
    "expanded": lambda xp, a, b: xp.broadcast_to(a[:1, :], a.shape) * b,
    "counted": lambda xp, a, b: (
        as_f32(xp, xp.argmax(xp.round(a), axis=-1, keepdims=True)) * 0.01 + b
    ),
    "any": lambda xp, a, b: xp.where(xp.any(a > 1.0, axis=-1, keepdims=True), a, b),
    "triangle": lambda xp, a, b: xp.tril(a) + xp.triu(b, k=1),
}
"""What moves or sums up elements. Values are (rows, columns) before them."""
