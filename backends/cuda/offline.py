"""Compiling kernels for a GPU where there is none: for tests, and for reading machine code."""

from __future__ import annotations

from cubepy.backends.cuda.backend import offline as properties_of
from cubepy.backends.cuda.codegen.compile import Architecture, Code
from cubepy.backends.gpu.offline import compiler

compile_for = compiler(properties_of, Architecture.of, Code)
"""Compiles a kernel for an architecture; see `backends.gpu.offline`."""
