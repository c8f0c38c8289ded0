"""A numba target for GPUs on numba.core alone: it types a function and lowers it to LLVM's text.

Generated code is numbers, ranges and our ops, so numba's context for CPUs lowers it for any
machine; what is replaced here is what belongs to the host: its code generator, its wrappers for
Python, its registries of arrays and texts.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import callconv, cgutils, compiler, cpu, types, typing
from numba.core.fastmathpass import rewrite_module

from cubepy.backends.gpu.codegen.modules import Codegen
from cubepy.backends.llvm.passes import lean


@dataclass(frozen=True)
class Processor:
    """What code is lowered for.

    Attributes:
        architecture: what ops look at.
        triple: LLVM's name of the machine.
        data: how LLVM lays data out there.
    """

    architecture: Hashable
    triple: str
    data: Any


class Context(cpu.CPUContext):  # type: ignore[misc]
    """What lowers numbers, ranges and ops for a processor."""

    enable_nrt = False

    def __init__(self, typing_context: Any, processor: Processor) -> None:
        self.processor = processor
        super().__init__(typing_context)

    def init(self) -> None:
        self.is32bit = False
        p = self.processor
        self._internal_codegen = Codegen(p.architecture, p.triple, p.data)

    def load_additional_registries(self) -> None:
        """These register where every target looks, when they are imported."""
        from numba.cpython import builtins, numbers, rangeobj  # noqa: F401

    @property
    def call_conv(self) -> Any:
        return callconv.MinimalCallConv(self)

    def create_cpython_wrapper(self, *_: Any, **__: Any) -> None:
        """Nobody calls a kernel from Python."""

    def create_cfunc_wrapper(self, *_: Any, **__: Any) -> None:
        """Nor from C."""

    def get_executable(self, *_: Any) -> None:
        """Nor in this process."""

    def post_lowering(self, module: Any, library: Any) -> None:
        """There is no runtime of numba's to link."""

    def declare_env_global(self, module: ir.Module, name: str) -> Any:
        """numba's pointer to the objects of a function, of which there are none."""
        if name not in module.globals:
            variable = ir.GlobalVariable(module, cgutils.voidptr_t, name=name)
            variable.linkage = "internal"
            variable.initializer = ir.Constant(cgutils.voidptr_t, None)
        return module.globals[name]


class Compiler(compiler.Compiler):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        return [lean(p) for p in super().define_pipelines()]


@cache
def _contexts(processor: Processor) -> tuple[Any, Any]:
    typing_context = typing.Context()
    return typing_context, Context(typing_context, processor)


def lowered(
    function: Any, arguments: tuple[Any, ...], processor: Processor, fast_math: frozenset[str]
) -> tuple[Any, ir.Function]:
    """A function of these argument types for a processor: the context that lowered it, and the
    function in its module. The caller holds numba's compiler lock.
    """
    typing_context, target = _contexts(processor)
    typing_context.refresh()
    target.refresh()
    flags = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model, flags.nrt, flags.boundscheck = "numpy", False, False
    result = compiler.compile_extra(
        typing_context, target, function, arguments, types.void, flags, {}, pipeline_class=Compiler
    )
    inner = result.library.get_function(result.fndesc.llvm_func_name)
    assert len(result.library.modules) == 1, "generated code calls no other function of Python"
    if fast_math:
        rewrite_module(inner.module, cpu.FastMathOptions(set(fast_math)))
    return target, inner
