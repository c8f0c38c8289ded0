"""Machine code of LLVM's modules, for a machine. It is also a program, which makes it of the module
that it is given and needs llvmlite alone: `emission.py KIND TRIPLE PROCESSOR FEATURES`.
"""

from __future__ import annotations

import sys
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


def assembly_of(module: Any, machine: Any) -> str:
    """The machine code of a module as text; the module stays as it is."""
    return str(machine.emit_assembly(module.clone()))


def object_of(module: Any, machine: Any) -> bytes:
    """The machine code of a module as an ELF object that a linker would take."""
    return bytes(machine.emit_object(module.clone()))


def main(kind: str, *target: str) -> None:
    """Write the "object" or "assembly" of the module that comes in."""
    machine, module = target_machine(*target), ll.parse_assembly(sys.stdin.buffer.read().decode())
    out = object_of(module, machine) if kind == "object" else assembly_of(module, machine).encode()
    sys.stdout.buffer.write(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
