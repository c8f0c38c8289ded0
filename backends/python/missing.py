"""Validate mode: lanes that a load did not fill, which a maximum or minimum must not take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Protocol

from cubepy.errors import KernelAssertionError, Location
from cubepy.lang.words import took_missing

ZERO_IS_LEAST = {"f": ("max", "min"), "i": ("max", "min"), "u": ("min",), "b": ()}
"""By a dtype's kind: which of the largest and the smallest lane a lane of zero may be wrongly."""


class Running(Protocol):
    """What an error asks of the run that it ends."""

    name: str

    def location(self) -> Location | None:
        """The line of the kernel that is running."""
        ...


@dataclass(frozen=True)
class Missing:
    """That lanes of a line are zero as they are not in the array; `by`: what must not take them."""

    run: Running
    array: str
    by: tuple[str, ...]

    made: ClassVar[bool] = False  # whether there ever was one: else no result has to be looked at

    def __post_init__(self) -> None:
        Missing.made = True

    def check(self, how: str) -> None:
        """Refuse a maximum ("max") or minimum ("min") of such lanes.

        Raises:
            KernelAssertionError: it takes lanes that are zero by default.
        """
        if how in self.by:
            raise KernelAssertionError(
                f"in {self.run.name}: {took_missing(how, self.array)}", location=self.run.location()
            )

    def but_for(self, how: str) -> Missing | None:
        """The same, but that zero does no harm to a maximum or minimum any more."""
        left = tuple(b for b in self.by if b != how)
        return Missing(self.run, self.array, left) if left else None


def kept(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of lines whose result lacks the lanes that its operands lack."""

    @wraps(fn)
    def applied(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        if not Missing.made:
            return result
        lanes = getattr(result, "lanes", 0)
        if lanes:
            for a in args:
                missing = getattr(a, "missing", None)
                if missing is not None and lanes == a.lanes:
                    result.missing = missing
                    break
        return result

    return applied
