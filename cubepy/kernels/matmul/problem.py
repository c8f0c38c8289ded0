"""The products that routines choose between: what describes one, and what a measurement of one
needs.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from cubepy.lang.dtypes import as_dtype, promote
from cubepy.runtime.device import DeviceProperties, device_properties

Layout = Literal["rows", "columns", "strided"]


class Product(NamedTuple):
    """A batched product (batch, m, k) @ (batch, k, n).

    Attributes:
        device: such as "cpu".
        m, k, n: lengths.
        batch: how many products; one for all batches that share b.
        a, b: names of the dtypes.
        layout: of b: "rows" (neighbours along n), "columns" (along k, as a linear layer's weight)
            or "strided".
        packed: width of the panels when b comes from `prepack`, else 0; b is then "f32", or "bf16"
            in words, or bytes in words (see `cpu.codes`).
        epilogue: whether bias, activation, residual or a factor follow.
        out: name of the result's dtype where it is not the promoted one.
        aligned: whether the copy engine of a GPU can bring all matrices.
        tf32: whether f32 may be rounded to tf32.
    """

    device: str
    m: int
    k: int
    n: int
    batch: int = 1
    a: str = "f32"
    b: str = "f32"
    layout: Layout = "rows"
    packed: int = 0
    epilogue: bool = False
    out: str = ""
    aligned: bool = False
    tf32: bool = False

    @property
    def properties(self) -> DeviceProperties:
        """What its device can do."""
        return device_properties(self.device)


class Epilogue(NamedTuple):
    """What follows a product: `function(alpha * product + bias) + residual` where the mask is
    true, and `fill` elsewhere; `joined` says what is done with the residual (see
    `primitives.epilogue`).
    """

    bias: Any = None
    residual: Any = None
    function: Any = None
    alpha: float = 1.0
    mask: Any = None
    fill: float = 0.0
    joined: str = "residual"

    @property
    def there(self) -> bool:
        """Whether anything follows."""
        arrays = self.bias, self.residual, self.function, self.mask
        return self.alpha != 1.0 or any(a is not None for a in arrays)

    @property
    def given(self) -> tuple[Any, ...]:
        """What a routine is given: a mask where there is one, of which those of a CPU know."""
        short = self.mask is None and self.joined == "residual"
        return self[:4] if short else self


def layout_of(b: Any) -> Layout:
    """How a matrix (..., k, n) lies in memory. One row is a row on a CPU; on a GPU it is columns of
    one number.
    """
    if b.shape[-2] == 1 and isinstance(b, np.ndarray):
        return "rows" if b.strides[-1] == b.itemsize or b.shape[-1] == 1 else "strided"
    if b.strides[-2] == b.itemsize or b.shape[-2] == 1:
        return "columns"
    return "rows" if b.strides[-1] == b.itemsize else "strided"


@cache
def name_of(dtype: np.dtype) -> str:
    """The language's name of a NumPy dtype."""
    return as_dtype(dtype).name


def result_dtype(problem: Product) -> Any:
    """The dtype of the product; that of a where b is packed."""
    if problem.out:
        return as_dtype(problem.out)
    if problem.packed:
        return as_dtype(problem.a)
    return promote(as_dtype(problem.a).compute, as_dtype(problem.b).compute)


def is_exact_f32(problem: Product) -> bool:
    """Whether everything is f32, and is not to be rounded to tf32."""
    dtypes = problem.a, problem.b, result_dtype(problem).name
    return not problem.tf32 and dtypes == ("f32",) * 3
