"""Torch's rule for the dtype of several operands.

Tensors with axes decide; tensors without axes, then numbers, count where they are of a higher
category (bool, integer, float) only.
"""

from __future__ import annotations

from typing import Any

from cubepy.lang.dtypes import DType, bool_, f32, i16, i64
from cubepy.tensor import Tensor, as_tensor


def category(dtype: DType) -> int:
    """0: bool, 1: integer, 2: float."""
    return 2 if dtype.is_float else 0 if dtype is bool_ else 1


def common(a: DType | None, b: DType | None) -> DType | None:
    """The dtype of two operands of one rank.

    Example:
        >>> from cubepy.lang.dtypes import f16, i64
        >>> common(f16, i64)
        cb.f16
    """
    if a is None or b is None or a is b:
        return b if a is None else a
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if category(a) == 1:
        signed = [d.kind == "i" for d in (a, b)]
        if signed[0] != signed[1]:
            wide = a if signed[0] else b
            return wide if wide.bits >= 16 else i16
        return a if a.bits >= b.bits else b
    if a.bits == b.bits:
        return f32  # f16 and bf16
    return a if a.bits > b.bits else b


def result_dtype(*values: Any) -> DType:
    """The dtype of what is computed of tensors and numbers.

    Example:
        >>> import cubepy as cb
        >>> result_dtype(cb.tensor([1, 2]), 0.5), result_dtype(cb.tensor([1.0]), 2)
        (cb.f32, cb.f32)
    """
    ranks: list[DType | None] = [None, None, None]
    for value in values:
        if isinstance(value, Tensor):
            rank, dtype = (0 if value.ndim else 1), value.dtype
        elif value is None:
            continue
        else:
            kind = type(value)
            rank, dtype = 2, bool_ if kind is bool else i64 if kind is int else f32
        ranks[rank] = common(ranks[rank], dtype)
    found = ranks[2]
    for higher in (ranks[1], ranks[0]):
        if higher is None:
            continue
        if found is None or category(higher) >= category(found):
            found = higher
    assert found is not None
    return found


def promoted(*values: Any) -> list[Any]:
    """Tensors in their common dtype; numbers as numbers of its category, where a tensor is there.

    Example:
        >>> import cubepy as cb
        >>> promoted(cb.tensor([1, 2]), 0.5)
        [tensor([1., 2.]), 0.5]
    """
    dtype = result_dtype(*values)
    return [converted(v, dtype) for v in values]


def converted(value: Any, dtype: DType) -> Any:
    """A tensor in a dtype, a number as one of its category; None stays."""
    if isinstance(value, Tensor):
        return value if value.dtype is dtype else value.astype(dtype)
    if value is None:
        return None
    kind = category(dtype)
    return float(value) if kind == 2 else bool(value) if kind == 0 else int(value)


def floats(value: Any) -> Tensor:
    """A tensor; integers become f32."""
    value = as_tensor(value)
    return value if value.dtype.is_float else value.astype(f32)
