"""The generated code of a launch, for reading."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property


class Inspection:
    """What a launch would run.

    Attributes:
        python: the specialised source.
        llvm: optimised LLVM IR (made when first read).
        asm: assembly (made when first read).
    """

    def __init__(self, python: str, llvm: Callable[[], str], asm: Callable[[], str]) -> None:
        self.python = python
        self._llvm, self._asm = llvm, asm

    @cached_property
    def llvm(self) -> str:
        """Optimised LLVM IR."""
        return self._llvm()

    @cached_property
    def asm(self) -> str:
        """Assembly."""
        return self._asm()

    def __str__(self) -> str:
        return self.python
