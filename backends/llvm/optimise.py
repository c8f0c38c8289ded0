"""What LLVM does to a kernel on a host, once.

numba simplifies each function, then the module (to find counts of references, which kernels have
none of), then runs LLVM's whole pipeline. That pipeline alone makes code as fast in half the time.
A kernel stays a function of its own beside its entry point (`alone`): inlined, it would be
simplified a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as ll
from llvmlite import ir

LEVEL = 3


def alone(function: ir.Function) -> ir.Function:
    """The function, never to be inlined."""
    function.attributes.add("noinline")
    return on_lines(function)


def on_lines(function: ir.Function) -> ir.Function:
    """The function with an aligned stack: else lines on it may lie across two lines of
    the cache.
    """
    function.attributes.alignstack = 64
    return function


def optimised(text: str, linked: Sequence[Any], symbol: str, machine: Any) -> ll.ModuleRef:
    """A module of LLVM IR, with others linked to it, optimised for a machine.

    Args:
        text: of the module.
        linked: modules that it calls.
        symbol: the entry point, all that is seen from outside.
        machine: LLVM's target machine.
    """
    module = ll.parse_assembly(text)
    for other in linked:
        module.link_in(other, preserve=True)
    for f in module.functions:
        if not f.is_declaration and f.name != symbol:
            f.linkage = "internal"
    options = ll.create_pipeline_tuning_options(LEVEL)
    options.loop_vectorization, options.slp_vectorization = True, False
    passes = ll.create_pass_builder(machine, options)
    module.verify()
    passes.getModulePassManager().run(module, passes)
    return module
