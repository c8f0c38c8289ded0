"""Compiling kernels for an AMD GPU where there is none: for tests, and for reading machine code."""

from __future__ import annotations

from cubepy.backends.gpu.offline import compiler
from cubepy.backends.hip.backend import offline as properties_of
from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.backends.hip.codegen.compile import Code

compile_for = compiler(properties_of, Architecture.of, Code)
"""Compiles a kernel for an architecture; see `backends.gpu.offline`."""
