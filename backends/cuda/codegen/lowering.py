"""The meeting with numba-cuda's compiler: one function in, NVVM IR out, then PTX, LTO-IR and a
cubin.

No GPU and no driver is needed. The entry point takes one 64-bit word for every parameter of the
function (a tensor map is 128 bytes), so that the host lays an argument block out without knowing
their types.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.cpu import FastMathOptions
from numba.core.fastmathpass import rewrite_module

from cubepy.backends.cuda.codegen.ready import numpy_for_numba_cuda
from cubepy.backends.gpu.words import number
from cubepy.backends.llvm.emitted import Parameter
from cubepy.backends.llvm.ops import Ptr
from cubepy.backends.llvm.ops.types import SCALARS
from cubepy.backends.llvm.passes import lean, remembered, uncollected

_i32, _i64 = ir.IntType(32), ir.IntType(64)
MAP_BYTES = 128
ALIGNED = 16

numpy_for_numba_cuda()


@dataclass(frozen=True)
class Bounds:
    """What the code generator may assume of a launch: units of a cube, cubes of a core at least,
    aligned arrays.
    """

    units: int
    cubes_of_a_core: int = 0
    aligned: bool = False


def _type_of(p: Parameter) -> Any:
    if p.kind == "map":
        return Ptr("i8")
    return Ptr(p.dtype) if p.kind == "ptr" else SCALARS[p.kind]


@uncollected()
def lower(
    fn: Any,
    parameters: tuple[Parameter, ...],
    symbol: str,
    cc: tuple[int, int, str],
    bounds: Bounds,
    fast_math: frozenset[str],
    noalias: bool,
    read_only: frozenset[str],
) -> list[str]:
    """NVVM IR of `fn` behind an entry point `symbol`; one text for each module."""
    from numba.cuda.core.compiler_lock import global_compiler_lock
    from numba.cuda.cudadrv import nvvm
    from numba.cuda.descriptor import cuda_target

    arguments = tuple(_type_of(p) for p in parameters)
    with global_compiler_lock, remembered():
        result = _compile(fn, arguments, cc)
        library = result.library
        name = result.fndesc.llvm_func_name
        if (
            fast_math
        ):  # numba-cuda knows all liberties or none; these are the ones that were asked for
            for module in library.modules:
                rewrite_module(module, FastMathOptions(set(fast_math)))
        inner = library.get_function(name)
        inner.linkage = "internal"
        inner.attributes.discard("noinline")
        inner.attributes.add("alwaysinline")
        entry = _add_entry(
            cuda_target.target_context,
            result.fndesc.call_conv,
            inner,
            arguments,
            parameters,
            symbol,
            noalias,
            read_only,
            bounds.aligned,
        )
        nvvm.set_cuda_kernel(entry)
        limits = (
            (bounds.units, bounds.cubes_of_a_core) if bounds.cubes_of_a_core else (bounds.units,)
        )
        nvvm.set_launch_bounds(entry, limits)
        # LLVM 7 knows no type after byval.
        return [str(m).replace(f"byval([{MAP_BYTES} x i8])", "byval") for m in library.modules]


def _compile(fn: Any, arguments: tuple[Any, ...], cc: tuple[int, int, str]) -> Any:
    """What numba-cuda's `compile_cuda` does, with fewer passes."""
    from numba.cuda import compiler
    from numba.cuda.descriptor import cuda_target

    class Compiler(compiler.CUDACompiler):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            return [
                lean(p, {compiler.CUDANativeLowering: _quick_lowering()})
                for p in super().define_pipelines()
            ]

    flags = compiler.CUDAFlags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.inline = "never"
    flags.error_model = "numpy"
    flags.nvvm_options = {"opt": 3}
    flags.compute_capability = cc
    typing, target = cuda_target.typing_context, cuda_target.target_context
    with compiler.utils.numba_target_override():
        result = compiler.compile_extra(
            typing,
            target,
            fn,
            arguments,
            types.void,
            flags,
            {},
            pipeline_class=Compiler,
            call_conv=compiler.CUDACallConv(target),
            abi_info={},
        )
    result.library.finalize()
    return result


