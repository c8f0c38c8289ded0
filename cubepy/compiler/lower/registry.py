"""Which rule turns each builtin of the language into IR."""

from __future__ import annotations

from collections.abc import Callable

from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Value
from cubepy.errors import KernelTypeError

Args = list[Value]
Kwargs = dict[str, Value]
Rule = Callable[[Scope, str, Args, Kwargs], Value]

LOWERED: dict[str, Rule] = {}
"""Of every builtin: what makes its value from the name it was called by and its arguments."""


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule for some builtins."""

    def register(fn: Rule) -> Rule:
        LOWERED.update(dict.fromkeys(names, fn))
        return fn

    return register


def unpack(name: str, args: Args, kwargs: Kwargs, *names: str, **defaults: Value) -> list[Value]:
    """Match a builtin's arguments to its parameters."""
    order = [*names, *defaults]
    call = f"write cb.{name}({', '.join([*names, *(f'{d}=...' for d in defaults)])})"
    if len(args) > len(order):
        many = "1 argument" if len(order) == 1 else f"{len(order)} arguments"
        raise KernelTypeError(f"cb.{name} takes {many} but {len(args)} were given", hint=call)
    given = dict(zip(order, args, strict=False))
    for k, v in kwargs.items():
        if k not in order or k in given:
            raise KernelTypeError(
                f"cb.{name} has no free parameter {k!r}", hint=f"its parameters: {', '.join(order)}"
            )
        given[k] = v
    for n in order:
        if n not in given:
            if n not in defaults:
                raise KernelTypeError(f"cb.{name} needs a value for {n!r}", hint=call)
            given[n] = defaults[n]
    return [given[n] for n in order]
