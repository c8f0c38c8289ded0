"""One function in, NVVM IR out, then PTX, LTO-IR and a cubin.

No GPU and no driver is needed. The entry point takes one 64-bit word for every parameter of the
function (a tensor map is 128 bytes), so that the host lays an argument block out without knowing
their types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir
from numba.core import types

from cubepy.backends.cuda.codegen import nvvm
from cubepy.backends.gpu.codegen.target import Processor, lowered
from cubepy.backends.gpu.words import number
from cubepy.backends.llvm.emitted import Parameter
from cubepy.backends.llvm.ops import Ptr
from cubepy.backends.llvm.ops.types import SCALARS
from cubepy.backends.llvm.passes import last_text_of
from cubepy.runtime.deep_stack import uncollected

_i32, _i64 = ir.IntType(32), ir.IntType(64)
MAP_BYTES = 128
ALIGNED = 16


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
    source: Callable[[], Any],
    text: str,
    parameters: tuple[Parameter, ...],
    symbol: str,
    bounds: Bounds,
    fast_math: frozenset[str],
    noalias: bool,
    read_only: frozenset[str],
) -> str:
    """NVVM IR of a generated function behind an entry point `symbol`; see `gpu.job.GpuJob`."""
    arguments = tuple(_type_of(p) for p in parameters)
    context, inner = lowered(source, text, arguments, symbol, processor(), fast_math)
    entry = _add_entry(
        context, inner, arguments, parameters, symbol, noalias, read_only, bounds.aligned
    )
    limits = {"maxntidx": bounds.units, "minctasm": bounds.cubes_of_a_core}
    nvvm.mark_kernel(entry, **{name: value for name, value in limits.items() if value})
    # LLVM 7 knows no type after byval.
    return last_text_of(inner.module).replace(f"byval([{MAP_BYTES} x i8])", "byval")


@cache
def processor() -> Processor:
    """What functions are lowered for: the dialect is that of every NVIDIA GPU."""
    return Processor("nvvm", nvvm.TRIPLE, ll.create_target_data(nvvm.LAYOUT))


def _add_entry(
    context: Any,
    inner: ir.Function,
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
            kinds.append(context.get_value_type(t) if p.kind == "ptr" else _i64)
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
        nvvm.annotate(entry, "grid_constant", module.add_metadata(constants))
    builder = ir.IRBuilder(entry.append_basic_block())
    values = [
        _unpack(builder, a, context.get_value_type(t), p)
        for a, t, p in zip(entry.args, arguments, parameters, strict=True)
    ]
    context.call_conv.call_function(builder, inner, types.void, arguments, values)
    builder.ret_void()
    return entry


def _unpack(builder: Any, word: Any, value_type: Any, p: Parameter) -> Any:
    """A word as a value."""
    if p.kind == "ptr":
        return word
    if p.kind == "map":
        return builder.bitcast(word, value_type)
    return number(builder, word, value_type, p.kind)


def options(cc: tuple[int, int, str], fast_math: frozenset[str]) -> list[str]:
    """Options of libNVVM."""
    out = ["-opt=3", f"-arch=compute_{cc[0]}{cc[1]}{cc[2]}"]
    return out if {"contract", "fast"} & fast_math else [*out, "-fma=0"]


def ptx(text: str, cc: tuple[int, int, str], fast_math: frozenset[str] = frozenset()) -> str:
    """The PTX of NVVM IR."""
    return nvvm.compiled(text, options(cc, fast_math)).decode().strip("\x00").strip()


def cubin(text: str, cc: tuple[int, int, str], fast_math: frozenset[str] = frozenset()) -> bytes:
    """Machine code of NVVM IR, by way of LTO-IR (only there ptxas sees the whole program and keeps
    setmaxnreg).
    """
    from cuda.bindings import nvjitlink

    ltoir = nvvm.compiled(text, [*options(cc, fast_math), "-gen-lto"])
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
