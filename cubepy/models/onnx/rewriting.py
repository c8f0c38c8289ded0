"""Rewriting a graph before it runs: nodes in, nodes out; new ones are of the domain `cubepy`.

Rules are in `rules`, a file a family. Those of *pieces* see the graph first: they find what several
nodes compute together, and nodes that nobody reads any more go. Then those of *layers* see what is
left, in order. The file's graph stays what it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cubepy import nn
from cubepy.models.formats.onnx import Graph, Node, read_of
from cubepy.models.formats.onnx_tensor import of_array
from cubepy.models.onnx.constants import Constant, Scope, constant_node
from cubepy.tensor import Tensor
from cubepy.tensor.storage import Unaligned

OURS = "cubepy"
Rule: TypeAlias = "Callable[[Rewriting, Node], Node | None]"
LAYERS: dict[tuple[str, str], Rule] = {}
"""By domain and operator: what runs instead of a node alone."""
PIECES: dict[tuple[str, str], list[Rule]] = {}
"""By domain and operator of the last node: what runs instead of several."""


def layer(op: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Record what runs instead of a node."""

    def keep(rule: Rule) -> Rule:
        LAYERS[domain, op] = rule
        return rule

    return keep


def pieces(*ops: str) -> Callable[[Rule], Rule]:
    """Record what runs instead of several nodes, the last of which is one of these."""

    def keep(rule: Rule) -> Rule:
        for op in ops:
            PIECES.setdefault(("", op), []).append(rule)
        return rule

    return keep


class Matrix(NamedTuple):
    """A constant matrix of linear layers.

    Attributes:
        constant: as the graph has it.
        by_outputs: whether it lies (outputs, inputs).
        shared: whether rows of it are taken, too.
    """

    constant: Constant
    by_outputs: bool
    shared: bool

    @property
    def outputs(self) -> int:
        """How many outputs the layer has."""
        length: int = self.constant.weight.shape[0 if self.by_outputs else 1]
        return length


TURNED = {True: False, False: True}
"""How a layer reads what is turned, by how it reads the matrix."""


