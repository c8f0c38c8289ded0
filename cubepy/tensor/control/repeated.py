"""Gradients that come again, as programs: outside of `cb.jit` the gradient of an op is several ops,
each of which costs Python and a pass over memory.

What was asked for often, of the same specs, is one fused program from then on. Nothing is traced
for what comes a few times: a trace takes as long as some thousand small ops.
"""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from cubepy.compiler.signature import ALONE, exact
from cubepy.runtime import recording
from cubepy.runtime.device import Device, current
from cubepy.runtime.generated import written
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.replay.standing import ONE
from cubepy.runtime.tables import room
from cubepy.tensor.gradients.rules import Backward, Vjp, summed_to
from cubepy.tensor.ir import ABSENT
from cubepy.tensor.ops import OPS
from cubepy.tensor.program.observe import blocks
from cubepy.tensor.replay import VIEWS, perform, quick, ready, short_of
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Number, Value

AFTER = 24
"""How often a gradient is computed op by op first."""
LARGE, LARGE_ON_GPU = 1 << 13, 1 << 21
"""Elements that count as one more time: what is large pays for a trace sooner."""
VARIED = 8
"""How often a function may get another kind of arguments before it is no program any more."""
LIMIT = 1024
SMALL = 1 << 16
"""Bytes up to which a gradient with gaps is copied first; larger ones are read as they lie."""
KINDS = frozenset(["map", "row", "reduce"])
ALSO = frozenset(["batch_norm", "channel_norm", "group_norm", "cumprod"])
"""Ops of other kinds whose gradients are several ops."""
STEPWISE = "python"
"""The backend on which programs are no native call."""
SINGLE = frozenset(
    "add sub neg sum mean cast dropout floordiv sign max_pool adaptive_max_pool".split()
)
"""Ops of these kinds whose gradients are one op or views."""

ONE_SIDED = frozenset(["mul", "div"])
"""Ops the gradient of which by one of two inputs is one op: a program on a GPU is not faster."""

NOTHING = (None, None)
_met: dict[Any, Any] = {}
"""By op, attributes and specs, how often a gradient was asked for, or what computes it."""


def programmed(
    call: Any,
    rule: Vjp,
    inputs: Sequence[Value | None],
    results: Sequence[Value | None],
    needs: tuple[bool, ...],
    grads: Sequence[Any],
) -> tuple[Any, Any]:
    """The gradients by the inputs of a call, as far as they are wanted, summed to their shapes, by
    a program, and what gives them of storages on the host; None where there is none.
    """
    op = call.op
    if op in SINGLE or not (OPS[op].kind in KINDS or op in ALSO):
        return NOTHING
    key: list[Any] = [op, rule, needs]
    arrays, home = [], None
    for group in (inputs, results):
        for v in group:
            if v is None:
                key.append(None)
                continue
            store = v.storage
            if type(store) is not Dense:
                return NOTHING
            key += store.shape, store.dtype
            arrays.append(v)
            if type(v) is Number:
                key.append(Number)
            elif store.device is not home:
                if home is not None and store.device != home:
                    return NOTHING
                home = store.device
    if home is None or home.backend == STEPWISE:
        return NOTHING
    on_gpu = home.backend != "cpu"
    if on_gpu:
        if op in ONE_SIDED and False in needs:
            return NOTHING
        key += home.backend, home.ordinal
    elif current().backend != "cpu":
        return NOTHING
    for g in grads:
        if g is None:
            key.append(None)
            continue
        store = g.value.storage
        if type(store) is not Dense or store.device is not home and store.device != home:
            return NOTHING
        if not on_gpu and not store.array.flags.c_contiguous and store.array.nbytes > SMALL:
            return NOTHING
        key += store.shape, store.dtype
    if call.attrs:
        key += call.attrs
        key += [(type(v), v) if type(v) in ALONE else exact(v) for v in call.attrs.values()]
    try:
        found = _met.get(known := tuple(key), 0)
    except TypeError:  # something unhashable
        return NOTHING
    if type(found) is int:
        if found < AFTER:
            room(_met, LIMIT)
            most = max([math.prod(v.storage.shape) for v in arrays], default=0)
            _met[known] = found + 1 + most // (LARGE_ON_GPU if on_gpu else LARGE)
            return NOTHING
        there = [v is not None for v in (*inputs, *results, *grads)]
        behind = len(inputs) + len(results)
        function = of_rule(rule, len(inputs), behind, there, needs, call.attrs)
        found = _met[known] = Repeated(function, sum(there), sum(there[:behind]), home)
    return found(arrays, [dense(g) for g in grads if g is not None]), found.of_stores


