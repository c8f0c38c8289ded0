"""Machine code for a program, from the cache or made now; no GPU is needed for either."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cubepy.backends.cuda.codegen.emit import WIDEST, CudaText, emit
from cubepy.backends.cuda.codegen.job import Job
from cubepy.backends.cuda.codegen.names import RESERVED
from cubepy.compiler.ir import Program
from cubepy.config import config
from cubepy.errors import BackendCompileError
from cubepy.runtime import cache as disk
from cubepy.runtime.stats import counters


@dataclass(frozen=True)
class Architecture:
    """A compute capability that code is made for, such as sm_90a."""

    major: int
    minor: int

    @property
    def suffix(self) -> str:
        """Hopper and later have instructions that only their own code may use."""
        return "a" if self.major >= 9 else ""

    def __str__(self) -> str:
        return f"sm_{self.major}{self.minor}{self.suffix}"

    @staticmethod
    def of(text: str) -> Architecture:
        """From a text such as "sm_90a".

        Raises:
            BackendCompileError: no such architecture.
        """
        found = re.fullmatch(r"(?:sm_)?(\d+)(\d)a?", text)
        if found is None or int(found[1]) < 7:
            raise BackendCompileError(
                f"there is no architecture {text!r}", hint='write "sm_80" or "sm_90a"'
            )
        return Architecture(int(found[1]), int(found[2]))


class Code:
    """A program compiled for one architecture.

    `aligned`: every array starts at a multiple of 16 bytes. `rows`: arrays whose rows do, too.

    Attributes:
        text: the generated Python and what belongs to it.
        cubin: the machine code; `symbol` is its entry point.
    """

    def __init__(
        self,
        program: Program,
        architecture: Architecture,
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
        self.text: CudaText = emit(program, RESERVED, rows)
        self.units = program.units
        assumed = f"in_place={in_place} aligned={aligned}"
        options = (
            f"{architecture} {assumed} fast_math={sorted(program.fast_math)} "
            f"{program.cluster} {program.resident}"
        )
        options += " early" if program.overlap else ""
        self.key = disk.digest(self.text.text, options, repr(self.text.parameters), _versions())
        self.symbol = f"cubepy_{re.sub(r'[^A-Za-z0-9_]', '_', program.name)}_{self.key[:16]}"
        if config.debug >= 4:
            print(self.text.text, file=sys.stderr)

    @cached_property
    def cubin(self) -> bytes:
        """The machine code."""
        code: bytes | None = disk.read(self.key)
        if code is not None:
            counters.loaded += 1
            return code
        counters.compiled += 1
        code = self.job.translated("cubin")
        disk.write(self.key, code)
        return code

    @property
    def ptx(self) -> str:
        """The PTX that the machine code is made from."""
        return str(self.job.translated("ptx"))

    @property
    def nvvm(self) -> str:
        """The LLVM IR, in NVIDIA's dialect."""
        return "\n".join(self.job.lowered())

    @property
    def sass(self) -> str:
        """The machine code as text."""
        from cubepy.backends.cuda.codegen.disassemble import sass

        return sass(self.cubin)

    @cached_property
    def job(self) -> Job:
        """What is compiled, for another process too."""
        program, a = self.program, self.architecture
        early = program.overlap  # what is only read may be written until the kernel has waited
        reads_only = {
            x.mem.name
            for x in program.arguments
            if x.mem is not None
            and x.mem.kind == "global"
            and x.mem.name not in program.outputs
            and not early
        }
        return Job(
            kernel=program.name,
            key=self.key,
            text=self.text.text,
            parameters=tuple((p.name, p.kind, p.dtype) for p in self.text.parameters),
            symbol=self.symbol,
            fast_math=tuple(sorted(program.fast_math)),
            noalias=not self.in_place and not early,
            architecture=(a.major, a.minor, a.suffix),
            units=math.prod(self.units),
            resident=program.resident,
            aligned=self.aligned,
            read_only=tuple(sorted(reads_only)),
        )


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


def _versions() -> str:
    from cubepy.backends.cuda.codegen.versions import versions

    return versions()