@cache
def _quick_lowering() -> type:
    """numba-cuda's pass that makes LLVM of a function, but for its search for variables that are
    set once, which goes through a block again for each of its variables: half a minute of a kernel
    of 12000 statements.
    """
    from numba.cuda.compiler import CUDANativeLowering
    from numba.cuda.core import ir as numba_ir
    from numba.cuda.core.analysis import compute_use_defs, must_use_alloca
    from numba.cuda.core.compiler_machinery import register_pass
    from numba.cuda.lowering import CUDALower

    class Lower(CUDALower):  # type: ignore[misc]
        def _find_singly_assigned_variable(self) -> None:
            blocks = self.func_ir.blocks
            times = Counter(
                s.target.name for b in blocks.values() for s in b.find_insts(numba_ir.assign_types)
            )
            elsewhere = must_use_alloca(blocks).union(*compute_use_defs(blocks).usemap.values())
            self._singly_assigned_vars = {
                name for name, n in times.items() if n == 1 and name not in elsewhere
            }
            self._blk_local_varmap: dict[str, Any] = {}

    @register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[untyped-decorator]
    class QuickLowering(CUDANativeLowering):  # type: ignore[misc]
        lowering_class = Lower

    return QuickLowering


def _add_entry(
    target: Any,
    convention: Any,
    inner: Any,
    arguments: tuple[Any, ...],
    parameters: tuple[Parameter, ...],
    symbol: str,
    noalias: bool,
    read_only: frozenset[str],
    aligned: bool,
) -> Any:
    """Add the kernel that unpacks its words and calls the function."""
    module = inner.module
    kinds = []
    for t, p in zip(arguments, parameters, strict=True):
        if p.kind == "map":
            kinds.append(ir.ArrayType(ir.IntType(8), MAP_BYTES).as_pointer())
        else:
            kinds.append(target.get_value_type(t) if p.kind == "ptr" else _i64)
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), symbol)
    constants = []
    for at, (p, a) in enumerate(zip(parameters, entry.args, strict=True)):
        a.name = f"{p.name}.word"
        if p.kind == "map":
            a.add_attribute("byval")
            a.attributes.align = 64
            constants.append(_i32(at + 1))
        elif p.kind == "ptr":
            if aligned and p.name != "err":
                a.attributes.align = ALIGNED
            if noalias:
                a.add_attribute("noalias")
                if p.name in read_only:
                    set.add(a.attributes, "readonly")
    if constants:
        note = module.add_metadata(
            (entry, ir.MetaDataString(module, "grid_constant"), module.add_metadata(constants))
        )
        from numba.core import cgutils

        cgutils.get_or_insert_named_metadata(module, "nvvm.annotations").add(note)
    builder = ir.IRBuilder(entry.append_basic_block())
    values = [
        _unpack(builder, a, target.get_value_type(t), p)
        for a, t, p in zip(entry.args, arguments, parameters, strict=True)
    ]
    convention.call_function(builder, inner, types.void, arguments, values)
    builder.ret_void()
    return entry


def _unpack(builder: Any, word: Any, value_type: Any, p: Parameter) -> Any:
    """A word as a value."""
    if p.kind == "ptr":
        return word
    if p.kind == "map":
        return builder.bitcast(word, value_type)
    return number(builder, word, value_type, p.kind)


def options(cc: tuple[int, int, str], fast_math: frozenset[str]) -> dict[str, Any]:
    """Options of libNVVM."""
    out: dict[str, Any] = {"opt": 3, "arch": f"compute_{cc[0]}{cc[1]}{cc[2]}"}
    if not {"contract", "fast"} & fast_math:
        out["fma"] = False
    return out


def ptx(
    modules: list[str], cc: tuple[int, int, str], fast_math: frozenset[str] = frozenset()
) -> str:
    """The PTX of NVVM IR."""
    from numba.cuda.cudadrv import nvvm

    data: bytes = nvvm.compile_ir(list(modules), **options(cc, fast_math))
    return data.decode().strip("\x00").strip()


def cubin(
    modules: list[str], cc: tuple[int, int, str], fast_math: frozenset[str] = frozenset()
) -> bytes:
    """Machine code of NVVM IR, by way of LTO-IR (only there ptxas sees the whole program and keeps
    setmaxnreg).
    """
    from cuda.bindings import nvjitlink
    from numba.cuda.cudadrv import nvvm

    ltoir = nvvm.compile_ir(list(modules), **options(cc, fast_math), **{"gen-lto": None})
    flags = [
        f"-arch=sm_{cc[0]}{cc[1]}{cc[2]}",
        "-lto",
        "-O3",
        f"-fma={int(bool({'contract', 'fast'} & fast_math))}",
    ]
    linker = nvjitlink.create(len(flags), flags)
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.LTOIR, ltoir, len(ltoir), "kernel")
        nvjitlink.complete(linker)
        code = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, code)
    finally:
        nvjitlink.destroy(linker)
    return bytes(code)
