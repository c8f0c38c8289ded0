"""A recorder that knows where gradients stop: at what was detached, or computed in `no_grad`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cubepy.tensor.gradients.retraced import Retraced
from cubepy.tensor.ir import Graph, Node, renumbered
from cubepy.tensor.modes import mode
from cubepy.tensor.ops import Spec
from cubepy.tensor.program.leaked import Made
from cubepy.tensor.program.promised import promise
from cubepy.tensor.record import Recorder
from cubepy.tensor.value import Handle, Value, identities, outside


class ExactRecorder(Recorder):
    """The ops of a block, as gradients see them.

    Attributes:
        made_here: the values that its ops gave.
        cut: by node, which of its inputs were detached.
        stopped: values that were computed without gradients of what has some.
    """

    def __init__(self, announced: Sequence[Handle]) -> None:
        self.made_here = Made()
        self.cut: dict[int, list[int]] = {}
        self.stopped: set[int] = set()
        self.retraced = Retraced()
        super().__init__(announced)

    def promised(self, op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        return promise(op, inputs, attrs)

    def back(self, op: str, rule: Callable[..., Any], seen: Any, grads: Sequence[Any]) -> Any:
        return self.retraced.given(self, op, rule, seen, grads)

    def same(self, value: Value, tensor: Handle) -> None:
        super().same(value, tensor)
        self.made_here.add([value], outside())

    def add(
        self,
        op: str,
        inputs: Sequence[Handle | None],
        attrs: dict[str, Any],
        results: Sequence[Value],
    ) -> Any:
        asked = super().add(op, inputs, attrs, results)
        self.made_here.add(results, asked)
        if self._same:
            cut = [
                k
                for k, t in enumerate(inputs)
                if t is not None and t.value.call is None and t.value.id in self._same
            ]
            if cut:
                self.cut[len(self._nodes) - 1] = cut
        if not mode.enabled and any(t is not None and t.value.needs_grad for t in inputs):
            self.stopped.update([v.id for v in results])
        return asked

    def differentiated(self, outputs: Sequence[Handle]) -> Graph:
        """The graph of outputs with a node "detach" where gradients stop."""
        names = [self._input(t) for t in outputs]
        nodes: list[tuple[tuple[int, ...], Node]] = []
        specs: dict[int, Spec] = {}

        def detach(name: int, to: int) -> int:
            nodes.append(((to,), Node("detach", (name,), (), (specs[name],))))
            specs[to] = specs[name]
            return to

        for at, (keys, node) in enumerate(self._nodes):
            inputs = list(node.inputs)
            for k in self.cut.get(at, ()):
                inputs[k] = detach(inputs[k], next(identities))
            stopped = not self.stopped.isdisjoint(keys)
            made = tuple([next(identities) for _ in keys]) if stopped else keys
            nodes.append((made, replace(node, inputs=tuple(inputs))))
            specs.update(zip(made, node.results, strict=True))
            if stopped:
                for one, key in zip(made, keys, strict=True):
                    detach(one, key)
        wanted = []
        for t, name in zip(outputs, names, strict=True):
            value = t.value
            detached = value.call is None and value.id in self._same
            wanted.append(detach(name, next(identities)) if detached else name)
        given = [keys[0] for keys, node in self._nodes if node.op == "input"]
        return renumbered(nodes, given, wanted)
