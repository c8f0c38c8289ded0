"""The generated front of a function that is repeated: it forms a key and looks it up, nothing else.

There is one for arrays of the host and, made when the first one comes, one for arrays on a GPU.
Their signature is the function's own, so Python itself matches arguments to parameters. A key holds
the layouts of arrays, 0 for options that have their default, and other options with their types. On
the host machine code writes a shorter one, in which options stand for themselves alone; where that
is not known the key is. An object that holds an array and what belongs to it is taken apart
(`Opened`), so that such objects are alike where their parts are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.lang.declare import Func
from cubepy.runtime import device, recording
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.replay import gpu_arguments
from cubepy.runtime.replay.gpu_plan import GpuCalls
from cubepy.runtime.replay.host_plan import REFUSED, HostCalls

UNPACKED = 3  # so many of any number of arrays on a GPU are looked at without a loop


@dataclass(frozen=True)
class Opened:
    """A class whose objects stand for their attributes, where one is given for a parameter.

    Attributes:
        parameter: which one.
        type: the class.
        parts: names of attributes: arrays, and options that are the same object where they are
            equal.
    """

    parameter: str
    type: type
    parts: tuple[str, ...]


def front(
    function: Callable[..., Any], on_gpu: Callable[..., Any], opened: Opened | None = None
) -> Callable[..., Any]:
    """The function, repeated where it can be: its parameters are arrays and options.

    Args:
        function: gets calls that are not repeated.
        on_gpu: what is called instead of it when the first array may be on a GPU, with (the
            function inside, args, kwargs, what to call with a trace that was used again).
        opened: what else a parameter may be.
    """
    parameters = list(inspect.signature(function).parameters.values())
    calls = HostCalls()
    scope: dict[str, Any] = {  # names that no parameter has
        "_ndarray": np.ndarray,
        "_recording": recording,
        "_here": device._current.get,
        "_other": exact,
        "_Func": Func,
        "_calls": calls,
        "_key_of": calls.short_of,
        "_get": calls.ready.get,
        "_REFUSED": REFUSED,
        "_long_way": calls.long_way,
        "_function": function,
        "_ON_GPU": gpu_arguments.ON_GPU,
        "_quick": calls.quick.get,
        "_learn": calls.learn,
    }
    several = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    first = f"{several} and type({several}[0])" if several else f"type({parameters[0].name})"
    heads, passed = _heads(parameters, scope)
    names = [p.name for p in parameters]
    call = f"_function({', '.join(passed)})"
    out = names.index("out") - len(names) if "out" in names else None
    again = _again(*_keys(parameters), call, out)
    if opened is not None:
        scope["_Opened"] = opened.type
        inside = _again(*_keys(parameters, opened), call, out).replace("\n", "\n    ")
        again = f"""if type({opened.parameter}) is _Opened:
                {inside}
            {again}"""
    text = f"""
def {function.__name__}({", ".join(heads)}):
    if {first} is _ndarray and not _recording.detours:
        _where = _here()
        if _where is None or _where.backend == "cpu":
            {again}
    if {first} in _ON_GPU and not _recording.detours:
        return _calls.on_gpu({", ".join(passed)})
    return {call}
"""

    def first_on_gpu(*args: Any, **kwargs: Any) -> Any:
        own = scope | _gpu_scope(parameters, function, on_gpu)
        head = f"def {function.__name__}({', '.join(heads)}):"
        calls.on_gpu = _made(f"{head}\n    {_gpu_branch(parameters, call)}", function, own)
        return calls.on_gpu(*args, **kwargs)

    calls.on_gpu = first_on_gpu
    return functools.wraps(function)(_made(text, function, scope))  # type: ignore[no-any-return]


def _made(text: str, function: Callable[..., Any], scope: dict[str, Any]) -> Any:
    """The function that a text made here defines."""
    exec(compile(text, f"<front of {function.__name__}>", "exec"), scope)
    return scope[function.__name__]


def _again(keys: list[str], values: list[str], call: str, out: int | None) -> str:
    """Lines that look arrays of the host up, as deep in the front as they will be."""
    lines = f"""_values = {", ".join(values)},
_short = _key_of[0](_values)
_known = _quick(_short)
if _known is not None:
    _result = _known(_values)
    if _result is not _REFUSED:
        return _result
_key = {", ".join(keys)},
try:
    _again = _get(_key)
except (TypeError, ValueError):
    return {call}
if _again is not None and _again is not _known:
    _result = _again(_values)
    if _result is not _REFUSED:
        _learn(_short, _values, _again)
        return _result
return _long_way(_key, _values, {out}, lambda: {call}, _short)"""
    return lines.replace("\n", "\n            ")


def _heads(
    parameters: Sequence[inspect.Parameter], scope: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Parameters as they are declared, and as they are passed on."""
    heads, passed, apart = [], [], False
    for n, p in enumerate(parameters):
        head = p.name
        if p.default is not p.empty:
            scope[f"_default_{n}"] = p.default
            head += f"=_default_{n}"
        if p.kind is p.KEYWORD_ONLY and not apart:
            heads.append("*")
        apart |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        heads.append(f"*{head}" if p.kind is p.VAR_POSITIONAL else head)
        passed.append(
            f"*{p.name}"
            if p.kind is p.VAR_POSITIONAL
            else f"{p.name}={p.name}"
            if apart
            else p.name
        )
    return heads, passed


