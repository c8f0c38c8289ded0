"""Modules that hold modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
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

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end; returns the container."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before the one at an index; returns the container."""
        children = list(self.children())
        children.insert(index, self._checked(module))
        return self._renumbered(children)

    def pop(self, index: int = -1) -> Module:
        """Take a module away and give it; those behind it move up."""
        children = list(self.children())
        found = children.pop(index)
        self._renumbered(children)
        return found

    def __delitem__(self, index: Any) -> None:
        children = list(self.children())
        del children[index]
        self._renumbered(children)

    def _renumbered(self, children: list[Module]) -> Any:
        self._modules = {str(n): child for n, child in enumerate(children)}
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
    """Modules that run one after the other; a dict gives them names.

    Example:
        >>> from cubepy import nn
        >>> len(Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)))
        3
        >>> list(Sequential({"first": nn.Linear(4, 8), "act": nn.GELU()}).state_dict())
        ['first.weight', 'first.bias']
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, self._checked(module))
            return
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


class ModuleDict(Module):
    """Modules by name whose parameters are registered; it has no `forward`.

    Example:
        >>> from cubepy import nn
        >>> heads = ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 3)})
        >>> list(heads), "a" in heads, heads["b"].out_features
        (['a', 'b'], True, 3)
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add modules, or exchange those of these names."""
        for name, module in dict(modules).items():
            self[name] = module

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(name, str) or not isinstance(module, Module):
            raise ArgumentError(
                f"ModuleDict holds modules by name, not {shown(module)} by {shown(name)}"
            )
        self._modules[name] = module
        changed()

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]  # type: ignore[no-any-return]

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        changed()

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._modules))

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def pop(self, name: str) -> Module:
        """Take a module away and give it."""
        found = self[name]
        del self[name]
        return found

    def clear(self) -> None:
        """Take all modules away."""
        self._modules.clear()
        changed()

    def keys(self) -> Iterator[str]:
        """The names."""
        return iter(self)

    def values(self) -> Iterator[Module]:
        """The modules."""
        return self.children()

    def items(self) -> Iterator[tuple[str, Module]]:
        """Names and modules."""
        return self.named_children()


class ParameterList(Module):
    """Numbered parameters.

    Example:
        >>> from cubepy import nn
        >>> weights = ParameterList([[1.0, 2.0], nn.Parameter([3.0])])
        >>> len(weights), [name for name, _ in weights.named_parameters()]
        (2, ['0', '1'])
    """

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        for value in values:
            self.append(value)

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end; gives the list."""
        self._parameters[str(len(self._parameters))] = _parameter(value)
        changed()
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end; gives the list."""
        for value in list(values):
            self.append(value)
        return self

    def __getitem__(self, index: int) -> Parameter:
        return list(self._parameters.values())[index]

    def __setitem__(self, index: int, value: Any) -> None:
        self._parameters[list(self._parameters)[index]] = _parameter(value)
        changed()

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(tuple(self._parameters.values()))


class ParameterDict(Module):
    """Parameters by name.

    Example:
        >>> from cubepy import nn
        >>> weights = ParameterDict({"a": [1.0], "b": nn.Parameter([3.0])})
        >>> list(weights), weights["b"].item()
        (['a', 'b'], 3.0)
    """

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Any]) -> None:
        """Add parameters, or exchange those of these names."""
        for name, value in dict(parameters).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        self._parameters[name] = _parameter(value)
        changed()

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]  # type: ignore[no-any-return]

    def __delitem__(self, name: str) -> None:
        del self._parameters[name]
        changed()

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter of a name, or something else where there is none."""
        return self._parameters.get(name, default)

    def pop(self, name: str) -> Parameter:
        """Take a parameter away and give it."""
        found = self[name]
        del self[name]
        return found

    def keys(self) -> Iterator[str]:
        """The names."""
        return iter(self)

    def values(self) -> Iterator[Parameter]:
        """The parameters."""
        return iter(tuple(self._parameters.values()))

    def items(self) -> Iterator[tuple[str, Parameter]]:
        """Names and parameters."""
        return iter(tuple(self._parameters.items()))

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._parameters))

    def __contains__(self, name: object) -> bool:
        return name in self._parameters


def _parameter(value: Any) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)
