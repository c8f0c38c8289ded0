"""Modules that hold modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.nn.module import Module
from cubepy.tensor.program.watched import changed


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
        setattr(self, names[index], self._checked(module))

    @classmethod
    def _of(cls, modules: list[Module]) -> Any:
        raise NotImplementedError

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns the container."""
        self._modules[str(len(self._modules))] = self._checked(module)
        changed()
        return self

    def _checked(self, module: Any) -> Module:
        if not isinstance(module, Module):
            listed = isinstance(module, (list, tuple))
            raise ArgumentError(
                f"{type(self).__name__} holds modules, not {shown(module)}",
                hint="spread the list: Sequential(*layers)"
                if listed
                else "write a class that derives from nn.Module",
            )
        return module


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
    """A list of modules whose parameters are registered; it has no `forward`.

    Example:
        >>> from cubepy import nn
        >>> layers = ModuleList(nn.Linear(4, 4) for _ in range(3))
        >>> len(layers), len(layers[1:]), sum(p.size for p in layers.parameters())
        (3, 2, 60)
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        if not isinstance(modules, Iterable):
            raise ArgumentError(f"ModuleList takes a list of modules, not {shown(modules)}")
        for m in modules:
            self.append(m)

    @classmethod
    def _of(cls, modules: list[Module]) -> ModuleList:
        return cls(modules)
