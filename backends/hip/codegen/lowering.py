"""One function in, LLVM's text of a kernel out.

The entry point takes one 64-bit word for every parameter, so the segment that the hardware reads
arguments from is the block of words that launches lay out for any GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from cubepy.backends.gpu.codegen import target
from cubepy.backends.gpu.names import RECORDS
from cubepy.backends.gpu.words import number
from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.backends.hip.codegen.machine import processor
from cubepy.backends.llvm.emitted import Parameter
from cubepy.backends.llvm.ops import Ptr
from cubepy.backends.llvm.ops.types import SCALARS
from cubepy.backends.llvm.passes import last_text_of
from cubepy.runtime.deep_stack import uncollected
from cubepy.runtime.inspection import OWN

_i32, _i64 = ir.IntType(32), ir.IntType(64)
ALIGNED = 16
GLOBAL = 1
"""LLVM's address space of the memory of arrays."""
NOTE = 90001
"""Number of the empty metadata that marks of atomics share; numba makes none so high."""


@uncollected()
def lower(
    source: Callable[[], Any],
    text: str,
    parameters: tuple[Parameter, ...],
    symbol: str,
    architecture: Architecture,
    units: tuple[int, int, int],
    resident: int,
    fast_math: frozenset[str],
    noalias: bool,
    read_only: frozenset[str],
    aligned: bool,
    front_end: str,
) -> str:
    """LLVM's text of a generated function behind a kernel `symbol`; see `gpu.job.GpuJob`, and for
    `front_end` the module of that name.
    """
    arguments = tuple(Ptr(p.dtype) if p.kind == "ptr" else SCALARS[p.kind] for p in parameters)
    if front_end == OWN:
        for_processor = processor(architecture)
        context, inner = target.lowered(source, text, arguments, symbol, for_processor, fast_math)
    else:
        from cubepy.backends.hip.codegen import numba_hip

        context, inner = numba_hip.lowered(source, arguments, architecture, fast_math)
    module = inner.module
    entry = _entry(context, inner, arguments, parameters, symbol, aligned)
    _promise(entry, architecture, units, resident)
    for p, a in zip(parameters, entry.args, strict=True):
        if p.kind == "ptr" and noalias:
            a.add_attribute("noalias")
            if p.name in read_only:
                set.add(a.attributes, "readonly")
    return device_text(last_text_of(module))


def _entry(
    context: Any,
    inner: ir.Function,
    arguments: tuple[Any, ...],
    parameters: tuple[Parameter, ...],
    symbol: str,
    aligned: bool,
) -> ir.Function:
    """Add the kernel that unpacks its words and calls the function."""
    kinds = [
        context.get_value_type(t).pointee.as_pointer(GLOBAL) if p.kind == "ptr" else _i64
        for t, p in zip(arguments, parameters, strict=True)
    ]
    entry = ir.Function(inner.module, ir.FunctionType(ir.VoidType(), kinds), symbol)
    entry.calling_convention = "amdgpu_kernel"
    builder = ir.IRBuilder(entry.append_basic_block())
    values = []
    for a, t, p in zip(entry.args, arguments, parameters, strict=True):
        a.name = f"{p.name}.word"
        values.append(_unpack(builder, a, context.get_value_type(t), p))
        if (
            p.kind == "ptr" and aligned and p.name not in RECORDS
        ):  # an attribute would end at the cast
            bits = builder.and_(builder.ptrtoint(values[-1], _i64), _i64(ALIGNED - 1))
            builder.assume(builder.icmp_unsigned("==", bits, _i64(0)))
    context.call_conv.call_function(builder, inner, types.void, arguments, values)
    builder.ret_void()
    return entry


def _promise(
    entry: ir.Function, architecture: Architecture, units: tuple[int, int, int], resident: int
) -> None:
    """Tell the code generator its processor, the units of a cube, which all cubes have, and how
    many cubes a core should have at once.
    """
    n = math.prod(units)
    promises = {
        "amdgpu-flat-work-group-size": f"{n},{n}",
        "target-cpu": str(architecture),
        "target-features": architecture.features,
        "uniform-work-group-size": "true",
    }
    if resident > 1:
        promises["amdgpu-waves-per-eu"] = str(architecture.planes_per_simd(n, resident))
    for name, value in promises.items():  # llvmlite knows only names without values
        set.add(entry.attributes, f'"{name}"="{value}"')
    set.add(entry.attributes, "nounwind")
    sizes = entry.module.add_metadata([_i32(u) for u in units])
    entry.set_metadata("reqd_work_group_size", sizes)


def _unpack(builder: Any, word: Any, value_type: Any, p: Parameter) -> Any:
    """A word as a value."""
    if p.kind == "ptr":
        return builder.addrspacecast(word, value_type)
    return number(builder, word, value_type, p.kind)


_ALLOCA = re.compile(r'^(\s*)%("[^"]*"|\S+) = alloca (.*)$')
_UPDATE = re.compile(r'^(\s*%(?:"[^"]*"|\S+) = (?:atomicrmw|cmpxchg) .*?) (monotonic\b.*)$')
_ORDINARY = ("no.fine.grained.memory", "no.remote.memory", "ignore.denormal.mode")


def device_text(text: str) -> str:
    """A module's text with what llvmlite's builder cannot say.

    Memory of a unit lies in address space 5, aligned as it says. Updates are seen by the whole GPU, and go to its own
    memory, where it adds floats in one instruction.
    """
    out, marks = [], ", ".join(f"!amdgpu.{name} !{NOTE}" for name in _ORDINARY)
    for line in text.splitlines():
        if found := _ALLOCA.match(line):
            name = found[2].strip('"')
            own = f'%"{name}.private"'
            out.append(f"{found[1]}{own} = alloca {found[3]}, addrspace(5)")
            out.append(f'{found[1]}%"{name}" = addrspacecast ptr addrspace(5) {own} to ptr')
            if aligned := re.search(r"align (\d+)", found[3]):  # the cast hides it
                known = f'"align"(ptr %"{name}", i64 {aligned[1]})'
                out.append(f"{found[1]}call void @llvm.assume(i1 true) [{known}]")
        elif found := _UPDATE.match(line):
            updates = " = atomicrmw " in found[1]
            out.append(f'{found[1]} syncscope("agent") {found[2]}{", " + marks if updates else ""}')
        else:
            out.append(line)
    if '@"llvm.assume"(' not in text:
        out.append("declare void @llvm.assume(i1)")
    return "\n".join([*out, f"!{NOTE} = !{{}}"])
