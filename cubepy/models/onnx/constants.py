"""Weights and constants of a graph: parameters of the module, or host arrays."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, ClassVar

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, ModelError
from cubepy.lang.dtypes import as_dtype
from cubepy.models.formats.onnx import Function, Model, Node
from cubepy.models.formats.onnx_tensor import Weight, of_array
from cubepy.nn import Parameter
from cubepy.runtime.device import current, gpu_of
from cubepy.tensor import Tensor
from cubepy.tensor.array import constant
from cubepy.tensor.storage import Unaligned

FEW = 64
"""Elements up to which integers and truth values are taken for shapes, axes and the like."""
DEEPEST = 64
"""Functions that call each other, at most."""
SHORT = 8
"""Elements up to which a vector of floats may be one of scales of a shape."""


class Constant:
    """A weight that is a parameter, and whose elements in the file are known.

    Attributes:
        weight: as the file has it.
        small: whether it may be part of the arithmetic of shapes.
    """

    __slots__ = ("key", "parameters", "small", "weight")

    def __init__(self, weight: Weight, parameters: dict[str, Any], key: str) -> None:
        self.weight, self.parameters, self.key = weight, parameters, key
        self.small = len(weight.shape) <= 1 and weight.size <= SHORT

    def host(self) -> np.ndarray:
        """The elements as the file has them."""
        return self.weight.array()

    def value(self) -> Tensor:
        """The parameter."""
        return self.parameters[self.key]  # type: ignore[no-any-return]


class Scope:
    """Where the constants of a graph go, and what is missing; shared by a model's graphs.

    Attributes:
        model: the file.
        parameters: of the module, by name.
        modules: layers of the module, by name.
        unsupported: nodes by (domain, operator, version).
        lifted: host arrays that became tensors.
        rewritten: how many nodes of each kind run instead of the file's.
        learning: the parameters of the module, and when they were looked up.
    """

    def __init__(self, model: Model, parameters: dict[str, Any], modules: dict[str, Any]) -> None:
        self.model, self.parameters, self.modules = model, parameters, modules
        self.prefix = ""
        self.functions: tuple[tuple[str, str, str], ...] = ()
        self.unsupported: dict[tuple[str, str, int | None], list[str]] = {}
        self.lifted: dict[int, tuple[Any, Tensor]] = {}
        self.rewritten: Counter[str] = Counter()
        self.where: list[Any] = [None]
        self.learning: tuple[int, list[Any]] = (-1, [])

    def inner(self, name: str, function: Function | None = None) -> Scope:
        """The scope of a subgraph or function.

        Raises:
            ModelError: a function that calls itself, or calls that are too deep.
        """
        scope = object.__new__(Scope)
        scope.__dict__.update(self.__dict__)
        scope.prefix = f"{self.prefix}{name}/"
        if function is not None:
            key = function.domain, function.name, function.overload
            if key in self.functions:
                raise ModelError(f"the function {function.name!r} of the model calls itself")
            if len(self.functions) == DEEPEST:
                raise ModelError(f"functions of the model call each other more than {DEEPEST} deep")
            scope.functions = (*self.functions, key)
        return scope

    def device(self) -> Any:
        """Where the model's tensors are; None for the current device."""
        return self.where[0]

    def constant(self, name: str, weight: Weight) -> Any:
        """A weight as a parameter, or as a host array where it is a number, or a few integers."""
        floats = weight.dtype.kind in "fV" and weight.shape
        if not (floats or weight.size > FEW) or not known(weight.dtype):
            return weight.array()
        return self.derived(name, weight)

    def derived(self, name: str, weight: Weight) -> Constant:
        """A weight as a parameter."""
        key, n = self.prefix + name, 1
        while key in self.parameters:
            n += 1
            key = f"{self.prefix}{name}#{n}"
        array, where = weight.array(), self.device() or current()
        if not array.flags.aligned and gpu_of(where) is not None:
            array = array.copy()
        late = not array.flags.aligned  # in the file, until a kernel reads it
        tensor = Tensor(Unaligned(array, where)) if late else cb.tensor(array, device=where)
        self.parameters[key] = Parameter(tensor, False)
        return Constant(weight, self.parameters, key)

    def tensor(self, value: Any) -> Any:
        """A value as a tensor."""
        if isinstance(value, Constant):
            return value.value()
        if not isinstance(value, np.ndarray):
            return value
        if not value.shape and self.device() is None:
            return constant(value.item(), as_dtype(value.dtype))
        known = self.lifted.get(id(value))
        if known is None or known[0] is not value:
            if len(self.lifted) >= 4096:
                self.lifted.clear()
            array = np.ascontiguousarray(value).reshape(value.shape)
            known = value, cb.tensor(array, device=self.device())
            self.lifted[id(value)] = known
        return known[1]


@cache
def known(dtype: np.dtype) -> bool:
    """Whether tensors have a dtype of NumPy."""
    try:
        as_dtype(dtype)
    except DTypeError:
        return False
    return True


def constant_node(node: Node, scope: Scope) -> Any:
    """What a node `Constant` gives.

    Raises:
        ModelError: it has no value, or several.
    """
    if len(node.attributes) != 1:
        raise ModelError(f"node {node.shown()} must have one value, not {len(node.attributes)}")
    ((name, value),) = node.attributes.items()
    if isinstance(value, Weight):
        return scope.constant(node.outputs[0], value)
    kinds: dict[str, Any] = {"f": np.float32, "i": np.int64, "s": object}
    dtype = kinds.get(name.removeprefix("value_")[:1])
    if dtype is None:
        raise ModelError(f"node {node.shown()} has the value {name!r}, which is no tensor")
    return scope.constant(node.outputs[0], of_array(node.outputs[0], np.array(value, dtype)))


class Hosts:
    """Host arrays among the arguments of a program: one object for equal ones."""

    known: ClassVar[dict[Any, Hosts]] = {}

    def __new__(cls, key: Any) -> Hosts:
        found = cls.known.get(key)
        if found is None:
            if len(cls.known) >= 4096:
                cls.known.clear()
            found = cls.known[key] = object.__new__(cls)
            found.key = key
        return found

    key: Any

    def __cubepy_reads__(self, reads: Any) -> None:
        """It never changes."""
