"""`Tensor`: an n-dimensional array whose every operation is an op of the IR."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.errors import CubeError
from cubepy.lang.dtypes import DType, as_dtype, fits, float_for, held, i64
from cubepy.runtime import device as devices
from cubepy.runtime import recording
from cubepy.runtime.device import as_device, current
from cubepy.runtime.interop.foreign import device_array
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.profile import active
from cubepy.runtime.stats import counters
from cubepy.runtime.tables import room
from cubepy.tensor.differentiable import Differentiable
from cubepy.tensor.explained.timed import timed
from cubepy.tensor.exposed import expose_values, noted
from cubepy.tensor.methods.exported import Exported
from cubepy.tensor.methods.target import is_device, target_of
from cubepy.tensor.methods.torch_names import TorchNames
from cubepy.tensor.modes import mode
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.op import plain_axes
from cubepy.tensor.program.observe import active as recorders
from cubepy.tensor.program.observe import looked, numbered, same
from cubepy.tensor.program.promised import made_there
from cubepy.tensor.record import blocks, note, recording_here
from cubepy.tensor.replay import of_numbers, perform, quick, ready, short_of, view_again
from cubepy.tensor.storage import Dense, array_of_data, moved, one_of
from cubepy.tensor.value import Call, Number, Value, identities, located, outside

_new: Any = object.__new__
_NONE: dict[str, Any] = {}
"""No attributes, of what remembers none."""


def apply(op: str, *inputs: Tensor | None, **attrs: Any) -> Any:
    """Check, compute and record one op; gives a tensor, or a list of them.

    Args:
        op: a name of the IR.
        inputs: tensors; None for an optional input that is absent.
        attrs: plain values (numbers, texts, tuples of them).

    Raises:
        ShapeError: shapes that the op refuses.
        DTypeError: dtypes that it refuses.
        DeviceError: inputs of several devices.

    Errors name the user's line that asked for the op.
    """
    kind: type[Value] = Value
    try:
        if noted and OPS[op].writes:
            expose_values(inputs, OPS[op].written(attrs))
        storage = None if recording.detours else quick(op, inputs, attrs)
        if storage is None:
            attrs = plain_axes(attrs)
            if blocks and (recorder := recorders.get()) is not None:
                attrs = recorder.settled(attrs)
                storage = recorder.promised(op, inputs, attrs)
            if storage is None:
                counters.ops += 1
                storage = timed(op, inputs, attrs) if active else perform(op, inputs, attrs)
            beside = not inputs or inputs[0] is None or type(inputs[0].value) is Number
            if op == "constant" or beside and of_numbers(op, inputs):
                kind = Number
    except CubeError as error:
        if error.location is None:
            error.location = located(outside())
        raise
    if type(storage) is list:
        return [given_of(one) for one in remembered(op, inputs, attrs, [*map(kind, storage)])]
    for t in inputs:
        if t is not None and t.value.needs_grad:
            return _one(storage, op, inputs, attrs, True, kind)
    result = _one(storage, op, inputs, attrs, False, kind)
    if blocks:
        note(op, inputs, attrs, [result.value])
    return result


def _one(
    storage: Any,
    op: str,
    inputs: tuple[Tensor | None, ...],
    attrs: dict[str, Any],
    needs_grad: bool,
    kind: type[Value] = Value,
) -> Tensor:
    """The only result of an op, which remembers it where an input needs a gradient."""
    value = _new(kind)
    value.storage = storage
    value.id = next(identities)
    value.call, value.needs_grad = None, False
    if needs_grad:
        known = OPS[op]
        if blocks or known.keeps:
            remembered(op, inputs, attrs, [value])
        elif mode.enabled and not known.constant and storage.dtype.is_float:
            values = tuple([None if t is None else t.value for t in inputs])
            value.call, value.needs_grad = Call(op, values, attrs, ()), True
    result = _new(Tensor)
    result.value = value
    return result


def _of_two(op: str, a: Tensor, b: Tensor) -> Tensor:
    """An op of two tensors and nothing else: as `apply`, in fewer steps where it came before."""
    first, second = a.value, b.value
    store, other = first.storage, second.storage
    if type(store) is Dense and type(other) is Dense and not (blocks or recording.detours):
        at_home = store.shape or other.shape  # of numbers only, the current device decides
        if at_home and store.device.backend == other.device.backend == "cpu":
            values = op, store.array, other.array
            again = ready(short_of[0](values))
            made = None if again is None else again(values)
            if type(made) is Dense:
                needs_grad = first.needs_grad or second.needs_grad
                return _one(made, op, (a, b), {} if needs_grad else _NONE, needs_grad)
    return apply(op, a, b)  # type: ignore[no-any-return]


def remembered(
    op: str, inputs: Sequence[Tensor | None], attrs: dict[str, Any], given: list[Value]
) -> list[Value]:
    """What an op gave, with the call that made it where gradients need that."""
    asked, known = note(op, inputs, attrs, given) if blocks else None, OPS[op]
    if mode.enabled and not known.constant:
        wanted = [v for v in given if v.storage.dtype.is_float]
        if wanted and any(t is not None and t.value.needs_grad for t in inputs):
            values = tuple([None if t is None else t.value for t in inputs])
            call = Call(op, values, attrs, given, asked)
            if known.keeps:
                call.kept = [Value(v.storage) for v in given]
                for kept, v in zip(call.kept, given, strict=True) if blocks else ():
                    same(kept, given_of(v))
            for v in wanted:
                v.call, v.needs_grad = call, True
    return given


def given_of(value: Value) -> Tensor:
    """A tensor of a value."""
    result: Tensor = _new(Tensor)
    result.value = value
    return result


def of_array(array: np.ndarray, dtype: DType, device: Any) -> Tensor:
    """A tensor of an array of the host, which has the dtype and is nobody else's, or was looked
    at.
    """
    store = _new(Dense)
    store.array, store.shape = array, array.shape
    store.dtype, store.device = dtype, device
    return of_store(store)


def of_store(store: Any) -> Tensor:
    """A tensor of a storage, computed of nothing that needs gradients."""
    return _one(store, "", (), _NONE, False)


API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
_constants: dict[Any, Tensor] = {}


def constant(value: Any, dtype: DType) -> Tensor:
    """A number as a tensor of rank 0; one tensor for equal numbers, unless somebody records."""
    value = value.item() if isinstance(value, np.generic) else value
    if blocks:
        made: Tensor | None = numbered(value, dtype)
        return apply("constant", value=value, dtype=dtype.name) if made is None else made
    key = exact(value), dtype
    found = _constants.get(key)
    if found is None:
        room(_constants, 1024)
        found = _constants[key] = apply("constant", value=value, dtype=dtype.name)
    return found


def filled(value: Any, like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A number everywhere, in the dtype of another tensor and where that is."""
    made = constant(value, like.dtype)
    if like.device == current():
        return made.expand(shape)
    with devices.use(like.device):
        return made.expand(shape)


