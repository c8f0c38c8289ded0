"""The plain product for f64 and integers: a cube does a row of the result, lines lie along its
columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul.problem import Product, result_dtype
from cubepy.kernels.movement.copy import convert_into, copy
from cubepy.runtime import memory
from cubepy.tune import TunedRoutine

LINES = 4
"""Lines of sums that a unit holds, so that an element of a is read once for all of them."""


@cb.kernel
def row_product(a: cb.Array, b: cb.Array, out: cb.Array, lanes: cb.Comptime[int]):
    """out[batch, i] = a[batch, i] @ b[batch], four lines of columns at a time.

    a (batches, M, K), b (batches, K, N), out (batches, M, N). A sum over k of a number of a times a
    row of b: lines of neighbouring columns are added up side by side.
    """
    batch, i = cb.unravel(cb.CUBE_POS, (out.shape[0], out.shape[1]))
    for j in range(0, out.shape[2], LINES * lanes):
        zero = cb.cast(cb.splat(0, lanes), out.dtype)
        sums = tuple(zero for _ in cb.unroll(range(LINES)))
        for k in range(a.shape[2]):
            x = cb.splat(cb.cast(a[batch, i, k], out.dtype), lanes)
            sums = tuple(
                sums[n] + x * cb.cast(b.load((batch, k, j + n * lanes), lanes), out.dtype)
                for n in cb.unroll(range(LINES))
            )
        for n in cb.unroll(range(LINES)):
            out.store((batch, i, j + n * lanes), sums[n])


@dataclass(frozen=True)
class PlainPlan:
    """What changes the plain product's code: the lanes of a line."""

    lanes: int


class Plain(TunedRoutine):
    """Sums in the dtype itself, without an epilogue: f64 and integers; f32 only when forced."""

    name = "plain"

    def group(self, key: Product) -> int:
        """The other routines are quicker wherever they fit."""
        dtype = result_dtype(key)
        return -1 if dtype.is_float and dtype.bits <= 32 else 0

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """It adds nothing to the product."""
        if problem.packed or result_dtype(problem).kind == "b":
            return "b is packed, or sums would be truths"
        if result_dtype(problem).is_float and result_dtype(problem).bits < 32:
            return f"sums would be in {result_dtype(problem).name}"
        return "it has no epilogue" if problem.epilogue else None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[PlainPlan]:
        """Lines of a register's width; then half and twice of it."""
        lanes = properties.lanes(result_dtype(problem))
        for count in (lanes, lanes // 2, 2 * lanes):
            if 0 < count <= 64:
                yield PlainPlan(count)

    def reads_across(self, blueprint: PlainPlan, x: Any, y: Any) -> bool:
        """What has gaps is copied."""
        return True

    def launch(self, blueprint: PlainPlan, problem: Product, args: tuple[Any, ...]) -> None:
        """Multiply x (..., M, K) and y (..., K, N), whose batches broadcast."""
        plain_product(*args[:3], result_dtype(problem), blueprint.lanes)  # type: ignore[call-arg]


def plain_product(x: np.ndarray, y: np.ndarray, result: np.ndarray, dtype: Any, lanes: int) -> None:
    """result = x @ y for arrays (..., M, K) and (..., K, N) whose batches broadcast."""
    m, k = x.shape[-2:]
    n = y.shape[-1]
    if k == 0:  # a sum of nothing
        result[...] = 0
        return
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    a = copy(np.broadcast_to(x, (*batch, m, k))).reshape(-1, m, k)
    b = copy(np.broadcast_to(y, (*batch, k, n))).reshape(-1, k, n)
    straight = result.flags.c_contiguous and result.dtype == dtype.numpy
    target = result.reshape(-1, m, n) if straight else memory.empty((a.shape[0], m, n), dtype.numpy)
    row_product[a.shape[0] * m, 1](a, b, target, lanes, mode="checked")
    if not straight:
        convert_into(result, target.reshape(result.shape))
