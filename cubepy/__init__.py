"""cubepy: write a kernel once in plain Python, run it at native speed.

The names of the kernel language live here (`cb.kernel`, `cb.ABSOLUTE_POS`, `cb.exp`, ...), with devices, settings
and statistics. `cb.tensor`, `cubepy.kernels`, `cubepy.nn` and `cubepy.quant` are imported at first use.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

if not os.path.isdir(os.path.join(os.path.dirname(__file__), "nn")):
    # A checkout keeps backends/, nn/ and quant/ beside this folder; an installed package, inside it.
    __path__.append(os.path.dirname(os.path.dirname(__file__)))

from cubepy.config import config
from cubepy.errors import CubeError
from cubepy.lang.builtins import BUILTINS as _BUILTINS
from cubepy.lang.builtins import TOPOLOGY as _TOPOLOGY
from cubepy.lang.declare import Array, Comptime, TensorMap, View, func, kernel, struct
from cubepy.lang.declare import set_launcher as _set_launcher
from cubepy.lang.dtypes import ALL as _DTYPES
from cubepy.lang.dtypes import DType, as_dtype, promote
from cubepy.lang.grid import over
from cubepy.runtime.device import Device, DeviceProperties, devices, use
from cubepy.runtime.device import current as current_device
from cubepy.runtime.device import device_properties as device_properties_of
from cubepy.runtime.launch.launcher import Launcher as _Launcher
from cubepy.runtime.memory.converter import set_converter as _set_converter
from cubepy.runtime.memory.pool import memory_stats
from cubepy.runtime.stats import profile, stats
from cubepy.runtime.streams.graph import capture
from cubepy.runtime.streams.stream import Event, Stream, sync
from cubepy.runtime.tensor_map import tensor_map

__version__ = "0.1.0"


def _convert(target: Any, source: Any) -> None:
    importlib.import_module("cubepy.kernels.movement.copy").convert_into(target, source)


_set_launcher(_Launcher)
_set_converter(_convert)  # the library is loaded when the first array needs it
_LANGUAGE = _BUILTINS | _TOPOLOGY | {d.name: d for d in _DTYPES}
_LAZY = ("errors", "kernels", "nn", "quant", "tensor", "tune")
globals().update(_LANGUAGE)

__all__ = [  # noqa: PLE0604 - the language's names are listed where they are declared
    "Array",
    "Comptime",
    "CubeError",
    "DType",
    "Device",
    "DeviceProperties",
    "Event",
    "Stream",
    "TensorMap",
    "View",
    "as_dtype",
    "capture",
    "config",
    "current_device",
    "device_properties_of",
    "devices",
    "func",
    "kernel",
    "memory_stats",
    "over",
    "profile",
    "promote",
    "stats",
    "struct",
    "sync",
    "tensor_map",
    "use",
    *_LANGUAGE,
    *_LAZY,
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"cubepy.{name}")
    raise AttributeError(f"module 'cubepy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
