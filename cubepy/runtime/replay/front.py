"""The generated front of a function that is repeated: it forms a key and looks it up, nothing else.

Its signature is the function's own, so Python itself matches arguments to parameters. Where the
first array is on the host, machine code writes the key. Where it is on a GPU, the key is a tuple
with a part for each argument, by its kind; the text for that is written when the first one comes.
An object that holds an array and what belongs to it is taken apart (`Opened`), so that such objects
are alike where their parts are.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.runtime import device, recording
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.replay import arguments
from cubepy.runtime.replay.calls import Calls
from cubepy.runtime.replay.hosted import HOSTED, arrays_of, wrapped

_PART = (
    "{0}.layout if type({0}) is _DeviceArray else {0} if type({0}) in _PLAIN else (_int, {0}) "
    "if type({0}) is _int else {0}.requires_grad or _lookups[0]({0}) or _keep_token({0}) "
    "if type({0}) in _TORCH else _key_part({0})"
)
"""What an argument contributes to the key of a call on a GPU."""


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
    function: Callable[..., Any],
    calls: Calls,
    on_gpu: Callable[..., Any],
    opened: Opened | None = None,
) -> Callable[..., Any]:
    """The function, repeated where it can be: its parameters are arrays and options.

    Args:
        function: gets calls that are not repeated.
        calls: those that came before.
        on_gpu: what gets new calls whose first array may be on a GPU: with their key, args, kwargs.
        opened: what else a parameter may be.
    """
    parameters = list(inspect.signature(function).parameters.values())
    names = [p.name for p in parameters]
    several = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    first = f"{several} and type({several}[0])" if several else f"type({names[0]})"
    scope: dict[str, Any] = {  # names that no parameter has
        "_ndarray": np.ndarray,
        "_recording": recording,
        "_here": device._current.get,
        "_short_of": calls.short_of,
        "_quick": calls.quick.get,
        "_REFUSED": arguments.REFUSED,
        "_on_host": calls.on_host,
        "_function": function,
        "_ON_GPU": arguments.ON_GPU,
        "_on_gpu": [],
        "_HOSTED": HOSTED,
        "_arrays_of": arrays_of,
        "_wrapped": wrapped,
    }
    heads, passed = _heads(parameters, scope)
    call = f"_function({', '.join(passed)})"
    values = [f"*{name}" if name == several else name for name in names]
    given = plain = f"({', '.join(values)},)"
    closed = ""
    if opened is not None:
        scope["_Opened"] = opened.type
        parts = [f"{opened.parameter}.{part}" for part in opened.parts]
        inside = [*values]
        at = names.index(opened.parameter)
        inside[at : at + 1] = parts
        given = f"({', '.join(inside)},) if type({opened.parameter}) is _Opened else {given}"
        closed = f" and type({opened.parameter}) is not _Opened"
    out = names.index("out") - len(names) if "out" in names else None
    tensors = f"""
    if {first} in _HOSTED{closed} and not _recording.detours:
        _where = _here()
        if _where is None or _where.backend == "cpu":
            _made = {names[0]}.__cubepy_again__(_function, {plain})
            if _made is not _REFUSED:
                return _made
            _arrays = _arrays_of({plain}, {out})
            if _arrays is not None:
                _wrap = {names[0]}.__cubepy_wrap__
                {", ".join(names)}, = _arrays
                return _wrapped(_again({", ".join(passed)}), _wrap)
"""
    text = f"""
def {function.__name__}({", ".join(heads)}):
    if {first} is _ndarray and not _recording.detours:
        _where = _here()
        if _where is None or _where.backend == "cpu":
            _values = {given}
            _short = _short_of[0](_values)
            _known = _quick(_short)
            if _known is not None:
                _result = _known(_values)
                if _result is not _REFUSED:
                    return _result
            return _on_host(_values, _short, {out}, lambda: {call})
{"" if several else tensors}
    if {first} in _ON_GPU and not _recording.detours:
        return _on_gpu[0]({", ".join(passed)})
    return {call}
"""

    def first_on_gpu(*args: Any, **kwargs: Any) -> Any:
        own = scope | _gpu_scope(parameters, calls, on_gpu)
        keys = [_part(p, n) for n, p in enumerate(parameters)]
        branch = f"""
def {function.__name__}({", ".join(heads)}):
    _values = {", ".join(values)},
    try:
        _key = {", ".join(keys)},
        _again = _ready(_key)
    except (TypeError, ValueError):
        return {call}
    if _again is not None:
        _result = _again(_values)
        if _result is not _REFUSED:
            return _result
    return _new_on_gpu(_key, _values)
"""
        scope["_on_gpu"][0] = _made(branch, function, own)
        return scope["_on_gpu"][0](*args, **kwargs)

    scope["_on_gpu"].append(first_on_gpu)
    return functools.wraps(function)(_made(text, function, scope))  # type: ignore[no-any-return]


def _made(text: str, function: Callable[..., Any], scope: dict[str, Any]) -> Any:
    """The function that a text made here defines."""
    exec(compile(text, f"<front of {function.__name__}>", "exec"), scope)
    made = scope["_again"] = scope[function.__name__]
    return made


def _heads(
    parameters: Sequence[inspect.Parameter], scope: dict[str, Any]
) -> tuple[list[str], list[str]]:
    """Parameters as they are declared, and as they are passed on."""
    heads, passed, starred = [], [], False
    for n, p in enumerate(parameters):
        head = p.name
        if p.default is not p.empty:
            scope[f"_default_{n}"] = p.default
            head += f"=_default_{n}"
        if p.kind is p.KEYWORD_ONLY and not starred:
            heads.append("*")
        starred |= p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        star = p.kind is p.VAR_POSITIONAL
        heads.append(f"*{head}" if star else head)
        passed.append(f"*{p.name}" if star else f"{p.name}={p.name}" if starred else p.name)
    return heads, passed


def _part(parameter: inspect.Parameter, n: int) -> str:
    """The part of a key for a parameter, as text."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*[{_PART.format('_v')} for _v in {parameter.name}]"
    part = f"({_PART.format(parameter.name)})"
    if parameter.default is parameter.empty:
        return part
    return f"0 if {parameter.name} is _default_{n} else {part}"


def _gpu_scope(
    parameters: Sequence[inspect.Parameter], calls: Calls, on_gpu: Callable[..., Any]
) -> dict[str, Any]:
    """What the front for arrays on a GPU needs by name."""
    names = [p.name for p in parameters]
    several = next((n for n, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), None)
    named = (n for n, p in enumerate(parameters) if p.kind is p.KEYWORD_ONLY or p.name == "out")
    cut = next(named, len(names)) if several is None else several + 1  # then they go by name

    def new_on_gpu(key: Any, values: tuple[Any, ...]) -> Any:
        result = calls.other_length(key, values)
        if result is not arguments.REFUSED:
            return result
        at = cut + len(values) - len(names)
        return on_gpu(values[:at], dict(zip(names[cut:], values[at:], strict=True)), key)

    return {
        "_key_part": arguments.key_part,
        "_TORCH": arguments.TORCH,
        "_DeviceArray": DeviceArray,
        "_ready": calls.ready.get,
        "_new_on_gpu": new_on_gpu,
        "_PLAIN": arguments.AS_THEY_ARE,
        "_int": int,
        "_lookups": arguments.lookups,
        "_keep_token": arguments.keep_token,
    }
