"""The meeting with numba's compiler: one function in, one optimised LLVM module and its object code out.

numba's `njit` would also build a wrapper for Python and compile the module in its own engine; a kernel needs
neither, so the steps are taken one by one. The entry point has the C signature
`void entry(int64 first, int64 last, int64 *arguments)` and unpacks the argument block.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import compiler, cpu, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from cubepy.backends.llvm.ops import Ptr
from cubepy.backends.llvm.passes import lean, remembered, uncollected
from cubepy.backends.llvm.printing import Parameter

SCALARS = {
    "bool_": types.boolean,
    "i8": types.int8,
    "i16": types.int16,
    "i32": types.int32,
    "i64": types.int64,
    "u8": types.uint8,
    "u16": types.uint16,
    "u32": types.uint32,
    "u64": types.uint64,
    "f32": types.float32,
    "f64": types.float64,
}
_i64 = ir.IntType(64)


def _type_of(p: Parameter) -> Any:
    return Ptr(p.dtype) if p.kind == "ptr" else SCALARS[p.kind]


class Compiler(compiler.Compiler):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        return [lean(p) for p in super().define_pipelines()]


@global_compiler_lock
@uncollected()
@remembered()
def lower(
    fn: Any,
    parameters: tuple[Parameter, ...],
    symbol: str,
    fast_math: frozenset[str],
    noalias: bool,
) -> tuple[bytes, str]:
    """Compile `fn`; gives object code and the text of the optimised module."""
    typing_context, target = cpu_target.typing_context, cpu_target.target_context
    typing_context.refresh()
    target.refresh()
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
    library = target.codegen().create_library(symbol)
    arguments = tuple(_type_of(p) for p in parameters)
    result = compiler.compile_extra(
        typing_context,
        target,
        fn,
        arguments,
        types.void,
        flags,
        {},
        library=library,
        pipeline_class=Compiler,
    )
    _add_entry(target, library, result.fndesc, arguments, parameters, symbol)
    for linked in library._linking_libraries:
        library._final_module.link_in(linked._get_module_for_linking(), preserve=True)
    module = library._final_module
    for f in module.functions:
        if not f.is_declaration and f.name != symbol:
            f.linkage = "internal"
    library._optimize_final_module()
    module = library._final_module
    module.verify()
    text = str(module)
    return bytes(target.codegen()._tm.emit_object(module)), text


def _add_entry(
    target: Any,
    library: Any,
    fndesc: Any,
    arguments: tuple[Any, ...],
    parameters: tuple[Parameter, ...],
    symbol: str,
) -> None:
    """Add the C entry point that reads the argument block and calls the kernel."""
    module = library.create_ir_module(f"{symbol}.entry")
    kernel = ir.Function(
        module, target.call_conv.get_function_type(types.void, arguments), fndesc.llvm_func_name
    )
    entry = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [_i64, _i64, _i64.as_pointer()]), symbol
    )
    entry.attributes.add("nounwind")
    entry.attributes.alignstack = (
        64  # else lines on the stack may lie across two lines of the cache
    )
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
    library.add_ir_module(module)


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
