"""Ops under the profiler: what each takes, and the user's line that asked for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from cubepy.errors import Location
from cubepy.runtime.profile import active, launched
from cubepy.tensor.replay import perform
from cubepy.tensor.value import located, outside

_here = threading.local()


def asked_by(lines: Sequence[Location] | None) -> None:
    """The ops of this thread that follow are asked for by these lines; None: by whoever calls."""
    _here.lines = lines


def timed(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Perform an op, for everybody who profiles."""
    lines = getattr(_here, "lines", None)
    if lines is None:
        line = located(outside())
        lines = () if line is None else (line,)
    text = ", ".join(f"{line.file}:{line.line}" for line in lines[:1])
    if len(lines) > 1:
        text += f" and {len(lines) - 1} more"
    kernels, start = launched(), time.perf_counter()
    result = perform(op, inputs, attrs)
    seconds = time.perf_counter() - start
    for p in list(active):
        p.add_op(op, text, seconds, launched() - kernels)
    return result
