"""cubepy: write a kernel once in plain Python, run it at native speed.

The names of the kernel language live here (`cb.kernel`, `cb.ABSOLUTE_POS`, `cb.exp`, ...), with devices,
configuration and tensors. `cubepy.kernels`, `cubepy.nn` and `cubepy.quant` are imported at first use.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

if not os.path.isdir(os.path.join(os.path.dirname(__file__), "nn")):
    # A checkout keeps backends/, nn/ and quant/ beside this folder; an installed package, inside it.
    __path__.append(os.path.dirname(os.path.dirname(__file__)))

from cubepy.lang.builtins import BUILTINS as _BUILTINS
from cubepy.lang.builtins import TOPOLOGY as _TOPOLOGY
from cubepy.lang.declare import Array, Comptime, View, func, kernel, struct
from cubepy.lang.dtypes import ALL as _DTYPES
from cubepy.lang.dtypes import DType, as_dtype, promote
from cubepy.lang.grid import over

from cubepy.config import config
from cubepy.lang.declare import set_launcher as _set_launcher
from cubepy.runtime.device import current as current_device
from cubepy.runtime.device import device_properties as device_properties_of
from cubepy.runtime.device import devices, use
from cubepy.runtime.launch import Launcher as _Launcher
from cubepy.runtime.memory import memory_stats
from cubepy.runtime.stats import profile, stats
from cubepy.runtime.stream import Stream, sync

_set_launcher(_Launcher)

__version__ = "0.1.0"

globals().update(_BUILTINS)
globals().update(_TOPOLOGY)
globals().update({d.name: d for d in _DTYPES})

_LAZY = {"kernels", "nn", "quant", "tensor_module"}


def __getattr__(name: str) -> Any:
    if name in ("kernels", "nn", "quant", "errors"):
        return importlib.import_module(f"cubepy.{name}")
    raise AttributeError(f"module 'cubepy' has no attribute {name!r}")
