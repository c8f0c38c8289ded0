"""What computes an operator of PyTorch: functions by its name, with torch's arguments in torch's
order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TARGETS: dict[str, Callable[..., Any]] = {}
"""By name, with an overload where overloads differ in their arguments."""


def target(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Record what computes operators.

    Args:
        names: with spaces between; "add" is every overload of `aten.add`, "max.dim" one; names of
            other rooms are whole ("_operator.getitem").
    """

    def keep(run: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            TARGETS[name] = run
        return run

    return keep


def run_of(name: str) -> Callable[..., Any] | None:
    """What computes an operator; None if nothing does.

    Example:
        >>> run_of("aten.no_such_thing.default") is None
        True
    """
    if not name.startswith("aten."):
        return TARGETS.get(name)
    _, base, overload = (*name.split("."), "", "")[:3]
    for name in (base, base.removesuffix("_copy")):  # a copy of a view is the view
        found = TARGETS.get(f"{name}.{overload}") or TARGETS.get(name)
        if found is not None:
            return found
    return None
