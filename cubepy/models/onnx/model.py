"""`OnnxModel`: a graph of an ONNX file as a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ModelError
from cubepy.lang.dtypes import as_dtype
from cubepy.models.formats.onnx import Graph, Model, ValueInfo, read
from cubepy.models.formats.onnx_schema import dtype_name
from cubepy.models.onnx import ops, rules
from cubepy.models.onnx.constants import Scope
from cubepy.models.onnx.functions import check_functions
from cubepy.models.onnx.runner import NeedsElements, Runner, liftable
from cubepy.models.plain import array_of_plain, is_plain
from cubepy.models.rebuilt import Rebuilt
from cubepy.nn import Parameter
from cubepy.runtime.device import as_device, current, gpu_of
from cubepy.tensor import Tensor
from cubepy.tensor.methods.target import is_device, target_of
from cubepy.tensor.modes import mode
from cubepy.tensor.program import watched
from cubepy.tensor.storage import Dense, Unaligned, moved

new = object.__new__
assert ops.__name__ and rules.__name__  # imported for what they record


def load(source: Any, device: Any = None) -> OnnxModel:
    """A model from an ONNX file or its bytes, ready to be called.

    Args:
        source: a path, or bytes.
        device: where the weights go; by default the current device.

    Raises:
        FileFormatError: a file that is damaged or inconsistent.
        ModelError: operators that are missing; the error names all of them with their nodes.

    Example:
        >>> from cubepy.models.onnx import load
        >>> load(b"")
        Traceback (most recent call last):
            ...
        cubepy.errors.FileFormatError: the model: there is no graph in it
          Hint: the file is damaged, cut off, or of another format; fetch or export it again
    """
    return OnnxModel(read(source), device)


class OnnxModel(Rebuilt):
    """A graph of an ONNX file.

    Called with arrays or tensors, in the order of `inputs` or by name, it gives a dict of tensors
    by the names of `outputs`. Weights are parameters under their names in the file, so `.to`,
    `state_dict` and `load_state_dict` work; they are frozen until `requires_grad_()`.

    Attributes:
        inputs: names, dtypes and shapes of what the model takes.
        outputs: of what it gives.
        graph: nodes and weights as the file has them.
        file: all that the file says.
    """

    def __init__(self, file: Model, device: Any = None) -> None:
        super().__init__()
        device = None if device is None else as_device(device)
        graph = file.graph
        self.__dict__["file"] = file
        self.__dict__["inputs"] = [i for i in graph.inputs if i.name not in graph.weights]
        self.__dict__["optional"] = [i for i in graph.inputs if i.name in graph.weights]
        self.__dict__["outputs"] = graph.outputs
        taken = {i.name: Taken(i) for i in (*self.inputs, *self.optional)}
        self.__dict__["taken"] = taken
        needed = [i.name for i in self.inputs if i.type.kind != "optional"]
        self.__dict__["needed"] = dict.fromkeys(needed)
        check_functions(file)
        scope = Scope(file, self._parameters, self._modules)
        scope.where[0] = device
        self.__dict__["scope"] = scope
        self.__dict__["runner"] = Runner(graph, scope, file.opsets)
        if scope.unsupported:
            raise ModelError(
                "operators that are missing: " + "; ".join(missing(scope.unsupported)),
                hint="docs/onnx.md lists what runs",
            )
        late = [p for p in self.parameters() if type(p.storage) is Unaligned]
        self.__dict__["late"] = late
        self.train(False)

    late: list[Parameter]
    inputs: list[ValueInfo]
    optional: list[ValueInfo]
    outputs: list[ValueInfo]
    taken: dict[str, Taken]
    needed: dict[str, None]
    file: Model
    scope: Scope
    runner: Runner

    @property
    def graph(self) -> Graph:
        """Nodes and weights as the file has them."""
        return self.file.graph

    @property
    def rewritten(self) -> dict[str, int]:
        """How many layers and operators of each kind run instead of the file's nodes."""
        return dict(self.scope.rewritten)

    def forward(self, *args: Any, **named: Any) -> dict[str, Any]:
        """The outputs by name. Inputs are given in order, by name, or as one dict.

        Outputs have gradients by inputs and weights that ask for them.

        Raises:
            ModelError: inputs of a wrong name, number, rank or dtype.
        """
        if self.late:  # weights in the file that kernels cannot read there
            for weight in self.late:
                weight.storage.dense()
            self.late.clear()
        env = self._named(args, named)
        enabled = mode.enabled
        if enabled and not self._learns(env):
            mode.enabled = False
        try:
            found = self._found(env)
        finally:
            mode.enabled = enabled
        for name, value in found.items():
            if type(value) is not Tensor:
                found[name] = self._result(value)
        return found

    def to(
        self,
        target: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        *,
        device: Any = None,
    ) -> OnnxModel:
        """Move the weights to a device, or convert the float ones to a dtype; gives the model."""
        target, dtype = target_of(target, dtype, device)
        super().to(target, dtype)
        if is_device(target):
            self.scope.where[0] = as_device(target)
            self.scope.lifted.clear()
        return self

    def source(self) -> tuple[Any, ...]:
        """The file and the device."""
        return self.file, self.scope.device()

    def extra_repr(self) -> str:
        """Inputs and outputs."""
        texts = [f"{i.name}: {_shown(i)}" for i in self.inputs]
        return f"{', '.join(texts)} -> {', '.join(o.name for o in self.outputs)}"

    def _named(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.inputs):
            names = [i.name for i in self.inputs]
            raise ModelError(f"the model takes {len(names)} inputs, not {len(args)}: {names}")
        if len(args) == 1 and not named and isinstance(args[0], dict):
            alone = len(self.inputs) == 1 and self.inputs[0].type.kind == "map"
            if not alone or args[0].keys() == self.needed.keys():
                return self._named((), args[0])
        device = self.scope.device()
        if len(args) == len(self.inputs) and not named:
            takes = self.taken.values()
            return {t.info.name: t(v, device) for t, v in zip(takes, args, strict=False)}
        given = named
        if args:
            given = dict(zip([i.name for i in self.inputs], args, strict=False))
            for name, value in named.items():
                if name in given:
                    raise ModelError(f"the input {name!r} is given twice")
                given[name] = value
        known = self.taken
        if given.keys() == self.needed.keys():  # all that there are, mostly
            found = {name: known[name](value, device) for name, value in given.items()}
            if len(found) < len(self.inputs):
                found |= {i.name: None for i in self.inputs if i.name not in found}
            return found
        if not given.keys() <= known.keys():
            wrong = ", ".join(repr(n) for n in given if n not in known)
            raise ModelError(
                f"the model has no input {wrong}",
                hint=f"its inputs are {', '.join(map(repr, known))}",
            )
        if not given.keys() >= self.needed.keys():
            lacking = [n for n in self.needed if n not in given]
            raise ModelError(f"the input {', '.join(map(repr, lacking))} is not given")
        found = {name: known[name](value, device) for name, value in given.items()}
        if len(self.needed) < len(self.inputs):
            found |= {i.name: None for i in self.inputs if i.name not in found}
        return found

    def _found(self, env: dict[str, Any]) -> dict[str, Any]:
        """The outputs as the graph has them."""
        whole = self.runner.whole
        if whole is not None:
            try:
                found = whole(env)
                if found is not None:
                    return found
            except NeedsElements:  # `call` parts the program there
                pass
        return dict(zip(self.runner.outputs, self.runner.call(env), strict=True))

    def __cubepy_explain__(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What `cb.explain` says of a call that is several programs; None of one that is one."""
        from cubepy.models.onnx.explained import in_parts, noted

        if self.late:  # weights in the file that kernels cannot read there
            for weight in self.late:
                weight.storage.dense()
            self.late.clear()
        env = self._named(args, named)
        enabled = mode.enabled
        mode.enabled = enabled and self._learns(env)
        try:
            with noted() as met:
                self.runner.call(env)
            return in_parts(type(self).__name__, met, len(self.runner.steps))
        finally:
            mode.enabled = enabled

    def _learns(self, env: dict[str, Any]) -> bool:
        """Whether gradients by an input or a weight are wanted. Without them a call is of one kind,
        whatever the mode is.
        """
        known = self.scope.learning
        if known[0] != watched.version[0]:
            known = self.scope.learning = watched.version[0], list(self.parameters())
        for parameter in known[1]:
            if parameter.value.needs_grad:
                return True
        for value in env.values():
            if isinstance(value, Tensor) and value.value.needs_grad:
                break
        else:
            return False
        return True

    def _result(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if not liftable(value):
                return value
            where = self.scope.device() or current()
            if gpu_of(where) is None:  # the short way of `cb.tensor`
                return Tensor(Dense(value.copy(), where))
            return cb.tensor(value, device=where)
        return [self._result(v) for v in value] if isinstance(value, list) else value


class Map(dict[Any, Any]):
    """A map among the values of a graph.

    Attributes:
        dtype: of its values.
    """

    def __init__(self, given: Mapping[Any, Any], dtype: np.dtype) -> None:
        super().__init__(given)
        self.dtype = dtype


class Taken:
    """An input: what a call gives becomes what the graph takes, or an error.

    Attributes:
        info: name and type.
        wanted: the dtype, if the file says it.
        seen, host, dtype: of the array before, its shape, device and element type; None for a
            device that copies.
        lengths: of axes; None is open. None if the rank is open, too.
    """

    def __init__(self, info: ValueInfo) -> None:
        self.info, self.kind, self.wanted = info, info.type.kind, info.type.dtype
        self.seen: Any = None
        self.host: Any = None
        self.dtype: Any = None
        shape = info.type.shape
        self.lengths = (
            None
            if shape is None
            else tuple(n if isinstance(n, int) and n >= 0 else None for n in shape)
        )
        inner = info.type.inner
        self.inner = None if inner is None else Taken(ValueInfo(info.name, inner))

    def __call__(self, value: Any, device: Any) -> Any:
        if type(value) is np.ndarray and value.shape == self.seen and value.dtype == self.wanted:
            where = current() if device is None else as_device(device)
            if where is self.host:  # like one before: what `Dense` looks up is known
                store = new(Dense)
                store.array, store.shape, store.dtype = value, self.seen, self.dtype
                store.device = where
                return Tensor(store)
            return Tensor(Dense(moved(value, where), where))
        if self.kind == "map":
            return self._map(value)
        if self.inner is not None:
            if value is None and self.kind == "optional":
                return None
            many = self.kind == "sequence"
            if many and not isinstance(value, (list, tuple)):
                raise ModelError(
                    f"the input {self.info.name!r} is a sequence, not {type(value).__name__}",
                    hint="give a list of arrays",
                )
            return [self.inner(v, device) for v in value] if many else self.inner(value, device)
        if not isinstance(value, Tensor):
            plain = is_plain(value)
            if plain or isinstance(value, (np.ndarray, np.generic)):
                name = self.info.name
                value = array_of_plain(value, self.wanted, name) if plain else np.asarray(value)
                if value.dtype.kind in "US":
                    value = value.astype(object)
                if not liftable(value):
                    self.check(value.dtype, value.shape)
                    return value
                self.check(value.dtype, value.shape)
                self.seen = value.shape
                where = current() if device is None else as_device(device)
                self.host = where if gpu_of(where) is None else None
                self.dtype = as_dtype(value.dtype)
            value = cb.tensor(value, device=device)
        self.check(value.dtype.numpy, value.shape)
        return value if device is None else value.to(device)

    def _map(self, value: Any) -> Map:
        """A dict as a map with keys and values of the dtypes that the file says."""
        name, inner = self.info.name, self.info.type.inner
        if not isinstance(value, Mapping):
            raise ModelError(
                f"the input {name!r} is a map, not {type(value).__name__}", hint="give a dict"
            )
        wanted = None if inner is None else inner.dtype
        kinds: dict[str, Any] = {"O": str, "i": (int, np.integer), "u": (int, np.integer)}
        keys = kinds.get("" if self.wanted is None else self.wanted.kind, object)
        right = kinds.get("" if wanted is None else wanted.kind, (int, float, np.number))
        for key, one in value.items():
            if not isinstance(key, keys) or not isinstance(one, right):
                raise ModelError(
                    f"the input {name!r} is a map from {dtype_name(self.wanted)} to "
                    f"{dtype_name(wanted)}, which {key!r}: {one!r} does not go with"
                )
        return Map(value, np.dtype(np.float32) if wanted is None else wanted)

    def check(self, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        """Compare with what the file says.

        Raises:
            ModelError: another dtype, rank or length.
        """
        if self.wanted is not None and dtype != self.wanted:
            raise ModelError(
                f"the input {self.info.name!r} is {dtype_name(self.wanted)}, not "
                f"{dtype_name(dtype)}",
                hint=f"give x.astype({self.wanted.name!r})",
            )
        lengths = self.lengths
        if lengths is None or lengths == shape:
            return
        if len(lengths) == len(shape):
            for length, n in zip(lengths, shape, strict=True):
                if length is not None and length != n:
                    break
            else:
                return
        raise ModelError(
            f"the input {self.info.name!r} is {_shown(self.info)}, but a tensor of "
            f"{list(shape)} was given"
        )


def missing(unsupported: dict[tuple[str, str, int | None], list[str]]) -> list[str]:
    """Operators without a record in words, with the names of their nodes."""
    texts = []
    for (domain, op, version), nodes in unsupported.items():
        of = f"{domain or 'ai.onnx'} {version or '(no version imported)'}"
        texts.append(f"{op} of {of} (nodes {', '.join(nodes)})")
    return texts


def _shown(info: ValueInfo) -> str:
    lengths = info.type.shape
    inside = "..." if lengths is None else ", ".join("?" if n is None else str(n) for n in lengths)
    return f"{dtype_name(info.type.dtype)}[{inside}]"
