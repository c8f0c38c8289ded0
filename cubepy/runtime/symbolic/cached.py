"""Functions that remember their results, but for arguments that are symbols."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

from cubepy.runtime.symbolic.number import Needed

F = TypeVar("F", bound=Callable[..., Any])


def cached(function: F) -> F:
    """`lru_cache(4096)`; with a symbol among the arguments the function itself is called, so that
    what it asks about the symbol is kept as a guard.

    Example:
        >>> @cached
        ... def tiles(rows, tile):
        ...     return -(-rows // tile)
        >>> tiles(100, 64)
        2
    """
    known = lru_cache(4096)(function)

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return known(*args, **named)
        except Needed:  # a symbol is no key
            return function(*args, **named)

    call.cache_clear = known.cache_clear  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]
