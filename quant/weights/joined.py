"""Weights of layers that read the same rows, as one weight: their channels lie one after the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cubepy.kernels.movement.concat import concat
from cubepy.quant.weights.packing import PANEL
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime.memory.device_array import DeviceArray, host


def joinable(weights: Sequence[QuantizedWeight]) -> bool:
    """Whether weights can be `joined`: of one scheme, with the same inputs, factors of inputs and
    gain, all but the last of whole panels.

    Example:
        >>> ones = np.ones((16, 32), np.float32)
        >>> a, b = (QuantizedWeight.from_float(ones[:n], "int4") for n in (16, 5))
        >>> joinable([a, b]), joinable([b, a])
        (True, False)
    """
    first, *others = weights
    return (
        all(w.shape[0] and w.shape[0] % PANEL == 0 for w in weights[:-1])
        and all(
            (w.scheme, w.shape[1], w.gain) == (first.scheme, first.shape[1], first.gain)
            for w in others
        )
        and all(_same(first.input_scale, w.input_scale) for w in others)
    )


def _same(a: Any, b: Any) -> bool:
    return a is b or np.array_equal(host(a), host(b))


def joined(weights: Sequence[QuantizedWeight]) -> QuantizedWeight:
    """One weight of the channels of several `joinable` ones, where they are.

    Example:
        >>> ones = np.ones((16, 32), np.float32)
        >>> a, b = (QuantizedWeight.from_float(ones[:n], "int4") for n in (16, 5))
        >>> joined([a, b]).shape
        (21, 32)
    """
    first = weights[0]
    parts = {
        name: _concatenated([w.arrays()[name] for w in weights])
        for name in first.arrays()
        if name != "input_scale"
    }
    return replace(first, shape=(sum(w.shape[0] for w in weights), first.shape[1]), **parts)


def _concatenated(arrays: Sequence[Any]) -> Any:
    return concat(arrays, 0) if isinstance(arrays[0], DeviceArray) else np.concatenate(arrays)
