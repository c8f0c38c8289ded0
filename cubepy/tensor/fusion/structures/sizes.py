"""Lengths of axes that remember how they were computed, and what was asked about them.

Passes over a graph compute with lengths and compare them. Done with `Size`s, a pass leaves behind
what each length of its result is (a term of those that were given), and the questions on which its
decisions rest. Other lengths that answer all of them alike would lead to the same result, with the
values of its terms.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

Answer = Callable[[Any, Any], Any]
COMPUTED: dict[str, Answer] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
ASKED: dict[str, Answer] = {"==": operator.eq, "<": operator.lt, "<=": operator.le}


class Size:
    """A length: a given one, or a term of others.

    It is no `int`: whatever needs one asks for its number, which then is an answer, too.

    Attributes:
        sizes: those it belongs to.
        at: which of these it is.
        number: what it is now.
    """

    __slots__ = ("at", "number", "sizes")

    def __init__(self, sizes: Sizes, at: int, number: int) -> None:
        self.sizes, self.at, self.number = sizes, at, number

    def __add__(self, other: Any) -> Any:
        return self.sizes.term("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.sizes.term("+", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.sizes.term("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.sizes.term("-", other, self)

    def __neg__(self) -> Any:
        return self.sizes.term("-", 0, self)

    def __mul__(self, other: Any) -> Any:
        return self.sizes.term("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.sizes.term("*", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self.sizes.term("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.sizes.term("//", other, self)

    def __mod__(self, other: Any) -> Any:
        return self.sizes.term("%", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.sizes.term("%", other, self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if other is None or type(other) in (str, tuple, float) and not _whole(other):
            return False
        return self.sizes.ask("==", self, other)

    def __lt__(self, other: Any) -> bool:
        return self.sizes.ask("<", self, other)

    def __le__(self, other: Any) -> bool:
        return self.sizes.ask("<=", self, other)

    def __gt__(self, other: Any) -> bool:
        return self.sizes.ask("<", other, self)

    def __ge__(self, other: Any) -> bool:
        return self.sizes.ask("<=", other, self)

    def __bool__(self) -> bool:
        return not self.sizes.ask("==", self, 0)

    def __hash__(self) -> int:
        return 1  # so that tables ask which are equal, and whether one is 1

    def __index__(self) -> int:
        self.sizes.ask("==", self, self.number)
        return self.number

    __int__ = __index__

    def __repr__(self) -> str:
        return str(self.__index__())


class Sizes:
    """Lengths that were given, and terms of them.

    Args:
        given: numbers.

    Attributes:
        given: the lengths.
        terms: how the others are computed: a name of `COMPUTED`, and two operands, each of which
            is a number, or a `Size` by where it is.
        questions: what was asked of them, and the answers.
    """

    def __init__(self, given: Sequence[int]) -> None:
        self.all: list[Size] = []
        self.terms: dict[tuple[str, Any, Any], Size] = {}
        self.questions: dict[tuple[str, Any, Any], bool] = {}
        self.given = [self.new(value) for value in given]

    def new(self, value: int) -> Size:
        """Another length."""
        self.all.append(Size(self, len(self.all), value))
        return self.all[-1]

    def term(self, name: str, a: Any, b: Any) -> Size:
        """What is computed of two operands."""
        key = name, _operand(a), _operand(b)
        found = self.terms.get(key)
        if found is None:
            found = self.terms[key] = self.new(COMPUTED[name](_value(a), _value(b)))
        return found

    def ask(self, name: str, a: Any, b: Any) -> bool:
        """The answer to a question about two operands."""
        key = name, _operand(a), _operand(b)
        answer = self.questions.get(key)
        if answer is None:
            answer = self.questions[key] = bool(ASKED[name](_value(a), _value(b)))
        return answer

    def varying(self, fixed: Collection[int]) -> list[bool]:
        """Which lengths vary, if some of the given ones are fixed."""
        found = [n not in fixed for n in range(len(self.given))]
        for _, *operands in self.terms:
            found.append(any(type(one) is tuple and found[one[0]] for one in operands))
        return found

    def values(self, given: Sequence[int]) -> list[int]:
        """The numbers of all lengths for other given ones.

        Raises:
            ZeroDivisionError: a term divides by 0.
        """
        found = list(given)
        for name, a, b in self.terms:
            found.append(COMPUTED[name](_of(a, found), _of(b, found)))
        return found

    def differs(self, values: Sequence[int]) -> Any:
        """The first question with another answer for other numbers of all lengths, or None."""
        for question, answer in self.questions.items():
            name, a, b = question
            if ASKED[name](_of(a, values), _of(b, values)) is not answer:
                return question
        return None


def _whole(value: Any) -> bool:
    return type(value) is float and value.is_integer()


def _operand(value: Any) -> Any:
    """How an operand is named.

    Raises:
        TypeError: neither a length nor a whole number.
    """
    if type(value) is Size:
        return (value.at,)
    if _whole(value):
        return int(value)
    if type(value) is not int:
        raise TypeError(f"a length and {value!r}")
    return value


def _value(value: Any) -> int:
    return value.number if type(value) is Size else value  # type: ignore[no-any-return]


def _of(operand: Any, found: Sequence[int]) -> int:
    """The number of an operand."""
    return found[operand[0]] if type(operand) is tuple else operand
