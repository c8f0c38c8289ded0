"""Calibration: what goes into each linear layer while a model runs on sample inputs.

A watched weight is a tensor of its own storage kind: the op that reads it notes its input and
computes as usual. So everything that ends in a linear op is seen, in whatever module it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from cubepy.errors import ArgumentError, QuantizationError
from cubepy.kernels.entry.options import shown
from cubepy.quant.weights.weight import Statistics
from cubepy.runtime.masked import refuse_masked
from cubepy.tensor import Dense, Storage, Tensor, apply, register

# Rows of input that are kept as they are, to compare results and speed on.
KEPT_ROWS = 64
_BATCH = 32


class Observer:
    """What was seen of one layer.

    Args:
        columns: inputs of the layer.
        moments: whether X^T X is summed up; otherwise only some rows are kept.
    """

    def __init__(self, columns: int, moments: bool) -> None:
        self.count = 0
        self.largest = np.zeros(columns, np.float32)
        self.moments = np.zeros((columns, columns)) if moments else None
        self._kept: list[np.ndarray] = []
        self._waiting: list[np.ndarray] = []  # rows that are not in the moments yet
        self._waiting_rows = 0

    def see(self, x: np.ndarray) -> None:
        """Note an input (..., K)."""
        rows = np.asarray(x, np.float32).reshape(-1, x.shape[-1])
        missing = KEPT_ROWS - sum(map(len, self._kept))
        if missing > 0:
            self._kept.append(rows[:missing].copy())
        if self.moments is None:
            return
        if not np.isfinite(rows).all():
            raise QuantizationError(
                "a calibration input led to NaN or infinity inside the model",
                hint="check the sample inputs",
            )
        if len(rows):
            self.count += len(rows)
            self.largest = np.maximum(self.largest, np.abs(rows).max(axis=0))
            self._waiting.append(rows.copy())
            self._waiting_rows += len(rows)
            if self._waiting_rows >= len(self.largest):
                self._add_waiting(self.moments)

    def _add_waiting(self, moments: np.ndarray) -> None:
        """Add up what waits: the moments are larger than the inputs of most calls, and are written
        once for many.
        """
        if self._waiting:
            wide = np.concatenate(self._waiting, dtype=np.float64)
            self._waiting, self._waiting_rows = [], 0
            moments += wide.T @ wide

    def rows(self) -> np.ndarray | None:
        """Some inputs as they were, (rows, K), or None if the layer did not run."""
        return np.concatenate(self._kept) if self._kept else None

    def statistics(self) -> Statistics | None:
        """For `QuantizedWeight.from_float`; None if nothing was seen."""
        if self.moments is None or not self.count:
            return None
        self._add_waiting(self.moments)
        return Statistics(self.moments, self.largest, self.count)


class Watched(Storage):
    """A dense weight whose readers are noted."""

    kind: ClassVar[str] = "watched"
    __slots__ = ("inner", "observer")

    def __init__(self, inner: Storage, observer: Observer) -> None:
        super().__init__(inner.shape, inner.dtype, inner.device)
        self.inner, self.observer = inner, observer

    def arrays(self) -> dict[str, np.ndarray]:
        return self.inner.arrays()

    def dense(self) -> np.ndarray:
        return self.inner.dense()


@register("linear", "watched")
def _linear(inputs: Sequence[Any], attrs: dict[str, Any]) -> Storage:
    x, weight = inputs[0], inputs[1]
    if isinstance(weight, Watched):
        weight.observer.see(x.host())
    plain = [None if s is None else Tensor(Dense(s.dense(), s.device)) for s in inputs]
    return apply("linear", *plain, **attrs).storage


@register("slice", "watched")
def _slice(inputs: Sequence[Any], attrs: dict[str, Any]) -> Storage:
    """Rows of a watched weight are watched too, by the same observer."""
    watched = inputs[0]
    part = apply("slice", Tensor(Dense(watched.dense(), watched.device)), **attrs).storage
    keeps_columns = len(part.shape) == 2 and part.shape[1] == watched.shape[1]
    return Watched(part, watched.observer) if keeps_columns else part


def samples(inputs: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The calls that sample inputs stand for, as (args, kwargs).

    A list or iterator holds one call an item: a tuple or list of arguments, a dict of named
    arguments, or the only argument. An array or tensor is the only argument, cut into batches along
    its first axis.

    Raises:
        ArgumentError: neither of them.
    """
    if isinstance(inputs, (np.ndarray, Tensor)):
        refuse_masked(inputs, "calibrate")
        if not inputs.shape:
            yield (inputs,), {}
            return
        inputs = [(inputs[at : at + _BATCH],) for at in range(0, inputs.shape[0], _BATCH)]
    if isinstance(inputs, (str, dict)) or not isinstance(inputs, Iterable):
        raise ArgumentError(
            f"calibrate must be a list of inputs or one array, not {shown(inputs)}",
            hint="a list has one item for each call of the model",
        )
    for item in inputs:
        if isinstance(item, dict):
            yield (), item
        elif isinstance(item, (tuple, list)):
            yield tuple(item), {}
        else:
            yield (item,), {}
