"""Ops of tensors that came before: their shapes are not checked again, their launches are replayed.

`quick` looks an op up by what machine code or Python writes of its arrays and attributes; `perform`
is what comes first: it infers shapes, and has the launches recorded. A storage that is not dense
says by `operands` what it is made of, so packed weights of a shape and scheme share a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from cubepy.errors import DeviceError, ShapeError
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime import recording
from cubepy.runtime.device import Device, current, gpu_of, use
from cubepy.runtime.memory.constants import constant_on
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.replay.arguments import REFUSED, key_of
from cubepy.runtime.replay.calls import Calls
from cubepy.runtime.replay.gpu import GpuOperands
from cubepy.runtime.replay.host import HostOperands
from cubepy.runtime.replay.plan import Inlined
from cubepy.runtime.replay.standing import ONE
from cubepy.runtime.tables import room
from cubepy.tensor.execute import run
from cubepy.tensor.ops import OPS, Spec, infer
from cubepy.tensor.ops.elementwise import in_order, turned_alike
from cubepy.tensor.ops.movement import as_index
from cubepy.tensor.storage import HOST, Dense, Storage
from cubepy.tensor.value import Number

_new: Any = object.__new__
LIMIT = 4096
OFTEN = 4
VIEWS = frozenset("reshape permute slice expand contiguous constant after".split())
VIEWS |= {"detach", "custom", "cond", "scan"}
"""Ops that are no launches on the host, or are made of others: they run, but unchecked."""
CALLING = frozenset(["custom", "cond", "scan"])
"""Ops that call functions of users, which are called once."""
STRIDED = frozenset("permute slice expand".split())
"""Ops that give the same elements with other strides."""
BRIEF = STRIDED | {"reshape", "empty", "full", "arange"}
"""Ops that take less time than to plan them."""
_calls = Calls()
ready, short_of = _calls.quick.get, _calls.short_of
"""What repeats an op, by what `short_of[0]` writes of its name and its arrays on the host."""
_often: dict[Any, int] = {}
"""How often `BRIEF` ops on GPUs came, by their keys, up to `OFTEN`."""
_accepted: dict[Any, DType] = {}
"""Dtypes of results, by the keys of ops whose inputs were found right."""
_views: dict[Any, Callable[[Any], Any]] = {}
"""What gives views of dense tensors on the host, by op, shape, dtype and attributes."""
_numbers: dict[tuple[int, str, int], DeviceArray] = {}
"""Numbers on the GPUs that they were used on, by the identities of their tensors."""


def quick(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """The result of an op that came before, by the shortest way; None, with nothing done, where
    there is none.
    """
    values: list[Any] = [op]
    at_home, device = False, None
    for t in inputs:
        if t is None:
            values.append(None)
            continue
        store = t.value.storage
        if store.device is not device:
            device = store.device
            if device.backend != "cpu":
                return _quick_on_gpu(op, inputs, attrs, device)
            if op in VIEWS:
                if len(inputs) > 1 or len(attrs) != 1 or not (store.shape or _here(t.value)):
                    return None
                return view_again(op, store, *attrs.values())
        if type(store) is Dense:
            values.append(store.array)
            if store.shape or type(t.value) is not Number:
                at_home = True
        else:
            operands = store.packed or store.operands()
            if operands is None:
                return None
            values += operands
    if not inputs:
        return _made_again(op, attrs)
    if not at_home:  # of numbers only, the current device decides
        return None
    if attrs:
        values += attrs
        values += [ONE[type(v)](v) if type(v) in ONE else v for v in attrs.values()]
    given = tuple(values)
    again = _calls.quick.get(_calls.short_of[0](given))
    if again is None:
        return None
    result = again(given)
    return None if result is REFUSED else result


def _here(value: Any) -> bool:
    """Whether what is made of a value of rank 0 alone is on the host: a number is where the current
    device is.
    """
    return type(value) is not Number or current().backend == "cpu"


def view_again(op: str, store: Any, given: Any) -> Dense | None:
    """A view of elements on the host, whose shape and attribute were accepted before; None where
    they were not, or something is launched.
    """
    if type(store) is not Dense:
        return None
    known = _views.get((op, store.shape, store.dtype, given))
    if known is None or store.device.backend != "cpu":
        return None
    array = store.array
    if op == "reshape" and not array.flags.c_contiguous:
        return None  # something is launched, on the device that is current
    out: Dense = _new(Dense)
    out.array = array = known(array)
    out.shape = array.shape
    out.dtype = store.dtype
    out.device = store.device
    return out


def viewed(op: str, given: Any, array: np.ndarray) -> Callable[[Any], Any]:
    """What gives a view of arrays like one."""
    if op == "permute":
        return methodcaller("transpose", given)
    if op == "reshape":
        return methodcaller("reshape", given)
    if op == "slice":
        return itemgetter(as_index(given))
    return _expanded(given, array)


def _expanded(shape: tuple[int, ...], array: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """What NumPy's `broadcast_to` gives, in a quarter of its time where there are no gaps."""
    if array.dtype.kind not in "biuf" or not array.flags.c_contiguous or not array.size:
        return lambda x: np.broadcast_to(x, shape)
    like = np.broadcast_to(array, shape)
    shape, strides = like.shape, like.strides

    def view(x: np.ndarray) -> np.ndarray:
        if not x.flags.c_contiguous:
            return np.broadcast_to(x, shape)
        made: np.ndarray = np.ndarray(shape, x.dtype, x, 0, strides)
        made.flags.writeable = False
        return made

    return view


