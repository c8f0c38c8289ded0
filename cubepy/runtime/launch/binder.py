"""The generated binder: one small function a kernel that sorts a call's arguments and forms its
key.

Its signature is the kernel's own with `mode`, `device` and `stream` added, so Python itself matches
arguments to parameters. It returns the values in order, the key (dtypes, shapes, strides, comptime
values) and the keywords.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.compiler.signature import ALONE, ComptimeSpec, exact
from cubepy.errors import KernelSyntaxError
from cubepy.lang.annotations import TensorMap
from cubepy.lang.declare import Kernel, Param
from cubepy.lang.struct import Struct
from cubepy.runtime.interop.arrays import NUMBERS, PLAIN, array_like, lift
from cubepy.runtime.memory.device_array import DeviceArray

LAUNCH_KEYWORDS = ("mode", "device", "stream")


def make_binder(kernel: Kernel) -> Callable[..., tuple[tuple, tuple, Any, Any, Any]]:
    """Write and compile the binder of a kernel."""
    parameters, names, keys = [], [], []
    scope: dict[str, Any] = {  # names that no parameter has
        "_bind_ndarray": np.ndarray,
        "_bind_DeviceArray": DeviceArray,
        "_bind_key_of": key_of,
        "_bind_exact": exact,
        "_bind_PLAIN": PLAIN,
        "_bind_lift": lift,
        "_bind_type": type,
        "_bind_ALONE": ALONE,
    }
    lifting = ""
    star = False
    for i, p in enumerate(kernel.parameters):
        if p.keyword_only and not star:
            parameters.append("*")
            star = True
        if p.name in LAUNCH_KEYWORDS:
            raise KernelSyntaxError(
                f"{kernel.__name__} has a parameter {p.name!r}, which is a keyword of every launch",
                hint=f"choose another name; {', '.join(LAUNCH_KEYWORDS)} are reserved",
            )
        if p.default is Param.__dataclass_fields__["default"].default:
            parameters.append(p.name)
        else:
            scope[f"_bind_default_{i}"] = p.default
            parameters.append(f"{p.name}=_bind_default_{i}")
        names.append(p.name)
        if p.kind == "comptime":
            x = p.name
            keys.append(
                f"(_bind_type({x}), {x}) if _bind_type({x}) in _bind_ALONE else _bind_exact({x})"
            )
        else:
            x = p.name
            keys.append(
                f"(({x}.dtype, {x}.shape, {x}.strides) if _bind_type({x}) is _bind_ndarray else "
                f"({x}.layout if _bind_type({x}) is _bind_DeviceArray else _bind_key_of({x})))"
            )
            named = repr(f"the argument {x!r}")
            lifting += (
                f"    if _bind_type({x}) not in _bind_PLAIN:\n"
                f"        {x} = _bind_lift({x}, {named})\n"
            )
    if not star:
        parameters.append("*")
    parameters += [f"{k}=None" for k in LAUNCH_KEYWORDS]
    text = (
        f"def bind({', '.join(parameters)}):\n{lifting}"
        f"    return ({', '.join(names)},), ({', '.join(keys)},), mode, device, stream\n"
    )
    exec(compile(text, f"<binder of {kernel.__name__}>", "exec"), scope)  # text made above
    return scope["bind"]  # type: ignore[no-any-return]


def key_of(value: Any) -> Any:
    """The part of a key that an argument other than a plain array contributes."""
    t = type(value)
    if t is DeviceArray:
        return value.layout
    if t is float:
        return float
    if t is int:
        return (int, -2147483648 <= value < 2147483648, value < 9223372036854775808)
    if isinstance(value, Struct):
        return (
            value.__cubepy_type__,
            *(
                ComptimeSpec(value.__cubepy_values__[f.name])
                if f.kind == "comptime"
                else key_of(value.__cubepy_values__[f.name])
                for f in value.__cubepy_type__.fields
            ),
        )
    if t is tuple:
        return tuple([key_of(v) for v in value])
    if isinstance(value, NUMBERS):
        return t
    if isinstance(value, TensorMap):
        return value.key  # type: ignore[attr-defined]
    array = array_like(value)
    if array is not None:
        return (
            array.layout
            if type(array) is DeviceArray
            else (array.dtype, array.shape, array.strides)
        )
    return ComptimeSpec(value)