class Rewriting:
    """The nodes of a graph on their way.

    Attributes:
        scope: where weights go.
        constants: weights of the graph, by name.
        uses: how often each name is read: twice as an input, once by a subgraph.
        makers: the node that computes a name.
        readers: the nodes that have a name as an input.
        found: how many nodes of each kind run instead of others.
        names: of each weight, by its identity.
        given: the parameters that layers have, by that of the weight.
    """

    def __init__(self, graph: Graph, scope: Scope, constants: dict[str, Any]) -> None:
        self.scope, self.constants, self.graph = scope, constants, graph
        self.uses: Counter[str] = Counter()
        self.readers: dict[str, list[Node]] = {}
        self.makers: dict[str, Node] = {}
        for node in graph.nodes:
            self._enter(node)
        self.uses.update({o.name: 2 for o in graph.outputs})
        self.names: dict[int, list[str]] = {}
        self.given: dict[int, nn.Parameter] = {}
        self.gone: set[int] = set()
        self.instead: dict[int, Node] = {}
        self.found: Counter[str] = Counter()

    def _enter(self, node: Node) -> None:
        self.uses.update(read_of(node))
        self.uses.update(n for n in node.inputs if n)
        self.makers.update({name: node for name in node.outputs if name})
        for name in dict.fromkeys(node.inputs):
            self.readers.setdefault(name, []).append(node)

    def swap(self, node: Node, made: Node) -> None:
        """Let a node run instead of another; what nobody reads any more does not run."""
        self.instead[id(node)] = made
        self._enter(made)
        self._leave(node)

    def _leave(self, node: Node) -> None:
        self.uses.subtract(read_of(node))
        self.uses.subtract(n for n in node.inputs if n)
        for name in dict.fromkeys(node.inputs):
            self.readers[name] = [r for r in self.readers[name] if r is not node]
        for name in node.inputs:
            maker = self.makers.get(name)
            if maker is None or id(maker) in self.gone:
                continue
            if not any(self.uses[o] for o in maker.outputs if o):
                self.gone.add(id(maker))
                self._leave(maker)

    def nodes(self) -> Iterator[Node]:
        """The nodes that run."""
        for node in self.graph.nodes:
            if node.op == "Constant" and not node.domain and not node.references:
                self.constants[node.outputs[0]] = constant_node(node, self.scope)
        self._follow()
        for node in self.graph.nodes:
            for rule in PIECES.get((node.domain, node.op), ()):
                if id(node) in self.gone or id(node) in self.instead or node.references:
                    break
                made = rule(self, node)
                if made is not None:
                    self.found[made.op] += 1
                    self.swap(node, made)
        for node in self.graph.nodes:
            one = self.instead.get(id(node), node)
            if {id(node), id(one)} & self.gone or one.outputs and one.outputs[0] in self.constants:
                continue
            alone = None if one.references else LAYERS.get((one.domain, one.op))
            made = None if alone is None else alone(self, one)
            if made is not None:
                self.found[made.op] += 1
            elif id(one) in self.gone:  # it became a constant
                continue
            yield one if made is None else made

    def _follow(self) -> None:
        """Let what `Identity` gives of a constant be the constant: exporters write weights that are
        equal once, and say the others so.
        """
        for name, value in self.constants.items():
            if isinstance(value, Constant):
                self.names.setdefault(id(value), []).append(name)
        for node in self.graph.nodes:
            if node.op != "Identity" or node.domain or node.references:
                continue
            (name, *_), (output, *_) = node.inputs, node.outputs
            found = self.constants.get(name)
            if isinstance(found, Constant) and self.readers_alone([output]) is not None:
                self.constants[output] = found
                self.names[id(found)].append(output)
                self.gone.add(id(node))
                self._leave(node)

    def readers_alone(self, names: list[str]) -> list[tuple[Node, str]] | None:
        """The nodes that read some names, as inputs; None where outputs or subgraphs are what
        does.
        """
        found = [(node, name) for name in names for node in self.readers.get(name, ())]
        read = Counter(dict.fromkeys(names, 0))
        for node, name in found:
            read[name] += node.inputs.count(name) + 1
        return found if all(self.uses[name] == read[name] for name in names) else None

    def number(self, name: str) -> float | None:
        """A constant of one element; None for what is none."""
        found = host_of(self.constants.get(name))
        if not isinstance(found, np.ndarray) or found.size != 1 or found.dtype.kind not in "fiu":
            return None
        return float(found.item())

    def maker(self, name: str, *ops: str) -> Node | None:
        """The node that computes a name, if it is of one of these operators of ONNX."""
        node = self.makers.get(name)
        if node is None or node.domain or node.references or id(node) in self.gone:
            return None
        return node if node.op in ops else None

    def matrix(self, name: str, way: Callable[[Rewriting, Node, str], Any]) -> Matrix | None:
        """A constant matrix that only layers read, which all read it the same way; it may be turned
        on the way to them, and where rows of it are taken, too, those of outputs, it stays there.

        Args:
            name: of the matrix, or of what turns it.
            way: how a node reads what lies under a name as a layer; None: it is none.
        """
        at = self.turning(name)
        found = self.constants.get(name if at is None else at.inputs[0])
        if not isinstance(found, Constant) or len(found.weight.shape) != 2:
            return None
        ways, shared = set(), False
        reads = self.readers_alone(self.names.get(id(found), [found.weight.name]))
        if reads is None:
            return None
        for node, read in reads:
            is_turning = self.turning(node.outputs[0]) is node
            if is_turning:
                through = self.readers_alone([node.outputs[0]])
                if through is None:
                    return None
                ways |= {TURNED.get(way(self, one, by)) for one, by in through}
            elif node.op == "Gather" and not node.domain and takes_rows(node, read):
                shared = True
            else:
                ways.add(way(self, node, read))
        if len(ways) != 1 or None in ways or shared and ways != {True}:
            return None
        return Matrix(found, True in ways, shared)

    def turning(self, name: str) -> Node | None:
        """The node that turns a constant matrix; None for what is none."""
        node = self.makers.get(name)
        if node is None or node.op != "Transpose" or node.domain or node.references:
            return None
        if not isinstance(self.constants.get(node.inputs[0]), Constant):
            return None
        rank = len(self.constants[node.inputs[0]].weight.shape)
        return node if rank == 2 and node.attributes.get("perm", [1, 0]) == [1, 0] else None

    def only_reader(self, name: str) -> Node | None:
        """The one node that reads a value; None where several do, or it is an output."""
        found = self.readers.get(name, ())
        return found[0] if self.uses[name] == 2 and found else None

    def layer(self, matrix: Matrix, bias: Constant | None, name: str) -> Any:
        """A linear layer that takes over the parameters."""
        made = nn.Linear.__new__(nn.Linear)
        nn.Module.__init__(made)
        weight = matrix.constant
        if matrix.shared:
            self.given[id(weight)] = self.scope.parameters[weight.key]
        elif id(weight) not in self.given:
            given = self.scope.parameters.pop(weight.key)
            if not matrix.by_outputs:
                late = isinstance(given.storage, Unaligned)
                given = Tensor(given.storage.turned()) if late else given.T
            self.given[id(weight)] = nn.Parameter(given, False)
        made.weight = self.given[id(weight)]
        made.bias = None
        if bias is not None:
            alone = self.readers_alone(self.names.get(id(bias), [bias.weight.name]))
            table = self.scope.parameters
            made.bias = table.pop(bias.key) if len(alone or ()) == 1 else table[bias.key]
        made.out_features, made.in_features = made.weight.shape
        plain = weight.key.removesuffix(".weight")
        if "::" in plain or matrix.shared:
            plain = self.scope.prefix + name
        self.scope.modules[self.free(plain)] = made
        return made

    def free(self, plain: str) -> str:
        """A name for a module that none has."""
        key = base = re.sub(r"\W+", "_", plain).strip("_") or "linear"
        n = 1
        while key in self.scope.modules:
            n += 1
            key = f"{base}_{n}"
        return key

    def keep(self, node: Node, old: Constant | None, arrays: dict[str, Any]) -> tuple[str, ...]:
        """New constants instead of an old one; their names."""
        names = []
        base = node.outputs[0] if old is None else old.weight.name
        if old is not None and self.uses[old.weight.name] == 2:
            self.scope.parameters.pop(old.key, None)
        for kind, array in arrays.items():
            name = f"{base}.{kind}"
            if name not in self.constants:
                self.constants[name] = self.scope.derived(name, of_array(name, array))
            names.append(name)
        return tuple(names)

    def bias_of(self, name: str, length: int) -> Constant | None:
        """A constant vector of a length."""
        found = self.constants.get(name)
        fits = isinstance(found, Constant) and found.weight.shape == (length,)
        return found if fits else None


def takes_rows(node: Node, name: str) -> bool:
    """Whether a Gather takes rows of a matrix."""
    alone = node.inputs[0] == name and node.inputs.count(name) == 1
    return alone and node.attributes.get("axis", 0) in (0, -2)


def host_of(value: Any) -> Any:
    """The elements of a constant; None for what is none."""
    return value.host() if isinstance(value, Constant) else value


def signed(codes: Any, zero: Any) -> tuple[Any, Any]:
    """Codes and zero points of 8 bits as signed ones that mean the same."""
    zero = np.zeros((), np.int32) if zero is None else zero.astype(np.int32)
    if codes.dtype == np.uint8:
        return (codes ^ np.uint8(128)).view(np.int8), zero - 128
    return codes, zero