def _quick_on_gpu(op: str, inputs: Sequence[Any], attrs: dict[str, Any], device: Device) -> Any:
    values: list[Any] = [op]
    parts: list[Any] = [op]
    for t in inputs:
        store = None if t is None else t.value.storage
        if type(store) is Dense:
            array = store.array
            if type(array) is not DeviceArray:
                array = _numbers.get((t.value.id, device.backend, device.ordinal))
                if array is None:
                    return None
            values.append(array)
            parts.append(array.layout)
            continue
        operands = (None,) if store is None else store.packed or store.operands()
        if operands is None:
            return None
        values += operands
        parts += key_of(operands)
    if attrs:
        values += attrs
        parts += attrs
        values += attrs.values()
        parts += key_of(attrs.values())
    again = _calls.ready.get(tuple(parts))
    result = None if again is None else again(tuple(values))
    return None if result is REFUSED else result


def _made_again(op: str, attrs: dict[str, Any]) -> Any:
    """The same of an op without inputs, on a GPU."""
    values = _of_nothing(op, current(), attrs)
    again = None if values is None else _calls.ready.get(key_of(values))
    result = REFUSED if values is None or again is None else again(values)
    return None if result is REFUSED else result


def _of_nothing(op: str, device: Device, attrs: dict[str, Any]) -> tuple[Any, ...] | None:
    """What a repetition of an op without inputs is given; None on a device without own memory."""
    if device.backend == "cpu" or gpu_of(device) is None:
        return None
    return (op, device.backend, device.ordinal, *attrs, *attrs.values())


def _values(op: str, stores: Sequence[Any], attrs: dict[str, Any]) -> tuple[Any, ...] | None:
    """What a repetition of an op is given; None where a storage does not say what it is."""
    values: list[Any] = [op]
    for store in stores:
        if store is None:
            values.append(None)
        elif type(store) is Dense:
            values.append(store.array)
        else:
            operands = store.packed or store.operands()
            if operands is None:
                return None
            values += operands
    return (*values, *attrs, *[ONE[type(v)](v) if type(v) in ONE else v for v in attrs.values()])


