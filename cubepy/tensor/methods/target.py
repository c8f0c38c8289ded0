"""What `to` of tensors and modules is told: a device, a dtype, both, or a tensor that has both."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ArgumentError, DTypeError
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import device as devices
from cubepy.runtime.device import Device, as_device

HINT = "to('cuda'), to('bf16'), to('cuda', 'bf16') or to(device='cuda', dtype='bf16')"


def is_device(target: Any) -> bool:
    """Whether a target of `to` is a device and not a dtype."""
    if isinstance(target, str):
        return target.partition(":")[0] in devices.BACKENDS
    return isinstance(target, Device)


def target_of(target: Any, dtype: Any, device: Any) -> tuple[Any, Any]:
    """The arguments of `to`: a target, and None or a dtype beside it.

    Raises:
        ArgumentError: none of them, two devices or two dtypes.

    Example:
        >>> target_of("f16", None, None), target_of(None, "f16", "cpu")[1]
        (('f16', None), cb.f16)
    """
    if hasattr(target, "storage"):
        target, dtype = target.device, target.dtype if dtype is None else dtype
    if target is not None and device is not None:
        if is_device(target) or dtype is not None:
            raise ArgumentError(f"{target!r} beside device={device!r}", hint=HINT)
        target, dtype = None, target
    if isinstance(target, str) and not is_device(target):
        _look_up(target)
    where = target if device is None else as_device(device)
    if where is None and dtype is None:
        raise ArgumentError("neither a device nor a dtype is given", hint=HINT)
    if where is None or dtype is None:
        return (dtype if where is None else where), None
    if not is_device(where):
        raise ArgumentError(
            f"beside a dtype the first argument is a device, not {where!r}", hint=HINT
        )
    return as_device(where), as_dtype(dtype)


def _look_up(name: str) -> None:
    """A name that is no device is one of a dtype."""
    try:
        as_dtype(name)
    except DTypeError:
        raise DTypeError(
            f"{name!r} is neither a device nor a dtype",
            hint=f"devices are {', '.join(map(repr, devices.BACKENDS))}; dtypes 'f32', 'bf16', ...",
        ) from None
