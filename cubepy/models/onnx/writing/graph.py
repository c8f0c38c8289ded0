"""`Writer`: a graph of our ops on its way to ONNX, and the forms that ops have there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.lang.dtypes import DType
from cubepy.models.formats.onnx_schema import CODES
from cubepy.models.onnx.writing import messages
from cubepy.tensor.ir import ABSENT, Graph, Node
from cubepy.tensor.ops import Spec

Form = Callable[..., Any]
FORMS: dict[str, Form] = {}
"""What writes an op: (writer, op, inputs) -> names of results."""


def form(names: str) -> Callable[[Form], Form]:
    """Record what writes ops; names with spaces between."""

    def keep(write: Form) -> Form:
        for name in names.split():
            FORMS[name] = write
        return write

    return keep


class Unwritable(Exception):
    """An op that ONNX has no form for; says why.

    Attributes:
        at: the number of its first value in the outermost graph.
    """

    at = 0


class Op:
    """An op while it is written.

    Attributes:
        node: as it was recorded.
        attrs: its attributes.
        given: shapes and dtypes of its inputs; None for those that are absent.
        result: shape and dtype of its first result.
    """

    def __init__(self, node: Node, given: list[Spec | None]) -> None:
        self.node, self.given = node, given
        self.attrs = dict(node.attrs)
        self.result = node.results[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first result."""
        return self.result.shape

    @property
    def dtype(self) -> DType:
        """Of the first result."""
        return self.result.dtype

    def spec(self, k: int) -> Spec:
        """Of an input that is there."""
        found = self.given[k]
        assert found is not None
        return found


class Writer:
    """Nodes and weights of a file.

    Attributes:
        nodes: messages, in running order.
        weights: messages of initializers that nodes read.
        waiting: initializers that no node has read yet.
        arrays: initializers by name, where their elements are known.
        only_linear: names of weights that linear layers read and nothing else.
    """

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.weights: list[bytes] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.waiting: dict[str, np.ndarray] = {}
        self.only_linear: set[str] = set()
        self.known: dict[Any, str] = {}
        self.names: set[str] = set()

    def name(self, wanted: str) -> str:
        """A name that nothing else has."""
        found, n = wanted, 1
        while found in self.names or not found:
            n += 1
            found = f"{wanted or 'value'}_{n}"
        self.names.add(found)
        return found

    def add(self, op: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        """A node; gives the name of its result, or a list of names for a count that is not 1."""
        made = [self.name(op.lower()) for _ in range(count)]
        said = {k.rstrip("_"): v for k, v in attributes.items() if v is not None}
        given = list(inputs)
        while given and not given[-1]:
            given.pop()
        for one in given:
            self.used(one)
        self.nodes.append(messages.node(op, given, made, said, f"{op}_{len(self.nodes)}"))
        return made[0] if count == 1 else made

    def used(self, name: str) -> None:
        """A node reads a value: if it is an initializer, it is written."""
        if name in self.waiting:
            self.weights.append(messages.tensor(name, self.waiting.pop(name)))

    def inside(self) -> Writer:
        """A writer of a subgraph: its names are no others'."""
        made = Writer()
        made.names = self.names
        return made

    def info(self, name: str, spec: Spec) -> bytes:
        """An input or output."""
        return messages.value_info(name, spec.dtype.numpy, spec.shape)

    def result(self, value: str, name: str) -> None:
        """A value under the name of an output."""
        self.used(value)
        self.nodes.append(messages.node("Identity", [value], [name], {}, f"Identity_{name}"))

    def write(self, graph: Graph, names: dict[int, str]) -> None:
        """The nodes of a graph; `names` has its inputs, and gets all other values.

        Raises:
            Unwritable: an op without a form.
        """
        for first, node in zip(graph.firsts, graph.nodes, strict=True):
            if node.op == "input":
                continue
            given = [None if i == ABSENT else graph.values[i] for i in node.inputs]
            try:
                if node.op not in FORMS:
                    raise Unwritable(node.op)
                made = FORMS[node.op](self, Op(node, given), *[names[i] for i in node.inputs])
            except Unwritable as error:
                error.at = first
                raise
            names.update(enumerate(made if isinstance(made, list) else [made], first))

    def weight(self, name: str, array: np.ndarray) -> str:
        """An initializer with a name of its own."""
        found = self.name(name)
        self.arrays[found] = self.waiting[found] = array
        return found

    def constant(self, value: Any, dtype: Any) -> str:
        """A small initializer; equal ones are one."""
        array = np.asarray(value, dtype.numpy if isinstance(dtype, DType) else dtype)
        key = (array.dtype, array.shape, array.tobytes())
        if key not in self.known:
            self.known[key] = self.weight("constant", array)
        return self.known[key]

    def integers(self, values: Sequence[int]) -> str:
        """A vector of 64-bit integers: shapes, axes, bounds."""
        return self.constant(list(values), np.int64)

    def cast(self, name: str, before: DType, after: DType) -> str:
        """A value in a dtype."""
        if before is after:
            return name
        return self.add("Cast", name, to=CODES[after.numpy])  # type: ignore[no-any-return]

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        """A value in a shape."""
        kept = None if all(shape) else 1
        return self.add("Reshape", name, self.integers(shape), allowzero=kept)  # type: ignore[no-any-return]
