"""Which op a call of a library function is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cubepy.errors import GradientError
from cubepy.tensor.record import refuse_unrecorded

Call = Callable[..., Any]
CALLS: dict[str, Call] = {}
"""By the name of a function, what makes ops of its arguments, which come by name."""


def call_of(*names: str) -> Callable[[Call], Call]:
    """Say that the function below makes ops of calls of library functions."""

    def put(function: Call) -> Call:
        for name in names:
            CALLS[name] = function
        return function

    return put


@lru_cache(maxsize=256)
def _bound(function: Any) -> Callable[..., dict[str, Any]]:
    """What gives the arguments of a call by name, defaults too: a function of the same parameters,
    which takes a tenth of the time of `inspect.Signature.bind`.
    """
    signature = inspect.signature(function)
    heads: list[str] = []
    defaults = {}
    for p in signature.parameters.values():
        if p.kind is p.KEYWORD_ONLY and "*" not in heads:
            if not any(head.startswith("*") for head in heads):
                heads.append("*")
        stars = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        given = "" if p.default is p.empty else f"=_default_{p.name}"
        defaults[f"_default_{p.name}"] = p.default
        heads.append(f"{stars}{p.name}{given}")
    scope: dict[str, Any] = dict(defaults)
    name = function.__name__
    exec(f"def {name}({', '.join(heads)}):\n    return locals()", scope)
    return scope[name]  # type: ignore[no-any-return]


def call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a library function gives of tensors of which one needs a gradient, or is recorded.

    Raises:
        GradientError: the function is no op, or writes to `out`.
        LaunchError: the same while a block is recorded.
    """
    name = function.__name__.strip("_")
    arguments = _bound(function)(*args, **kwargs)
    make = CALLS.get(name)
    if arguments.pop("out", None) is not None:
        raise refused(f"K.{name} writes to `out`, which has no gradient", "leave out= away")
    if make is not None:
        return make(**arguments)
    raise refused(f"K.{name} of a tensor that needs a gradient is no op", "")


def refused(what: str, instead: str) -> GradientError:
    """The error of a call that would lose a gradient.

    Raises:
        LaunchError: a block is recorded.
    """
    refuse_unrecorded()
    hint = "give x.detach(), or call it within `with cb.no_grad():`, if no gradient is wanted"
    return GradientError(what, hint=f"{instead}; or {hint}" if instead else hint)
