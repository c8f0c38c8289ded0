"""NumPy's functions of elements on tensors: those that tensors have give tensors, where the
elements are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

UNARY: dict[Any, str] = {
    np.absolute: "abs",
    np.negative: "neg",
    **{getattr(np, n): n for n in ("cos", "exp", "expm1", "log", "log1p", "sin", "sqrt", "tanh")},
}
"""The op of a function of one tensor."""

BINARY: dict[Any, tuple[str, str]] = {
    **{
        ufunc: (f"__{name}__", f"__r{name}__")
        for ufunc, name in (
            (np.add, "add"),
            (np.subtract, "sub"),
            (np.multiply, "mul"),
            (np.true_divide, "truediv"),
            (np.floor_divide, "floordiv"),
            (np.remainder, "mod"),
            (np.power, "pow"),
            (np.matmul, "matmul"),
            (np.bitwise_and, "and"),
            (np.bitwise_or, "or"),
            (np.bitwise_xor, "xor"),
        )
    },
    np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
    np.less: ("__lt__", "__gt__"),
    np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"),
}
"""The method of the first operand, and that of the second where the first is no tensor."""


def call(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What `__array_ufunc__` gives: a tensor, or an array where tensors lack the function.

    A call with options (`out=`, `where=`, a reduction) is NumPy's own, on the tensors' elements.
    """
    plain = method == "__call__" and not options
    if plain and ufunc in UNARY:
        return inputs[0]._unary(UNARY[ufunc])
    if plain and ufunc in BINARY:
        forward, reflected = BINARY[ufunc]
        a, b = inputs
        if _is_tensor(a):
            return getattr(a, forward)(b)
        return getattr(b, reflected)(a)
    arrays = [np.asarray(x) if _is_tensor(x) else x for x in inputs]
    return getattr(ufunc, method)(*arrays, **options)


def _is_tensor(value: Any) -> bool:
    return hasattr(type(value), "__cubepy_wrap__")