def perform(op: str, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """The result of an op on tensors, computed where they are; a list of several.

    Raises:
        ShapeError: shapes that the op refuses.
        DTypeError: dtypes that it refuses.
        DeviceError: inputs of several devices.
    """
    device, here = device_of(op, inputs), current()
    if device is here or device == here:
        return _perform(op, inputs, attrs, device)
    if recording.active and here.backend != "cpu" and of_numbers(op, inputs):
        with recording.suspended(), use(device):  # a constant: no step of what a GPU does
            return _perform(op, inputs, attrs, device)
    with use(device):
        return _perform(op, inputs, attrs, device)


def device_of(op: str, inputs: Sequence[Any]) -> Any:
    """The device that an op runs on.

    Raises:
        DeviceError: inputs of several devices.
    """
    device = None
    for t in inputs:
        if (
            t is None or t.device is device or type(t.value) is Number
        ):  # a number is at home everywhere
            continue
        if device is not None and t.device != device:
            raise DeviceError(
                f"{op} of tensors on {device} and {t.device}", hint=f'move one with .to("{device}")'
            )
        device = t.device
    if device is not None:
        return device
    return HOST if of_numbers(op, inputs) else current()


def of_numbers(op: str, inputs: Sequence[Any]) -> bool:
    """Whether an op gives a number of numbers, which is at home everywhere as they are."""
    if not inputs or OPS[op].kind != "map":
        return False
    return all(t is None or type(t.value) is Number for t in inputs)


def _perform(op: str, inputs: Sequence[Any], attrs: dict[str, Any], device: Device) -> Any:
    on_gpu = device.backend != "cpu" and gpu_of(device) is not None
    stores = [
        t if t is None else _brought(t, device) if on_gpu else t.value.storage for t in inputs
    ]
    values = _values(op, stores, attrs) if inputs else _of_nothing(op, device, attrs)
    key = None if values is None else key_of(values)
    known = None if key is None else _accepted.get(key)
    unplanned = values is None or not on_gpu and (op in VIEWS or device.backend != "cpu")
    if unplanned and known is not None:
        if (op in STRIDED or op == "reshape") and not on_gpu and type(stores[0]) is Dense:
            room(_views, LIMIT)
            (given,) = attrs.values()
            _views[op, stores[0].shape, stores[0].dtype, given] = viewed(op, given, stores[0].array)
        return _on_host(known, device, run(op, stores, attrs, known.numpy))
    wrap = _on_device if on_gpu else _OnHost(known, device)
    arrays: Sequence[Any] = stores
    dense = all(s is None or type(s) is Dense for s in arrays)
    turned = dense and not on_gpu and not recording.detours
    back = turned_alike(op, [None if s is None else s.array for s in arrays]) if turned else None

    def done(dtype: np.dtype) -> Any:
        if back is None:
            return run(op, stores, attrs, dtype)
        order = sorted(range(len(back)), key=back.__getitem__)
        alike = [s if s is None or not s.shape else Dense(in_order(s.array, order)) for s in arrays]
        return run(op, alike, attrs, dtype).transpose(back)

    def compute() -> Any:
        if known is not None:
            return done(known.numpy)
        specs = infer(op, [None if t is None else Spec(t.shape, t.dtype) for t in inputs], attrs)
        several = type(specs) is list
        result = done((specs[0] if several else specs).dtype.numpy)
        found = _wrapped(wrap, result)
        for one, spec in zip(found, specs, strict=True) if several else ((found, specs),):
            if one.shape != spec.shape or one.dtype is not spec.dtype:
                raise ShapeError(
                    f"the op {op!r} gave {one.dtype.name}{one.shape}, its rule says "
                    f"{spec.dtype.name}{spec.shape}",
                    hint="what runs the op disagrees with its rule; please report it",
                )
        if key is not None and not several and type(found) is Dense:
            room(_accepted, LIMIT)
            _accepted[key] = specs.dtype
        return result

    if unplanned or values is None or (on_gpu and _is_rare(op, key)):
        return _wrapped(wrap, compute())
    short = None if on_gpu else _calls.short_of[0](values)
    result: Any = REFUSED if recording.detours else _calls.repeat(key, values, short)
    if result is REFUSED and on_gpu:
        result = _calls.other_length(key, values)
    if result is not REFUSED:
        return result
    general = on_gpu and inputs and op not in CALLING and _plain(stores)
    of = partial(_of, op, stores, attrs) if general else None
    operands = GpuOperands if on_gpu else HostOperands
    return _wrapped(wrap, _calls.long_way(key, values, compute, operands, None, wrap, of))


def _is_rare(op: str, key: Any) -> bool:
    """Whether the same elements in another shape, or memory of a shape, are asked for on a GPU in a
    way that did not come often: to plan that takes longer than to do it, and where lengths vary it
    hardly comes again.
    """
    if op not in BRIEF or (times := _often.get(key, 0)) == OFTEN:
        return False
    room(_often, LIMIT)
    _often[key] = times + 1
    return True


def _plain(stores: Sequence[Any]) -> bool:
    """Whether storages are arrays, one each."""
    return all(s is None or type(s) is Dense for s in stores)


def _of(op: str, stores: Sequence[Any], attrs: dict[str, Any], values: Sequence[Any]) -> Any:
    """What an op gives of other arrays."""
    given = [
        s if s is None else _on_device(v)
        for s, v in zip(stores, values[1 : 1 + len(stores)], strict=True)
    ]
    inputs = [None if s is None else Spec(s.shape, s.dtype) for s in given]
    specs = infer(op, inputs, attrs)
    return run(op, given, attrs, (specs[0] if type(specs) is list else specs).dtype.numpy)


def _wrapped(wrap: Any, result: Any) -> Any:
    """The storage of a result; a list of those of several."""
    return [wrap(one) for one in result] if type(result) is list else wrap(result)


def _brought(tensor: Any, device: Device) -> Storage:
    """The storage of a tensor; of a number, on a GPU."""
    store: Storage = tensor.value.storage
    if type(store) is not Dense or type(store.array) is DeviceArray:
        return store
    key = (tensor.value.id, device.backend, device.ordinal)
    found = _numbers.get(key)
    if found is None:
        room(_numbers, LIMIT)
        found = _numbers[key] = constant_on(device, store.array)
    return _on_device(found)


def _on_host(element: DType | None, device: Device, array: Any) -> Storage:
    """The storage of an array of the host; what is one already stays."""
    if isinstance(array, Storage):
        return array
    out = Dense.__new__(Dense)
    out.array = array = array if type(array) is np.ndarray else np.asarray(array)
    out.shape, out.device = array.shape, device
    out.dtype = as_dtype(array.dtype) if element is None else element
    return out


class _OnHost(Inlined):
    """The same, known before.

    Args:
        element: of the only result, or None.
        device: of all results.
    """

    def __init__(self, element: DType | None, device: Device) -> None:
        self.element, self.device = element, device

    def __call__(self, array: Any) -> Storage:
        return _on_host(self.element, self.device, array)

    def lines(
        self, arrays: Sequence[str], dtypes: Sequence[Any], scope: dict[str, Any]
    ) -> tuple[list[str], list[str]]:
        scope |= {"new": object.__new__, "Dense": Dense, "device": self.device}
        made, names = list[str](), list[str]()
        for k, (array, dtype) in enumerate(zip(arrays, dtypes, strict=True)):
            name, element = f"made{k}", self.element
            scope[f"element{k}"] = as_dtype(dtype) if element is None else element
            shape = f"shape{k}" if array == f"r{k}" else f"{name}.array.shape"
            made += [f"{name} = new(Dense)", f"{name}.array = {array}", f"{name}.shape = {shape}"]
            made += [f"{name}.dtype = element{k}", f"{name}.device = device"]
            names.append(name)
        return made, names


def _on_device(array: Any) -> Storage:
    """The storage of a device array; what is one already stays, a number is on the host."""
    if isinstance(array, Storage):
        return array
    if type(array) is not DeviceArray:
        return Dense(np.asarray(array))
    out, layout = Dense.__new__(Dense), array.layout
    out.array, out.shape, out.dtype, out.device = array, layout.shape, layout.element, layout.device
    return out
