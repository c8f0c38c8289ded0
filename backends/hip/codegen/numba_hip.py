"""numba-hip as the front end: its typing and its target type and lower the generated code.

Our ops are registered with numba.core, on which numba-hip stands, so it knows them. Its last steps
(HIP's device library, comgr) are not taken: what follows is our entry point and llvmlite's LLVM, as
behind our own front end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import compiler, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.target_extension import target_override
from numba.hip.codegen import JITHIPCodegen
from numba.hip.compiler import HIPCompiler, HIPFlags
from numba.hip.target import HIPTargetContext, HIPTypingContext

from cubepy.backends.gpu.codegen.target import inlined
from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.backends.llvm.passes import LeanPipelines, remembered
from cubepy.runtime.deep_stack import uncollected


class Codegen(JITHIPCodegen):  # type: ignore[misc]
    """numba-hip's, of modules that know their processor, which ops look at."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__(f"cubepy.{architecture}")
        self.architecture = architecture

    def _create_empty_module(self, name: str) -> ir.Module:
        module = super()._create_empty_module(name)
        module.architecture = self.architecture
        return module


class Context(HIPTargetContext):  # type: ignore[misc]
    """numba-hip's target for one processor."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        super().__init__(HIPTypingContext())

    def init(self) -> None:
        super().init()
        self._internal_codegen = Codegen(self.architecture)


class Compiler(LeanPipelines, HIPCompiler):  # type: ignore[misc]
    """numba-hip's passes that generated code has a use for."""


@cache
def _context(architecture: Architecture) -> Context:
    return Context(architecture)


@global_compiler_lock  # type: ignore[untyped-decorator]
@uncollected()
@remembered()
def lowered(
    source: Callable[[], Any],
    arguments: tuple[Any, ...],
    architecture: Architecture,
    fast_math: frozenset[str],
) -> tuple[Any, ir.Function]:
    """A function of generated code, as `gpu.codegen.target.lowered` gives it."""
    flags = HIPFlags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model, flags.amdgpu_arch = "numpy", str(architecture)
    context = _context(architecture)
    context.typing_context.refresh()
    context.refresh()
    both = context.typing_context, context
    with target_override("hip"):
        result = compiler.compile_extra(
            *both, source(), arguments, types.void, flags, {}, pipeline_class=Compiler
        )
    return context, inlined(result.library.get_function(result.fndesc.llvm_func_name), fast_math)
