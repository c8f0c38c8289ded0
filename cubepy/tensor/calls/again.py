"""Calls of library functions with tensors that are one op, as that op: what such a call makes of
its arguments is found by a short key, and its options are not looked at again.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from cubepy.errors import CubeError
from cubepy.runtime.replay.arguments import REFUSED
from cubepy.runtime.replay.standing import ONE
from cubepy.runtime.tables import room
from cubepy.tensor.array import Tensor, apply, given_of, of_store, remembered
from cubepy.tensor.calls.table import CALLS
from cubepy.tensor.control.learned import Watching
from cubepy.tensor.control.repeated import lasts
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.modes import mode
from cubepy.tensor.ops import OPS
from cubepy.tensor.record import blocks, recorded_by
from cubepy.tensor.replay import CALLING, VIEWS, ready, short_of
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Value

FEW = 2
"""How often a call goes the long way before what it is is learned."""
NEVER = -1
LIMIT = 4096
PLAIN = frozenset([int, float, bool, str, type(None)])
_known: dict[Any, Any] = {}
"""By short key, what does a call; or how often it came, or NEVER."""
_kept: dict[Any, list[Any]] = {}
"""Options whose addresses are in a short key, so that none gets them."""


def again(function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """What a library function gives of tensors on the host; REFUSED, with nothing done, where a
    call like it is not known.

    Args:
        function: what its front calls.
        values: for each parameter an argument.
    """
    texts: list[Any] = [function]
    tensors: list[Any] = []
    needs_grad = False
    for v in values:
        kind = type(v)
        if kind in PLAIN:
            texts.append(ONE[float](v) if kind is float else v)
        elif isinstance(v, Tensor):
            value = v.value
            store = value.storage
            if type(store) is not Dense or not store.shape or store.device.backend != "cpu":
                return REFUSED
            needs_grad = needs_grad or value.needs_grad
            tensors.append(v)
            texts.append(store.array)
        elif kind is tuple and PLAIN.issuperset(map(type, v)):
            texts.append(ONE[tuple](v))
        else:
            return REFUSED
    needs_grad = needs_grad and mode.enabled
    texts.append(needs_grad)
    short = short_of[0](tuple(texts))
    known = _known.get(short, 0)
    if type(known) is not int:
        return known(tensors, needs_grad)
    if known == NEVER or short is None or blocks or not tensors or not lasts(texts):
        return REFUSED
    if known >= FEW:
        result, known = _learned(function, values, tensors, needs_grad)
    else:
        result, known = REFUSED, known + 1
    room(_known, LIMIT, _kept)
    _kept[short] = [t for t in texts if type(t) is not np.ndarray]
    _known[short] = known
    return result


@cache
def _options() -> Any:
    """What looks at options."""
    return importlib.import_module("cubepy.kernels.entry.options")


@cache
def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _learned(
    function: Any, values: Sequence[Any], tensors: Sequence[Tensor], needs_grad: bool
) -> tuple[Any, Any]:
    """The result of a call, and what does it again."""
    make = CALLS.get(function.__name__.strip("_"))
    whole = dict(zip(_parameters(function), values, strict=True))
    if make is None or whole.get("out") is not None:
        return REFUSED, NEVER
    arguments = {name: v for name, v in whole.items() if name != "out"}
    recorder = Watching(tensors)
    try:
        _options().looked_at(function)((), whole)
        inspect.signature(make).bind(**arguments)  # a part of a function may have its name
        with recorded_by(recorder):
            result = make(**arguments)
    except (CubeError, TypeError):  # the long way says why
        return REFUSED, NEVER
    parts = result if type(result) is tuple else (result,)
    if any(type(p) is not Tensor for p in parts) or len(recorder.inputs) > len(tensors):
        return REFUSED, NEVER
    graph = recorder.graph(*parts)
    (*before, node), last = graph.nodes, graph.firsts[-1]
    if recorder.has_looked or any(n.op != "input" for n in before):
        return REFUSED, NEVER
    alone = node.op not in VIEWS and node.op not in CALLING and not OPS[node.op].writes
    if not alone or len(graph.inputs) < len(tensors) or min(graph.outputs) < last:
        return REFUSED, NEVER
    if not needs_grad and not _alike(function, whole, parts):
        return REFUSED, NEVER
    order = [None if i == ABSENT else graph.inputs.index(i) for i in node.inputs]
    which = [n - last for n in graph.outputs]
    return REFUSED, _OneCall(node.op, dict(node.attrs), order, which, type(result) is tuple)


def _alike(function: Any, arguments: dict[str, Any], parts: Sequence[Tensor]) -> bool:
    """Whether a function gives of arrays what an op gave, bit by bit."""
    found = function(**{n: _array(v) if isinstance(v, Tensor) else v for n, v in arguments.items()})
    arrays = found if type(found) is tuple else (found,)
    if len(arrays) != len(parts):
        return False
    return all(
        type(a) is np.ndarray
        and (a.shape, a.dtype) == (p.shape, p.dtype.numpy)
        and a.tobytes() == _array(p).tobytes()
        for a, p in zip(arrays, parts, strict=True)
    )


def _array(tensor: Tensor) -> np.ndarray:
    """Elements that only are read."""
    array: np.ndarray = tensor.value.storage.array  # type: ignore[attr-defined]
    return array


class _OneCall:
    """One op of the tensors of a call.

    Args:
        op, attrs: of the op.
        order: which tensors it reads; None for what is absent.
        which: the results that the call gives.
        several: whether it gives a tuple.
    """

    __slots__ = ("attrs", "op", "options", "order", "several", "which")

    def __init__(
        self,
        op: str,
        attrs: dict[str, Any],
        order: Sequence[int | None],
        which: Sequence[int],
        several: bool,
    ) -> None:
        self.attrs = {n: ONE[type(v)](v) if type(v) in ONE else v for n, v in attrs.items()}
        self.op, self.order, self.which, self.several = op, order, which, several
        self.options = (*self.attrs, *self.attrs.values())

    def __call__(self, tensors: Sequence[Tensor], needs_grad: bool) -> Any:
        op, attrs = self.op, self.attrs
        inputs = [None if n is None else tensors[n] for n in self.order]
        arrays = [None if t is None else t.value.storage.array for t in inputs]  # type: ignore[attr-defined]
        values = (op, *arrays, *self.options)
        repeat = ready(short_of[0](values))
        made: Any = None if repeat is None else repeat(values)
        if type(made) is not list and type(made) is not Dense:
            made = apply(op, *inputs, **attrs)
            found = made if type(made) is list else [made]
        else:
            stores = made if type(made) is list else [made]
            if needs_grad:
                found = [*map(given_of, remembered(op, inputs, attrs, [*map(Value, stores)]))]
            else:
                found = [*map(of_store, stores)]
        if self.several:
            return tuple([found[n] for n in self.which])
        return found[self.which[0]]
