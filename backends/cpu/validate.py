"""Ops that only validate mode and debugging use: accesses that report where they fail."""

from __future__ import annotations

from numba import njit

from cubepy.backends.cpu.ops import load_if, report

_options = {"nogil": True, "error_model": "numpy", "inline": "always"}


@njit(**_options)
def load_or_report(pointer, offset, ok, err, site, index, length):  # type: ignore[no-untyped-def]
    """The element at `offset` if it is in range; else zero, and a report."""
    if not ok:
        report(err, site, index, length)
    return load_if(pointer, offset, ok)


@njit(**_options)
def check_line(err, site, room, index, length):  # type: ignore[no-untyped-def]
    """Report a line that starts outside (one that hangs over the end is allowed)."""
    if room <= 0:
        report(err, site, index, length)
