"""Linear layers with quantized weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.config import config
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.quant.linear.routines import QUANTIZED_LINEAR
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime.memory.device_array import DeviceArray


def quantized_linear(
    x: Any,
    weight: QuantizedWeight,
    bias: Any = None,
    residual: Any = None,
    activation: Any = None,
    dtype: Any = np.float32,
) -> Any:
    """`activation(x @ weight.T + bias) + residual`, with activations quantized row by row where the
    weight asks for it.

    Args:
        x: float, (..., K).
        weight: quantized, (N, K), where x is.
        bias: (N,), or None.
        residual: (..., N), or None.
        activation: a name of `cubepy.kernels.primitives.functions.ACTIVATIONS`, a `@cb.func`, or
            None.
        dtype: of the result.

    Returns:
        (..., N).
    """
    function = ACTIVATIONS[activation] if isinstance(activation, str) else activation
    problem = QuantizedLinear(x, weight, bias, residual, function, dtype, config.exact_weights)
    if x.size == 0 or weight.shape[0] == 0:
        return problem.result()
    return QUANTIZED_LINEAR.run(problem, x.device if isinstance(x, DeviceArray) else None)
