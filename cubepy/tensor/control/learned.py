"""Functions of arrays that are a few ops and views: what they did once is done again for arrays of
the same layouts, without their Python and without tensors in between.

Nothing is traced or compiled, so this pays from the third time on. Ops come to their launches by
the short keys of `tensor.replay`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import LaunchError
from cubepy.runtime.generated import written
from cubepy.runtime.replay.standing import ONE
from cubepy.tensor.array import apply, of_store
from cubepy.tensor.ir import ABSENT, Graph
from cubepy.tensor.ops import OPS
from cubepy.tensor.record import Recorder, recorded_by
from cubepy.tensor.replay import CALLING, VIEWS, perform, ready, short_of, viewed
from cubepy.tensor.storage import Dense

MOST = 6
"""Launches; more of them are better off as a program, which is one."""
PLAIN_VIEWS = frozenset("reshape permute slice expand".split())
Again = Callable[[Sequence[Any]], "list[Any] | None"]
"""Of storages of the arrays: tensors (None where there is none); None where the function has to be
asked."""


class Watching(Recorder):
    """The ops of a block, and whether it looked at elements."""

    has_looked = False

    def looked(self, tensor: Any, what: str) -> None:
        self.has_looked = True


def learned(
    function: Callable[..., Sequence[Any]], stores: Sequence[Any]
) -> tuple[Sequence[Any], Again | None]:
    """What a function of tensors gives (tensors, or None), and what does it again; None where it is
    not a few ops of these tensors.

    Args:
        function: it gives a sequence, and does what follows from layouts alone.
        stores: dense storages on the host, of what it is given.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0])
        >>> given, again = learned(lambda t: [t.reshape(2, 1), None], [x.storage])
        >>> given[0].shape, again([x.storage])[0].shape
        ((2, 1), (2, 1))
    """
    tensors = [of_store(s) for s in stores]
    recorder = Watching(tensors)
    with recorded_by(recorder):
        result = function(*tensors)
    there = [t for t in result if t is not None]
    if recorder.has_looked or len(recorder.inputs) > len(tensors) or not there:
        return result, None
    try:
        graph = recorder.graph(*there)
    except LaunchError:  # a tensor from elsewhere
        return result, None
    return result, _written(graph, [t is not None for t in result], stores)


def _written(graph: Graph, there: Sequence[bool], stores: Sequence[Any]) -> Again | None:
    scope: dict[str, Any] = {"ready": ready, "short_of": short_of, "Dense": Dense}
    scope |= {"of_store": of_store, "new": object.__new__, "anew": _anew}
    stored = {value: f"stores[{n}]" for n, value in enumerate(graph.inputs)}
    arrays = {value: f"a{n}" for n, value in enumerate(graph.inputs)}
    lines = [f"    a{n} = stores[{n}].array" for n in range(len(graph.inputs))]
    launches = 0
    for n, (first, node) in enumerate(zip(graph.firsts, graph.nodes, strict=True)):
        attrs = dict(node.attrs)
        if node.op == "input":
            continue
        if node.op == "constant":
            scope[f"number{n}"] = apply("constant", **attrs).storage.array
            arrays[first] = f"number{n}"
            continue
        if node.op in PLAIN_VIEWS:
            like = graph.values[node.inputs[0]]
            ((_, given),) = node.attrs
            scope[f"view{n}"] = viewed(node.op, given, np.empty(like.shape, like.dtype.numpy))
            of = arrays[node.inputs[0]]
            if node.op == "reshape":  # else something is launched
                lines.append(f"    if not {of}.flags.c_contiguous: return None")
            lines.append(f"    v{n} = view{n}({of})")
            arrays[first] = f"v{n}"
            continue
        launches += 1
        if node.op in VIEWS or node.op in CALLING or OPS[node.op].writes or launches > MOST:
            return None
        texts = ["None" if i == ABSENT else arrays[i] for i in node.inputs]
        for k, option in enumerate((node.op, *attrs, *attrs.values())):
            scope[f"option{n}_{k}"] = ONE[type(option)](option) if type(option) in ONE else option
        options = [f"option{n}_{k}" for k in range(1, 1 + 2 * len(attrs))]
        scope[f"attrs{n}"] = attrs
        lines += [
            f"    values = ({', '.join([f'option{n}_0', *texts, *options])},)",
            "    again = ready(short_of[0](values))",
            f"    made{n} = None if again is None else again(values)",
        ]
        several = len(node.results) > 1
        lines += [
            f"    if type(made{n}) is not {'list' if several else 'Dense'}:",
            f"        made{n} = anew(option{n}_0, [{', '.join(texts)}], attrs{n})",
        ]
        for k in range(len(node.results)):
            value, of = first + k, f"made{n}[{k}]" if several else f"made{n}"
            stored[value], arrays[value] = of, f"m{value}"
            lines.append(f"    m{value} = {of}.array")
    outputs, results = iter(graph.outputs), list[str]()
    for is_there in there:
        value = next(outputs) if is_there else ABSENT
        if value != ABSENT and value not in stored:
            if arrays[value].startswith("number"):
                return None
            at = arrays[value]
            lines += [f"    s{at} = new(Dense)", f"    s{at}.array = {at}"]
            lines += [f"    s{at}.shape = {at}.shape", f"    s{at}.dtype = dtype_{at}"]
            lines += [f"    s{at}.device = device"]
            stored[value] = f"s{at}"
            scope |= {f"dtype_{at}": graph.values[value].dtype, "device": stores[0].device}
        results.append("None" if value == ABSENT else f"of_store({stored[value]})")
    text = "\n".join(["def few(stores):", *lines, f"    return [{', '.join(results)}]"])
    return written(text, "<few ops>", scope)  # type: ignore[no-any-return]


def _anew(op: str, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """What an op gives that has no short key yet."""
    return perform(op, [None if a is None else of_store(Dense(a)) for a in arrays], attrs)
