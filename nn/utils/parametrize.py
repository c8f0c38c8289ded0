"""Parameters that are computed of others: what a module calls `weight` is a function of what it
learns, which `parametrizations.weight` holds.

Example:
    >>> from cubepy import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x + x.T
    >>> layer = register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'parametrizations.weight.original']
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.kernels.entry.options import shown
from cubepy.nn.module import Module
from cubepy.nn.modules.containers import ModuleDict, ModuleList
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, as_tensor, no_grad
from cubepy.tensor.program.watched import changed

_kept: ContextVar[dict[int, Tensor] | None] = ContextVar("cubepy_nn_parametrized", default=None)


class ParametrizationList(ModuleList):
    """What is learned in the place of a tensor, and the modules that compute it, one after the
    other.

    Attributes:
        original: what is learned; or `original0`, `original1` and so on of several.
    """

    def __init__(self, first: Module, given: Tensor) -> None:
        super().__init__([first])
        self.count = 0
        self.keep(given)

    def keep(self, value: Any) -> None:
        """Learn what gives this tensor: what `right_inverse` says, of the last module first."""
        for one in reversed(list(self)):
            inverse = getattr(one, "right_inverse", None)
            if inverse is not None:
                with no_grad():
                    value = inverse(value)
        several = isinstance(value, (tuple, list))
        parts = list(value) if several else [value]
        if len(self) > 1 or self.count:
            if len(parts) != max(1, self.count):
                raise ArgumentError("right_inverse gives as many tensors as it gave first")
            for name, part in zip(self.names(), parts, strict=True):
                with no_grad():
                    getattr(self, name).assign_(as_tensor(part))
            return
        self.count = len(parts) if several else 0
        for name, part in zip(self.names(), parts, strict=True):
            learned = part if isinstance(part, Parameter) else Parameter(as_tensor(part).detach())
            setattr(self, name, learned)

    def names(self) -> list[str]:
        """Of what is learned."""
        return [f"original{n}" for n in range(self.count)] if self.count else ["original"]

    def forward(self) -> Tensor:
        """The tensor."""
        modules = iter(self)
        value = next(modules)(*[getattr(self, name) for name in self.names()])
        for one in modules:
            value = one(value)
        return value  # type: ignore[no-any-return]

    def of_older(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """Names of PyTorch's hooks, such as `weight_g`, as those of this module."""
        older = getattr(self[0], "older_names", None)
        head, _, rest = prefix.rpartition("parametrizations.")
        if older is None or not rest:
            return state
        found, name = dict(state), head + rest[:-1]
        for old, new in older.items():
            if name + old in found and prefix + new not in found:
                found[prefix + new] = found.pop(name + old)
        return found


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let a module compute one of its parameters or buffers of what it learns instead.

    Args:
        module: that has the tensor; its class becomes one of its own.
        tensor_name: of the tensor.
        parametrization: a module whose `forward` gives the tensor. With a method `right_inverse`,
            that of what the tensor is now is learned (several tensors are arguments of `forward`);
            without, the tensor itself.
        unsafe: whether the tensor may have another shape or dtype than it had.

    Returns:
        The module.

    Raises:
        ArgumentError: no such tensor, or something else than a module.
        ShapeError, DTypeError: a result of another shape or dtype.

    Example:
        >>> from cubepy import nn
        >>> class Positive(nn.Module):
        ...     def forward(self, x):
        ...         return x.exp()
        ...     def right_inverse(self, x):
        ...         return x.log()
        >>> layer = nn.BatchNorm1d(2)
        >>> _ = register_parametrization(layer, "weight", Positive())
        >>> layer.weight, layer.parametrizations.weight.original.tolist()
        (tensor([1., 1.]), [0.0, 0.0])
    """
    if not isinstance(parametrization, Module):
        raise ArgumentError(f"a parametrization is a module, not {shown(parametrization)}")
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        own = module.parametrizations[tensor_name]
        before = getattr(module, tensor_name)
        own.append(parametrization)
        inverse = getattr(parametrization, "right_inverse", None)
        if inverse is not None:
            with no_grad():
                own.keep(before.detach())
    else:
        table = next(
            (t for t in (module._parameters, module._buffers) if t.get(tensor_name) is not None),
            None,
        )
        if table is None:
            raise ArgumentError(f"{type(module).__name__} has no tensor {tensor_name!r}")
        before = table[tensor_name]
        own = ParametrizationList(parametrization, before)
        del table[tensor_name]
        if not is_parametrized(module):
            module.__dict__["parametrized_class"] = type(module)
            module.parametrizations = ModuleDict()
        module.parametrizations[tensor_name] = own
        _become(module)
    now = getattr(module, tensor_name)
    if not unsafe and (now.shape != before.shape or now.dtype != before.dtype):
        remove_parametrizations(module, tensor_name)
        if now.shape != before.shape:
            raise ShapeError(f"the parametrization gives {now.shape}, not {before.shape}",
                             hint="unsafe=True allows it")  # fmt: skip
        raise DTypeError(f"the parametrization gives {now.dtype}, not {before.dtype}",
                         hint="unsafe=True allows it")  # fmt: skip
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether some tensor of a module, or this one, is computed of others.

    Example:
        >>> from cubepy import nn
        >>> is_parametrized(nn.Linear(2, 2))
        False
    """
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Let a module have a tensor itself again.

    Args:
        module: that has the tensor.
        tensor_name: of the tensor.
        leave_parametrized: whether the tensor is what was computed; else what was learned, which is
            one tensor then.

    Returns:
        The module.

    Raises:
        ArgumentError: the tensor is not computed of others, or of several that shall be left.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        >>> _ = remove_parametrizations(layer, "weight")
        >>> [name for name, _ in layer.named_parameters()]
        ['weight', 'bias']
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"{tensor_name} of {type(module).__name__} has no parametrization")
    own = module.parametrizations[tensor_name]
    if not leave_parametrized and own.count:
        raise ArgumentError("several tensors are learned: leave_parametrized=True leaves one")
    with no_grad():
        value = own() if leave_parametrized else own.original
    learned = getattr(own, own.names()[0])
    del module.parametrizations[tensor_name]
    left = Parameter(value.detach(), learned.requires_grad)
    if not module.parametrizations:
        del module._modules["parametrizations"]
    _become(module)
    module._parameters = {tensor_name: left, **module._parameters}
    changed()
    return module


