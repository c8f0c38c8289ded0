"""The linear layer with a quantized weight that routines choose between: what describes one."""

from __future__ import annotations

from typing import Any, NamedTuple

import cubepy as cb
from cubepy.kernels.movement.copy import contiguous
from cubepy.quant.linear.gpu.layout import supports
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.device_array import empty as empty_on
from cubepy.runtime.memory.pool import empty


class Operands(NamedTuple):
    """The arrays of a launch: rows (M, K), bias (N,) and residual (M, N), contiguous, and what is
    written.
    """

    rows: Any
    bias: Any
    residual: Any
    out: Any


class QuantizedLinear(NamedTuple):
    """`function(x @ weight.T + bias) + residual`, with the activations that the weight asks for.

    Attributes:
        x: float, (..., K), not empty.
        weight: quantized, (N, K), where x is.
        bias: (N,), or None.
        residual: (..., N), or None.
        function: a func, or None.
        dtype: of the result.
        exact: whether codes and rows are not to be rounded with their scales.
    """

    x: Any
    weight: QuantizedWeight
    bias: Any = None
    residual: Any = None
    function: Any = None
    dtype: Any = None
    exact: bool = False

    @property
    def m(self) -> int:
        """Rows of activations."""
        return int(self.x.size) // self.weight.shape[1]

    @property
    def group(self) -> int:
        """Inputs that share a scale, or 0."""
        return self.weight.scheme.group or 0

    @property
    def on_device(self) -> bool:
        """Whether arrays are in memory that the host does not see."""
        return isinstance(self.x, DeviceArray)

    @property
    def floats(self) -> bool:
        """Whether activations stay floats."""
        return self.weight.scheme.activations == "float"

    @property
    def epilogue(self) -> tuple[bool, bool, Any]:
        """Bias, residual and function, as plans have them."""
        return self.bias is not None, self.residual is not None, self.function

    def arranges(self, properties: cb.DeviceProperties) -> bool:
        """Whether the kernels of planes can run the weight on a device."""
        return supports(self.weight) and properties.features >= {"mma", "copy_async"}

    def result(self) -> Any:
        """An array for the result, beside x."""
        shape = (*self.x.shape[:-1], self.weight.shape[0])
        if self.on_device:
            return empty_on(shape, self.dtype, self.x.device)
        return empty(shape, self.dtype)

    def operands(self, out: Any) -> Operands:
        """Everything as matrices; `out` is what `result` gave."""
        n, k = self.weight.shape
        rest = None if self.residual is None else contiguous(self.residual).reshape(-1, n)
        return Operands(contiguous(self.x.reshape(-1, k)), self.bias, rest, out.reshape(-1, n))
