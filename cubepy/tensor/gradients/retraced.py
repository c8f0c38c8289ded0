"""Gradients that were traced before: the nodes of an op's gradient again, for another call of the
op that looks the same.

What some gradients do follows from the specs of what they read, the attributes and what is wanted
alone (`rules.vjp(..., follows=True)`). A network has many layers of one kind, so a trace would run
the same function of ops again and again. It runs once, and its nodes are kept with who reads whom;
from then on they are recorded as if it had run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cubepy.runtime.replay.arguments import key_of
from cubepy.runtime.stats import counters
from cubepy.tensor.array import Tensor
from cubepy.tensor.gradients.rules import FOLLOWS, Backward
from cubepy.tensor.ir import ABSENT, Node
from cubepy.tensor.modes import mode
from cubepy.tensor.ops.op import spec_of
from cubepy.tensor.program.promised import Promised, Work
from cubepy.tensor.value import Number, Value, identities, outside


class Known(NamedTuple):
    """What a gradient did.

    Attributes:
        nodes: each with what it reads, which of that are numbers, the attributes as its op got
            them, the storage of a number (or None), and whether gradients stop at it.
        read: what it reads from outside, in the order of first use.
        given: the gradient by each input.

    What is read or given is told by numbers: 0 is nothing, what came from outside is from 1 on,
    then come the results of nodes.
    """

    nodes: tuple[tuple[Node, tuple[int, ...], list[bool], dict[str, Any], Any, bool], ...]
    read: tuple[int, ...]
    given: tuple[int, ...]


class Made:
    """The values that ops gave meanwhile, which it keeps.

    Args:
        before: who is told of them otherwise.
    """

    def __init__(self, before: Any) -> None:
        self.before, self.kept = before, list[tuple[Value, ...]]()

    def add(self, values: Sequence[Value], line: Any) -> None:
        """An op gave values."""
        self.before.add(values, line)
        self.kept.append(tuple(values))


class Retraced:
    """The gradients that a recorder saw."""

    def __init__(self) -> None:
        self.known: dict[Any, Known | None] = {}

    def given(self, recorder: Any, op: str, rule: Any, seen: Backward, grads: Sequence[Any]) -> Any:
        """The gradients by the inputs of a call.

        Args:
            recorder: of the trace.
            op: of the call.
            rule: what gives them.
            seen: the call.
            grads: by its results.
        """
        outer = [*seen.inputs, *seen.results, *grads]
        key = None if op not in FOLLOWS or mode.enabled else key_for(recorder, op, seen, outer)
        if key is None:
            return rule(seen, *grads)
        if key in self.known:
            known = self.known[key]
            return rule(seen, *grads) if known is None else again(recorder, known, outer)
        return self.first(recorder, key, rule, seen, grads, outer)

    def first(
        self,
        recorder: Any,
        key: Any,
        rule: Any,
        seen: Backward,
        grads: Sequence[Any],
        outer: Sequence[Any],
    ) -> Any:
        """The gradients, which are known from here on."""
        begin, inputs = len(recorder._nodes), len(recorder.inputs)
        cuts, before = len(recorder.cut), recorder.made_here
        recorder.made_here = made = Made(before)
        try:
            found = rule(seen, *grads)
        finally:
            recorder.made_here = before
        self.known[key] = None
        if len(recorder.inputs) == inputs and len(recorder.cut) == cuts:
            self.known[key] = learned(recorder, recorder._nodes[begin:], made.kept, found, outer)
        return found


def key_for(recorder: Any, op: str, seen: Backward, outer: Sequence[Any]) -> Any:
    """What decides what a gradient does; None where more than that may."""
    same, numbers = recorder._same, dict[int, int]()
    key: list[Any] = [op, len(seen.inputs), len(seen.results), *seen.needs]
    key += [*seen.attrs, *key_of(seen.attrs.values())]
    home: Any = None
    for n, t in enumerate(outer):
        if t is None:
            key.append(None)
            continue
        value = t.value
        store = value.storage
        home = home or store.device
        plain = store.kind == "dense" and type(value) is Value and store.device is home
        if not plain or value.id in same:
            return None
        first = numbers.setdefault(value.id, n)
        key += (store.shape, store.dtype, value.needs_grad, first)
    key.append(id(home))  # the storages of the trace keep it
    return tuple(key)


def learned(
    recorder: Any,
    nodes: Sequence[Any],
    made: Sequence[tuple[Value, ...]],
    found: Any,
    outer: Sequence[Any],
) -> Known | None:
    """What a gradient did; None where it cannot be done again."""
    if len(nodes) != len(made):
        return None
    number = {t.value.id: n for n, t in reversed([*enumerate(outer, 1)]) if t is not None}
    number[ABSENT] = 0
    stopped, kept, beside = recorder.stopped, [], [False] * (len(outer) + 1)
    for (keys, node), values in zip(nodes, made, strict=True):
        promised = all(type(v) is Value and type(v.storage) is Promised for v in values)
        constant = node.op == "constant" and type(values[0]) is Number
        here = keys == tuple([v.id for v in values])
        if not here or not (promised or constant) or any(i not in number for i in node.inputs):
            return None
        reads = tuple([number[i] for i in node.inputs])
        numbers = [beside[i] for i in reads]
        store = None if promised else values[0].storage
        stops = not stopped.isdisjoint(keys)
        kept.append((node, reads, numbers, dict(node.attrs), store, stops))
        number |= {key: len(beside) + k for k, key in enumerate(keys)}
        beside += [constant] * len(keys)
    parts = found if isinstance(found, (tuple, list)) else (found,)
    given = [0 if part is None else number.get(part.value.id, ABSENT) for part in parts]
    if ABSENT in given or any(beside[n] for n in given):
        return None
    read = dict.fromkeys([i for _, reads, *_ in kept for i in reads if 0 < i <= len(outer)])
    return Known(tuple(kept), tuple(read), tuple(given))


def again(recorder: Any, known: Known, outer: Sequence[Any]) -> list[Any]:
    """The gradients of a call like one before."""
    asked = outside()
    home = next(t.value.storage.device for t in outer if t is not None)
    names = [ABSENT] * (len(outer) + 1)
    for n in known.read:
        names[n] = recorder._input(outer[n - 1])
    stores: list[Any] = [None, *[None if t is None else t.value.storage for t in outer]]
    nodes, asked_at = recorder._nodes, recorder._asked_at
    for node, reads, numbers, attrs, constant, stops in known.nodes:
        specs = tuple([spec_of(s) for s in node.results])
        made = tuple([next(identities) for _ in specs])
        if constant is None:
            work = Work(node.op, [stores[i] for i in reads], numbers, attrs, home)
            stores += [Promised(s, home, work, k) for k, s in enumerate(specs)]
        else:
            counters.ops += 1
            stores.append(constant)
        nodes.append((made, Node(node.op, tuple([names[i] for i in reads]), node.attrs, specs)))
        names += made
        asked_at[id(specs[0])] = asked
        if stops:
            recorder.stopped.update(made)
    recorder._known.update(names[len(outer) + 1 :])
    tensors: list[Any] = []
    for n in known.given:
        if n <= len(outer):
            tensors.append(outer[n - 1] if n else None)
            continue
        tensor = object.__new__(Tensor)
        tensor.value = value = Value(stores[n])
        value.id = names[n]
        recorder.made_here.add([value], asked)
        tensors.append(tensor)
    return tensors