def dense(grad: Any) -> Any:
    """A gradient without gaps: those of sums are one number that is everywhere."""
    array = grad.value.storage.array
    if type(array) is DeviceArray:
        return grad if array.layout.contiguous else grad.contiguous()
    if array.flags.c_contiguous:
        return grad
    return _tensor()(Dense(np.ascontiguousarray(array)))


def at_home(value: Value, home: Device) -> Any:
    """The storage of a value where a program is: numbers were made where it was the device then."""
    store: Any = value.storage
    away = type(value) is Number and store.device is not home
    return Dense(store.array, home) if away else store


def plain(value: Value, home: Device) -> Value:
    """A value of the same elements, of which a program knows nothing but that numbers are at home
    on a GPU, too.
    """
    number = type(value) is Number and home.backend != "cpu"
    return (Number if number else Value)(at_home(value, home))


class Often:
    """A function of tensors, which `cb.jit` may take, as a program from the 25th call on; not while
    ops are recorded, and not where other devices or ever other kinds of arguments make it no use.

    Args:
        function: what to call.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls = function, 0
        self.program: Any = None

    def __call__(self, *args: Any) -> Any:
        if recording.detours or blocks or self.calls > AFTER + VARIED:
            return self.function(*args)
        if current().backend == STEPWISE:
            return self.function(*args)
        if self.calls < AFTER:
            self.calls += 1
            return self.function(*args)
        if self.program is None:
            self.program = _jit()(self.function)
        latest = self.program.latest
        result = self.program(*args)
        if self.program.latest is not latest:  # another kind of arguments
            self.calls += 1
        return result

    def __reduce__(self) -> Any:
        return Often, (self.function,)

    def __deepcopy__(self, memo: Any) -> Often:
        return Often(copy.deepcopy(self.function, memo))


@cache
def _jit() -> Callable[[Any], Any]:
    """What makes programs, which know the walk back."""
    made: Callable[[Any], Any] = importlib.import_module("cubepy.tensor.program.jit").Jitted
    return made


@cache
def _apply() -> Any:
    return importlib.import_module("cubepy.tensor.array").apply


@cache
def _of_store() -> Any:
    return importlib.import_module("cubepy.tensor.array").of_store


@cache
def _tensor() -> Any:
    return importlib.import_module("cubepy.tensor.array").Tensor


class OneOp:
    """A program of one op of its arguments and numbers, done as that op: it takes half of what the
    call of a program does.

    Args:
        op, attrs: of the op.
        inputs: by what it reads, the number of an argument, or a number as a tensor.
        kept: which of its results are the program's.
        gpu: whether arrays are on one.
    """

    def __init__(
        self,
        op: str,
        attrs: dict[str, Any],
        inputs: Sequence[Any],
        kept: Sequence[int],
        gpu: bool = False,
    ) -> None:
        self.op, self.attrs, self.inputs, self.kept = op, attrs, inputs, kept
        self.run: Callable[[Sequence[Any]], Any] = self.on_gpu
        """The storage of the only result, or a list of those of several; of storages of arrays,
        which are the arguments."""
        if gpu:
            return
        scope: dict[str, Any] = {"op": op, "ready": ready, "short_of": short_of, "Dense": Dense}
        texts = ["op"]
        for n, given in enumerate(inputs):
            texts.append(f"stores[{given}].array" if type(given) is int else f"number{n}")
            if type(given) is not int:
                scope[f"number{n}"] = None if given is None else given.value.storage.array
        for n, v in enumerate((*attrs, *attrs.values())):
            texts.append(f"option{n}")
            scope[f"option{n}"] = ONE[type(v)](v) if type(v) in ONE else v
        scope["several"] = self.several
        usual, found = "Dense", "made"
        if list(kept) != [0]:
            usual, found = "list", f"[{', '.join(f'made[{k}]' for k in kept)}]"
        lines = [
            "def one(stores):",
            f"    values = ({', '.join(texts)},)",
            "    again = ready(short_of[0](values))",
            "    made = None if again is None else again(values)",
            f"    return {found} if type(made) is {usual} else several(made, stores)",
        ]
        self.run = written("\n".join(lines), "<one op>", scope)

    @staticmethod
    def of(program: Any, count: int) -> OneOp | None:
        """What a program (`Jitted`) of some arguments is as one op; None where it is more."""
        made = [one for some in program.programs.values() for one in some]
        if len(made) != 1 or made[0].writer.states:
            return None
        graph, trace = made[0].graph, made[0].writer.trace
        if len(trace.sources) != len(graph.inputs) or trace.effects or not graph.nodes:
            return None
        if any(source.kind != "argument" or source.of >= count for source in trace.sources):
            return None
        *before, node = graph.nodes
        given: list[Any] = []
        for n, one in enumerate(before):
            if one.op == "input":
                given.append(trace.sources[graph.inputs.index(n)].of)
            elif one.op == "constant":
                given.append(_apply()("constant", **dict(one.attrs)))
            else:
                return None
        parts = trace.result if isinstance(trace.result, (tuple, list)) else (trace.result,)
        numbers = [getattr(part, "number", None) for part in parts if part is not None]
        if None in numbers:
            return None
        kept = [graph.outputs[number] - len(before) for number in numbers]
        alone = node.op in OPS and node.op not in VIEWS and not OPS[node.op].writes
        if not alone or min(kept, default=-1) < 0 or len(set(kept)) < len(kept):
            return None
        inputs = [None if i == ABSENT else given[i] for i in node.inputs]
        if int not in map(type, inputs):  # where it is would be decided by the current device
            return None
        gpu = made[0].writer.gpu is not None
        return OneOp(node.op, dict(node.attrs), inputs, kept, gpu)

    def on_gpu(self, stores: Sequence[Any]) -> Any:
        """The same of arrays on a GPU."""
        tensor = _tensor()
        given = [tensor(stores[i]) if type(i) is int else i for i in self.inputs]
        made = quick(self.op, given, self.attrs)
        return self.several(made, stores)

    def several(self, made: Any, stores: Sequence[Any]) -> Any:
        """Results of what repeats the op; it is done anew, where that gave none."""
        if type(made) is not list and type(made) is not Dense:
            tensor = _tensor()
            given = [tensor(stores[i]) if type(i) is int else i for i in self.inputs]
            made = perform(self.op, given, self.attrs)
        made = made if type(made) is list else [made]
        return made[0] if self.kept == [0] else [made[k] for k in self.kept]


class Repeated:
    """A function of arrays, such as the gradient of one kind of calls, as a program.

    Args:
        function: of tensors; it gives a tuple of some, or None.
        count: how many there are.
        values: how many of them are values; behind them are gradients.
        home: where they are.
    """

    def __init__(
        self, function: Callable[..., tuple[Any, ...]], count: int, values: int, home: Device
    ) -> None:
        self.program = _jit()(function)
        self.count, self.values, self.calls = count, values, 0
        self.one: OneOp | None = None
        self.home, self.on_gpu = home, home.backend != "cpu"
        self.gives: Sequence[bool] = ()

    def __call__(self, values: Sequence[Value], grads: Sequence[Any]) -> Any:
        tensor = _tensor()
        if self.one is not None:
            stores = [at_home(v, self.home) for v in values] + [g.value.storage for g in grads]
            return self.by_op(self.one, stores)
        given = []
        for v in values:
            one = tensor.__new__(tensor)
            one.value = plain(v, self.home)
            given.append(one)
        result = self.program(*given, *grads)
        self.calls += 1
        if self.calls == 1:
            self.gives = [part is not None for part in result]
            if not (self.on_gpu and Number in map(type, (*values, *[g.value for g in grads]))):
                self.one = OneOp.of(self.program, self.count)
        return result

    def by_op(self, one: OneOp, stores: Sequence[Any]) -> list[Any]:
        """The gradients, of storages, as one op."""
        made, of_store = one.run(stores), _of_store()
        found = iter(made if type(made) is list else (made,))
        return [of_store(next(found)) if there else None for there in self.gives]

    def of_stores(self, stores: Sequence[Any]) -> Any:
        """The same of storages on the host."""
        for n in range(self.values, self.count):
            array = stores[n].array
            if not array.flags.c_contiguous and array.nbytes <= SMALL:
                stores = [*stores[:n], Dense(np.ascontiguousarray(array)), *stores[n + 1 :]]
        if self.one is not None:
            return self.by_op(self.one, stores)
        return self.program(*map(_of_store(), stores))


def of_rule(
    rule: Vjp,
    count: int,
    behind: int,
    there: Sequence[bool],
    needs: tuple[bool, ...],
    attrs: dict[str, Any],
) -> Callable[..., tuple[Any, ...]]:
    """What a rule gives of arrays: of so many inputs, the results before `behind`, and gradients,
    as far as they are there.
    """

    def function(*arrays: Any) -> tuple[Any, ...]:
        rest = iter(arrays)
        all_of: list[Any] = [next(rest) if one else None for one in there]
        seen = Backward(tuple(all_of[:count]), all_of[count:behind], attrs, needs)
        made = rule(seen, *all_of[behind:])
        parts = made if isinstance(made, (tuple, list)) else (made,)
        return tuple(
            [
                summed_to(part, x) if part is not None and need else None
                for part, x, need in zip(parts, all_of, needs, strict=False)
            ]
        )

    return function


def lasts(values: Sequence[Any]) -> bool:
    """Whether all dtypes of arrays are those that there is one of: their addresses stay."""
    return all(v.dtype is np.dtype(v.dtype.type) for v in values if type(v) is np.ndarray)
