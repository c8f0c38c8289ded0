"""The reference backend: every unit is a generator of plain Python; slow, and right."""

from __future__ import annotations

from cubepy.backends.python.backend import PythonBackend


def create() -> PythonBackend:
    """The backend object."""
    return PythonBackend()