class Tensor(Exported, Differentiable, TorchNames["Tensor"]):
    """An n-dimensional array of one dtype; made by `cb.tensor`, by ops, or by
    `nn.load_safetensors`.

    Operators work element by element and broadcast; Python numbers take the tensor's dtype.
    Reductions are those of NumPy (`axis`, `keepdims`), everything else is named as in PyTorch.
    `reshape`, `transpose` and slices share memory. Elements never change: what works in place
    (`x += 1`, `x.assign_(y)`) gives the handle a new value, and what was computed from the old one
    stays as it was.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> (x @ x.T + 1).numpy()
        array([[ 6., 12.],
               [12., 26.]], dtype=float32)
    """

    __slots__ = ()
    __array_priority__ = 100  # NumPy operators leave `array + tensor` to the tensor

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind()) if self.shape else (self[i] for i in range(len(self)))

    def _of_value(self, value: Value) -> Tensor:
        return given_of(value)

    def _like(self, data: Any) -> Tensor:
        if isinstance(data, (np.ndarray, np.generic, list, tuple, int, float)):
            return tensor(data, device=self.device)
        return as_tensor(data)

    def _ones(self) -> Tensor:
        store = self.value.storage
        if not (blocks or store.shape) and store.device.backend == "cpu":
            return of_store(one_of(store.dtype))
        return filled(1, self, self.shape)

    # Out of cubepy

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        if api_version is not None and api_version not in API_VERSIONS:
            raise ValueError(f"tensors have the array API of {API_VERSIONS}, not {api_version!r}")
        return sys.modules["cubepy.tensor"]

    def __cubepy_launch__(self) -> Any:
        """What is asked to launch a kernel on the tensor: what makes an op of it, while a block of
        this thread is recorded; else what notes the memory that it writes, of which gradients may
        need what was there, and leaves the launch to who asks.
        """
        if blocks and recording_here():
            return _loaded("custom.recorded").recorded_launch
        return _loaded("custom.overwritten").note_launch

    @property
    def recorded(self) -> bool:
        """Whether what is made of the tensor must be ops: it needs a gradient, or a block is
        recorded.
        """
        return bool(self.value.needs_grad and mode.enabled or blocks and recording_here())

    def __cubepy_function__(self, function: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        return _loaded("calls").call(function, args, kwargs) if self.recorded else NotImplemented

    def __cubepy_again__(self, function: Any, values: tuple[Any, ...]) -> Any:
        return _loaded("calls").again.again(function, values)

    def __cubepy_wrap__(self, array: Any) -> Tensor:
        if type(array) is np.ndarray:
            return of_array(array, as_dtype(array.dtype), self.device)
        if isinstance(array, DeviceArray):
            return Tensor(Dense(array))
        return Tensor(Dense(np.asarray(array), self.device))

    # To other dtypes, devices and layouts

    def to(
        self,
        target: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        device: Any = None,
    ) -> Tensor:
        """The tensor in another dtype or on another device; itself if nothing changes (no `copy`).

        Args:
            target: a dtype (or its name), a device or its name, or a tensor that has both.
            dtype, device: the same by name, alone or both.

        Raises:
            ArgumentError: none of them, or a dtype beside a target that is no device.
        """
        target, dtype = target_of(target, dtype, device)
        if copy:
            return self.to(target, dtype).clone()
        if dtype is not None:
            return self.to(target).astype(dtype)
        if is_device(target):
            device = as_device(target)
            if device == self.device:
                return self
            if blocks:
                if (made := made_there(self, device)) is not None:
                    return made
                looked(self, f"a tensor moves to {device}")
            return Tensor(self.storage.to(device))
        return self.astype(target)

    def astype(self, dtype: Any) -> Tensor:
        """The tensor in another dtype; floats to integers truncate and saturate."""
        dtype = as_dtype(dtype)
        return self if dtype is self.dtype else apply("cast", self, dtype=dtype.name)

    # Arithmetic

    def __matmul__(self, other: Any) -> Tensor:
        return _of_two("matmul", self, other if type(other) is Tensor else as_tensor(other))

    def __rmatmul__(self, other: Any) -> Tensor:
        return _of_two("matmul", as_tensor(other), self)

    _apply = staticmethod(apply)  # type: ignore[assignment]

    def _unary(self, op: str, **attrs: Any) -> Tensor:
        before = self.value
        store = before.storage
        if type(store) is Dense and store.shape and not (attrs or blocks or recording.detours):
            values = op, store.array
            again = ready(short_of[0](values)) if store.device.backend == "cpu" else None
            made = None if again is None else again(values)
            if type(made) is Dense:
                return _one(made, op, (self,), attrs, before.needs_grad)
        if not store.shape and attrs.get("axis") is not None:
            return self._of_line(op, attrs)
        return apply(op, self, **attrs)

    def _view(self, op: str, attribute: str, given: Any) -> Tensor:
        before = self.value
        if before.storage.shape and not (blocks or recording.detours):
            if (made := view_again(op, before.storage, given)) is not None:
                attrs = {attribute: given} if before.needs_grad else _NONE
                return _one(made, op, (self,), attrs, before.needs_grad)
        return apply(op, self, **{attribute: given})  # type: ignore[no-any-return]

    def _slices(self, indices: Sequence[tuple[Any, Any]]) -> tuple[Tensor, ...]:
        before = self.value
        store = before.storage
        if type(store) is not Dense or store.device.backend != "cpu" or blocks or recording.detours:
            return tuple([self._view("slice", "index", index) for index, _ in indices])
        array, dtype, device, made = store.array, store.dtype, store.device, list[Tensor]()
        remembers = before.needs_grad and mode.enabled and dtype.is_float
        asked = outside() if remembers else None
        for index, spot in indices:
            one = of_array(array[spot], dtype, device)
            if remembers:
                value = one.value
                value.call = Call("slice", (before,), {"index": index}, (), asked)
                value.needs_grad = True
            made.append(one)
        return tuple(made)

    def _binary(self, op: str, other: Any) -> Tensor:
        return _of_two(op, self, operand(other, self))

    def _reflected(self, op: str, other: Any) -> Tensor:
        return _of_two(op, operand(other, self), self)

    def _operand(self, value: Any) -> Tensor:
        return operand(value, self)


@cache
def _loaded(name: str) -> Any:
    """What makes ops of library calls or launches kernels on tensors, loaded with the first."""
    return importlib.import_module(f"cubepy.tensor.{name}")


def as_tensor(value: Any) -> Tensor:
    """A tensor as it is; anything else through `tensor`."""
    return value if isinstance(value, Tensor) else tensor(value)


def tensor(
    data: Any, dtype: Any = None, device: Any = None, *, requires_grad: bool = False
) -> Tensor:
    """A tensor of an array, nested lists or a number.

    Args:
        data: a NumPy array (shared, not copied, unless `dtype` differs), anything with the array or
            DLPack protocol, a tensor, or Python numbers (floats give f32, integers i64). Arrays of
            other libraries on a GPU are shared, too, and stay there.
        dtype: element type; by default that of the data.
        device: by default the current one; data of the host are copied to a GPU.
        requires_grad: whether gradients by it are wanted.

    Raises:
        DTypeError: data that are no numbers, or of a dtype that kernels do not know.
        ShapeError: nested lists of different lengths.
        LaunchError: an array that its library does not give away, such as a sparse one.

    Example:
        >>> tensor([1, 2, 3])
        tensor([1, 2, 3])
    """
    made = _tensor(data, dtype, device)
    if requires_grad:
        made = made.detach() if isinstance(data, Tensor) else made
        made.requires_grad_()
    elif made is data:  # a handle of its own: what is done to it in place is not done to the other
        made = +made if made.requires_grad else made.detach()
    return made


def _tensor(data: Any, dtype: Any, device: Any) -> Tensor:
    if isinstance(data, Tensor):
        result = data if dtype is None else data.astype(dtype)
        return result if device is None else result.to(as_device(device))
    data = float(data) if isinstance(data, float) and type(data) is not np.float64 else data
    wanted = None if dtype is None else as_dtype(dtype)
    on_device = data if isinstance(data, DeviceArray) else None
    known = (np.ndarray, np.generic, list, tuple, int, float)
    if on_device is None and not isinstance(data, known):
        on_device = device_array(data)
    if on_device is not None:
        result = Tensor(Dense(on_device))
        result = result if wanted is None else result.astype(wanted)
        return result if device is None else result.to(as_device(device))
    array = array_of_data(data, wanted)
    where = current() if device is None else as_device(device)
    return Tensor(Dense(moved(array, where), where))


def operand(value: Any, other: Tensor) -> Tensor:
    """The other side of an operator: a Python number in the tensor's dtype, if that can hold it."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.generic) and type(value) is not np.float64:  # they keep their dtype
        plain = type(value.item()) in (bool, int, float)
        return constant(value, as_dtype(value.dtype)) if plain else tensor(value)
    if not isinstance(value, (bool, int, float)):
        return tensor(value)
    dtype = other.dtype.compute
    if isinstance(value, float) and not dtype.is_float:
        dtype = float_for(dtype)
    elif isinstance(value, int) and not isinstance(value, bool):
        if dtype.kind == "b" or dtype.is_int and not fits(value, dtype):
            dtype = i64
    return constant(held(value, dtype) if type(value) is int else value, dtype)
