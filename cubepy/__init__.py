"""cubepy: write a kernel once in plain Python, run it at native speed.

The names of the kernel language live here (`cb.kernel`, `cb.ABSOLUTE_POS`, `cb.exp`, ...), with
devices, settings and statistics. `cb.tensor`, `cb.Tensor`, `cubepy.kernels`, `cubepy.nn` and
`cubepy.quant` are imported at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cubepy import checkout as _checkout

_checkout.install()

from cubepy.config import config
from cubepy.errors import CubeError
from cubepy.lang import names as _names
from cubepy.lang.annotations import Array, Comptime, TensorMap, View
from cubepy.lang.declare import func, kernel
from cubepy.lang.declare import set_launcher as _set_launcher
from cubepy.lang.dtypes import DType, as_dtype, promote
from cubepy.lang.grid import over
from cubepy.lang.names import *
from cubepy.lang.philox import philox, to_normal, to_uniform
from cubepy.lang.struct import struct
from cubepy.runtime.device import Device, DeviceProperties, devices, use
from cubepy.runtime.device import current as current_device
from cubepy.runtime.device import device_properties as device_properties_of
from cubepy.runtime.launch.launcher import Launcher as _Launcher
from cubepy.runtime.memory.converter import set_converter as _set_converter
from cubepy.runtime.memory.pool import memory_stats
from cubepy.runtime.profile import profile
from cubepy.runtime.stats import stats
from cubepy.runtime.streams.graph import capture
from cubepy.runtime.streams.stream import Event, Stream, sync
from cubepy.runtime.tensor_map import tensor_map

__version__ = "0.1.0"


def _convert(target: Any, source: Any) -> None:
    importlib.import_module("cubepy.kernels.movement.copy").convert_into(target, source)


_set_launcher(_Launcher)
_set_converter(_convert)  # the library is loaded when the first array needs it
_LAZY = ("errors", "kernels", "models", "nn", "quant", "tensor", "testing", "tune")
_OF_TENSORS = (
    "Generator",
    "Tensor",
    "TensorSpec",
    "checkpoint",
    "cond",
    "custom_vjp",
    "enable_grad",
    "explain",
    "grad",
    "grad_of",
    "is_grad_enabled",
    "jit",
    "kernel_call",
    "no_grad",
    "scan",
    "set_grad_enabled",
    "value_and_grad",
)
_OF_MODELS = ("from_torch", "load", "look", "save")

__all__ = [
    "Array",
    "Comptime",
    "CubeError",
    "DType",
    "Device",
    "DeviceProperties",
    "Event",
    "Generator",
    "Stream",
    "Tensor",
    "TensorMap",
    "TensorSpec",
    "View",
    "as_dtype",
    "capture",
    "checkpoint",
    "cond",
    "config",
    "current_device",
    "custom_vjp",
    "device_properties_of",
    "devices",
    "enable_grad",
    "errors",
    "explain",
    "from_torch",
    "func",
    "grad",
    "grad_of",
    "is_grad_enabled",
    "jit",
    "kernel",
    "kernel_call",
    "kernels",
    "load",
    "look",
    "memory_stats",
    "models",
    "nn",
    "no_grad",
    "over",
    "philox",
    "profile",
    "promote",
    "quant",
    "save",
    "scan",
    "set_grad_enabled",
    "stats",
    "struct",
    "sync",
    "tensor",
    "tensor_map",
    "testing",
    "to_normal",
    "to_uniform",
    "tune",
    "use",
    "value_and_grad",
]
__all__ += _names.__all__

if TYPE_CHECKING:
    from cubepy import errors, kernels, models, nn, quant, testing, tune
    from cubepy.models import from_torch, load, look, save
    from cubepy.tensor import (
        Generator,
        Tensor,
        TensorSpec,
        checkpoint,
        cond,
        custom_vjp,
        enable_grad,
        explain,
        grad,
        grad_of,
        is_grad_enabled,
        jit,
        kernel_call,
        no_grad,
        scan,
        set_grad_enabled,
        value_and_grad,
    )
    from cubepy.tensor.module import tensor
else:

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            return importlib.import_module(f"cubepy.{name}")
        if name in _OF_TENSORS:
            return getattr(importlib.import_module("cubepy.tensor"), name)
        if name in _OF_MODELS:
            return getattr(importlib.import_module("cubepy.models"), name)
        raise importlib.import_module("cubepy.elsewhere").missing("cubepy", name)


def __dir__() -> list[str]:
    return sorted(__all__)
