"""LLVM's code generators, as llvmlite brings them: a machine, a module made fit for it, its code.

LLVM ends the process when it meets what it cannot select, so what reaches it is looked at first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as ll

from cubepy.backends.gpu.codegen import emission
from cubepy.errors import BackendCompileError

LONGEST = 600.0
"""Seconds after which a process that compiles one kernel is given up."""


def optimised_for(machine: Any, text: str, flags: str = "") -> Any:
    """A module of LLVM's text, with flags behind it, optimised for a machine."""
    body = re.sub(r"^(target \w+|source_filename) = .*\n", "", text, flags=re.M)
    head = f'target triple = "{machine.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = ll.parse_assembly(head + body + flags)
    module.verify()
    options = ll.create_pipeline_tuning_options(emission.LEVEL)
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


def by_child(kind: str, module: Any, *target: str) -> bytes:
    """The machine code of a module, made by a process that may end while it makes it.

    Args:
        kind: "object" or "assembly".
        module: the module.
        target: the arguments of `target_machine`.

    Raises:
        BackendCompileError: it ended, or took too long.
    """
    path = os.pathsep.join(filter(None, sys.path))
    version = ".".join(map(str, ll.llvm_version_info))
    try:
        done = subprocess.run(
            [sys.executable, "-S", emission.__file__, kind, *target],
            input=str(module).encode(),
            capture_output=True,
            check=False,
            timeout=LONGEST,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        why = f"takes more than {LONGEST} seconds"
    else:
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
        why = f"ended with status {done.returncode} and said: {said[0][:500]}"
    raise BackendCompileError(
        f"LLVM {version} cannot compile this kernel for {target[1]}; it {why}",
        hint="a newer numba brings a newer LLVM",
    )
