"""Mistakes that compute-sanitizer must find: `compute-sanitizer --tool memcheck python -m
tests.device.planted memcheck`.

Without them nobody would know whether a tool that finds nothing has looked.
"""

from __future__ import annotations

import sys

import numpy as np

import cubepy as cb
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import empty, upload

HERE, UNITS = Device("cuda"), 64


@cb.kernel
def writes_beyond(x: cb.Array, out: cb.Array):
    """The last unit writes behind the array."""
    out[cb.UNIT_POS + 1] = x[cb.UNIT_POS]


@cb.kernel
def does_not_wait(x: cb.Array, out: cb.Array):
    """Units read what others may not have written yet."""
    shared = cb.shared(64, cb.f32)
    shared[cb.UNIT_POS] = x[cb.UNIT_POS]
    out[cb.UNIT_POS] = shared[63 - cb.UNIT_POS]


@cb.kernel
def copies(x: cb.Array, out: cb.Array):
    """Reads what the host gave."""
    out[cb.UNIT_POS] = x[cb.UNIT_POS] + 1


def main(tool: str) -> None:
    """Make the mistake that a tool is for."""
    x, out = upload(np.ones(UNITS, np.float32), HERE), empty((UNITS,), np.float32, HERE)
    if tool == "memcheck":
        writes_beyond[1, UNITS](x, out, mode="unchecked")
    elif tool == "racecheck":
        does_not_wait[1, UNITS](x, out, mode="unchecked")
    else:
        copies[1, UNITS](empty((UNITS,), np.float32, HERE), out, mode="unchecked")
    cb.sync(HERE)


if __name__ == "__main__":
    main(sys.argv[1])
