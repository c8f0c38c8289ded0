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

from cubepy.backends.gpu.codegen.emission import assembly_of, object_of, target_machine
from cubepy.backends.gpu.codegen.machine import by_child, optimised_for, unselectable, without_types
from cubepy.backends.gpu.codegen.target import Processor
from cubepy.backends.hip.codegen.architecture import Architecture
from cubepy.backends.hip.codegen.matrix import INTRINSICS
from cubepy.errors import BackendCompileError

TRIPLE = "amdgcn-amd-amdhsa"
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
    smax smin experimental.cttz.elts smul.with.overflow sqrt ssub.sat ssub.with.overflow trunc
    uadd.sat uadd.with.overflow ucmp umax umin umul.with.overflow usub.sat usub.with.overflow
    experimental.noalias.scope.decl
    vector.reduce.add vector.reduce.and vector.reduce.fmax vector.reduce.fmin vector.reduce.mul
    vector.reduce.or vector.reduce.smax vector.reduce.smin vector.reduce.umax vector.reduce.umin
    vector.reduce.xor
    """.split()
)
"""Intrinsics, without types, that have instructions on every processor for the types of ops."""


OLDEST, PROVEN = 20, 22
"""The LLVM that knows all of the processors; and that which selected all that the library compiles:
older ones work in a process that may end.
"""


def _target(architecture: Architecture) -> tuple[str, str, str]:
    return TRIPLE, str(architecture), architecture.features


@cache
def machine(architecture: Architecture) -> Any:
    """LLVM's target machine of a processor.

    Raises:
        BackendCompileError: LLVM is too old.
    """
    found = ll.llvm_version_info[0]
    if found < OLDEST:
        raise BackendCompileError(
            f"code for AMD GPUs needs LLVM {OLDEST} or newer, and numba here brings LLVM {found}",
            hint='pip install "numba>=0.62"',
        )
    return target_machine(*_target(architecture))


def emitted(kind: str, module: Any, architecture: Architecture) -> bytes:
    """The machine code of a module as "object" or "assembly".

    Raises:
        BackendCompileError: an LLVM that is not proven ended its process.
    """
    if ll.llvm_version_info[0] < PROVEN:
        return by_child(kind, module, *_target(architecture))
    if kind == "object":
        return object_of(module, machine(architecture))
    return assembly_of(module, machine(architecture)).encode()


@cache
def processor(architecture: Architecture) -> Processor:
    """What numba lowers functions for."""
    return Processor(architecture, TRIPLE, machine(architecture).target_data)


def optimised(text: str, architecture: Architecture) -> Any:
    """A module of LLVM's text, optimised for a processor.

    Raises:
        BackendCompileError: it calls what has no instruction there.
    """
    version = f'!{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT_VERSION}}}'
    flags = f"\n!llvm.module.flags = !{{!90000}}\n!90000 = {version}\n"
    module = optimised_for(machine(architecture), text, flags)
    matrix = tuple(f"llvm.amdgcn.{name}" for name, *_ in INTRINSICS[architecture.name].values())
    for what in unselectable(
        module, lambda name: without_types(name) in SELECTABLE or name.startswith(matrix)
    ):
        raise BackendCompileError(
            f"the kernel needs {what}, for which {architecture} has no instruction",
            hint="run it on the CPU, or report the kernel: this op has no code for AMD GPUs yet",
        )
    text = str(module)
    kept = signs_of_numbers(keep_negative_zeros(text))
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


_SIGN_OF_ONE = re.compile(
    rf"^(\s*)({_VALUE}) = .*call .*@llvm\.copysign\.v1(f\d+)"
    r"\(<1 x (\w+)> (.+), <1 x \w+> (.+?)\)(?: #\d+)?$",
    re.M,
)


def signs_of_numbers(text: str) -> str:
    """A module's text in which no sign is that of a vector of one.

    LLVM (22) ends the process where that vector was widened from narrower floats.
    """
    serial = itertools.count()
    declared: set[str] = set()

    def as_numbers(found: re.Match[str]) -> str:
        indent, result, suffix, kind, x, y = found.groups()
        at, name = f'%"sign.{next(serial)}', f"@llvm.copysign.{suffix}"
        if f"{name}(" not in text:
            declared.add(f"declare {kind} {name}({kind}, {kind})")
        lines = (
            f'{at}.x" = extractelement <1 x {kind}> {x}, i64 0',
            f'{at}.y" = extractelement <1 x {kind}> {y}, i64 0',
            f'{at}.z" = call {kind} {name}({kind} {at}.x", {kind} {at}.y")',
            f'{result} = insertelement <1 x {kind}> poison, {kind} {at}.z", i64 0',
        )
        return "\n".join(indent + line for line in lines)

    out = _SIGN_OF_ONE.sub(as_numbers, text)
    return "\n".join([out, *sorted(declared)])
