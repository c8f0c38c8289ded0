"""Modules that hold modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cubepy.nn.module import Module


class _List(Module):
    """Numbered children."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __getitem__(self, index: Any) -> Any:
        children = list(self.children())
        return type(self)._of(children[index]) if isinstance(index, slice) else children[index]

    def __setitem__(self, index: int, module: Module) -> None:
        names = list(self._modules)
        setattr(self, names[index], module)

    @classmethod
    def _of(cls, modules: list[Module]) -> Any:
        raise NotImplementedError

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns the container."""
        self._modules[str(len(self._modules))] = module
        return self


class Sequential(_List):
    """Modules that run one after the other.

    Example:
        >>> from cubepy import nn
        >>> len(Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)))
        3
    """

    def __init__(self, *modules: Module) -> None:
        super().__init__()
        for m in modules:
            self.append(m)

    @classmethod
    def _of(cls, modules: list[Module]) -> Sequential:
        return cls(*modules)

    def forward(self, input: Any) -> Any:
        """The input through every module in turn."""
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_List):
    """A list of modules whose parameters are registered; it has no `forward`."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        for m in modules:
            self.append(m)

    @classmethod
    def _of(cls, modules: list[Module]) -> ModuleList:
        return cls(modules)
