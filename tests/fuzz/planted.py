"""Functions with faults: what finds faults has to find these."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

from tests.fuzz.check import exact
from tests.fuzz.draws import F32, Call, Draw, draws


@draws("right", "a unit off", "writes behind", "writes its input", "raises", "ends the process")
def _(d: Draw, name: str) -> Call:
    x = d.array(d.shape(1, 2, 2), F32, "positive")

    def double(x: np.ndarray, out: Any = None) -> np.ndarray:
        result = x * 2 if out is None else np.multiply(x, 2, out=out)
        if name == "a unit off":
            result.flat[0] = np.nextafter(result.flat[0], np.float32(np.inf))
        if name == "writes behind" and out is not None and out.flags.c_contiguous:
            np.lib.stride_tricks.as_strided(out, (out.size + 1,), (4,))[-1] = 0  # in the frame
        if name == "writes its input":
            x.flat[-1] += 1
        if name == "raises":
            raise RuntimeError("planted")
        if name == "ends the process":
            os.kill(os.getpid(), signal.SIGSEGV)
        return result

    return Call(double, (x,), lambda: exact(x * np.float32(2)))
