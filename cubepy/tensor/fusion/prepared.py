"""The arrays that programs keep of weights: made once for all programs, and again when a weight has
other elements.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from cubepy.compiler.signature import exact
from cubepy.errors import OutOfMemoryError
from cubepy.tensor.array import Tensor
from cubepy.tensor.exposed import Untouched, untouched, version
from cubepy.tensor.fusion.steady import Preparation
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph
from cubepy.tensor.modes import no_grad
from cubepy.tensor.ops import Spec
from cubepy.tensor.program.plans.steady import renew
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Value

NEVER = -1
"""The version of arrays that hold for one call: somebody else has the memory of a weight."""
State = tuple[tuple[Value, ...], int, tuple[Any, ...]]


class _Made:
    """An array made of the elements of some values.

    Attributes:
        array: what was made.
        others: the values but for the first one.
        memory: of all values.
    """

    def __init__(self, array: Any, others: Sequence[Value], memory: Sequence[Untouched]) -> None:
        self.array, self.others, self.memory = array, tuple(others), tuple(memory)

    def holds(self, others: Sequence[Value]) -> bool:
        """Whether it is right for a first value and these others."""
        return self.others == tuple(others) and all(m.holds for m in self.memory)


_made: WeakKeyDictionary[Value, dict[Any, _Made]] = WeakKeyDictionary()
_lock = threading.RLock()


class Prepared:
    """What a program has of its weights.

    Args:
        preparations: of the inputs of the traced graph, by their numbers.
        specs: of the weights, by these numbers.
        read: the weights that the program reads as they are, too.

    Attributes:
        keys: of the preparations, by which what they made is known.
        inputs: the numbers of all weights.
        state: the values for which arrays were made, the version of memory at which they hold
            (`NEVER`: made anew for every call), and the arrays.
    """

    def __init__(
        self, preparations: Sequence[Preparation], specs: dict[int, Spec], read: set[int]
    ) -> None:
        self.preparations = tuple(preparations)
        self.keys = [_exact(p.graph) for p in preparations]
        self.inputs = tuple(sorted({i for p in preparations for i in p.inputs}))
        self.specs = [specs[i] for i in self.inputs]
        self.read = read
        self.state: State = ((), NEVER, ())

    def renew(self, values: tuple[Value, ...], reading: bool = True) -> State | None:
        """The state for other values; None where they are of another kind, or there is no memory.

        Args:
            values: of the weights.
            reading: whether the caller has the arrays that the program reads as they are.
        """
        for value, (shape, dtype) in zip(values, self.specs, strict=True):
            store = value.storage
            if type(store) is not Dense or store.shape != shape or store.dtype is not dtype:
                return None
        by = dict(zip(self.inputs, values, strict=True))
        with _lock:
            renew()  # what programs saw has the arrays, too, and these are counted
            now, lasting, arrays = version[0], True, []
            for p, key in zip(self.preparations, self.keys, strict=True):
                first, *others = [by[i] for i in p.inputs]
                found = _made.get(first, {}).get(key)
                if found is None or not found.holds(others):
                    stores: list[Any] = [by[i].storage for i in p.inputs]
                    memory = [
                        untouched(store, int(reading and i in self.read))
                        for i, store in zip(p.inputs, stores, strict=True)
                    ]
                    try:
                        found = _Made(_run(p.graph, [first, *others]), others, ())
                    except OutOfMemoryError:
                        return None
                    if None in memory:
                        lasting = False
                    else:
                        found.memory = tuple(m for m in memory if m is not None)
                        _made.setdefault(first, {})[key] = found
                arrays.append(found.array)
            self.state = values, now if lasting else NEVER, tuple(arrays)
            return self.state

    def arrays(self, values: Sequence[Value]) -> tuple[Any, ...]:
        """The arrays for the values of all inputs of the traced graph."""
        state = self.renew(tuple(values[i] for i in self.inputs), reading=False)
        if state is None:
            raise OutOfMemoryError("no memory for what a program keeps of its weights")
        return state[2]


def _exact(graph: Graph) -> Any:
    """A key of a graph that tells apart numbers that are equal: 0.0 and -0.0."""
    return graph, exact(tuple([node.attrs for node in graph.nodes]))


def _run(graph: Graph, values: Sequence[Value]) -> Any:
    given = []
    for value in values:
        tensor = object.__new__(Tensor)
        tensor.value = Value(value.storage)
        given.append(tensor)
    with no_grad():
        return execute(graph, given)[0].storage.dense()
