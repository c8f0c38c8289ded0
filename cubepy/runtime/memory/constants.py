"""Numbers that calls read on a device: each is copied there once."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.runtime import recording
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray, upload
from cubepy.runtime.tables import room

LIMIT = 1024
_constants: dict[Any, DeviceArray] = {}


def constant_on(device: Device, value: np.ndarray) -> DeviceArray:
    """A number on a device; the same number is copied there once."""
    key = (device, value.dtype.num, value.shape, value.tobytes())
    found = _constants.get(key)
    if found is None:
        room(_constants, LIMIT)
        found = _constants[key] = upload(value, device)
    elif recording.active and (recorder := recording.current()) is not None:
        recorder.constant(found)
    return found
