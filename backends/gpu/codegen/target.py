"""A numba target for GPUs on numba.core alone: generated code to LLVM's text.

Generated code is numbers, ranges and our ops, so numba's context for CPUs lowers it for any
machine; what is replaced here is what belongs to the host: its code generator, its wrappers for
Python, its registries of arrays and texts.

Our own walk writes what numba's front end would write, in a sixth of the time; numba's front end
takes what that walk does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import callconv, cgutils, compiler, cpu, types, typing
from numba.core.compiler import _make_subtarget
from numba.core.compiler_lock import global_compiler_lock
from numba.core.fastmathpass import rewrite_module

from cubepy.backends.gpu.codegen.modules import Codegen
from cubepy.backends.llvm.ops.signatures import Signatures, code_of_operators
from cubepy.backends.llvm.passes import LeanPipelines, remembered
from cubepy.backends.llvm.straight import Unusual, Walk, straight
from cubepy.runtime.deep_stack import in_one_piece, uncollected


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
        """Those of operators and ranges alone."""
        code_of_operators()

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


class Compiler(LeanPipelines, compiler.Compiler):  # type: ignore[misc]
    """numba's passes that generated code has a use for."""


class AsNumba(Walk):
    """A walk whose loops are numba's, and that computes again what it has computed: then the
    machine code is that of numba's front end, byte for byte.
    """

    as_numba = True


@cache
def _context(processor: Processor, of_all: bool = False) -> Context:
    """What lowers code for a processor; of all that numba knows, or of operators and ops."""
    return Context(typing.Context() if of_all else Signatures(), processor)


@global_compiler_lock  # type: ignore[untyped-decorator]
@uncollected()
@remembered()
@in_one_piece
def lowered(
    source: Callable[[], Any],
    text: str,
    arguments: tuple[Any, ...],
    symbol: str,
    processor: Processor,
    fast_math: frozenset[str],
) -> tuple[Any, ir.Function]:
    """A function of generated code for a processor: the context that lowered it, and the function
    in its module, to be inlined where it is called.

    Args:
        source: gives the function, for numba.
        text: its module.
        arguments: types of its parameters.
        symbol: of the kernel that will call it.
        processor: what it is lowered for.
        fast_math: liberties that the code generator may take.
    """
    flags = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model, flags.nrt, flags.boundscheck = "numpy", False, False
    try:
        context = _context(processor)
        inner = _straight(context, flags, text, arguments, f"{symbol}.kernel")
    except Unusual:
        context = _context(processor, of_all=True)
        inner = _by_numba(context, flags, source(), arguments)
    return context, inlined(inner, fast_math)


def inlined(function: ir.Function, fast_math: frozenset[str]) -> ir.Function:
    """A function that takes these liberties and is inlined where it is called."""
    if fast_math:
        rewrite_module(function.module, cpu.FastMathOptions(set(fast_math)))
    function.linkage = "internal"
    function.attributes.discard("noinline")
    function.attributes.add("alwaysinline")
    return function


def _straight(
    context: Context, flags: Any, text: str, arguments: tuple[Any, ...], name: str
) -> ir.Function:
    """The function by our own walk."""
    context.refresh()
    library = context.codegen().create_library(name)
    module = library.create_ir_module(name)
    target = _make_subtarget(context, flags)
    with target.push_code_library(library):
        return straight(target, module, name, text, arguments, False, AsNumba)


def _by_numba(context: Context, flags: Any, function: Any, arguments: Any) -> ir.Function:
    """The function by numba's front end."""
    context.typing_context.refresh()
    context.refresh()
    result = compiler.compile_extra(
        context.typing_context,
        context,
        function,
        arguments,
        types.void,
        flags,
        {},
        pipeline_class=Compiler,
    )
    inner: ir.Function = result.library.get_function(result.fndesc.llvm_func_name)
    assert len(result.library.modules) == 1, "generated code calls no other function of Python"
    return inner
