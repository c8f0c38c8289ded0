"""Linear layers with quantized weights by way of a dense copy of the weight, which lives for one
call.

Where rows are many, unpacking once and the device's best matmul are faster than unpacking in the
product; and any group, on any device, can be unpacked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import cubepy as cb
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import convert_into
from cubepy.quant.linear.gpu.gemm_mma_int8 import ROW_UNITS, round_rows
from cubepy.quant.linear.problem import QuantizedLinear
from cubepy.quant.weights.packing import PANEL
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime.memory import pool
from cubepy.runtime.memory.device_array import DeviceArray, empty
from cubepy.tune import Routine

_UNITS = 256


@cb.func
def word_bytes(word):
    """The bytes of a word as a line of i32."""
    low = cb.concat(cb.splat(word & 255, 1), cb.splat((word >> 8) & 255, 1))
    high = cb.concat(cb.splat((word >> 16) & 255, 1), cb.splat(word >> 24, 1))
    return cb.cast(cb.concat(low, high), cb.i32)


@cb.func
def eight_of(weight, i, n, gain, group: cb.Comptime[int], symmetric: cb.Comptime[bool], scaled):
    """Inputs 8 * i to 8 * i + 7 of channel n: scale * code + minimum (times factor and gain, if
    scaled); `weight` are its codes in words, scales, minimums and factors.
    """
    codes, scales, minimums, factors = weight
    word = codes[n // 16, i, n % 16]
    low = cb.cast(word_bytes(word & cb.u32(0x0F0F0F0F)), cb.f32)
    high = cb.cast(word_bytes((word >> 4) & cb.u32(0x0F0F0F0F)), cb.f32)
    g = i * 8 // group
    scale = cb.cast(scales[n // 16, g, n % 16], cb.f32)
    least = scale * cb.f32(-8.0)
    if not symmetric:
        least = cb.cast(minimums[n // 16, g, n % 16], cb.f32)
    value = cb.fma(cb.concat(low, high), cb.splat(scale, 8), cb.splat(least, 8))
    if scaled:
        value = value * cb.cast(factors.load((i * 8,), 8), cb.f32) * gain
    return value


@cb.kernel
def unpack_int4(
    codes: cb.Array,
    scales: cb.Array,
    minimums,
    factors: cb.Array,
    out: cb.Array,
    gain: cb.f32,
    group: cb.Comptime[int],
    symmetric: cb.Comptime[bool],
    scaled: cb.Comptime[bool],
):
    """out[n, k] = scale * code + minimum (times factor and gain, if scaled); a unit makes eight
    neighbours.
    """
    at = cb.ABSOLUTE_POS
    eighths = codes.shape[1]
    i, n = at % eighths, at // eighths
    if n < out.shape[0]:
        weight = (codes, scales, minimums, factors)
        value = eight_of(weight, i, n, gain, group, symmetric, scaled)
        out.store((n, i * 8), cb.cast(value, out.dtype))


@cb.kernel
def take_int4(
    indices: cb.Array,
    codes: cb.Array,
    scales: cb.Array,
    minimums,
    factors: cb.Array,
    out: cb.Array,
    gain: cb.f32,
    rows,
    group: cb.Comptime[int],
    symmetric: cb.Comptime[bool],
):
    """out[m] = channel indices[m] of `rows`; zeros where there is none. A unit makes eight
    neighbours.
    """
    at = cb.ABSOLUTE_POS
    eighths = codes.shape[1]
    i, m = at % eighths, at // eighths
    if m < out.shape[0]:
        n = cb.cast(indices[m], cb.i64)
        value = cb.splat(cb.f32(0.0), 8)
        if n >= 0 and n < rows:
            weight = (codes, scales, minimums, factors)
            value = eight_of(weight, i, n, gain, group, symmetric, True)
        out.store((m, i * 8), cb.cast(value, out.dtype))


def taken(weight: QuantizedWeight, indices: Any, dtype: Any) -> Any:
    """Channels of an int4 weight, (len(indices), K) of a dtype, where the weight is."""
    columns = weight.shape[1]
    words = weight.codes.view(np.uint32).reshape(weight.codes.shape[0], -1, PANEL)
    shape = (len(indices), columns)
    out = pool.empty(shape, dtype)
    facts = (weight.scales, weight.minimums, weight.input_scale)
    scheme = weight.scheme
    if out.size:
        take_int4[-(-len(indices) * (columns // 8) // _UNITS), _UNITS](
            indices,
            words,
            *facts,
            out,
            weight.gain,
            weight.shape[0],
            scheme.group,
            scheme.symmetric,
            mode="unchecked",
        )
    return out


@cb.kernel
def unpack_int8(
    codes: cb.Array, scales: cb.Array, factors: cb.Array, out: cb.Array, scaled: cb.Comptime[bool]
):
    """out[n, k] = scale * code (times factor, if scaled); a unit makes four neighbours."""
    at = cb.ABSOLUTE_POS
    fours = codes.shape[1]
    i, n = at % fours, at // fours
    if n < out.shape[0]:
        code = word_bytes(codes[n // 16, i, n % 16] ^ cb.u32(0x80808080)) - 128
        value = cb.cast(code, cb.f32) * scales[n // 16, n % 16]
        room = out.shape[1] - i * 4
        if scaled:
            value = value * cb.cast(factors.load((i * 4,), 4, valid=room), cb.f32)
        out.store((n, i * 4), cb.cast(value, out.dtype), valid=room)


def dense_copy(weight: QuantizedWeight, dtype: Any, scaled: bool) -> DeviceArray:
    """The weight as (N, K) of a dtype; unless scaled, it wants activations times `input_scale` and
    `gain`.
    """
    device: Any = weight.codes.device
    out = empty(weight.shape, dtype, device)
    words = weight.codes.view(np.uint32).reshape(weight.codes.shape[0], -1, PANEL)
    cubes = -(-weight.shape[0] * words.shape[1] // _UNITS)
    if weight.scheme.group is None:
        unpack_int8[cubes, _UNITS](
            words, weight.scales, weight.input_scale, out, scaled, mode="unchecked", device=device
        )
    else:
        unpack_int4[cubes, _UNITS](
            words,
            weight.scales,
            weight.minimums,
            weight.input_scale,
            out,
            weight.gain,
            weight.scheme.group,
            weight.scheme.symmetric,
            scaled,
            mode="unchecked",
            device=device,
        )
    return out


class Dense(Routine):
    """A dense copy of the weight, and a product of matrices."""

    name = "dense"

    def supports(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> str | None:
        """Any weight in the memory of a device."""
        return None if p.on_device else "for arrays on a device"

    def launch(self, p: QuantizedLinear, properties: cb.DeviceProperties) -> Any:
        """Activations are rounded to bytes where the weight says so."""
        out = p.result()
        x, bias, residual, flat = p.operands(out)
        weight = p.weight
        floats = p.floats
        if floats and p.exact and x.dtype.itemsize < 4:
            narrow, x = x, empty(x.shape, np.float32, x.device)
            convert_into(x, narrow)
        if floats:
            dense = dense_copy(weight, x.dtype, scaled=True)
        else:
            rounded = empty(x.shape, np.float32, x.device)
            round_rows[len(x), ROW_UNITS](
                x, weight.input_scale, rounded, weight.gain, mode="unchecked", device=x.device
            )
            x, dense = rounded, dense_copy(weight, np.float32, scaled=False)
        # The result may be wider than the activations (f32 of bf16), or narrower (rounded
        # activations are f32).
        product = (
            empty(flat.shape, x.dtype, x.device) if flat.dtype.itemsize < x.dtype.itemsize else flat
        )
        dtype = cb.as_dtype(product.dtype)
        matmul(
            x,
            dense.T,
            bias=bias,
            activation=p.function,
            residual=residual,
            dtype=dtype,
            out=product,
        )
        if product is not flat:
            convert_into(flat, product)
        return out
