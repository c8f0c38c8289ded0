"""Arguments of calls that are replayed: which of them are on a GPU, and what each contributes to
the key of a call.

Types that are on a GPU are noted as they are met, so that the front of a function asks one set.
Tensors of PyTorch are known by a token for each layout: machine code finds it in one look where
PyTorch allows that (`backends.gpu.torch_key`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func
from cubepy.lang.dtypes import DType
from cubepy.runtime.device import gpu_of
from cubepy.runtime.interop.arrays import QUICK
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.tables import room

LIMIT = 4096
REFUSED = object()
"""What a repetition gives when it does not fit the arrays, or one of its launches raised a flag:
the call must be done again then.
"""
TORCH: set[type] = set()
"""Types of PyTorch's tensors that were met on a GPU."""
TENSORS: set[type] = set()
"""Types of tensors (with a `storage`) that were met on a GPU."""
ON_GPU: set[type] = {DeviceArray}
"""All types of arguments that are on a GPU, or may be."""
AS_THEY_ARE = frozenset({str, type(None), type, Func, Builtin, DType})
"""Types of options that are parts of keys as they are."""
_INTS = {int}
_NUMBERS = frozenset({int, float, bool, tuple})  # equal ones may mean something else


def plain(value: Any) -> bool:
    """Whether an argument can be kept in a key."""
    return (
        type(value) in AS_THEY_ARE
        or type(value) in (int, float, bool)
        or type(value) is np.ndarray
        or type(value) in ON_GPU
        or isinstance(value, np.dtype)
        or (type(value) is tuple and all(map(plain, value)))
    )


def key_of(values: Iterable[Any], *before: Any) -> tuple[Any, ...]:
    """What decides the launches of a call with these arguments, after other parts of the key.

    Raises:
        TypeError: a tensor that is packed, or on the host.
    """
    parts = [*before]
    for v in values:
        kind = type(v)
        if kind is DeviceArray:
            parts.append(v.layout)
        elif kind in AS_THEY_ARE:
            parts.append(v)
        elif kind is np.ndarray:
            parts.append((v.dtype, v.shape, v.strides))
        else:
            parts.append(key_part(v))
    return tuple(parts)


def key_part(value: Any) -> Any:
    """What an argument contributes to a key, that is neither an array nor a plain option.

    Raises:
        TypeError: a tensor that is packed, on the host, or whose calls are ops (`recorded`).
    """
    kind = type(value)
    if kind is tuple and {*map(type, value)} == _INTS:
        return int, value
    if kind in _NUMBERS:
        return exact(value)
    note_type(value)
    if kind in TENSORS:
        array = array_in(value)
        if array is None or value.recorded:
            raise TypeError("a tensor that is packed, on the host, or whose calls are ops")
        return kind, array.layout
    if kind in TORCH:
        return value.requires_grad or lookups[0](value) or keep_token(value)
    return exact(value)


def array_in(value: Any) -> DeviceArray | None:
    """The array of a tensor on a GPU, if the tensor is one plain array there."""
    array = getattr(getattr(value, "storage", None), "array", None)
    return array if type(array) is DeviceArray and value.storage.kind == "dense" else None


def array_on_gpu(value: Any) -> DeviceArray | None:
    """The array of an argument on a GPU: itself, a tensor's, that of another library."""
    if type(value) is DeviceArray:
        return value
    found = QUICK[type(value)](value) if type(value) in TORCH else array_in(value)
    return found if type(found) is DeviceArray else None


class Token:
    """What stands for the layout of a tensor of PyTorch."""

    __slots__ = ("layout",)

    def __init__(self, layout: Any) -> None:
        self.layout = layout


_tokens: dict[Any, Token] = {}
_keep: list[Callable[..., Any]] = []
_forget: list[Callable[[], None]] = []


def token_of(tensor: Any) -> Token | None:
    """What stands for the layout of a tensor of PyTorch, if it was seen."""
    return _tokens.get((tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()))


lookups: list[Callable[..., Any]] = [token_of]
"""The quickest way to do what `token_of` does."""


def keep_token(tensor: Any) -> Token:
    """What stands for the layout of a tensor of PyTorch from now on."""
    key = tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()
    if len(_tokens) >= LIMIT and key not in _tokens:
        for (
            forget
        ) in _forget:  # before the tokens go; those that stay are learned again as they are
            forget()
        room(_tokens, LIMIT)
    token = _tokens.get(key)
    if token is None:
        token = _tokens.setdefault(key, Token(QUICK[type(tensor)](tensor).layout))
    for keep in _keep:
        keep(tensor, token)
    return token


def note_torch(kind: type, gpu: Any) -> None:
    """Note a type of PyTorch's tensors; from the first on, machine code looks layouts up where that
    is possible.
    """
    if kind in TORCH:
        return
    if not _keep and hasattr(gpu, "layouts") and (found := gpu.layouts(kind)) is not None:
        _keep.append(found[0])
        _forget.append(found[1])
        lookups[0] = found[0]
    TORCH.add(kind)
    ON_GPU.add(kind)


def note_type(value: Any) -> None:
    """Note the type of an argument that is a tensor on a GPU."""
    if type(value) in ON_GPU:
        return
    if array_in(value) is not None:
        TENSORS.add(type(value))
        ON_GPU.add(type(value))
    elif type(value) in QUICK and hasattr(value, "data_ptr"):
        found = QUICK[type(value)](value)
        if type(found) is DeviceArray:
            note_torch(type(value), gpu_of(found.device))
