"""A graph of PyTorch's operators as plain data: what `torch.export` found, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cubepy.errors import ModelError
from cubepy.lang.dtypes import DType


@dataclass(frozen=True)
class Ref:
    """The value of a node or an input, by name."""

    name: str


@dataclass(frozen=True)
class Node:
    """One operator.

    Attributes:
        name: of its value.
        target: of the operator, with its overload: "aten.add.Tensor".
        args, kwargs: plain values, `Ref`s, `DType`s and lists of them.
        line: where the module's source asked for it.
    """

    name: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    line: str = ""


@dataclass(frozen=True)
class Body:
    """A graph inside of a graph: a branch, or what a loop repeats.

    Attributes:
        inputs: names of what it is given, in order.
        nodes: in running order.
        outputs: `Ref`s and plain values.
    """

    inputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Input:
    """What the graph reads.

    Attributes:
        name: of its value.
        kind: "tensor", "number" (an integer that a call decides), "fixed" (what the trace was made
            with), "weight" or "constant".
        key: of a weight: its name in the module.
        dtype, shape: of a tensor; lengths are integers, or texts where a call decides them.
        value: of what is fixed.
    """

    name: str
    kind: str
    key: str = ""
    dtype: DType | None = None
    shape: tuple[int | str, ...] = ()
    value: Any = None


@dataclass(frozen=True)
class Tree:
    """How values lie inside of each other.

    Attributes:
        kind: "leaf", "tuple", "list", "dict", or "fields" (names with values, as attributes too).
        keys: of a dict or of fields.
        parts: in order.
        name: of the class that had the fields.
    """

    kind: str
    parts: tuple[Tree, ...] = ()
    keys: tuple[Any, ...] = ()
    name: str = ""

    def build(self, leaves: Any) -> Any:
        """The structure with leaves out of an iterator.

        Example:
            >>> leaf = Tree("leaf")
            >>> Tree("dict", (leaf, Tree("tuple", (leaf, leaf))), ("a", "b")).build(iter("xyz"))
            {'a': 'x', 'b': ('y', 'z')}
        """
        if self.kind == "leaf":
            return next(leaves)
        values = [part.build(leaves) for part in self.parts]
        if self.kind == "dict":
            return dict(zip(self.keys, values, strict=True))
        if self.kind == "fields":
            return Fields(zip(self.keys, values, strict=True))
        return values if self.kind == "list" else tuple(values)

    def flatten(self, value: Any, where: str = "the arguments") -> list[Any]:
        """The leaves of a value that has this structure.

        Raises:
            ModelError: it has another one.
        """
        if self.kind == "leaf":
            return [value]
        found: list[Any] = []
        if self.kind in ("dict", "fields"):
            if not isinstance(value, dict) or set(value) != set(self.keys):
                raise ModelError(
                    f"{where}: expected {{{', '.join(map(repr, self.keys))}}}, not {_said(value)}"
                )
            for key, part in zip(self.keys, self.parts, strict=True):
                found += part.flatten(value[key], f"{where}, {key!r}")
            return found
        if not isinstance(value, (list, tuple)) or len(value) != len(self.parts):
            raise ModelError(f"{where}: expected {len(self.parts)} values, not {_said(value)}")
        for n, (part, one) in enumerate(zip(self.parts, value, strict=True)):
            found += part.flatten(one, f"{where}, number {n}")
        return found


class Fields(dict[Any, Any]):
    """Values by name, as items and as attributes.

    Example:
        >>> Fields(logits=1).logits
        1
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"there is no {name!r}; there are {', '.join(map(str, self))}"
            ) from None


@dataclass
class Exported:
    """A module's graph.

    Attributes:
        nodes: in running order.
        inputs: of the graph: weights, and what a call gives.
        outputs: `Ref`s and plain values, in the order of `gives`.
        takes: how a call's (args, kwargs) lie.
        gives: how results lie.
        weights: by their names in the module: tensors.
        trained: names of those that are parameters.
        unsaved: names of buffers that are no part of the state.
        ranges: least and largest lengths (None: any) by their names in shapes.
    """

    nodes: list[Node]
    inputs: list[Input]
    outputs: list[Any]
    takes: Tree
    gives: Tree
    weights: dict[str, Any] = field(default_factory=dict)
    trained: frozenset[str] = frozenset()
    unsaved: frozenset[str] = frozenset()
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(map(repr, value)) + "}"
    many = isinstance(value, (list, tuple))
    return f"{len(value)} of them" if many else type(value).__name__


def refs(value: Any) -> Iterator[str]:
    """The names in arguments."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from refs(one)
    elif isinstance(value, dict):
        yield from refs(list(value.values()))


def read_of(node: Node) -> set[str]:
    """The names that a node reads."""
    return {*refs(node.args), *refs(node.kwargs)}
