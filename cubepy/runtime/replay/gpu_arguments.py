"""Which arguments are arrays on a GPU, and what each of them contributes to the key of a call.

Types are noted as they are met, so that the front of a function asks one set. Tensors of PyTorch
are known by a token for each layout: machine code finds it in one look where PyTorch allows that
(`backends.cuda.torch_key`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.compiler.signature import exact
from cubepy.runtime.device import gpu_of
from cubepy.runtime.interop.arrays import QUICK
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.tables import room

LIMIT = 4096
TORCH: set[type] = set()
"""Types of PyTorch's tensors that were met on a GPU."""
TENSORS: set[type] = set()
"""Types of tensors (with a `storage`) that were met on a GPU."""
ON_GPU: set[type] = {DeviceArray}
"""All types of arguments that are on a GPU, or may be."""


def key_of(grid: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What decides a launch of a kernel with such arguments; None where that is not known."""
    parts: list[Any] = [grid, type(grid)]
    look = lookups[0]
    try:
        for v in args:
            if type(v) is DeviceArray:
                parts.append(v.layout)
            elif type(v) in TORCH:
                parts.append(v.requires_grad or look(v) or keep_token(v))
            else:
                parts.append(key_part(v))
    except TypeError:
        return None
    return tuple(parts)


def array_in(value: Any) -> DeviceArray | None:
    """The array of a tensor on a GPU, if the tensor is one plain array there."""
    array = getattr(getattr(value, "storage", None), "array", None)
    return array if type(array) is DeviceArray and value.storage.kind == "dense" else None


def key_part(value: Any) -> Any:
    """What an argument contributes to a key, that is neither a device array nor a known tensor of
    PyTorch.

    Raises:
        TypeError: a tensor that is packed, or on the host.
    """
    kind = type(value)
    if kind not in TENSORS:
        if kind in _OPTIONS:
            return exact(value)
        note_type(value)
    if kind in TENSORS:
        array = array_in(value)
        if array is None:
            raise TypeError("a tensor that is packed, or on the host")
        return kind, array.layout
    if kind in TORCH:
        return value.requires_grad or lookups[0](value) or keep_token(value)
    return exact(value)


_OPTIONS = frozenset({int, float, bool, str, tuple, type, type(None)})
_tokens: dict[Any, object] = {}
_keep: list[Callable[..., Any]] = []
_forget: list[Callable[[], None]] = []


def token_of(tensor: Any) -> object | None:
    """What stands for the layout of a tensor of PyTorch, if it was seen."""
    return _tokens.get((tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()))


lookups: list[Callable[..., Any]] = [token_of]
"""The quickest way to do what `token_of` does."""


def keep_token(tensor: Any) -> object:
    """What stands for the layout of a tensor of PyTorch from now on."""
    key = tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device()
    if len(_tokens) >= LIMIT and key not in _tokens:
        for (
            forget
        ) in _forget:  # before the tokens go; those that stay are learned again as they are
            forget()
        room(_tokens, LIMIT)
    token = _tokens.setdefault(key, object())
    for keep in _keep:
        keep(tensor, token)
    return token


def note_torch(kind: type, gpu: Any) -> None:
    """Note a type of PyTorch's tensors; from the first on, machine code lookups layouts up where
    that is possible.
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
    array = None if type(value) in ON_GPU else array_in(value)
    if array is not None:
        TENSORS.add(type(value))
        ON_GPU.add(type(value))
    elif type(value) not in ON_GPU and type(value) in QUICK and hasattr(value, "data_ptr"):
        found = QUICK[type(value)](value)
        if type(found) is DeviceArray:
            note_torch(type(value), gpu_of(found.device))
