"""`Module`: a tree of layers with named parameters, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from cubepy.errors import ArgumentError, DTypeError, FileFormatError
from cubepy.kernels.entry.options import shown
from cubepy.lang.dtypes import as_dtype
from cubepy.nn import arguments
from cubepy.nn.cloning import TABLES, cloned
from cubepy.nn.hooks import Hooked
from cubepy.nn.parameter import Buffer, Parameter
from cubepy.nn.tree import Tree
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.custom.hooks import hooks_of
from cubepy.tensor.methods.target import is_device, target_of
from cubepy.tensor.program.watched import changed, watch


class LoadResult(NamedTuple):
    """What `load_state_dict(strict=False)` did not find a place for."""

    missing_keys: list[str]
    unexpected_keys: list[str]


_ELEMENTS = "`module.{name}.copy_(values)` within `cb.no_grad()` gives it other elements"
_FREE = "`del module.{name}` first, if the name is to be something else"


class Module(Hooked, Tree):
    """Base of all layers and models.

    Assigning a `Parameter` or a `Module` to an attribute registers it; calling the module runs
    `forward`. Values of tensors are never changed, so copies of a module may share their memory.

    Attributes:
        training: whether dropout and the like are active.

    Example:
        >>> from cubepy import nn
        >>> class Net(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.hidden = nn.Linear(4, 2)
        ...     def forward(self, x):
        ...         return self.hidden(x)
        >>> [name for name, _ in Net().named_parameters()]
        ['hidden.weight', 'hidden.bias']
    """

    training: bool

    def __init__(self) -> None:
        self.__dict__.update(_parameters={}, _buffers={}, _modules={}, training=True)
        self.__dict__.update(_pre_hooks={}, _hooks={}, _backward_hooks={}, _backward_pre_hooks={})
        self.__dict__["_state_hooks"] = {}
        self.__dict__["_unsaved"] = set()  # names of buffers that are no part of the state dict

    def __setattr__(self, name: str, value: Any) -> None:
        if "_modules" not in self.__dict__:
            raise AttributeError(
                f"call super().__init__() in {type(self).__name__}.__init__ before assigning "
                f"{name!r}"
            )
        own = (
            self._parameters
            if isinstance(value, Parameter)
            else self._modules
            if isinstance(value, Module)
            else None
        )
        if own is None and name in self._buffers:
            own = self._buffers
        if value is not None and own is not self._parameters:
            self._refuse_to_lose(name, value)
        if isinstance(value, Buffer):
            self.register_buffer(name, value.detach(), value.persistent)
            return
        for table in (self._parameters, self._modules, self._buffers, self.__dict__):
            if table is not own:
                table.pop(name, None)
        if own is None:
            self.__dict__[name] = value
        else:
            own[name] = value  # an existing name keeps its place in the order
        changed()

    def _refuse_to_lose(self, name: str, value: Any) -> None:
        """What is no parameter takes no parameter's place, and so on: `layer.weight = 3`."""
        for kind, table, ours, wanted, hint in KINDS:
            if name in self.__dict__[table] and not isinstance(value, ours):
                raise ArgumentError(
                    f"{name!r} of {type(self).__name__} is a {kind}: it can be {wanted} or None, "
                    f"not {shown(value)}",
                    hint=hint.format(name=name),
                )

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(table)
            if found is not None and name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules, self.__dict__):
            if name in table:
                del table[name]
                changed()
                return
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for hook in tuple(self._pre_hooks.values()):
            hook(self, args)
        if self._backward_hooks or self._backward_pre_hooks:
            output = self._watched(args, kwargs)
        else:
            output = self.forward(*args, **kwargs)
        for hook in tuple(self._hooks.values()):
            found = hook(self, args, output)
            output = output if found is None else found
        return output

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def register_buffer(self, name: str, value: Any, persistent: bool = True) -> None:
        """A tensor that belongs to the module but is not learned.

        Args:
            name: of the attribute.
            value: a tensor, or None.
            persistent: whether it is part of the state dict. One that is not moves with the module
                all the same.

        Raises:
            ArgumentError: a name that is no identifier, so that no attribute could have it.
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"the name of a buffer must be an identifier, not {shown(name)}")
        for table in (self._parameters, self._modules, self.__dict__):
            table.pop(name, None)
        if arguments.flag("persistent", persistent):
            self._unsaved.discard(name)
        else:
            self._unsaved.add(name)
        self._buffers[name] = None if value is None else as_tensor(value)
        changed()

    # State

    def state_dict(self, *, prefix: str = "") -> dict[str, Tensor]:
        """Parameters and persistent buffers by dotted name, behind a prefix, under all names that
        they have; the tensors are shared, not copied.
        """
        modules = list(self.named_modules())
        prefixes = [prefix + (f"{name}." if name else "") for name, _ in modules]
        for own, (_, module) in zip(prefixes, modules, strict=True):
            module._state_hooked("before saving", own, False)
        state = {
            prefix + name: table[key]
            for name, table, key in tables(self, unsaved=False, once=False)
            if table[key] is not None
        }
        for own, (_, module) in zip(prefixes, modules, strict=True):
            module._state_hooked("saved", state, own, {})
        return state

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadResult:
        """Take over tensors by name: shared when the dtype is that of the parameter, else converted
        to it. Parameters stay the same objects, so an optimizer of them goes on.

        Args:
            state: tensors or arrays by dotted name, such as `nn.load_safetensors` gives.
            strict: whether every name must be on both sides.

        Raises:
            FileFormatError: everything that is missing, unexpected (when strict) or of a wrong
                shape, in one message. Nothing is changed then.
            ArgumentError: `state` is no mapping.

        Example:
            >>> from cubepy import nn
            >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
            >>> b.load_state_dict(a.state_dict())
            LoadResult(missing_keys=[], unexpected_keys=[])
        """
        if not isinstance(state, Mapping):
            raise ArgumentError(
                f"state must map names to tensors, not {shown(state)}",
                hint="nn.load_safetensors(path) reads a file",
            )
        state = dict(state)
        for name, module in self.named_modules():
            prefix = f"{name}." if name else ""
            module._state_hooked("before loading", state, prefix, {}, strict, [], [], [])
            state = module.of_older(state, prefix)
        own = {
            name: (table, key)
            for name, table, key in tables(self, unsaved=False, once=False)
            if table[key] is not None
        }
        there = {(id(own[name][0]), own[name][1]) for name in own if name in state}
        missing = [name for name, (table, key) in own.items() if (id(table), key) not in there]
        unexpected = [name for name in state if name not in own]
        new = {name: as_tensor(state[name]) for name in own if name in state}
        wrong = [
            f"{name}: expected {own[name][0][own[name][1]].shape}, got {value.shape}"
            for name, value in new.items()
            if value.shape != own[name][0][own[name][1]].shape
        ]
        problems = [f"wrong shapes: {_listed(wrong)}"] if wrong else []
        if arguments.flag("strict", strict):
            problems += [f"missing: {_listed(missing)}"] if missing else []
            problems += [f"unexpected: {_listed(unexpected)}"] if unexpected else []
        if problems:
            raise FileFormatError(
                f"the state does not fit {type(self).__name__}: " + "; ".join(problems),
                hint="check that the file belongs to this model; strict=False ignores missing "
                "and unexpected names",
            )
        for name, value in new.items():
            table, key = own[name]
            table[key] = _given(table[key], _taken_over(table[key], value))
        changed()
        result = LoadResult(missing, unexpected)
        for _, module in self.named_modules():
            module._state_hooked("loaded", result)
        return result

    def of_older(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """A state that is loaded, with the names of this module under `prefix` for older ones;
        subclasses define it.
        """
        return state

    def to(
        self,
        target: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        *,
        device: Any = None,
    ) -> Module:
        """Move parameters, the same objects, and buffers to a device, or convert floats to a dtype.

        Args:
            target: a device ("cuda", "cpu", ...) or a float dtype ("f16", `cb.bf16`, ...).
                Quantized weights keep their codes and give results of the dtype; buffers that are
                not saved keep theirs: they are computed of something (angles of positions).
            dtype, device: the same by name, alone or both at once.
            non_blocking: nothing: copies wait for no more than they have to.

        Raises:
            ArgumentError: none of them, or a dtype beside a target that is no device.
            DTypeError: a dtype that is no float.

        Example:
            >>> from cubepy import nn
            >>> nn.Linear(2, 3).to("f16").weight.dtype
            cb.f16
        """
        target, dtype = target_of(target, dtype, device)
        if dtype is not None:
            return self.to(target).to(dtype)
        if not is_device(target) and not as_dtype(target).is_float:
            raise DTypeError(
                f"a module is converted to a float dtype, not to {as_dtype(target).name}",
                hint="cb.quant.quantize(model, 'int8') packs weights into integers",
            )
        done: dict[int, Any] = {}
        for _, table, key in tables(self, is_device(target)):
            old = table[key]
            if old is not None:
                if id(old) not in done:
                    done[id(old)] = _given(old, _moved(old, target))
                table[key] = done[id(old)]
        changed()
        return self

    def train(self, mode: bool = True) -> Module:
        """Switch dropout and the like on or off, in all modules below; returns the module."""
        mode = arguments.flag("mode", mode)
        for module in self.modules():
            module.__dict__["training"] = mode
        changed()
        return self

    def eval(self) -> Module:
        """`train(False)`."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zeros.

        Example:
            >>> from cubepy import nn
            >>> layer = nn.Linear(2, 1)
            >>> layer([[1.0, 2.0]]).sum().backward()
            >>> layer.zero_grad()
            >>> layer.weight.grad is None
            True
        """
        for p in self.parameters():
            p.grad = None if set_to_none or p.grad is None else p.grad * 0

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Say whether gradients by the parameters are wanted; gives the module. Packed weights and
        integers have none.

        Example:
            >>> from cubepy import nn
            >>> nn.Linear(2, 1).requires_grad_(False).weight.requires_grad
            False
        """
        for p in self.parameters():
            p.requires_grad_(requires_grad and p.dtype.is_float and p.storage.kind == "dense")
        return self

    def apply(self, fn: Callable[[Module], Any]) -> Module:
        """Call a function with every module inside, children first, and with this one; gives the
        module.

        Example:
            >>> from cubepy import nn
            >>> seen = []
            >>> _ = nn.Sequential(nn.Linear(2, 1), nn.ReLU()).apply(lambda m: seen.append(type(m)))
            >>> [kind.__name__ for kind in seen]
            ['Linear', 'ReLU', 'Sequential']
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def clone(self, _done: dict[int, Any] | None = None) -> Module:
        """A copy of the tree of modules that shares the memory of its tensors; training one, or
        loading into it, leaves the other alone. What plain attributes hold of the tree (lists of
        modules, methods, `cb.jit` of methods) is that of the copy.
        """
        return cloned(self, {} if _done is None else _done, outermost=_done is None)

    # Text

    def extra_repr(self) -> str:
        """What the text shows between the parentheses; subclasses define it."""
        return ""

    def __repr__(self) -> str:
        lines = [
            f"({name}): " + repr(child).replace("\n", "\n  ")
            for name, child in self.named_children()
        ]
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        return f"{type(self).__name__}({extra}\n  " + "\n  ".join(lines) + "\n)"


KINDS: tuple[tuple[str, str, Any, str, str], ...] = (
    ("parameter", "_parameters", Parameter, "an nn.Parameter", f"{_ELEMENTS}; {_FREE}"),
    ("module", "_modules", Module, "an nn.Module", _FREE),
    ("buffer", "_buffers", (Tensor, Parameter, Module), "a tensor", f"cb.tensor(values); {_FREE}"),
)
"""What has a table of its own, what may stand in it, and what to do instead."""


def tables(
    module: Module, unsaved: bool = True, once: bool = True
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """(dotted name, table, key) of every parameter and buffer of a tree; of those that are not
    saved, if they are wanted; of a module that is there twice once, or under all its names.
    """
    for prefix, one in module.named_modules(remove_duplicate=once):
        for table in (one._parameters, one._buffers):
            for key in table:
                if unsaved or table is one._parameters or key not in one._unsaved:
                    yield (f"{prefix}.{key}" if prefix else key), table, key


def _given(old: Tensor, new: Tensor) -> Tensor:
    """A parameter with its new elements; of a buffer, these."""
    return old.take_over_(new) if isinstance(old, Parameter) and new is not old else new


def _moved(old: Tensor, target: Any) -> Tensor:
    """A parameter or buffer on another device or in another float dtype."""
    if not is_device(target) and not old.dtype.is_float:
        return old
    if not is_device(target) and old.storage.kind != "dense":
        store = old.storage.with_dtype(as_dtype(target))
        return old if store is old.storage else Tensor(store)
    return old.detach().to(target)


def _taken_over(old: Tensor, value: Tensor) -> Tensor:
    """The new value in the dtype of the old one, on its device."""
    value = value.detach()
    value = (
        value.to(old.device)
        if gpu_of(old.device) is not None or gpu_of(value.device) is not None
        else value
    )
    if value.dtype is not old.dtype and value.storage.kind == "dense":
        value = value.astype(old.dtype)
    return value


def _held(module: Module) -> Iterator[Any]:
    """All that decides what a module computes, for programs."""
    for name, one in module.named_modules():
        yield name
        yield one
        for key, value in one.__dict__.items():
            yield key
            if key not in TABLES:
                yield value
                continue
            for inner, part in value.items():
                yield inner
                yield part
                if key == "_parameters":
                    yield hooks_of(part)


watch(Module, _held)


def _listed(names: list[str], most: int = 12) -> str:
    """Names in one line; a long list is cut."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
