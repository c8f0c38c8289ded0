"""Numbers of a call while its function is traced: what only goes into ops may be another one in the
next call.

A `Scalar` stands for a Python float among the arguments. Arithmetic with numbers gives another one,
which remembers how it is computed; an op takes it as a number that is read at each call. Whoever
asks for the number itself (`if lr > 0`, `math.sqrt(lr)`, an attribute of an op) makes it *fixed*:
the program then holds for this number alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy.tensor.value import Handle


class Scalar:
    """A float that may be another one in the next call.

    Attributes:
        value: what it is in this call.
        text: the expression that gives it, of the names of the arguments that are `leaves`.
        leaves: the arguments that it depends on.
        fixed: collects the arguments whose numbers were asked for.
    """

    __slots__ = ("fixed", "leaves", "text", "value")
    __class__ = property(lambda self: float)  # type: ignore[assignment]

    def __init__(self, value: float, text: str, leaves: frozenset[int], fixed: set[int]) -> None:
        self.value, self.text, self.leaves, self.fixed = value, text, leaves, fixed

    def settle(self) -> float:
        """The number itself; from here on the program depends on it."""
        self.fixed |= self.leaves
        return self.value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy as np

        return np.asarray(self.settle(), dtype)

    def __float__(self) -> float:
        return self.settle()

    def __repr__(self) -> str:
        return repr(self.settle())

    def __hash__(self) -> int:
        return hash(self.settle())

    def __format__(self, spec: str) -> str:
        return format(self.settle(), spec)

    def __getattr__(self, name: str) -> Any:  # what floats have
        return getattr(self.settle(), name)


def number_of(value: Any) -> Any:
    """A number as it is, of a scalar the number itself."""
    return value.settle() if type(value) is Scalar else value


def _computed(name: str, form: str) -> Callable[..., Any]:
    def compute(self: Scalar, *others: Any) -> Any:
        if others and isinstance(others[0], Handle):  # a tensor reads it at each call
            return NotImplemented
        plain = [o.value if type(o) is Scalar else o for o in others]
        value = getattr(self.value, name)(*plain)
        exact = all(type(o) is Scalar or (type(o) in (int, float) and _plain(o)) for o in others)
        if value is NotImplemented or type(value) is not float or not exact:
            return getattr(self.settle(), name)(*map(number_of, others))
        texts = [o.text if type(o) is Scalar else f"({o!r})" for o in others]
        leaves = self.leaves.union(*[o.leaves for o in others if type(o) is Scalar])
        return Scalar(value, form.format(self.text, *texts), leaves, self.fixed)

    return compute


def _plain(number: float) -> bool:
    """Whether a number is the same when it is written and read."""
    return isinstance(number, int) or math.isfinite(number)


def _asked(name: str) -> Callable[..., Any]:
    def ask(self: Scalar, *others: Any) -> Any:
        if others and isinstance(others[0], Handle):
            return NotImplemented
        return getattr(self.settle(), name)(*map(number_of, others))

    return ask


_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**"}
for _name, _sign in _ARITHMETIC.items():
    setattr(Scalar, f"__{_name}__", _computed(f"__{_name}__", f"({{}} {_sign} {{}})"))
    setattr(Scalar, f"__r{_name}__", _computed(f"__r{_name}__", f"({{1}} {_sign} {{0}})"))
for _name, _sign in (("neg", "-"), ("pos", "+")):
    setattr(Scalar, f"__{_name}__", _computed(f"__{_name}__", f"({_sign}{{}})"))
_ASKED = """
abs bool ceil divmod eq floor floordiv ge gt int le lt mod ne
rdivmod rfloordiv rmod round trunc
"""
for _name in _ASKED.split():
    setattr(Scalar, f"__{_name}__", _asked(f"__{_name}__"))
