"""The least of several, asked about once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from cubepy.runtime.symbolic.number import Symbol, plain

T = TypeVar("T")


def least(candidates: Iterable[T], cost: Callable[[T], Any]) -> T:
    """`min(candidates, key=cost)`, the first of equal ones, where costs are numbers or tuples of
    numbers that may be symbols.

    What is asked is that this one is the least: `min` asks how the others compare with each other,
    so that lengths for which another one comes second would need another plan.

    Example:
        >>> least([3, -2, 2], abs)
        -2
    """
    found = [*candidates]
    costs = [cost(one) for one in found]
    values = [_plain(one) for one in costs]
    at = min(range(len(found)), key=values.__getitem__)
    if any(Symbol in map(type, _parts(one)) for one in costs):
        for n, other in enumerate(costs):
            if n != at:
                _ask(_parts(costs[at]), _parts(other))
    return found[at]


def _ask(least_parts: tuple[Any, ...], parts: tuple[Any, ...]) -> None:
    """Keep that one cost is at most another: where parts are equal now, a smaller one will do."""
    for one, other in zip(least_parts, parts, strict=True):
        if plain(one) < plain(other):
            assert one < other
            return
        assert one <= other


def _parts(cost: Any) -> tuple[Any, ...]:
    return cost if type(cost) is tuple else (cost,)


def _plain(cost: Any) -> tuple[Any, ...]:
    return tuple(map(plain, _parts(cost)))
