"""Ops on the host that came before: their shapes are not checked again, their launches are
replayed.

There are two ways to a replay. `quick` asks machine code for a short key of the arrays and options,
in one call; `HostCall` is what comes first: it forms the long key, and has the launches recorded. A
storage that is not dense says by `operands` what it is made of, so packed weights of a shape and
scheme share a replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime import recording
from cubepy.runtime.device import Device
from cubepy.runtime.replay.host_plan import REFUSED, HostCalls
from cubepy.runtime.tables import room
from cubepy.tensor.execute import dense_op, run
from cubepy.tensor.storage import HOST, Dense

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
_calls = HostCalls()
_accepted: dict[Any, tuple[np.dtype, DType]] = {}


def quick(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Dense | None:
    """The result of an op on tensors of the CPU, by the shortest way; None, with nothing done,
    where there is none.
    """
    if op in VIEWS:
        return None
    values: list[Any] = [op]
    at_home, device = False, None
    for t in inputs:
        if t is None:
            values.append(None)
            continue
        store = t.storage
        if store.device is not device:
            device = store.device
            if device.backend != "cpu":
                return None
        if type(store) is Dense:
            values.append(store.array)
            if store.shape:
                at_home = True
        else:
            operands = store.operands()
            if operands is None:
                return None
            values += operands
    if not at_home:  # numbers only: the current device decides
        return None
    if attrs:
        values += attrs
        values += attrs.values()
    given = tuple(values)
    known = _calls.quick.get(_calls.short_of[0](given))
    if known is None:
        return None
    again, element = known
    result = again(given)
    return None if result is REFUSED else _dense(result, element, HOST)


class HostCall:
    """One op on storages of the host.

    Attributes:
        key: what decides what the op does, or None where a storage does not say.
        values: what is given: the op, the arrays with None for those that are absent, and the
            attributes.
    """

    __slots__ = ("attrs", "device", "key", "op", "storages", "values")

    def __init__(
        self, op: str, storages: Sequence[Any], attrs: dict[str, Any], device: Device
    ) -> None:
        self.op, self.attrs, self.device, self.key = op, attrs, device, None
        self.storages = storages
        parts: list[Any] = [op, device.backend]
        values: list[Any] = [op]
        for s in storages:
            if s is None:
                parts.append(None)
                values.append(None)
                continue
            if type(s) is Dense:
                array = s.array
                if type(array) is not np.ndarray:
                    return
                parts.append((array.dtype, array.shape, array.strides))
                values.append(array)
                continue
            operands = s.operands()
            if operands is None or op in VIEWS:
                return
            parts += [
                (v.dtype, v.shape, v.strides) if type(v) is np.ndarray else v for v in operands
            ]
            values += operands
        if len(attrs) > 1:
            parts += attrs
        for v in attrs.values():
            parts.append(exact(v) if type(v) in _UNLIKE else v)
        self.key = tuple(parts)
        self.values = (*values, *attrs, *attrs.values())

    def repeat(self) -> Dense | None:
        """The result, where such a call was accepted before; None, with nothing done, where it was
        not.
        """
        key = self.key
        if key is None:
            return None
        found = _calls.ready.get(key)
        if found is not None and not recording.detours:
            result = found(self.values)
            if result is not REFUSED:
                element = as_dtype(result.dtype)
                _calls.learn(_calls.short_of[0](self.values), self.values, (found, element))
                return _dense(result, element, self.device)
        known = _accepted.get(key)
        if known is None:
            return None
        dtype, element = known
        if self.op in VIEWS:
            return _dense(self.run(dtype), element, self.device)
        return _dense(
            _calls.long_way(key, self.values, None, lambda: self.run(dtype)), element, self.device
        )

    def run(self, dtype: np.dtype) -> Any:
        """The op itself: an array, or a number."""
        count = 1 + len(self.storages)
        if len(self.values) == count + 2 * len(
            self.attrs
        ):  # an array for each storage: all are dense
            return dense_op(self.op)(dtype, *self.values[1:count], **self.attrs)
        return run(self.op, self.storages, self.attrs, dtype).dense()

    def accept(self, result: Any, element: DType) -> None:
        """Keep that an op with such inputs is right, and what it gives."""
        if self.key is not None and self.storages and type(result) is Dense:
            room(_accepted, LIMIT)
            _accepted[self.key] = element.numpy, element


def _dense(array: Any, element: DType, device: Device) -> Dense:
    """The storage of an array of the host."""
    out = Dense.__new__(Dense)
    array = array if type(array) is np.ndarray else np.asarray(array)
    out.array, out.shape, out.dtype, out.device = array, array.shape, element, device
    return out
