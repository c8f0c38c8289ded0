"""Structs on the python backend: their methods, and operators that are methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cubepy.errors import BarrierError, KernelTypeError
from cubepy.lang.declare import Func
from cubepy.lang.struct import Struct


@dataclass(frozen=True, eq=False)
class Inside(Struct):
    """A struct in a kernel, whose operators run as its methods do."""

    __cubepy_run__: Any = field(default=None, repr=False)

    def __cubepy_called__(self, method: Func, *args: Any) -> Any:
        """What a method gives that an operator calls.

        Raises:
            BarrierError: it comes to a barrier, in the middle of an expression.
        """
        steps = self.__cubepy_run__.invoke(method, [self, *args], {})
        try:
            next(steps)
        except StopIteration as done:
            return done.value
        raise BarrierError(
            f"the operator {method.__name__} comes to a barrier, in the middle of an expression",
            location=self.__cubepy_run__.location(),
        )


class Bound:
    """A struct's method."""

    def __init__(self, owner: Struct, method: Func) -> None:
        self.owner, self.method = owner, method


def left_to_structs(made: Callable[[str, Any, Any], Any], op: str) -> Callable[[Any, Any], Any]:
    """An operator of a number, which leaves a struct on its right to the struct's method."""

    def operator(a: Any, b: Any) -> Any:
        try:
            return made(op, a, b)
        except KernelTypeError:
            if isinstance(b, Struct):
                return NotImplemented
            raise

    return operator
