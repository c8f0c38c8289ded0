"""Arithmetic of lengths: numbers that are known when a program is traced."""

from __future__ import annotations

import math
import operator
from typing import Any

from cubepy.errors import ModelError
from cubepy.models.exported.records import TARGETS, target
from cubepy.tensor import Tensor


@target("sym_size size")
def size(x: Tensor, dim: int | None = None) -> Any:
    return list(x.shape) if dim is None else x.shape[dim]


@target("sym_numel")
def elements(x: Tensor) -> int:
    return math.prod(x.shape)


@target("sym_stride")
def stride(x: Tensor, dim: int) -> int:
    return math.prod(x.shape[dim % x.ndim + 1 :])


for (
    _name
) in "add sub mul floordiv truediv mod neg pow eq ne lt le gt ge and_ or_ not_ getitem".split():
    target(f"_operator.{_name}")(getattr(operator, _name))
for _name in ("ceil", "floor", "trunc", "sqrt"):
    target(f"math.{_name}")(getattr(math, _name))
target("builtins.round")(round)
target("builtins.max torch.sym_max")(max)
target("builtins.min torch.sym_min")(min)
target("torch.sym_int")(int)
target("torch.sym_float")(float)
target("torch.sym_not")(operator.not_)
target("torch.sym_sum")(sum)
TARGETS["cubepy.values"] = lambda *values: list(values)


@target("torch.sym_ite")
def chosen(condition: bool, a: Any, b: Any) -> Any:
    return a if condition else b


@target(
    "_assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size _assert_async "
    "_functional_assert_async"
)
def nothing(*args: Any, **said: Any) -> None:
    """What torch promised itself while it traced."""


@target("_assert_scalar")
def promised(condition: Any, message: str = "") -> None:
    """A condition on lengths."""
    if not condition:
        raise ModelError(f"lengths that the exported graph does not allow: {message}")
