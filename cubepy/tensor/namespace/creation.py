"""Tensors of numbers, of other arrays, and of nothing else."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, DTypeError
from cubepy.kernels.entry.arguments import number_of, whole
from cubepy.lang.dtypes import DType, as_dtype, bool_, f32, f64, i32, i64
from cubepy.runtime import memory, recording
from cubepy.runtime.device import Device, as_device, current, use
from cubepy.tensor.array import Tensor, apply, as_tensor, of_array, tensor
from cubepy.tensor.methods.applied import ints
from cubepy.tensor.ops.creation import check_lengths
from cubepy.tensor.record import blocks
from cubepy.tensor.storage import HOST

PLAIN: dict[Any, np.dtype[Any]] = {d: d.numpy for d in (f32, f64, i32, i64, bool_)}
"""What NumPy rounds as kernels do."""
SMALL = 1 << 16
"""Elements of ranges that NumPy makes."""


def _at_home(device: Any) -> Device | None:
    """The host, where tensors are to be made there and nobody asks for the ops that make them: they
    are made at once then, without the tenfold of Python that an op takes.
    """
    if blocks or recording.detours:
        return None
    home = current() if device is None else as_device(device)
    return home if home.backend == "cpu" else None


def _made(device: Any, op: str, **attrs: Any) -> Tensor:
    """A tensor that an op makes of nothing on a device."""
    with use(current() if device is None else as_device(device)):
        return apply(op, **attrs)  # type: ignore[no-any-return]


def _dtype_of(number: Any) -> DType:
    """The dtype that a Python number has as an array."""
    if isinstance(number, bool):
        return bool_
    if isinstance(number, int):
        return i64
    if isinstance(number, float):
        return f32
    raise DTypeError(f"a tensor is filled with numbers, not with {number!r}")


def _filled(shape: Any, value: Any, dtype: Any, device: Any) -> Tensor:
    if isinstance(value, (Tensor, np.generic)) or getattr(value, "shape", None) == ():
        value = value.item()
    found = _dtype_of(value) if dtype is None else as_dtype(dtype)
    lengths = ints((shape,))
    plain = PLAIN.get(found)
    home = None if plain is None else _at_home(device)
    if home is not None and (value == 0 or _dtype_of(value) is found or found is f64):
        check_lengths(lengths)
        array = memory.empty(lengths, plain, HOST)
        array.fill(value)
        return of_array(array, found, home)
    return _made(device, "full", shape=lengths, value=value, dtype=found.name)


def _filled_like(x: Any, value: Any, dtype: Any, device: Any) -> Tensor:
    like = as_tensor(x)
    return _filled(
        like.shape,
        value,
        like.dtype if dtype is None else dtype,
        like.device if device is None else device,
    )


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Tensor:
    """A tensor of an array, nested lists or a number; memory is shared where it can be, unless
    `copy`.

    Raises:
        ValueError: a copy is needed, and `copy` is False.
    """
    if copy and isinstance(obj, np.ndarray):
        obj, copy = obj.copy(), None
    made = tensor(obj, dtype, device)
    if copy is False and not shares(made, obj):
        raise ValueError(f"a tensor of {type(obj).__name__} needs a copy here")
    return made.clone() if copy and isinstance(obj, (Tensor, np.ndarray)) else made


def shares(made: Tensor, source: Any) -> bool:
    """Whether a tensor is in the memory of what it was made of."""
    if isinstance(source, np.ndarray):
        return bool(np.may_share_memory(made.numpy(), source))
    if isinstance(source, Tensor):
        return made.value is source.value
    return not isinstance(source, (bool, int, float, list, tuple))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of an array of another library, in its memory where it can be."""
    if isinstance(x, Tensor):
        return asarray(x, device=device, copy=copy)
    if isinstance(x, (list, tuple, int, float)):
        raise ArgumentError(f"from_dlpack takes an array with DLPack, not {type(x).__name__}")
    return asarray(x, device=device, copy=copy)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """The numbers start, start + step, ... below stop; of one argument, those from 0 to it."""
    begin, end = (0, start) if stop is None else (start, stop)
    begin, end, step = _plain(begin, "start"), _plain(end, "stop"), _plain(step, "step")
    if step == 0:
        raise ArgumentError("arange needs a step that is not 0")
    found = as_dtype(dtype) if dtype is not None else _range_dtype(begin, end, step)
    if isinstance(begin, int) and isinstance(end, int) and isinstance(step, int):
        count = max(0, -((begin - end) // step))
    else:
        count = max(0, math.ceil((end - begin) / step))
    home = _at_home(device) if found in PLAIN and found is not bool_ and count < SMALL else None
    if home is not None and (found.is_float or type(begin) is type(step) is int):
        return of_array(_steps(begin, step, count, found), found, home)
    return _made(device, "arange", start=begin, step=step, count=count, dtype=found.name)


def _steps(start: float, step: float, count: int, dtype: DType) -> np.ndarray:
    """What the op "arange" gives: floats are computed in f64."""
    positions: Any = np.arange(count, dtype=np.float64 if dtype.is_float else np.int64)
    made = start + positions * step if step != 1 or start else positions
    return made.astype(PLAIN[dtype], copy=False)  # type: ignore[no-any-return]


def _plain(number: Any, name: str) -> float:
    """A number as Python's: an int stays one."""
    try:
        return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        return number_of(number, name)


def _range_dtype(*numbers: Any) -> DType:
    return f32 if any(isinstance(n, float) for n in numbers) else i64


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """`num` numbers in even steps from start to stop, which is the last one if `endpoint`."""
    start, stop = number_of(start, "start"), number_of(stop, "stop")
    num = whole(num, "num")
    if num < 0:
        raise ArgumentError(f"linspace gives 0 numbers or more, not {num}")
    found = f32 if dtype is None else as_dtype(dtype)
    spans = num - 1 if endpoint else num
    step = (stop - start) / spans if spans > 0 else 0.0
    home = _at_home(device) if found is f32 or found is f64 else None
    if home is not None and num < SMALL:
        array = _steps(start, step, num, f64)
        if endpoint and num > 1:
            array[-1] = stop
        return of_array(array.astype(PLAIN[found], copy=False), found, home)
    made = _made(device, "arange", start=start, step=step, count=num, dtype="f64")
    if endpoint and num > 1:
        made[-1] = stop
    return made.astype(found)


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of elements of any value."""
    found = f32 if dtype is None else as_dtype(dtype)
    return _made(device, "empty", shape=ints((shape,)), dtype=found.name)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of elements of any value, of the shape of another one."""
    like = as_tensor(x)
    return empty(
        like.shape,
        dtype=like.dtype if dtype is None else dtype,
        device=like.device if device is None else device,
    )


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of one number."""
    return _filled(shape, fill_value, dtype, device)


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of one number, of the shape of another one."""
    return _filled_like(x, fill_value, dtype, device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones."""
    return _filled(shape, 1, f32 if dtype is None else dtype, device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of ones, of the shape of another one."""
    return _filled_like(x, 1, dtype, device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros."""
    return _filled(shape, 0, f32 if dtype is None else dtype, device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A tensor of zeros, of the shape of another one."""
    return _filled_like(x, 0, dtype, device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Tensor:
    """Ones on a diagonal (`k` above the main one), zeros elsewhere."""
    found = f32 if dtype is None else as_dtype(dtype)
    n_rows = whole(n_rows, "n_rows", 0)
    width = n_rows if n_cols is None else whole(n_cols, "n_cols", 0)
    home = _at_home(device) if found in PLAIN else None
    if home is not None:
        beyond = max(-n_rows, min(whole(k, "k"), width))
        return of_array(np.eye(n_rows, width, beyond, PLAIN[found]), found, home)
    rows, columns = arange(n_rows, device=device).unsqueeze(1), arange(width, device=device)
    above = max(-n_rows, min(whole(k, "k"), width))  # beyond these no diagonal is
    return (rows + above == columns).astype(found)


def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """The elements of matrices on and below a diagonal, zeros elsewhere."""
    return as_tensor(x).tril(k)


def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """The elements of matrices on and above a diagonal, zeros elsewhere."""
    return as_tensor(x).triu(k)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid, of those along each axis; with "xy" the first two axes change
    places.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f'indexing is "xy" or "ij", not {indexing!r}')
    given = [as_tensor(x).reshape(-1) for x in arrays]
    order = list(range(len(given)))
    if indexing == "xy" and len(given) > 1:
        order[:2] = 1, 0
    shape = tuple(given[d].size for d in order)
    return [
        x.reshape(*(x.size if d == n else 1 for d in order)).expand(shape)
        for n, x in enumerate(given)
    ]


__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]
