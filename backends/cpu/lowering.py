"""The meeting with numba's compiler: one function in, one optimised LLVM module and its object code
out.

numba's `njit` would also build a wrapper for Python and compile the module in its own engine; a
kernel needs neither, so the steps are taken one by one. The entry point has the C signature
`void entry(int64 first, int64 last, int64 *arguments)` and unpacks the argument block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, compiler, cpu, types
from numba.core.compiler import _make_subtarget
from numba.core.compiler_lock import global_compiler_lock
from numba.core.fastmathpass import rewrite_module
from numba.core.registry import cpu_target

from cubepy.backends.llvm.emitted import Parameter
from cubepy.backends.llvm.ops import Ptr
from cubepy.backends.llvm.ops.signatures import Signatures, code_of_operators
from cubepy.backends.llvm.ops.types import SCALARS
from cubepy.backends.llvm.optimise import alone, on_lines, optimised
from cubepy.backends.llvm.passes import LeanPipelines, last_text_of, remembered
from cubepy.backends.llvm.straight import Unusual, straight
from cubepy.runtime.deep_stack import in_one_piece, uncollected

_i64 = ir.IntType(64)


class Compiler(LeanPipelines, compiler.Compiler):  # type: ignore[misc]
    """numba's passes that generated code has a use for."""


@global_compiler_lock
@uncollected()
@remembered()
@in_one_piece
def lower(
    source: Callable[[], Any],
    text: str,
    parameters: tuple[Parameter, ...],
    symbol: str,
    fast_math: frozenset[str],
    noalias: bool,
) -> tuple[bytes, Any]:
    """Compile the function of a generated module; gives object code and the optimised LLVM module.

    Args:
        source: gives the function, for numba.
        text: the module.
        parameters: of the function.
        symbol: the entry point's name.
        fast_math: liberties that LLVM may take.
        noalias: whether no two arrays share memory.
    """
    flags = compiler.Flags()
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.nrt = False
    flags.boundscheck = False
    flags.noalias = noalias
    if fast_math:
        flags.fastmath = cpu.FastMathOptions(set(fast_math))
    arguments = tuple(Ptr(p.dtype) if p.kind == "ptr" else SCALARS[p.kind] for p in parameters)
    try:
        target = _small()
        target.refresh()  # ops may have been defined meanwhile
        library = target.codegen().create_library(symbol)
        written = _straight(
            library, _make_subtarget(target, flags), text, arguments, symbol, noalias
        )
        linked = []
    except Unusual:
        target = cpu_target.target_context
        cpu_target.typing_context.refresh()
        target.refresh()
        library = target.codegen().create_library(symbol)
        name = _by_numba(library, flags, source(), arguments)
        written = library.create_ir_module(f"{symbol}.entry"), name
        linked = [library._final_module]
    module_text = _with_entry(target, *written, arguments, parameters, symbol)
    linked += [other._get_module_for_linking() for other in library._linking_libraries]
    machine = target.codegen()._tm
    module = optimised(module_text, linked, symbol, machine)
    return bytes(machine.emit_object(module)), module


class _Target(cpu.CPUContext):  # type: ignore[misc]
    """What lowers them; to load all of numba takes as long as a small kernel to compile."""

    def load_additional_registries(self) -> None:
        """Those of operators and ranges alone."""
        code_of_operators()


@cache
def _small() -> Any:
    """What generated code is typed and lowered with."""
    return _Target(Signatures())


def _straight(
    library: Any, target: Any, text: str, arguments: Any, symbol: str, noalias: bool
) -> tuple[ir.Module, str]:
    """The kernel by our own walk; gives its module and the function's name."""
    name = f"{symbol}.kernel"
    module = library.create_ir_module(name)
    with target.push_code_library(library):
        alone(straight(target, module, name, text, arguments, noalias))
    if target.fastmath:
        rewrite_module(module, target.fastmath)
    return module, name


def _by_numba(library: Any, flags: Any, function: Any, arguments: Any) -> str:
    """Add the kernel to a library by numba's front end; gives the function's name."""
    result = compiler.compile_extra(
        cpu_target.typing_context,
        cpu_target.target_context,
        function,
        arguments,
        types.void,
        flags,
        {},
        library=library,
        pipeline_class=Compiler,
    )
    name: str = result.fndesc.llvm_func_name
    return name


def _with_entry(
    target: Any,
    module: ir.Module,
    function: str,
    arguments: tuple[Any, ...],
    parameters: tuple[Parameter, ...],
    symbol: str,
) -> str:
    """A module's text with the C entry point that reads the argument block and calls the kernel."""
    kernel = module.globals.get(function) or ir.Function(
        module, target.call_conv.get_function_type(types.void, arguments), function
    )
    entry = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [_i64, _i64, _i64.as_pointer()]), symbol
    )
    on_lines(entry).attributes.add("nounwind")
    builder = ir.IRBuilder(entry.append_basic_block())
    first, last, block = entry.args
    values = []
    for slot, (t, p) in enumerate(zip(arguments, parameters, strict=True)):
        if p.name in ("first", "last"):
            values.append(first if p.name == "first" else last)
            continue
        word = builder.load(builder.gep(block, [ir.Constant(_i64, slot - 2)]))
        values.append(_unpack(builder, word, target.get_value_type(t), p))
    target.call_conv.call_function(builder, kernel, types.void, arguments, values)
    builder.ret_void()
    return str(cgutils.normalize_ir_text(last_text_of(module)))


def _unpack(builder: Any, word: Any, value_type: Any, p: Parameter) -> Any:
    """A 64-bit word of the argument block as a value; floats travel as doubles."""
    if p.kind == "ptr":
        return builder.inttoptr(word, value_type)
    if p.kind == "f64":
        return builder.bitcast(word, value_type)
    if p.kind == "f32":
        return builder.fptrunc(builder.bitcast(word, ir.DoubleType()), value_type)
    if p.kind == "bool_":
        return builder.icmp_unsigned("!=", word, ir.Constant(_i64, 0))
    return word if value_type == _i64 else builder.trunc(word, value_type)


def disassemble(code: bytes) -> str:
    """The assembly of optimised LLVM text."""
    import llvmlite.binding as ll

    module = ll.parse_assembly(code.decode())
    return str(cpu_target.target_context.codegen()._tm.emit_assembly(module))
