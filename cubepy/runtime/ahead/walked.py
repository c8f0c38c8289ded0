"""Programs of library kernels that another process walked: what a launch needs of them is kept on
disk beside their machine code, and the walk is done again only where somebody asks for more.

The name of what is kept is a hash of all that the walk depends on: the kernel, its arguments and
target, and the state of cubepy's own files (see `described`). A kernel of a user, one that read
anything from outside, or that is given something that has no certain text is always walked.
"""

from __future__ import annotations

import dataclasses
import importlib
import pickle
from typing import Any

from cubepy.compiler.program import Program
from cubepy.compiler.signature import Spec, Target
from cubepy.lang.declare import Kernel
from cubepy.runtime import cache
from cubepy.runtime.ahead.described import Unknown, described, in_sources, named, sources, unchanged
from cubepy.runtime.ahead.waiting import WAIT
from cubepy.runtime.deep_stack import in_one_piece, uncollected, with_room

LEFT_OUT = frozenset({"body", "variables", "typed", "shared", "reads"})
"""What launches ask of no program."""
DAMAGED = (pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError, TypeError)
"""What reading a record raises that this version did not write."""


def specialise(kernel: Kernel, specs: tuple[Spec, ...], target: Target) -> Program:
    """A walk (see `cubepy.compiler.specialise`); what does it is loaded for the first one."""
    walker: Any = importlib.import_module("cubepy.compiler.specialise")
    with uncollected(), WAIT.compiling(kernel.__name__):
        return in_one_piece(walker.specialise)(kernel, specs, target)  # type: ignore[no-any-return]


class Walked(Program):
    """A program of which only what launches need is known; all else is found by a walk."""

    given: tuple[Kernel, tuple[Spec, ...], Target]

    @staticmethod
    def of(
        known: dict[str, Any], kept: str, given: tuple[Kernel, tuple[Spec, ...], Target]
    ) -> Walked:
        """What was kept under a name, of what `specialise` is given."""
        made = object.__new__(Walked)
        vars(made).update(known, properties=given[2].properties, kept=kept, given=given)
        return made

    def __getattr__(self, name: str) -> Any:
        if name not in LEFT_OUT:
            raise AttributeError(name)
        full = with_room(lambda: specialise(*self.given))
        vars(self).update({field: getattr(full, field) for field in LEFT_OUT})
        return vars(self)[name]


def program_of(kernel: Kernel, specs: tuple[Spec, ...], target: Target) -> Program:
    """The program of a kernel for these arguments and this target, walked unless that was done.

    Raises:
        CompileError: the kernel breaks a rule of the language; the error says where.
    """
    name = name_of(kernel, specs, target)
    known = None if name is None else read(name)
    if name is not None and type(known) is dict:
        return Walked.of(known, name, (kernel, specs, target))
    program = specialise(kernel, specs, target)
    if name is not None and program.guard is None:
        fields = {f.name for f in dataclasses.fields(Program)} - LEFT_OUT
        fields -= {"guard", "kept", "properties"}
        if write(name, {f: getattr(program, f) for f in sorted(fields)}):
            program.kept = name
            vars(program)["given"] = (kernel, specs, target)
    return program


def let_go(program: Program) -> None:
    """Forget of a program that is kept what launches do not ask of it: ten times as much as they
    do. It is walked again when somebody asks.
    """
    about = vars(program)
    if type(program) is Program and program.kept is not None and "given" in about:
        program.__class__ = Walked  # first, so that nobody misses a field meanwhile
        for field in LEFT_OUT:
            about.pop(field, None)


def name_of(kernel: Kernel, specs: tuple[Spec, ...], target: Target) -> str | None:
    """The name that a program is kept under; None where it is not."""
    if target.backend != "cpu" or target.debug or not cache.config.cache:
        return None
    state = sources()
    if state is None:
        return None
    try:
        if not in_sources(kernel.fn):
            return None
        properties = described(target.properties)
        rest = [target.units, target.mode, target.index, target.plane, target.shared_limit]
        aim = described(tuple(rest))
        return cache.digest("walk", state, named(kernel), described(specs), aim, properties)
    except Unknown:
        return None


def read(name: str) -> Any:
    """What is kept under a name; None where there is nothing that is whole."""
    data = cache.read(name, ".walk")
    if data is None:
        return None
    try:
        return pickle.loads(data)
    except DAMAGED:
        return None


def write(name: str, record: Any) -> bool:
    """Keep a record of picklable values under a name, unless files have changed since the process
    began.
    """
    if not unchanged():
        return False
    cache.write(name, pickle.dumps(record), ".walk")
    return True
