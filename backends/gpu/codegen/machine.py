"""LLVM's code generators, as llvmlite brings them: a machine, a module made fit for it, its code.

LLVM ends the process when it meets what it cannot select, so what reaches it is looked at first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as ll

LEVEL = 3


@cache
def _initialised() -> None:
    ll.initialize_all_targets()
    ll.initialize_all_asmprinters()


@cache
def target_machine(triple: str, processor: str, features: str) -> Any:
    """LLVM's target machine of a processor."""
    _initialised()
    return ll.Target.from_triple(triple).create_target_machine(
        cpu=processor, features=features, opt=LEVEL, reloc="pic", codemodel="default"
    )


def optimised_for(machine: Any, text: str, flags: str = "") -> Any:
    """A module of LLVM's text, with flags behind it, optimised for a machine."""
    body = re.sub(r"^(target \w+|source_filename) = .*\n", "", text, flags=re.M)
    head = f'target triple = "{machine.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = ll.parse_assembly(head + body + flags)
    module.verify()
    options = ll.create_pipeline_tuning_options(LEVEL)
    passes = ll.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module


def unselectable(module: Any, known: Callable[[str], bool]) -> Iterator[str]:
    """What a module has that LLVM might not select: inline assembly, and calls of functions that
    are not known.
    """
    for function in module.functions:
        if function.is_declaration:
            if not known(function.name):
                yield f"a call of {function.name}"
        elif "asm " in str(function) and re.search(r"\bcall\b[^\n]*\basm\b", str(function)):
            yield "inline assembly"


_TYPE = r"(?:nx)?(?:v\d+)?(?:[if]\d+|bf16|p\d+)"


def without_types(name: str) -> str:
    """An intrinsic's name without types: "umin" of llvm.umin.v4i32."""
    return re.sub(rf"(?:\.{_TYPE})+$", "", name.removeprefix("llvm."))


def assembly_of(module: Any, machine: Any) -> str:
    """The machine code of a module as text; the module stays as it is."""
    return str(machine.emit_assembly(module.clone()))


def object_of(module: Any, machine: Any) -> bytes:
    """The machine code of a module as an ELF object that a linker would take."""
    return bytes(machine.emit_object(module.clone()))
