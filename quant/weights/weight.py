"""A quantized weight: packed codes with what is needed to use them, and nothing in float beside
them.

What a linear layer computes with it, for a row x of activations (`u`, `z` and `s` are made on the
fly):

    x' = x * input_scale                        element by element
    low, high = min(0, min x'), max(0, max x')
    s, z = (high - low) / 255, round(-low / s)
    u = clip(round(x' / s) + z, 0, 255)         unsigned bytes: x' is about s * (u - z)

    int8   y[n] = s * scale[n] * (sum_k u[k] * code[n, k] - z * sum[n]) + bias[n]
    int4   y[n] = s * gain * (sum_g (scale[n, g] * D[n, g] + minimum[n, g] * V[g]) - z' * sum[n])
                  + bias[n]
           with v = u - 128, z' = z - 128 (signed bytes), D[n, g] = sum of code * v in group g,
           V[g] = sum of v in group g

`sum[n]` is the sum over k of what the codes of the channel stand for: of the codes themselves in
int8, of `scale * code + minimum` in int4. Symmetric int4 stores no minimum: it is -8 * scale.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cubepy.errors import FileFormatError, QuantizationError
from cubepy.quant.schemes.equalize import input_factors
from cubepy.quant.schemes.gptq import curvature, round_int4_compensated, round_int8_compensated
from cubepy.quant.schemes.rounding import Grid, fit_int4, fit_int8, round_int8
from cubepy.quant.schemes.scheme import Scheme, parse_scheme
from cubepy.quant.weights import packing
from cubepy.runtime.device import Device
from cubepy.runtime.masked import refuse_masked
from cubepy.tensor.storage import HOST, moved


@dataclass(frozen=True)
class Statistics:
    """What calibration saw of the inputs of a layer.

    Args:
        moments: float64, (K, K): X^T X over all rows seen.
        largest: float32, (K,): the largest magnitude of each input.
        count: how many rows were seen.
    """

    moments: np.ndarray
    largest: np.ndarray
    count: int


@dataclass(frozen=True)
class QuantizedWeight:
    """A weight (N, K) of a linear layer, packed; the layouts are those of
    `cubepy.quant.weights.packing`.

    Args:
        shape: logical (N, K): outputs, inputs.
        scheme: how it is quantized.
        codes: int8 (panels, ceil(K/4), 16, 4) or, two to a byte, uint8 (panels, K/8, 16, 4).
        scales: int8: float32 (panels, 16); int4: float16 (panels, groups, 16).
        minimums: float16 (panels, groups, 16); None where symmetric.
        sums: what a unit of zero point adds to each channel: int32 (int8) or float32 (int4),
            (panels, 16).
        input_scale: float16, (K,): activations are multiplied by it before they are quantized.
        gain: int4: a power of two that all values are multiplied with, so that float16 scales do
            not underflow.

    Example:
        >>> weight = QuantizedWeight.from_float(np.eye(32, dtype=np.float32), "int4")
        >>> weight.shape, weight.codes.shape, weight.nbytes
        ((32, 32), (2, 4, 16, 4), 832)
    """

    shape: tuple[int, int]
    scheme: Scheme
    codes: np.ndarray
    scales: np.ndarray
    minimums: np.ndarray | None
    sums: np.ndarray
    input_scale: np.ndarray
    gain: float = 1.0

    @property
    def dtype(self) -> np.dtype:
        """float32: what the weight stands for."""
        return np.dtype(np.float32)

    @property
    def ndim(self) -> int:
        return 2

    @property
    def nbytes(self) -> int:
        """Bytes in memory, scales and all."""
        return sum(a.nbytes for a in self.arrays().values())

    @property
    def float_nbytes(self) -> int:
        """Bytes of the same weight in float32."""
        return 4 * self.shape[0] * self.shape[1]

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as they are stored in files."""
        named = {
            "codes": self.codes,
            "scales": self.scales,
            "minimums": self.minimums,
            "sums": self.sums,
            "input_scale": self.input_scale,
        }
        return {name: array for name, array in named.items() if array is not None}

    def on(self, device: Device) -> QuantizedWeight:
        """The weight with its arrays on a device; shared when they are there already."""
        return replace(
            self, **{name: moved(array, device) for name, array in self.arrays().items()}
        )

    def metadata(self) -> dict[str, Any]:
        """What the arrays do not say, as plain data."""
        return {
            "layout": packing.LAYOUT_VERSION,
            "scheme": self.scheme.name,
            "group": self.scheme.group,
            "symmetric": self.scheme.symmetric,
            "shape": list(self.shape),
            "gain": self.gain,
            **({"activations": "float"} if self.scheme.activations == "float" else {}),
        }

    @classmethod
    def from_float(
        cls,
        weight: np.ndarray,
        scheme: str | Scheme,
        *,
        name: str = "weight",
        statistics: Statistics | None = None,
    ) -> QuantizedWeight:
        """Quantize a float weight.

        Args:
            weight: float, (N, K).
            scheme: its name or itself.
            name: of the layer, for messages.
            statistics: what calibration saw; then rounding errors are compensated.

        Raises:
            QuantizationError: not a matrix, not finite, or groups that do not divide K.
        """
        scheme = parse_scheme(scheme)
        refuse_masked(weight, "the weight")
        weight = np.asarray(weight, dtype=np.float32)
        if weight.ndim != 2 or 0 in weight.shape:
            raise QuantizationError(
                f"a weight to quantize is a matrix (outputs, inputs), not empty: {name!r} "
                f"has the shape {weight.shape}"
            )
        if not np.isfinite(weight).all():
            raise QuantizationError(
                f"a weight to quantize is finite: {name!r} holds NaN or infinity",
                hint=f"mend the model, or leave the layer in float with skip=({name!r},)",
            )
        scheme.check(weight.shape[1], name)
        factors = input_factors(
            weight, scheme.group, None if statistics is None else _largest(statistics, scheme)
        )
        even = weight / factors.astype(np.float32)
        hessian = None
        if statistics is not None and statistics.count:
            wide = factors.astype(np.float64)
            hessian = curvature(statistics.moments * wide * wide[:, None], statistics.count)
        if scheme.name == "int8":
            return _int8(even, scheme, factors, hessian)
        return _int4(even, scheme, factors, hessian)

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], metadata: dict[str, Any], name: str
    ) -> QuantizedWeight:
        """Rebuild a weight from `arrays()` and `metadata()`; nothing is copied.

        Raises:
            FileFormatError: another layout version, a missing array, or one whose shape or dtype
                does not fit.
        """
        try:
            if metadata["layout"] != packing.LAYOUT_VERSION:
                raise FileFormatError(
                    f"quantized tensor {name!r} has the layout version "
                    f"{metadata['layout']!r}; this cubepy reads version "
                    f"{packing.LAYOUT_VERSION}",
                    hint="quantize the float model again with this version",
                )
            rows, columns = (int(n) for n in metadata["shape"])
            named = str(metadata["scheme"])
            activations = metadata.get("activations", "int8")
            if named == "int8":
                scheme = parse_scheme(named, activations=activations)
            else:
                scheme = parse_scheme(
                    named,
                    group=metadata["group"],
                    symmetric=metadata["symmetric"],
                    activations=activations,
                )
            gain = float(metadata["gain"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, FileFormatError):
                raise
            raise FileFormatError(
                f"the description of quantized tensor {name!r} is damaged: {error}",
                hint="save the model again",
            ) from error
        for part, (shape, dtype) in _expected(scheme, rows, columns).items():
            array = arrays.get(part)
            if array is None:
                raise FileFormatError(
                    f"quantized tensor {name!r} lacks its {part}", hint="save the model again"
                )
            if array.shape != shape or array.dtype != dtype:
                raise FileFormatError(
                    f"{part} of quantized tensor {name!r} should be {np.dtype(dtype).name} "
                    f"{shape}, not {array.dtype.name} {array.shape}",
                    hint="save the model again",
                )
        return cls(
            (rows, columns),
            scheme,
            arrays["codes"],
            arrays["scales"],
            arrays.get("minimums"),
            arrays["sums"],
            arrays["input_scale"],
            gain,
        )

    def rows(self, start: int, stop: int) -> QuantizedWeight:
        """Channels `start` to `stop` as a weight of their own; shared memory where both are ends of
        panels.

        Example:
            >>> QuantizedWeight.from_float(np.ones((48, 8), np.float32), "int8").rows(16, 32).shape
            (16, 8)
        """
        if isinstance(self.codes, np.ndarray):
            return self._rows(start, stop)
        # On a device the part is kept, with what is made of it there: a model takes the same rows
        # at every call.
        kept = self.__dict__.setdefault("_parts", {})
        if (start, stop) not in kept:
            kept[start, stop] = self._rows(start, stop)
        return kept[start, stop]  # type: ignore[no-any-return]

    def _rows(self, start: int, stop: int) -> QuantizedWeight:
        lanes, (count, columns) = packing.PANEL, self.shape
        shape = (stop - start, columns)
        parts = {k: v for k, v in self.arrays().items() if k != "input_scale"}
        if start % lanes == 0 and (stop % lanes == 0 or stop == count):
            cut: dict[str, Any] = {
                name: array[start // lanes : packing.panels(stop)] for name, array in parts.items()
            }
        elif not isinstance(self.codes, np.ndarray):
            return self.on(HOST).rows(start, stop).on(self.codes.device)
        else:
            unpack = packing.unpack_int8 if self.scheme.bits == 8 else packing.unpack_int4
            pack = packing.pack_int8 if self.scheme.bits == 8 else packing.pack_int4
            cut = {"codes": pack(unpack(parts.pop("codes"), self.shape)[start:stop])}
            for name, array in parts.items():
                if array.ndim == 2:
                    cut[name] = packing.pack_channels(
                        packing.unpack_channels(array, count)[start:stop]
                    )
                else:
                    cut[name] = packing.pack_groups(packing.unpack_groups(array, count)[start:stop])
        return replace(self, shape=shape, **cut)

    def dequantize(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Channels `start` to `stop` as float32, (stop - start, K): for tests, reports and
        fallbacks.

        Example:
            >>> w = QuantizedWeight.from_float(np.ones((3, 8), np.float32), "int8")
            >>> float(w.dequantize(1, 2)[0, 0])
            1.0
        """
        return self.even_rows(start, stop) * (
            self.input_scale.astype(np.float32) * np.float32(self.gain)
        )

    def even_rows(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Like `dequantize`, but what meets the scaled activations: without `input_scale` and
        `gain`.
        """
        stop = self.shape[0] if stop is None else min(stop, self.shape[0])
        first, last = start // packing.PANEL, packing.panels(stop)
        rows = min(last * packing.PANEL, self.shape[0]) - first * packing.PANEL
        shape = (rows, self.shape[1])
        if self.scheme.name == "int8":
            codes = packing.unpack_int8(self.codes[first:last], shape)
            values = codes * packing.unpack_channels(self.scales[first:last], rows)[:, None]
        else:
            scale = packing.unpack_groups(self.scales[first:last], rows).astype(np.float32)
            if self.minimums is None:
                minimum = -8 * scale
            else:
                minimum = packing.unpack_groups(self.minimums[first:last], rows).astype(np.float32)
            values = Grid(scale, minimum).values(packing.unpack_int4(self.codes[first:last], shape))
        return values[start - first * packing.PANEL : stop - first * packing.PANEL]


def _largest(statistics: Statistics, scheme: Scheme) -> np.ndarray | None:
    """Seen inputs move the factors of int8 only: there the activations' rounding is most of the
    error.
    """
    return statistics.largest if scheme.name == "int8" and statistics.count else None


def _int8(
    even: np.ndarray, scheme: Scheme, factors: np.ndarray, hessian: np.ndarray | None
) -> QuantizedWeight:
    scale = fit_int8(even)
    codes = (
        round_int8(even, scale) if hessian is None else round_int8_compensated(even, scale, hessian)
    )
    sums = packing.pack_channels(codes.sum(axis=1, dtype=np.int32))
    return QuantizedWeight(
        _shape(even),
        scheme,
        packing.pack_int8(codes),
        packing.pack_channels(scale),
        None,
        sums,
        factors,
    )


def _int4(
    even: np.ndarray, scheme: Scheme, factors: np.ndarray, hessian: np.ndarray | None
) -> QuantizedWeight:
    top = float(np.abs(even).max())
    gain = 2.0 ** (np.frexp(top)[1] - 11) if top > 0 else 1.0
    even = even / np.float32(gain)
    assert scheme.group is not None
    if hessian is None:
        grid = fit_int4(even, scheme.group, scheme.symmetric)
        codes = grid.codes(even)
    else:
        codes, grid = round_int4_compensated(even, scheme.group, scheme.symmetric, hessian)
    sums = grid.values(codes).sum(axis=1, dtype=np.float64).astype(np.float32)
    minimums = None if scheme.symmetric else packing.pack_groups(grid.minimum.astype(np.float16))
    return QuantizedWeight(
        _shape(even),
        scheme,
        packing.pack_int4(codes),
        packing.pack_groups(grid.scale.astype(np.float16)),
        minimums,
        packing.pack_channels(sums),
        factors,
        gain,
    )


def _shape(array: np.ndarray) -> tuple[int, int]:
    return (int(array.shape[0]), int(array.shape[1]))


def _expected(scheme: Scheme, rows: int, columns: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and dtype of every array of a weight."""
    count, lanes = packing.panels(rows), packing.PANEL
    parts: dict[str, tuple[tuple[int, ...], type]] = {"input_scale": ((columns,), np.float16)}
    if scheme.name == "int8":
        parts["codes"] = ((count, -(-columns // packing.DEPTH), lanes, packing.DEPTH), np.int8)
        parts["scales"] = ((count, lanes), np.float32)
        parts["sums"] = ((count, lanes), np.int32)
        return parts
    assert scheme.group is not None
    groups = columns // scheme.group
    parts["codes"] = ((count, columns // (2 * packing.DEPTH), lanes, packing.DEPTH), np.uint8)
    parts["scales"] = ((count, groups, lanes), np.float16)
    parts["sums"] = ((count, lanes), np.float32)
    if not scheme.symmetric:
        parts["minimums"] = ((count, groups, lanes), np.float16)
    return parts
