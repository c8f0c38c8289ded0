"""The names that generated code for an AMD GPU uses (a test compares)."""

from __future__ import annotations

from cubepy.backends.gpu.names import SHARED

RESERVED = SHARED
