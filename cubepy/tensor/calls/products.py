"""Products of tensors; what a kernel does on its way to the result is ops behind the product."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.matmul.prepack import Packed
from cubepy.tensor.array import Tensor, apply, as_tensor, constant
from cubepy.tensor.calls.elementwise import activated
from cubepy.tensor.calls.table import call_of, refused


@call_of("matmul")
def matmul(
    a: Any,
    b: Any,
    bias: Any,
    activation: Any,
    residual: Any,
    add: Any,
    gate: Any,
    mask: Any,
    fill: float,
    alpha: float,
    dtype: Any,
    precision: str | None,
) -> Tensor:
    """`matmul` with all that may follow it."""
    if isinstance(b, Packed):
        raise refused("a packed matrix has no gradient", "give the matrix itself")
    if precision is not None:
        raise refused(f"products with precision={precision!r} are no op", "leave precision= away")
    y = as_tensor(a) @ as_tensor(b)
    if alpha != 1.0:
        y = y * alpha
    if bias is not None:
        y = y + as_tensor(bias)
    if add is not None:
        y = y + as_tensor(add).reshape(y.shape)
    y = activated(y, activation)
    if gate is not None:
        y = y * as_tensor(gate).reshape(y.shape)
    if residual is not None:
        y = y + as_tensor(residual).reshape(y.shape)
    if mask is not None:
        y = apply("where", as_tensor(mask), y, constant(fill, y.dtype))
    return y if dtype is None else y.astype(dtype)


@call_of("embedding")
def embedding(input: Any, weight: Any) -> Tensor:
    """`embedding`."""
    return apply(  # type: ignore[no-any-return]
        "embedding", as_tensor(input), as_tensor(weight)
    )