@contextmanager
def cached() -> Iterator[None]:
    """Within it every parametrized tensor is computed once, when it is asked for first.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        >>> with cached():
        ...     layer.weight is layer.weight
        True
    """
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before its tensors were parametrized.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        >>> type(layer).__name__, type_before_parametrizations(layer).__name__
        ('ParametrizedLinear', 'Linear')
    """
    return module.__dict__.get("parametrized_class", type(module))  # type: ignore[no-any-return]


def _become(module: Module) -> None:
    """The class that says how parametrized tensors are read and written."""
    first = type_before_parametrizations(module)
    parts = module._modules.get("parametrizations")
    names = tuple(parts.keys()) if isinstance(parts, ModuleDict) else ()
    if not names:
        module.__dict__.pop("parametrized_class", None)
    kind = _class_of(first, names) if names else first
    object.__setattr__(module, "__class__", kind)
    changed()


@cache
def _class_of(first: type, names: tuple[str, ...]) -> type:
    plain: Any = first.__setattr__

    def write(self: Any, name: str, value: Any) -> None:
        if name in names:
            self.parametrizations[name].keep(value)
        else:
            plain(self, name, value)

    def reduced(self: Any, protocol: Any) -> Any:
        return _restored, (first, names), dict(self.__dict__)

    read = {name: property(partial(_computed, name)) for name in names}
    body: dict[str, Any] = {
        **read,
        "__setattr__": write,
        "__reduce_ex__": reduced,
        "__doc__": first.__doc__,
    }
    return type(f"Parametrized{first.__name__}", (first,), body)


def _restored(first: type, names: tuple[str, ...]) -> Any:
    """A module of a parametrized class, without its attributes: for copies and pickles."""
    return object.__new__(_class_of(first, names))


def _computed(name: str, module: Any) -> Tensor:
    own, kept = module.parametrizations[name], _kept.get()
    if kept is None:
        return own()  # type: ignore[no-any-return]
    if id(own) not in kept:
        kept[id(own)] = own()
    return kept[id(own)]
