"""NVIDIA's libNVVM: what it has to be told of a module, and what it makes of its text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from cuda import pathfinder
from cuda.bindings import nvvm
from llvmlite import ir

TRIPLE = "nvptx64-nvidia-cuda"
LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-"
    "v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)
"""How data lies in memory: the one layout that NVVM IR has."""
_I8, _I32 = ir.IntType(8), ir.IntType(32)


class Refused(Exception):
    """What libNVVM does not compile, with what it says of it."""


def mark_kernel(entry: ir.Function, **limits: int) -> None:
    """Say that a function of a module is its kernel, in which version of NVVM IR the module is,
    and limits of launches by NVVM's names, such as `maxntidx` units of a cube.
    """
    module = entry.module
    for name, value in {"kernel": 1, **limits}.items():
        annotate(entry, name, _I32(value))
    pointer = _I8.as_pointer()
    used = ir.GlobalVariable(module, ir.ArrayType(pointer, 1), "llvm.used")
    used.linkage, used.section = "appending", "llvm.metadata"
    used.initializer = ir.Constant(used.value_type, [entry.bitcast(pointer)])
    module.add_named_metadata("nvvmir.version", [_I32(v) for v in nvvm.ir_version()])


def annotate(entry: ir.Function, name: str, value: Any) -> None:
    """Say something of a function, by NVVM's name for it."""
    module = entry.module
    note = module.add_metadata([entry, ir.MetaDataString(module, name), value])
    module.add_named_metadata("nvvm.annotations", note)


@cache
def libdevice() -> bytes:
    """NVIDIA's math library, in LLVM's bitcode."""
    try:
        path = Path(pathfinder.find_bitcode_lib("device"))
    except pathfinder.BitcodeLibNotFoundError:  # a toolkit that no variable names
        library = Path(pathfinder.load_nvidia_dynamic_lib("nvvm").abs_path).resolve()
        path = library.parents[1] / "libdevice" / "libdevice.10.bc"
    return path.read_bytes()


def compiled(text: str, options: list[str]) -> bytes:
    """What libNVVM makes of NVVM IR: PTX or, with "-gen-lto", LTO-IR.

    Raises:
        Refused: the text is not NVVM IR, or libNVVM knows no such option.
    """
    module, functions = text.encode(), libdevice()
    program = nvvm.create_program()
    try:
        nvvm.add_module_to_program(program, module, len(module), "kernel")
        nvvm.verify_program(program, len(options), options)
        nvvm.lazy_add_module_to_program(program, functions, len(functions), "libdevice")
        nvvm.compile_program(program, len(options), options)
        out = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, out)
    except nvvm.nvvmError as error:
        raise Refused(f"{error} {_log(program)}".strip()) from error
    finally:
        nvvm.destroy_program(program)
    return bytes(out)


def _log(program: int) -> str:
    """What libNVVM says of a program."""
    out = bytearray(nvvm.get_program_log_size(program))
    nvvm.get_program_log(program, out)
    return out.decode(errors="replace").strip("\x00\n ")
