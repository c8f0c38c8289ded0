"""Linear layers of int8 weights and activations in eight bits by way of `matmul`, for devices whose
matrix units multiply bytes with signs: AMD's.

The integers are those of `cubepy.quant.weights.weight`, exact to the end: rows are rounded to bytes
with a zero point, the weight's codes are laid out as a matrix once, and what a row's zero point
adds to each channel is taken off the sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.primitives.epilogue import Epilogue
from cubepy.quant.linear.gpu.epilogue import finish_one
from cubepy.quant.linear.gpu.gemm_mma import scaled
from cubepy.quant.linear.gpu.gemm_mma_int8 import ROW_UNITS, row_codes, row_facts
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.quant.weights.packing import PANEL
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime import recording
from cubepy.runtime.memory.device_array import empty
from cubepy.tune import GpuRoutine

_UNITS = 256


@cb.kernel
def quantize_rows(x: cb.Array, factors: cb.Array, codes: cb.Array, facts: cb.Array, gain: cb.f32):
    """One row a cube: codes[m] = bytes of x[m] * factors, 128 less; facts[m] = scale * gain, zero
    point.
    """
    row, depth = cb.CUBE_POS, x.shape[1]
    scale, inverse, zero = row_facts(x, factors, row, depth)
    shift = cb.f32(128.0)
    if cb.UNIT_POS == 0:
        facts[row, 0] = scale * gain
        facts[row, 1] = zero - shift
    for k in range(cb.UNIT_POS * 8, depth, ROW_UNITS * 8):
        code = cb.cast(row_codes(scaled(x, factors, row, k), inverse, zero, shift), cb.i8)
        codes.store((row, k), code, valid=depth - k)


@cb.kernel
def finish_sums(
    sums: cb.Array,
    facts: cb.Array,
    weight_sums: cb.Array,
    scales: cb.Array,
    bias,
    residual,
    out: cb.Array,
    plan: cb.Comptime,
):
    """out = epilogue of what exact sums are worth: each unit makes one element."""
    at = cb.ABSOLUTE_POS
    row, channel = at // out.shape[1], at % out.shape[1]
    if row < out.shape[0]:
        whole = sums[row, channel] - cb.cast(facts[row, 1], cb.i32) * weight_sums[channel]
        result = cb.cast(whole, cb.f32) * (facts[row, 0] * scales[channel])
        finish_one(result, bias, residual, out, row, channel, plan)


def codes_of(weight: QuantizedWeight) -> Any:
    """The codes of an int8 weight (N, K): laid out at the first use, and kept with the weight."""
    found = weight.__dict__.get("_rows")
    if found is None:
        recording.spoil()  # a repetition of what is recorded now would lay it out again
        words = weight.codes.view(np.uint32).reshape(weight.codes.shape[0], -1, PANEL)
        rows = copy(words.transpose(0, 2, 1)).reshape(-1, words.shape[1])
        found = weight.__dict__["_rows"] = rows.view(np.int8)
    return found[: weight.shape[0], : weight.shape[1]]


class Matmul(GpuRoutine):
    """Bytes with signs by the device's matmul."""

    name = "int8_matmul"

    def unfit(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """int8 weights that want such activations, on AMD's matrix units."""
        if p.floats or p.group:
            return "activations stay floats" if p.floats else "groups have scales of their own"
        if not {"mfma", "wmma"} & properties.features:
            return "the device has no MFMA or WMMA"
        return None

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """Rows are rounded by a launch of their own, and so are sums made results."""
        out, weight = p.result(), p.weight
        x, bias, residual, flat = p.operands(out)
        codes, facts = empty(x.shape, np.int8, x.device), empty((len(x), 2), np.float32, x.device)
        quantize_rows[len(x), ROW_UNITS](
            x, weight.input_scale, codes, facts, weight.gain, mode="unchecked", device=x.device
        )
        sums = matmul(codes, codes_of(weight).T, dtype=np.int32)
        has_bias, has_residual, function = p.epilogue
        plan = Epilogue(bias=has_bias, residual=has_residual, activation=function)
        worth = facts, weight.sums.reshape(-1), weight.scales.reshape(-1)
        finish_sums[-(-flat.size // _UNITS), _UNITS](
            sums, *worth, bias, residual, flat, plan, mode="unchecked", device=x.device
        )
        return out
