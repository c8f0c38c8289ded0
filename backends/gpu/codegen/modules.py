"""A code generator of numba's that makes modules for a machine, and compiles nothing."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import codegen


class Library(codegen.CodeLibrary):  # type: ignore[misc]
    """The modules of a function, as text in the making."""

    def __init__(self, owner: Any, name: str) -> None:
        super().__init__(owner, name)
        self.modules: list[ir.Module] = []

    def add_ir_module(self, module: ir.Module) -> None:
        self.modules.append(module)

    def add_linking_library(self, library: Library) -> None:
        self.modules += library.modules

    def finalize(self) -> None:
        self._finalized = True

    def get_function(self, name: str) -> Any:
        """The function of this name that a module defines."""
        functions = (f for m in self.modules for f in m.functions)
        return next(f for f in functions if f.name == name and not f.is_declaration)

    def get_llvm_str(self) -> str:
        return "\n".join(map(str, self.modules))

    def get_asm_str(self) -> str:
        """There is none before LLVM has run."""
        return ""


class Codegen(codegen.Codegen):  # type: ignore[misc]
    """Makes modules that know their processor.

    Args:
        architecture: the processor, which ops look at.
        triple, data: LLVM's name of the machine, and how it lays data out.
    """

    _library_class = Library

    def __init__(self, architecture: Any, triple: str, data: Any) -> None:
        self.architecture, self.triple, self._target_data = architecture, triple, data

    def _create_empty_module(self, name: str) -> ir.Module:
        module = ir.Module(name)
        module.triple, module.architecture = self.triple, self.architecture
        module.data_layout = str(self._target_data)
        return module

    def _add_module(self, module: Any) -> None:
        """Nothing runs here."""

    def magic_tuple(self) -> tuple[str]:
        return (str(self.architecture),)
