"""Machine code for a program, from the cache or made now; no GPU is needed for either."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from cubepy.backends.gpu.printing import WIDEST, GpuPrinter
from cubepy.backends.gpu.versions import versions
from cubepy.compiler.program import Program
from cubepy.config import config
from cubepy.runtime import cache as disk
from cubepy.runtime.deep_stack import with_room
from cubepy.runtime.stats import counters


class GpuCode(ABC):
    """A program compiled for one architecture.

    `aligned`: every array starts at a multiple of 16 bytes. `rows`: arrays whose rows do, too.

    Attributes:
        text: the generated Python and what belongs to it.
        symbol: the entry point of the machine code.

    A backend says what prints programs for it, and the names that its text must not hide; and what
    its machine code depends on besides the text (see `versions`).
    """

    printer: type[GpuPrinter]
    reserved: frozenset[str]
    lowering: str
    packages: tuple[str, ...]

    def __init__(
        self,
        program: Program,
        architecture: Any,
        in_place: bool = False,
        aligned: bool = False,
        rows: frozenset[str] = frozenset(),
    ) -> None:
        self.program, self.architecture, self.in_place, self.aligned = (
            program,
            architecture,
            in_place,
            aligned,
        )
        self.text = self.printer(program, self.reserved, rows).emit()
        self.units = program.units
        assumed = f"in_place={in_place} aligned={aligned}"
        options = (
            f"{architecture} {assumed} fast_math={sorted(program.fast_math)} "
            f"{program.cluster} {program.resident}"
        )
        options += " early" if program.overlap else ""
        parameters = repr(self.text.parameters)
        self.key = disk.digest(
            self.text.text, options, parameters, versions(self.lowering, self.packages)
        )
        self.symbol = f"cubepy_{re.sub(r'[^A-Za-z0-9_]', '_', program.name)}_{self.key[:16]}"
        if config.debug >= 4:
            print(self.text.text, file=sys.stderr)

    @abstractmethod
    def translated(self) -> bytes:
        """The machine code, made now."""

    @cached_property
    def binary(self) -> bytes:
        """The machine code."""
        code: bytes | None = disk.read(self.key)
        if code is not None:
            counters.loaded += 1
            return code
        counters.compiled += 1
        code = with_room(self.translated)
        disk.write(self.key, code)
        return code

    def job_fields(self) -> dict[str, Any]:
        """What jobs of every backend hold (`job.GpuJob`)."""
        program, early = self.program, self.program.overlap
        reads_only = {  # what is only read may be written until a kernel that is early has waited
            x.mem.name
            for x in program.arguments
            if x.mem is not None
            and x.mem.kind == "global"
            and x.mem.name not in program.outputs
            and not early
        }
        return {
            "kernel": program.name,
            "key": self.key,
            "text": self.text.text,
            "parameters": tuple((p.name, p.kind, p.dtype) for p in self.text.parameters),
            "symbol": self.symbol,
            "fast_math": tuple(sorted(program.fast_math)),
            "noalias": not self.in_place and not early,
            "aligned": self.aligned,
            "read_only": tuple(sorted(reads_only)),
        }


def aligned_rows(program: Program, leaves: Sequence[Any], aligned: bool) -> frozenset[str]:
    """The arrays of a launch whose strides, but for the last, are multiples of 16 bytes."""
    if not aligned:
        return frozenset()
    return frozenset(
        a.mem.name
        for a, operand in zip(program.arguments, leaves, strict=True)
        if a.mem is not None
        and a.mem.kind == "global"
        and a.mem.ndim > 1
        and all(s % WIDEST == 0 for s in operand.strides[:-1])
    )
