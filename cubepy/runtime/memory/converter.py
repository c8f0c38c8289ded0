"""What copies between arrays of a device where layouts or dtypes differ: a kernel of the library,
which installs it.
"""

from __future__ import annotations

from collections.abc import Callable

from cubepy.runtime.memory.device_array import DeviceArray

_converter: Callable[[DeviceArray, DeviceArray], None] | None = None


def set_converter(function: Callable[[DeviceArray, DeviceArray], None]) -> None:
    """Install what copies between arrays of a device where layouts or dtypes differ: a kernel, from
    a floor above.
    """
    global _converter
    _converter = function


def converter() -> Callable[[DeviceArray, DeviceArray], None]:
    """What `set_converter` installed: it gets a target and a source of the same shape."""
    assert _converter is not None
    return _converter
