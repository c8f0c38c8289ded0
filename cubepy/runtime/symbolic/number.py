"""Numbers that remember what was computed of them, and what was asked.

A function that runs on a `Symbol` in place of a length leaves a `Trace`: assignments for what it
computed, and a guard for each answer that it got. Where every guard gives the same answer for
another length, the function would do the same with the numbers that the assignments give. It is
what torch's `SymInt` does, with two differences: a symbol always has a value, so that code runs as
it is, and it never turns into that value unseen. What needs the number itself (a key of a table, a
function of C) raises `Needed`: then the function runs again with that number fixed, and a guard
that it is as it was.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

MOST = 1 << 31
"""Lengths are below it; a guard of every trace."""
DEEP = 40
"""Brackets of an expression, at most."""
_NAME = re.compile(r"\bv\d+\b")
Bound = float | int


class Needed(BaseException):
    """A number has to be known; no `Exception`, because nobody may catch it but who runs the
    function.

    Attributes:
        key: of the number (`Symbol.key`).
    """

    def __init__(self, key: Any) -> None:
        super().__init__("a number that is not known yet is needed")
        self.key = key


class Trace:
    """What a function computed of symbols and asked about them.

    Args:
        fixed: keys of numbers that are known: they are plain numbers, with a guard.

    Attributes:
        lines: assignments and guards, in order: (name or None, text, names in it).
    """

    def __init__(self, fixed: frozenset[Any] = frozenset()) -> None:
        self.fixed = fixed
        self.lines: list[tuple[str | None, str, tuple[str, ...]]] = []
        self.symbols: dict[str, Any] = {}
        self.asked: set[str] = set()
        self.scope: dict[str, Any] = {}
        self.names: dict[int, str] = {}

    def input(self, number: int, value: int, low: Bound = 0, high: Bound = MOST - 1) -> Any:
        """The `number`th argument, which is such a number now and lies between two: a symbol, or
        the number itself where it is fixed.
        """
        name = f"n{number}"
        return self._made(lambda: ("in", number), name, (), value, low, high, given=name)

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function without side effects gives; the number itself where no argument is a
        symbol.
        """
        symbols = [a for a in arguments if type(a) is Symbol]
        value = function(*map(plain, arguments))
        if not symbols:
            return value
        text = f"{self._named(function)}({', '.join(map(self._argument, arguments))})"
        key = partial(_key_of, id(function), *arguments)
        return self._made(key, text, tuple(s.name for s in symbols), value)

    def _named(self, thing: Any) -> str:
        """The name of something that is no number."""
        name = self.names.setdefault(id(thing), f"f{len(self.scope)}")
        self.scope[name] = thing
        return name

    def _argument(self, value: Any) -> str:
        simple = type(value) is Symbol or type(value) in _NUMBERS
        return _text(value) if simple else self._named(value)

    def computed(
        self, op: str, text: str, operands: Sequence[Any], value: Any, low: Bound, high: Bound
    ) -> Any:
        """A number that an operator gives."""
        names = tuple(o.name for o in operands if type(o) is Symbol)
        return self._made(partial(_key_of, op, *operands), text, names, value, low, high)

    def _made(
        self,
        key_of: Callable[[], Any],
        text: str,
        names: tuple[str, ...],
        value: Any,
        low: Bound = -math.inf,
        high: Bound = math.inf,
        given: str = "",
    ) -> Any:
        found = self.symbols.get(text)
        if found is not None:
            return found
        key = key_of()
        if key in self.fixed:
            self.lines.append((None, f"{text} == {value!r}", names or (given,)))
            self.symbols[text] = value
            return value
        name = given or f"v{len(self.symbols)}"
        if not given:
            self.lines.append((name, text, names))
        made = self.symbols[text] = Symbol(self, key, name, value, low, high)
        return made

    def ask(self, op: str, one: Any, other: Any, answer: bool) -> None:
        """Keep the answer to a comparison."""
        text = f"{_text(one)} {op} {_text(other)}"
        if text in self.asked:
            return
        self.asked.add(text)
        names = tuple(o.name for o in (one, other) if type(o) is Symbol)
        self.lines.append((None, text if answer else f"not {text}", names))

    def written(self, results: Sequence[Any], inputs: int) -> tuple[str, dict[str, Any]]:
        """The function of the inputs as text, with the names that it needs: None where a guard does
        not hold, else a tuple of results. A number that is used once stands where it is used.
        """
        uses = Counter(name for name, _, names in self._needed(results) for name in names)
        uses.update(name for r in results if type(r) is Symbol for name in (r.name, r.name))
        once: dict[str, str] = {}
        lines = [f"def fit({', '.join(f'n{k}' for k in range(inputs))}):"]
        for name, text, _ in self._needed(results):
            whole = _NAME.sub(lambda found: once.pop(found[0], found[0]), text)
            if name is None:
                lines += [f"    if not ({whole}):", "        return None"]
            elif uses[name] == 1 and whole.count("(") < DEEP:
                once[name] = f"({whole})"
            else:
                lines.append(f"    {name} = {whole}")
        given = "".join(f"{_text(r)}, " for r in results)
        return "\n".join([*lines, f"    return ({given})"]), self.scope

    def _needed(self, results: Sequence[Any]) -> list[tuple[str | None, str, tuple[str, ...]]]:
        """The lines that guards and results need."""
        wanted = {r.name for r in results if type(r) is Symbol}
        kept = []
        for line in reversed(self.lines):
            if line[0] is None or line[0] in wanted:
                wanted.update(line[2])
                kept.append(line)
        return kept[::-1]


