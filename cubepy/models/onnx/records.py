"""What is known of an operator, by domain and version: what computes it, what is read on the host.

A value of a graph is one of four things. A *tensor* is data. A *host array* (NumPy) is what shapes
decide: `Shape` gives one, arithmetic of host arrays gives host arrays, and so it vanishes when the
graph is traced. A list is a sequence; None is an optional without a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any

import numpy as np

from cubepy.errors import ModelError
from cubepy.models.formats.onnx import Node
from cubepy.tensor import Tensor

ALL = -1
"""In `reads`: every input."""


@dataclass(frozen=True)
class Record:
    """An operator from a version of its domain on.

    Attributes:
        domain: of the operator; empty for the default one.
        name: of the operator.
        since: the first version that it holds for.
        run: gives a value, or a tuple of them, of a `Call` and the inputs as tensors.
        reads: inputs that `run` gets as host arrays.
        known: inputs that it gets as host arrays where shapes decide them.
        host: the same of host arrays; used where no input is a tensor.
        plain: whether `run` takes inputs as they are.
        splits: whether data decide the shapes of results, so that no program can have it inside.
        note: what differs from the specification.
    """

    domain: str
    name: str
    since: int
    run: Callable[..., Any]
    reads: tuple[int, ...] = ()
    known: tuple[int, ...] = ()
    host: Callable[..., Any] | None = None
    plain: bool = False
    splits: bool = False
    note: str = ""


RECORDS: dict[tuple[str, str], list[Record]] = {}
"""By domain and name, newest first."""


def operator(
    name: str, since: int = 1, *, domain: str = "", **said: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Record what computes an operator.

    Args:
        name: of the operator; several with spaces between.
        since: the first version of the domain that it holds for.
        domain: of the operator.
        said: `reads`, `known`, `host`, `plain`, `splits`, `note` of `Record`.
    """

    def keep(run: Callable[..., Any]) -> Callable[..., Any]:
        for one in name.split():
            known = RECORDS.setdefault((domain, one), [])
            known.append(Record(domain, one, since, run, **said))
            known.sort(key=lambda r: -r.since)
        return run

    return keep


def record_of(domain: str, name: str, version: int) -> Record | None:
    """The record of an operator in a version of its domain; None if there is none."""
    return next((r for r in RECORDS.get((domain, name), ()) if r.since <= version), None)


@cache
def least_inputs(run: Callable[..., Any]) -> int:
    """How many inputs what computes an operator cannot do without.

    Example:
        >>> least_inputs(lambda call, a, b, bias=None: a)
        2
    """
    given = list(signature(run).parameters.values())[1:]
    return sum(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in given)


def check_node(node: Node, version: int) -> None:
    """Raise where a node lacks inputs that its operator cannot do without, or has no output.

    Raises:
        ModelError: it does.
    """
    found = record_of(node.domain, node.op, version)
    least = 0 if found is None else least_inputs(found.run)
    if len(node.inputs) < least or not node.outputs:
        raise ModelError(
            f"node {node.shown()} ({node.op}) has {len(node.inputs)} inputs and "
            f"{len(node.outputs)} outputs: at least {least} and 1 are needed"
        )


class Call:
    """A node while it runs: what its record's function knows besides the inputs.

    Attributes:
        node: of the graph.
        version: of the node's domain.
        opsets: versions of all domains.
        device: where new tensors are made.
        run_graph: runs a subgraph: (graph, values of its inputs) -> values of its outputs
            (`runner.Bodies`).
        kept: what the operator made of its attributes once; None before.
    """

    def __init__(self, node: Node, version: int, opsets: dict[str, int]) -> None:
        self.node, self.version, self.opsets = node, version, opsets
        self.count = len(node.outputs)
        self.run_graph: Any = _no_graphs
        self.device: Any = None
        self.state: Any = None
        self.kept: Any = None

    def __getitem__(self, name: str) -> Any:
        """An attribute that must be there.

        Raises:
            ModelError: it is not.
        """
        if name not in self.node.attributes:
            raise ModelError(f"node {self.node.shown()} lacks the attribute {name!r}")
        return self.node.attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what is taken without it."""
        return self.node.attributes.get(name, default)

    def wants(self, k: int) -> bool:
        """Whether somebody names the k-th output."""
        return k < self.count and bool(self.node.outputs[k])

    def refuse(self, rule: str, hint: str = "") -> ModelError:
        """An error that names the node."""
        return ModelError(f"node {self.node.shown()} ({self.node.op}): {rule}", hint=hint)


def _no_graphs(*args: Any) -> Any:
    raise ModelError("this node has no subgraphs")


def ints(value: Any) -> tuple[int, ...]:
    """A host array, or a list, of integers as a tuple."""
    return tuple(int(n) for n in np.asarray(value).reshape(-1))


def axis_of(axis: Any, rank: int) -> int:
    """An axis counted from the front.

    Example:
        >>> axis_of(-1, 3)
        2
    """
    axis = int(axis)
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"axis {axis} of a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def axes_of(axes: Any, rank: int) -> tuple[int, ...]:
    """Several axes counted from the front."""
    return tuple(axis_of(a, rank) for a in ints(axes))


def is_host(value: Any) -> bool:
    """Whether a value is a host array, or absent."""
    return value is None or isinstance(value, np.ndarray)


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a tensor or host array."""
    return tuple(value.shape)


def dtype_of(value: Any) -> np.dtype:
    """The NumPy dtype of a tensor or host array."""
    return value.dtype.numpy if isinstance(value, Tensor) else value.dtype
