"""Which front end types and lowers generated code for AMD GPUs: numba-hip's where it can be
imported, our own elsewhere. It is part of the key of machine code.
"""

from __future__ import annotations

import importlib
from functools import cache

from cubepy.backends.gpu.versions import ABSENT, version_of
from cubepy.runtime.inspection import OWN

NUMBA_HIP = "numba-hip"


@cache
def why_not() -> str:
    """Why numba-hip does not lower kernels; empty where it does."""
    if version_of(NUMBA_HIP) == ABSENT:
        return f"{NUMBA_HIP} is not installed"
    try:
        importlib.import_module("numba.hip")
    except Exception as error:  # it looks for libraries, headers and tools of ROCm in many ways
        return f"{NUMBA_HIP} cannot be imported: {type(error).__name__}: {error}"
    return ""


def front_end() -> str:
    """The front end: `OWN`, or numba-hip with its version."""
    return OWN if why_not() else f"{NUMBA_HIP} {version_of(NUMBA_HIP)}"
