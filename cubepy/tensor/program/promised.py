"""Values of a trace: shapes and dtypes that ops promise, whose elements nobody computes until the
program runs.

A promise knows the op that gives it. Whoever needs the elements before (an op of the trace never
does) has what leads to them computed there and then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import LaunchError
from cubepy.runtime import memory, recording
from cubepy.runtime.device import Device, use
from cubepy.tensor.ops import OPS, Spec
from cubepy.tensor.ops.op import spec_of
from cubepy.tensor.program.observe import active
from cubepy.tensor.program.plans.states import wait
from cubepy.tensor.replay import STRIDED, device_of, perform
from cubepy.tensor.storage import Dense, Storage
from cubepy.tensor.value import Handle, Number

_slot: Any = Dense.__dict__["array"]
_put = _slot.__set__


class Work:
    """An op that was put off.

    Attributes:
        op: its name.
        inputs: storages, None for absent ones.
        numbers: whether they are numbers beside tensors.
        attrs: its attributes.
        device: where it runs.
    """

    __slots__ = ("attrs", "device", "inputs", "numbers", "op")

    def __init__(
        self,
        op: str,
        inputs: list[Storage | None],
        numbers: list[bool],
        attrs: dict[str, Any],
        device: Device,
    ) -> None:
        self.op, self.inputs, self.numbers = op, inputs, numbers
        self.attrs, self.device = attrs, device

    def done(self, stores: Sequence[Storage | None]) -> list[Any]:
        """The storages that it gives, of those of its inputs."""
        given: list[Handle | None] = []
        for store, number in zip(stores, self.numbers, strict=True):
            if store is None:
                given.append(None)
                continue
            handle = Handle(store)
            if number:
                handle.value = Number(store)
            given.append(handle)
        with use(self.device):
            made = perform(self.op, given, self.attrs)
        return made if type(made) is list else [made]


class Promised(Dense):
    """Elements that an op will give: the result of a `Work` by its number."""

    __slots__ = ()

    def __init__(self, spec: Spec, device: Device, work: Work, number: int) -> None:
        self.shape, self.dtype = spec
        self.device, self.packed = device, None
        _put(self, (work, number))

    @property
    def array(self) -> Any:  # type: ignore[override]
        if _slot.__get__(self) is None:
            wait()  # for the program, which another thread runs
            if type(self) is Promised:
                raise LaunchError(
                    "the elements of a tensor are asked for that a traced call would have given, "
                    "but the call was interrupted",
                    hint="call it again",
                )
        compute([self])
        return self.array  # which is dense from here on

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.numpy.itemsize

    def operands(self) -> tuple[Any, ...] | None:
        return (self.array,)


def promise(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """What an op will give: a storage, or a list of them; None where it is better computed at once:
    numbers, and views of what is not dense.

    Raises:
        ShapeError, DTypeError, DeviceError: as the op itself.
    """
    if op == "constant":
        return None
    known = OPS[op]
    view = known.kind == "view"
    given: list[Spec | None] = []
    stores: list[Storage | None] = []
    numbers: list[bool] = []
    device, several = None, False
    for t in inputs:
        if t is None:
            given.append(None)
            stores.append(None)
            numbers.append(False)
            continue
        value = t.value
        store, number = value.storage, type(value) is Number
        if view and store.kind != "dense":
            return None
        given.append(spec_of((store.shape, store.dtype)))
        stores.append(store)
        numbers.append(number)
        if store.device is not device and not number:
            device, several = store.device, device is not None
    if device is None or several:
        device = device_of(op, inputs)
    specs = known.rule(*given, **attrs)
    work = Work(op, stores, numbers, attrs, device)
    if type(specs) is list:
        return [Promised(spec, device, work, n) for n, spec in enumerate(specs)]
    return Promised(specs, device, work, 0)


def keep(store: Promised, array: Any) -> None:
    """Give a promise its elements: from here on it is a dense storage like any other."""
    _put(store, array)
    store.__class__ = Dense  # type: ignore[assignment]


def leave_to_program(stores: Iterable[Any]) -> None:
    """Forget the ops of promises, and so what these read: a program will give the elements."""
    for store in stores:
        if type(store) is Promised:
            _put(store, None)


def is_there(store: Storage) -> bool:
    """Whether a storage has elements."""
    return type(store) is not Promised


def made_there(tensor: Any, device: Device) -> Any:
    """A tensor of a trace on another device, where it needs nothing from its own: a number, which
    is at home everywhere, and what an op makes of nothing. None for others.
    """
    found = _work(tensor.storage)
    with use(device):
        if found is not None and not found[0].inputs and OPS[found[0].op].kind == "make":
            return tensor._apply(found[0].op, **found[0].attrs)
        if type(tensor.value) is Number:
            return tensor._apply("expand", tensor, shape=tensor.shape)
    return None


def _work(store: Any) -> tuple[Work, int] | None:
    """What gives a storage, and which of its results that is; None where the elements are there."""
    return _slot.__get__(store) if type(store) is Promised else None


def compute(stores: Iterable[Any]) -> None:
    """Compute what was promised, op by op, and nothing that is not needed for it."""
    wanted = [s for s in stores if type(s) is Promised]
    order: dict[int, Work] = {}
    stack: list[tuple[Work, bool]] = [(found[0], False) for s in wanted if (found := _work(s))]
    while stack:
        work, ready = stack.pop()
        if ready:
            order.setdefault(id(work), work)
        elif id(work) not in order:
            stack.append((work, True))
            stack += [(found[0], False) for s in work.inputs if (found := _work(s))]
    left: dict[tuple[int, int], int] = {}
    for work in order.values():
        for found in map(_work, work.inputs):
            if found is not None:
                key = id(found[0]), found[1]
                left[key] = left.get(key, 0) + 1
    for s in wanted:
        if found := _work(s):
            left[id(found[0]), found[1]] = -1  # stays
    made: dict[tuple[int, int], Any] = {}
    token = active.set(None)
    try:
        with recording.suspended():
            for work in order.values():
                keys = [(id(f[0]), f[1]) if (f := _work(s)) else None for s in work.inputs]
                given = [
                    s if k is None else made[k] for s, k in zip(work.inputs, keys, strict=True)
                ]
                results = work.done(given)
                del given
                for one in filter(None, keys):
                    if left[one] > 0:
                        left[one] -= 1
                        if not left[one]:
                            del made[one]
                for n, result in enumerate(results):
                    if left.get((id(work), n)):
                        made[id(work), n] = result
    finally:
        active.reset(token)
    for s in wanted:
        if found := _work(s):
            keep(s, made[id(found[0]), found[1]].dense())


def sketches(stores: Sequence[Storage]) -> list[Any]:
    """Arrays with the shapes and dtypes of storages, of which those that share memory will do so
    then; the elements of what was promised are anything.
    """
    known: dict[tuple[int, int], Any] = {}
    return [_sketched(s, known) for s in stores]


def _sketched(store: Any, known: dict[tuple[int, int], Any]) -> Any:
    found = _work(store)
    if found is None:
        return store.dense()
    work, key = found[0], (id(found[0]), found[1])
    if key not in known:
        array = None
        if work.op in STRIDED or work.op == "reshape":
            array = _sketched(work.inputs[0], known)
        if work.op == "reshape" and not (type(array) is np.ndarray and array.flags.c_contiguous):
            array = None  # a copy
        with use(work.device):
            if array is not None:
                known[key] = OPS[work.op].run(array.dtype, array, **work.attrs)
            else:
                known[key] = memory.empty(store.shape, store.dtype.numpy)
    return known[key]
