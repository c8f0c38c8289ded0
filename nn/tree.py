"""The tree of modules: what is below a module, by name, and how parts come in by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor


class Tree:
    """What `Module` inherits: walks over modules, parameters and buffers."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]

    def children(self) -> Iterator[Any]:
        """The modules directly below."""
        return (m for _, m in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """The modules directly below, with their names."""
        return iter(tuple(self._modules.items()))

    def modules(self) -> Iterator[Any]:
        """This module and all below, each one once."""
        return (m for _, m in self.named_modules())

    def named_modules(
        self, prefix: str = "", seen: set[int] | None = None, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """This module (under `prefix`) and all below, with dotted names, each one once, or as often
        as it is there.
        """
        seen = set() if seen is None else seen
        if remove_duplicate:
            if id(self) in seen:
                return
            seen.add(id(self))
        yield prefix, self
        for name, child in self.named_children():
            path = f"{prefix}.{name}" if prefix else name
            yield from child.named_modules(path, seen, remove_duplicate)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with dotted names.

        Args:
            prefix: of the names.
            recurse: whether those of the modules below are there, too.
            remove_duplicate: whether a parameter that is there twice is given once.

        Example:
            >>> from cubepy import nn
            >>> net = nn.Sequential(nn.Linear(2, 2, bias=False))
            >>> [name for name, _ in net.named_parameters("net")], list(net.parameters(False))
            (['net.0.weight'], [])
        """
        return self._walked("_parameters", prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = False
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with dotted names, those that are saved and those that are not; arguments as of
        `named_parameters`.
        """
        return self._walked("_buffers", prefix, recurse, remove_duplicate)

    def _walked(
        self, table: str, prefix: str, recurse: bool, once: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        every: Any = (
            self.named_modules(prefix, None, once)
            if arguments.flag("recurse", recurse)
            else [(prefix, self)]
        )
        for path, module in every:
            for name, value in getattr(module, table).items():
                if value is None or (once and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers of the tree, or of this module alone."""
        return (value for _, value in self.named_buffers(recurse=recurse))

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters of the tree, or of this module alone, each one once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def get_submodule(self, name: str) -> Any:
        """The module with a dotted name.

        Raises:
            AttributeError: there is none.
            ArgumentError: the name is no text.
        """
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a module must be a string, not {shown(name)}")
        module: Any = self
        for part in name.split(".") if name else ():
            if part not in module._modules:
                raise AttributeError(
                    f"there is no module {name!r}: {type(module).__name__} has no child {part!r}"
                )
            module = module._modules[part]
        return module

    def get_parameter(self, name: str) -> Parameter:
        """The parameter with a dotted name.

        Raises:
            AttributeError: there is none.

        Example:
            >>> from cubepy import nn
            >>> nn.Sequential(nn.Linear(2, 3)).get_parameter("0.weight").shape
            (3, 2)
        """
        return self._entry("_parameters", name)  # type: ignore[no-any-return]

    def get_buffer(self, name: str) -> Tensor:
        """The buffer with a dotted name.

        Raises:
            AttributeError: there is none.
        """
        return self._entry("_buffers", name)  # type: ignore[no-any-return]

    def _entry(self, table: str, name: str) -> Any:
        path, _, last = name.rpartition(".")
        module = self.get_submodule(path)
        found = getattr(module, table).get(last)
        if found is None:
            kind = table[1:-1]
            raise AttributeError(f"{type(module).__name__!r} has no {kind} {last!r}")
        return found

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Let a parameter be an attribute, as assignment does; None leaves it empty.

        Raises:
            ArgumentError: something else than a parameter.

        Example:
            >>> from cubepy import nn
            >>> net = nn.Module()
            >>> net.register_parameter("scale", nn.Parameter([1.0]))
            >>> list(net.state_dict())
            ['scale']
        """
        _check_name(name)
        if param is not None and not isinstance(param, Parameter):
            raise ArgumentError(
                f"{name} must be a parameter or None, not {shown(param)}",
                hint="nn.Parameter(x), or register_buffer for what is not learned",
            )
        setattr(self, name, param)

    def add_module(self, name: str, module: Any) -> None:
        """Let a module be an attribute, as assignment does; None leaves it empty.

        Raises:
            ArgumentError: something else than a module.

        Example:
            >>> from cubepy import nn
            >>> net = nn.Sequential()
            >>> net.add_module("first", nn.Linear(2, 3))
            >>> net.first.out_features
            3
        """
        _check_name(name)
        if module is not None and not isinstance(module, Tree):
            raise ArgumentError(f"{name} must be a module or None, not {shown(module)}")
        setattr(self, name, module)

    register_module = add_module

    def set_submodule(self, name: str, module: Any) -> None:
        """Put another module in the place of the one with a dotted name.

        Raises:
            AttributeError: there is none.

        Example:
            >>> from cubepy import nn
            >>> net = nn.Sequential(nn.Sequential(nn.ReLU()))
            >>> net.set_submodule("0.0", nn.GELU())
            >>> type(net[0][0]).__name__
            'GELU'
        """
        self.get_submodule(name)
        path, _, last = name.rpartition(".")
        self.get_submodule(path).add_module(last, module)


def _check_name(name: Any) -> None:
    """A name that dotted names of a state can be made of, as torch asks."""
    if not isinstance(name, str) or not name or "." in name:
        raise ArgumentError(
            f"a name of a parameter or module is a text without dots, not {shown(name)}",
            hint="a module of its own has parameters behind a dot",
        )
