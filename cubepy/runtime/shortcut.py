"""The generated front of a function that is repeated: it forms a key and looks it up, nothing else.

Its signature is the function's own, so Python itself matches arguments to parameters. A key holds the layouts of
arrays, 0 for options that have their default, and other options with their types.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.lang.declare import Func
from cubepy.runtime import device, tracing
from cubepy.runtime.repeat import REFUSED, Calls

UNPACKED = 3  # so many of any number of arrays are looked at without a loop


def front(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, repeated where it can be: its parameters are arrays and options; the first array is of NumPy."""
    parameters = list(inspect.signature(function).parameters.values())
    calls = Calls()
    scope: dict[str, Any] = {  # names that no parameter has
        "_ndarray": np.ndarray, "_tracing": tracing, "_here": device._current.get, "_other": exact, "_Func": Func,
        "_get": calls.ready.get, "_REFUSED": REFUSED, "_long_way": calls.long_way, "_function": function,
    }  # fmt: skip
    several = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")
    first = f"{several} and type({several}[0])" if several else f"type({parameters[0].name})"
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
        passed.append(f"*{p.name}" if p.kind is p.VAR_POSITIONAL else f"{p.name}={p.name}" if apart else p.name)
    lines = _keys(parameters, None)
    if several:
        counts = range(1, UNPACKED + 1)
        known = [f"if len({several}) == {n}:" + _indented(_keys(parameters, n)) for n in counts]
        lines = ["\nel".join(known) + "\nelse:" + _indented(lines)]
    names = [p.name for p in parameters]
    call = f"_function({', '.join(passed)})"
    body = "\n            ".join("\n".join(lines).split("\n"))
    text = f"""
def {function.__name__}({", ".join(heads)}):
    if {first} is _ndarray and not _tracing.detours:
        _where = _here()
        if _where is None or _where.backend == "cpu":
            {body}
            try:
                _again = _get(_key)
            except TypeError:
                return {call}
            if _again is not None:
                _result = _again(_values)
                if _result is not _REFUSED:
                    return _result
            return _long_way(_key, _values, {names.index("out") - len(names)}, lambda: {call})
    return {call}
"""
    exec(compile(text, f"<front of {function.__name__}>", "exec"), scope)  # text made above
    return functools.wraps(function)(scope[function.__name__])


def _keys(parameters: Sequence[inspect.Parameter], count: int | None) -> list[str]:
    """Lines that form the key and the values, for so many arrays where any number of them may come."""
    layout = "({0}.dtype, {0}.shape, {0}.strides) if type({0}) is _ndarray else _other({0})"
    before, keys, values = [], [], []
    for n, p in enumerate(parameters):
        x = p.name
        if p.kind is not p.VAR_POSITIONAL:
            key = layout.format(x)
            if p.default is not p.empty:
                key = f"0 if {x} is _default_{n} else {key}"
            elif any(q.kind is q.VAR_POSITIONAL for q in parameters):
                key = f"{x} if type({x}) is _Func else {key}"
            keys.append(key)
            values.append(x)
        elif count is None:
            keys.append(f"*[{layout.format('_v')} for _v in {x}]")
            values.append(f"*{x}")
        else:
            each = [f"_{x}{k}" for k in range(count)]
            before.append(f"{', '.join(each)}, = {x}")
            keys += [layout.format(v) for v in each]
            values += each
    return [*before, f"_key = {', '.join(keys)},", f"_values = {', '.join(values)},"]


def _indented(lines: list[str]) -> str:
    return "".join(f"\n    {line}" for line in lines)