def _gpu_scope(
    parameters: Sequence[inspect.Parameter],
    function: Callable[..., Any],
    on_gpu: Callable[..., Any],
) -> dict[str, Any]:
    """What the branch for arrays on a GPU needs by name."""
    calls = GpuCalls()
    inside = inspect.unwrap(function)
    names = [p.name for p in parameters]
    several = next((n for n, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), None)
    named = (n for n, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY or p.name == "out")
    cut = (
        next(named, len(names)) if several is None else several + 1
    )  # from here on arguments are passed by name

    def long_way(key: Any, values: tuple[Any, ...]) -> Any:
        more = len(values) - len(names)  # than one for a parameter
        out = names.index("out") + more if "out" in names else None

        def seen(trace: Any, arrays: list[Any]) -> None:
            if recording.detours == 0:
                calls.keep(
                    key, values, None if out is None or values[out] is None else out, trace, arrays
                )

        return on_gpu(
            inside,
            values[: cut + more],
            dict(zip(names[cut:], values[cut + more :], strict=True)),
            seen,
        )

    return {
        "_key_part": gpu_arguments.key_part,
        "_TORCH": gpu_arguments.TORCH,
        "_DeviceArray": DeviceArray,
        "_gpu_replay": calls.ready.get,
        "_gpu_long_way": long_way,
        "_PLAIN": _PLAIN,
        "_int": int,
        "_lookups": gpu_arguments.lookups,
        "_keep_token": gpu_arguments.keep_token,
    }


_PLAIN = frozenset({str, type(None), Func})
"""Types of options that are parts of keys as they are."""


def _gpu_branch(parameters: Sequence[inspect.Parameter], call: str) -> str:
    """Lines that look arrays on a GPU up, as deep in the front as they will be."""
    several = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    counts: list[int | None] = [None] if several is None else [*range(1, UNPACKED + 1), None]
    text: list[str] = []
    for count in counts:
        before, keys, values = _gpu_keys(parameters, count)
        given = ", ".join(values)
        lines = [
            *before,
            "try:",
            f"    _key = {', '.join(keys)},",
            "    _again = _gpu_replay(_key)",
            "except (TypeError, ValueError):",
            f"    return {call}",
            "if _again is not None:",
            f"    _result = _again({given})",
            "    if _result is not _REFUSED:",
            "        return _result",
            f"return _gpu_long_way(_key, ({given},))",
        ]
        text += (
            lines
            if count is None
            else [f"if len({several}) == {count}:", *(f"    {line}" for line in lines)]
        )
    return "\n    ".join(text)


def _gpu_keys(
    parameters: Sequence[inspect.Parameter], count: int | None
) -> tuple[list[str], list[str], list[str]]:
    """Lines that come first, the parts of a key, and the values, as `_keys` has them."""
    layout = (
        "{0}.layout if type({0}) is _DeviceArray else {0}.requires_grad or _lookups[0]({0}) or _keep_token({0}) "
        "if type({0}) in _TORCH else {0} if type({0}) in _PLAIN else (int, {0}) "
        "if type({0}) is int else _key_part({0})"
    )
    before, keys, values = [], [], []
    for n, p in enumerate(parameters):
        x = p.name
        if p.kind is p.VAR_POSITIONAL and count is not None:
            each = [f"_{x}{k}" for k in range(count)]
            before.append(f"{', '.join(each)}, = {x}")
            keys += [f"({layout.format(v)})" for v in each]
            values += each
        elif p.kind is p.VAR_POSITIONAL:
            keys.append(f"*[{layout.format('_v')} for _v in {x}]")
            values.append(f"*{x}")
        else:
            part = f"({layout.format(x)})"
            keys.append(part if p.default is p.empty else f"0 if {x} is _default_{n} else {part}")
            values.append(x)
    return before, keys, values


def _keys(
    parameters: Sequence[inspect.Parameter], opened: Opened | None = None
) -> tuple[list[str], list[str]]:
    """The parts of the key, and the values; with an object that is `opened`, of what it holds."""
    layout = "({0}.dtype, {0}.shape, {0}.strides) if type({0}) is _ndarray else _other({0})"
    keys, values = [], []
    for n, p in enumerate(parameters):
        x = p.name
        if p.kind is p.VAR_POSITIONAL:
            keys.append(f"*[{layout.format('_v')} for _v in {x}]")
            values.append(f"*{x}")
            continue
        if opened is not None and x == opened.parameter:
            parts = [f"{x}.{part}" for part in opened.parts]
            keys += [layout.format(part) for part in parts]
            values += parts
            continue
        key = layout.format(x)
        if p.default is not p.empty:
            key = f"0 if {x} is _default_{n} else {key}"
        elif any(q.kind is q.VAR_POSITIONAL for q in parameters):
            key = f"{x} if type({x}) is _Func else {key}"
        keys.append(key)
        values.append(x)
    return keys, values
