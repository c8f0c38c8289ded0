"""LLVM's code generator for AMD GPUs, as llvmlite brings it.

It ends the process when it meets what it cannot select, so what reaches it is looked at first:
calls of intrinsics that are known to have instructions, and of nothing else.
"""

from __future__ import annotations

import itertools
import re
from functools import cache
from typing import Any

import llvmlite.binding as ll

from cubepy.backends.gpu.codegen.target import Processor
from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.errors import BackendCompileError

TRIPLE = "amdgcn-amd-amdhsa"
LEVEL = 3
CODE_OBJECT_VERSION = 500
"""Version 5 of AMD's code objects, in LLVM's hundreds."""

SELECTABLE = frozenset(
    """
    amdgcn.ballot amdgcn.ds.bpermute amdgcn.ds.swizzle amdgcn.exp2 amdgcn.implicitarg.ptr
    amdgcn.log amdgcn.mbcnt.hi amdgcn.mbcnt.lo amdgcn.permlanex16 amdgcn.readfirstlane
    amdgcn.readlane amdgcn.s.barrier amdgcn.sdot4 amdgcn.sudot4 amdgcn.update.dpp
    amdgcn.wave.barrier amdgcn.workgroup.id.x amdgcn.workgroup.id.y amdgcn.workgroup.id.z
    amdgcn.workitem.id.x amdgcn.workitem.id.y amdgcn.workitem.id.z
    abs assume bitreverse bswap canonicalize ceil copysign ctlz ctpop cttz fabs
    floor fma fmuladd fptosi.sat fptoui.sat fshl fshr is.fpclass ldexp lifetime.end lifetime.start
    maxnum memcpy memmove memset minnum nearbyint rint roundeven sadd.sat sadd.with.overflow scmp
    smax smin
    smul.with.overflow sqrt ssub.sat ssub.with.overflow trunc uadd.sat uadd.with.overflow ucmp umax
    umin umul.with.overflow usub.sat usub.with.overflow experimental.noalias.scope.decl
    vector.reduce.add vector.reduce.and vector.reduce.fmax vector.reduce.fmin vector.reduce.mul
    vector.reduce.or vector.reduce.smax vector.reduce.smin vector.reduce.umax vector.reduce.umin
    vector.reduce.xor
    """.split()
)
"""Intrinsics without their types that have instructions on every processor, for every type that
ops use them with.
"""


@cache
def _initialised() -> None:
    ll.initialize_all_targets()
    ll.initialize_all_asmprinters()


@cache
def machine(architecture: Architecture) -> Any:
    """LLVM's target machine of a processor."""
    _initialised()
    target = ll.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu=str(architecture),
        features=architecture.features,
        opt=LEVEL,
        reloc="pic",
        codemodel="default",
    )


@cache
def processor(architecture: Architecture) -> Processor:
    """What numba lowers functions for."""
    return Processor(architecture, TRIPLE, machine(architecture).target_data)


def optimised(text: str, architecture: Architecture) -> Any:
    """A module of LLVM's text, optimised for a processor.

    Raises:
        BackendCompileError: it calls what has no instruction there.
    """
    tm = machine(architecture)
    body = re.sub(r"^(target \w+|source_filename) = .*\n", "", text, flags=re.M)
    head = f'target triple = "{TRIPLE}"\ntarget datalayout = "{tm.target_data}"\n'
    version = f'!{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT_VERSION}}}'
    flags = f"\n!llvm.module.flags = !{{!90000}}\n!90000 = {version}\n"
    module = ll.parse_assembly(head + body + flags)
    module.verify()
    options = ll.create_pipeline_tuning_options(LEVEL)
    passes = ll.create_pass_builder(tm, options)
    passes.getModulePassManager().run(module, passes)
    refuse_unselectable(module, architecture)
    text = str(module)
    kept = keep_negative_zeros(text)
    return module if kept == text else ll.parse_assembly(kept)


_VALUE = r'%(?:"[^"]*"|[\w.$]+)'
_F32, _F16 = r"(float|<\d+ x float>)", r"(?:half|<\d+ x half>)"
_PRODUCT = re.compile(
    rf"^\s*({_VALUE}) = (?:fmul|extractelement|insertelement|shufflevector) ", re.M
)
_TO_HALF = re.compile(
    rf"^(\s*)({_VALUE} = fptrunc (?:[a-z]+ )*){_F32} ({_VALUE})( to {_F16})", re.M
)


def keep_negative_zeros(text: str) -> str:
    """A module's text in which no product is rounded to f16 at once.

    LLVM (22) would take `v_fma_mixlo_f16 x, y, 0` for it, by which -0 becomes 0. What stands
    between takes no instruction.
    """
    products = set(_PRODUCT.findall(text))
    declared: set[str] = set()
    serial = itertools.count()

    def with_call(found: re.Match[str]) -> str:
        indent, start, kind, value, end = found.groups()
        if value not in products:
            return found[0]
        lanes = re.match(r"<(\d+)", kind)
        name = f"@llvm.canonicalize.{f'v{lanes[1]}' if lanes else ''}f32"
        if f"{name}(" not in text:
            declared.add(f"declare {kind} {name}({kind})")
        kept = f'%"kept.{next(serial)}"'
        call = f"{indent}{kept} = call {kind} {name}({kind} {value})\n"
        return f"{call}{indent}{start.strip()} {kind} {kept}{end}"

    out = _TO_HALF.sub(with_call, text)
    return "\n".join([out, *sorted(declared)])


def refuse_unselectable(module: Any, architecture: Architecture) -> None:
    """Raise where LLVM would end the process.

    Raises:
        BackendCompileError: a call of what has no instruction on the processor.
    """
    for function in module.functions:
        if not function.is_declaration:
            if "asm " in str(function) and re.search(r"\bcall\b[^\n]*\basm\b", str(function)):
                raise _unselectable("inline assembly", architecture)
            continue
        if _plain(function.name) not in SELECTABLE:
            raise _unselectable(f"a call of {function.name}", architecture)


def _unselectable(what: str, architecture: Architecture) -> BackendCompileError:
    return BackendCompileError(
        f"the kernel needs {what}, for which {architecture} has no instruction",
        hint="run it on the CPU, or report the kernel: this op has no code for AMD GPUs yet",
    )


_TYPE = r"(?:nx)?(?:v\d+)?(?:[if]\d+|bf16|p\d+)"


def _plain(name: str) -> str:
    """An intrinsic's name without types: "umin" of llvm.umin.v4i32."""
    return re.sub(rf"(?:\.{_TYPE})+$", "", name.removeprefix("llvm."))


def assembly(module: Any, architecture: Architecture) -> str:
    """The machine code of a module as text; the module stays as it is."""
    return str(machine(architecture).emit_assembly(module.clone()))


def relocatable(module: Any, architecture: Architecture) -> bytes:
    """The machine code of a module as an ELF object that a linker would take."""
    return bytes(machine(architecture).emit_object(module.clone()))