def plain(value: Any) -> Any:
    """The number that a symbol is now; anything else as it is."""
    return value.value if type(value) is Symbol else value


def known(*values: Any) -> None:
    """Numbers that code is made of: of a symbol it raises `Needed` at once, where else the first
    thing that is computed of it would.
    """
    for value in values:
        operator.index(value)


def applied(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function without side effects gives; of symbols a symbol, whose trace calls the
    function again for other numbers.

    Example:
        >>> applied(max, 3, 5)
        5
    """
    for one in arguments:
        if type(one) is Symbol:
            return one.trace.apply(function, *arguments)
    return function(*arguments)


def is_symbol(value: Any) -> bool:
    """Whether a number is not known yet."""
    return type(value) is Symbol


def _key_of(*parts: Any) -> int:
    """What stands for a number that is computed of others. Two that have the same one by chance
    would be fixed together, no more.
    """
    return hash(tuple(p.key if type(p) is Symbol else _text(p) for p in parts))


def _text(value: Any) -> str:
    return value.name if type(value) is Symbol else f"({value!r})"


def _low(value: Any) -> Bound:
    return value.low if type(value) is Symbol else value


def _high(value: Any) -> Bound:
    return value.high if type(value) is Symbol else value


def _sums(a: Any, b: Any) -> tuple[Bound, Bound]:
    return _low(a) + _low(b), _high(a) + _high(b)


def _differences(a: Any, b: Any) -> tuple[Bound, Bound]:
    return _low(a) - _high(b), _high(a) - _low(b)


def _products(a: Any, b: Any) -> tuple[Bound, Bound]:
    if _low(a) < 0 or _low(b) < 0:
        return -math.inf, math.inf
    high = [_high(a), _high(b)]
    return _low(a) * _low(b), 0 if 0 in high else high[0] * high[1]


def _quotients(a: Any, b: Any) -> tuple[Bound, Bound]:
    if type(b) is not int or b <= 0:
        return (0, _high(a)) if _low(a) >= 0 and _low(b) > 0 else (-math.inf, math.inf)
    low, high = _low(a), _high(a)
    return (low if low == -math.inf else low // b), (high if high == math.inf else high // b)


def _remainders(a: Any, b: Any) -> tuple[Bound, Bound]:
    return (0, b - 1) if type(b) is int and b > 0 else (-math.inf, math.inf)


def _nothing(a: Any, b: Any) -> tuple[Bound, Bound]:
    return -math.inf, math.inf


_OPERATORS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "add": ("+", operator.add, _sums),
    "sub": ("-", operator.sub, _differences),
    "mul": ("*", operator.mul, _products),
    "floordiv": ("//", operator.floordiv, _quotients),
    "mod": ("%", operator.mod, _remainders),
    "truediv": ("/", operator.truediv, _nothing),
    "lshift": ("<<", operator.lshift, _nothing),
    "rshift": (">>", operator.rshift, _nothing),
    "and": ("&", operator.and_, _nothing),
    "or": ("|", operator.or_, _nothing),
    "xor": ("^", operator.xor, _nothing),
    "pow": ("**", operator.pow, _nothing),
}
_UNITS = {"+": 0, "-": 0, "*": 1, "//": 1, "<<": 0, ">>": 0}
_COMPARISONS: dict[str, tuple[str, Callable[..., bool]]] = {
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
    "eq": ("==", operator.eq),
    "ne": ("!=", operator.ne),
}
_NUMBERS = (int, float, bool)


class Symbol:
    """A number of a trace.

    `isinstance` takes it for what its value is; `type` does not.

    Attributes:
        trace: whose it is.
        key: equal for numbers that are computed in one way: ("in", n) of an argument, else a hash.
        name: in the text of the trace.
        value: what it is now.
        low, high: what it is at least and at most, whatever the inputs are.

    Example:
        >>> trace = Trace()
        >>> n = trace.input(0, 100)
        >>> cubes = -(-n // 32)
        >>> cubes > 3, cubes.value
        (True, 4)
        >>> print(trace.written([cubes], 1)[0])
        def fit(n0):
            v3 = -((-n0) // (32))
            if not (v3 > (3)):
                return None
            return (v3, )
    """

    __slots__ = ("high", "key", "low", "name", "trace", "value")

    def __init__(
        self, trace: Trace, key: Any, name: str, value: Any, low: Bound, high: Bound
    ) -> None:
        self.trace, self.key, self.name, self.value = trace, key, name, value
        self.low, self.high = low, high

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)

    def _needed(self, *_: Any) -> Any:
        raise Needed(self.key)

    __hash__ = __index__ = __int__ = __float__ = __complex__ = _needed
    __repr__ = __str__ = __format__ = _needed
    __reduce_ex__ = _needed

    def __bool__(self) -> bool:
        return self.__ne__(0)

    def __neg__(self) -> Any:
        return _unary(self, "-", operator.neg, -self.high, -self.low)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self.low >= 0 else _unary(self, "abs", abs, 0, math.inf)

    def __invert__(self) -> Any:
        return _unary(self, "~", operator.invert, -math.inf, math.inf)

    def __round__(self, digits: Any = None) -> Any:
        if type(self.value) is int and digits is None:
            return self
        return self.trace.apply(round, self, digits)

    def __trunc__(self) -> Any:
        return self if type(self.value) is int else self.trace.apply(math.trunc, self)

    def __floor__(self) -> Any:
        return self if type(self.value) is int else self.trace.apply(math.floor, self)

    def __ceil__(self) -> Any:
        return self if type(self.value) is int else self.trace.apply(math.ceil, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def bit_length(self) -> Any:
        """How many bits the number has."""
        return self.trace.apply(int.bit_length, self)

    def is_integer(self) -> bool:
        """Whether it is whole: an answer that is kept."""
        return bool(self.trace.apply(float.is_integer, self)) if type(self.value) is float else True


def _unary(one: Symbol, sign: str, function: Callable[[Any], Any], low: Bound, high: Bound) -> Any:
    text = f"{sign}({one.name})" if sign == "abs" else f"{sign}{one.name}"
    return one.trace.computed(sign + "1", text, (one,), function(one.value), low, high)


def _binary(name: str, swapped: bool) -> Callable[[Symbol, Any], Any]:
    sign, function, bounds = _OPERATORS[name]

    def method(self: Symbol, other: Any) -> Any:
        if type(other) is not Symbol and type(other) not in _NUMBERS:
            return NotImplemented
        one, two = (other, self) if swapped else (self, other)
        if type(other) is int and other == _UNITS.get(sign) and (not swapped or sign in "+*"):
            return self
        value = function(plain(one), plain(two))
        low, high = bounds(one, two) if type(value) is int else (-math.inf, math.inf)
        if low == high:
            return value
        text = f"{_text(one)} {sign} {_text(two)}"
        return self.trace.computed(sign, text, (one, two), value, low, high)

    return method


def _comparison(name: str) -> Callable[[Symbol, Any], Any]:
    sign, function = _COMPARISONS[name]

    def method(self: Symbol, other: Any) -> Any:
        if type(other) is not Symbol and type(other) not in _NUMBERS:
            return NotImplemented
        answer = function(self.value, plain(other))
        if not _certain(sign, self, other):
            self.trace.ask(sign, self, other, answer)
            if type(other) is int:
                _learn(self, sign, other, answer)
        return answer

    return method


def _certain(sign: str, one: Symbol, other: Any) -> bool:
    """Whether a comparison has the same answer for all inputs."""
    if other is one:
        return True
    if one.low > _high(other) or one.high < _low(other):
        return True
    if sign in ("<", ">="):
        return one.low >= _high(other)
    if sign in (">", "<="):
        return one.high <= _low(other)
    return False


def _learn(one: Symbol, sign: str, other: int, answer: bool) -> None:
    """From here on the number is known to be on one side of another."""
    above = {
        (">", True): other + 1,
        (">=", True): other,
        ("<", False): other,
        ("<=", False): other + 1,
    }
    below = {
        ("<", True): other - 1,
        ("<=", True): other,
        (">", False): other,
        (">=", False): other - 1,
    }
    if type(one.value) is not int:
        return
    one.low = max(one.low, above.get((sign, answer), one.low))
    one.high = min(one.high, below.get((sign, answer), one.high))
    if sign in ("==", "!=") and answer is (sign == "!="):
        one.low += other == one.low
        one.high -= other == one.high


for _name in _OPERATORS:
    setattr(Symbol, f"__{_name}__", _binary(_name, False))
    setattr(Symbol, f"__r{_name}__", _binary(_name, True))
for _name in _COMPARISONS:
    setattr(Symbol, f"__{_name}__", _comparison(_name))
