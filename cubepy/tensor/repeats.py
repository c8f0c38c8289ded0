"""Ops on the host that came before: their shapes are not checked again, their launches are repeated (`repeat`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime import recording
from cubepy.runtime.device import Device
from cubepy.runtime.replay.repeat import REFUSED, Calls
from cubepy.runtime.tables import room
from cubepy.tensor.execute import dense_op
from cubepy.tensor.storage import Dense

LIMIT = 4096
VIEWS = frozenset(
    {
        "reshape",
        "permute",
        "slice",
        "expand",
        "contiguous",
        "cast",
        "concat",
        "embedding",
        "constant",
    }
)
"""Ops that are no launches, or look at elements on the host: they run, but unchecked."""
_UNLIKE = frozenset(
    {int, float, tuple}
)  # types whose values may be equal to others that mean something else
_calls = Calls()
_accepted: dict[Any, tuple[np.dtype, DType]] = {}


class HostCall:
    """One op on dense storages of the host.

    Attributes:
        key: what decides what the op does, or None where a storage is of another kind.
        values: the arrays, None for those that are absent, and None for an array to write.
    """

    __slots__ = ("attrs", "device", "key", "op", "values")

    def __init__(
        self, op: str, storages: Sequence[Any], attrs: dict[str, Any], device: Device
    ) -> None:
        self.op, self.attrs, self.device, self.key = op, attrs, device, None
        parts: list[Any] = [op]
        values: list[Any] = []
        for s in storages:
            if s is None:
                parts.append(None)
                values.append(None)
                continue
            array = s.array if type(s) is Dense else None
            if type(array) is not np.ndarray:
                return
            parts.append((array.dtype, array.shape, array.strides))
            values.append(array)
        parts += [exact(v) if type(v) in _UNLIKE else v for v in attrs.values()]
        self.key = tuple(parts)
        self.values = (*values, None)

    def repeat(self) -> Dense | None:
        """The result, where such a call was accepted before; None, with nothing done, where it was not."""
        key = self.key
        if key is None:
            return None
        found = _calls.ready.get(key)
        if found is not None and not recording.detours:
            result = found(self.values)
            if result is not REFUSED:
                return _dense(result, as_dtype(result.dtype), self.device)
        known = _accepted.get(key)
        if known is None:
            return None
        dtype, element = known
        if self.op in VIEWS:
            return _dense(self.run(dtype), element, self.device)
        return _dense(
            _calls.long_way(key, self.values, -1, lambda: self.run(dtype)), element, self.device
        )

    def run(self, dtype: np.dtype) -> Any:
        """The op itself."""
        return dense_op(self.op)(dtype, *self.values[:-1], **self.attrs)

    def accept(self, element: DType) -> None:
        """Keep that an op with such inputs is right, and what it gives."""
        if self.key is not None and len(self.values) > 1:
            room(_accepted, LIMIT)
            _accepted[self.key] = element.numpy, element


def _dense(array: Any, element: DType, device: Device) -> Dense:
    """The storage of an array of the host."""
    out = Dense.__new__(Dense)
    array = array if type(array) is np.ndarray else np.asarray(array)
    out.array, out.shape, out.dtype, out.device = array, array.shape, element, device
    return out
