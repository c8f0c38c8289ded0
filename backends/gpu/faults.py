"""Errors that kernels report: a record of a launch as an exception.

A kernel with checks gets the address of a few 64-bit words that are zero. Where a check fails, one
unit swaps the number of the site (from 1) into the first word, if it is still zero, and writes the
index and the length behind it.
"""

from __future__ import annotations

import sys
from typing import Any

from cubepy.errors import KernelAssertionError, Location, OutOfBoundsError


def report(
    executable: Any, number: int, index: int, length: int, site: Location | None
) -> Exception:
    """The exception for a fault record."""
    fault = executable.sites[number - 1]
    name = executable.program.name
    launched = f" (launched at {site.file}:{site.line})" if site is not None else ""
    if fault.kind == "assert":
        return KernelAssertionError(
            f"in {name}: {fault.message}{launched}", location=fault.location
        )
    return OutOfBoundsError(
        f"{name} accesses index {index} of {fault.array!r}, whose length is {length}{launched}",
        location=fault.location,
        hint=f"guard it with: if i < {fault.array}.size",
    )


def launch_site() -> Location | None:
    """The innermost Python line outside cubepy."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "cubepy")  # code that cubepy writes has no name
        if module != "cubepy" and not module.startswith("cubepy."):
            return Location(frame.f_code.co_filename, frame.f_lineno, function=frame.f_code.co_name)
        frame = frame.f_back
    return None
