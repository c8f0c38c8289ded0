"""A launch that was seen before: what is known of it, so that only addresses and numbers
are new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Positions = tuple[tuple[int, int], ...]
Conversions = tuple[tuple[int, Callable[[Any], Any]], ...]


class Prepared:
    """A launch seen before: its runner, where its leaves are, and how to check their memory."""

    __slots__ = (
        "converted",
        "executable",
        "fresh",
        "guard",
        "holds",
        "in_place",
        "leaves",
        "outputs",
        "quick",
        "ranges",
        "runner",
        "simple",
        "tried",
    )

    def __init__(
        self,
        executable: Any,
        runner: Any,
        outputs: tuple[int, ...],
        ranges: list[Any],
        in_place: bool,
        simple: Positions | None,
        converted: Conversions = (),
    ) -> None:
        self.executable, self.runner, self.in_place = executable, runner, in_place
        self.outputs, self.ranges, self.simple = outputs, ranges, simple
        self.converted = converted if simple is not None else ()
        self.guard = executable.program.guard
        self.holds = None if self.guard is None else self.guard.holds
        self.quick: Any = None
        self.leaves: list[Any] | None = (
            None  # those of the launch that it was made for, until that runs
        )
        self.tried: set[Any] = set()  # keys of launches that it was tried to repeat by machine code
        self.fresh = simple is not None and not in_place and hasattr(runner, "quick")

    def exact(self, values: tuple) -> tuple:
        """The arguments with numbers as their parameters' dtypes have them.

        Raises:
            DTypeError: a number that its parameter cannot hold.
        """
        exact = list(values)
        for i, convert in self.converted:
            exact[i] = convert(exact[i])
        return tuple(exact)

    def write_quick(self) -> None:
        """The launch came again: it is worth a function of its own, where the runner makes them."""
        if getattr(self.runner, "trials", 0):
            return  # it is not known yet how it runs
        self.fresh = False
        self.quick = self.runner.quick(self.simple, self.outputs, self.ranges)
