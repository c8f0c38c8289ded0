"""What the blocks of GGUF files stand for, bit by bit as ggml computes it.

A block holds codes of a few bits; neighbours share a scale, and in some types a minimum: a number
is scale * code + minimum. Layouts: ggml's `ggml-common.h`; `d` and `m` are f16 scale and minimum of
a block, K types have scales of their own within a block of 256.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cubepy.errors import FileFormatError
from cubepy.models.formats.block_types import BY_NAME

IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32
)
"""The numbers that codes of IQ4 types stand for."""
FP4_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
"""Twice the numbers of e2m1."""


class Unpacked(NamedTuple):
    """Blocks taken into parts.

    Attributes:
        codes: f32 (blocks, elements).
        scales: f32 (blocks, groups).
        minimums: f32 (blocks, groups), or None.
    """

    codes: np.ndarray
    scales: np.ndarray
    minimums: np.ndarray | None = None

    def values(self) -> np.ndarray:
        """(blocks, elements)."""
        blocks, elements = self.codes.shape
        grouped = self.codes.reshape(blocks, self.scales.shape[1], -1)
        out = self.scales[:, :, None] * grouped
        if self.minimums is not None:
            out = out + self.minimums[:, :, None]
        found: np.ndarray = out.reshape(blocks, elements)
        return found


def _half(raw: np.ndarray, at: int) -> np.ndarray:
    """The f16 at a byte of each block, as a column of f32."""
    found: np.ndarray = raw[:, at : at + 2].copy().view(np.float16).astype(np.float32)
    return found


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """Low halves of bytes, then high ones."""
    return np.concatenate([raw & 15, raw >> 4], axis=1)


def _bits(raw: np.ndarray) -> np.ndarray:
    """The bits of bytes, lowest first."""
    return np.unpackbits(raw, axis=1, bitorder="little")


def _q4_0(raw: np.ndarray) -> Unpacked:
    return Unpacked(_nibbles(raw[:, 2:]).astype(np.float32) - 8, _half(raw, 0))


def _q4_1(raw: np.ndarray) -> Unpacked:
    return Unpacked(_nibbles(raw[:, 4:]).astype(np.float32), _half(raw, 0), _half(raw, 2))


def _q5_0(raw: np.ndarray) -> Unpacked:
    codes = _nibbles(raw[:, 6:]) | (_bits(raw[:, 2:6]) << 4)
    return Unpacked(codes.astype(np.float32) - 16, _half(raw, 0))


def _q5_1(raw: np.ndarray) -> Unpacked:
    codes = _nibbles(raw[:, 8:]) | (_bits(raw[:, 4:8]) << 4)
    return Unpacked(codes.astype(np.float32), _half(raw, 0), _half(raw, 2))


def _q8_0(raw: np.ndarray) -> Unpacked:
    return Unpacked(raw[:, 2:].view(np.int8).astype(np.float32), _half(raw, 0))


def _iq4_nl(raw: np.ndarray) -> Unpacked:
    return Unpacked(IQ4_VALUES[_nibbles(raw[:, 2:])], _half(raw, 0))


def _mxfp4(raw: np.ndarray) -> Unpacked:
    exponents = raw[:, :1].astype(np.int32) - 128
    return Unpacked(FP4_VALUES[_nibbles(raw[:, 1:])], np.ldexp(np.float32(1), exponents))


def _crumbs(raw: np.ndarray) -> np.ndarray:
    """64 bytes of four codes of two bits: of 128 elements, 32 by 32 from the lowest bits on."""
    parts = raw.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    found: np.ndarray = (parts & 3).reshape(len(raw), 256)
    return found


def _q2_k(raw: np.ndarray) -> Unpacked:
    d, m = _half(raw, 80), _half(raw, 82)
    codes = _crumbs(raw[:, 16:80]).astype(np.float32)
    return Unpacked(codes, d * (raw[:, :16] & 15), -(m * (raw[:, :16] >> 4)))


def _q3_k(raw: np.ndarray) -> Unpacked:
    low = _nibbles(raw[:, 96:104])
    high = raw[:, None, 104:108] >> np.array([0, 2, 4, 6], np.uint8)[None, :, None]
    scales = (low | ((high.reshape(-1, 16) & 3) << 4)).astype(np.float32) - 32
    bits = raw[:, None, :32] >> np.arange(8, dtype=np.uint8)[None, :, None]
    kept = (bits & 1).reshape(-1, 256)
    codes = _crumbs(raw[:, 32:96]).astype(np.float32) - 4 * (1 - kept.astype(np.float32))
    return Unpacked(codes, _half(raw, 108) * scales)


def _six_bits(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and minimums of six bits in twelve bytes."""
    a, b, c = raw[:, :4], raw[:, 4:8], raw[:, 8:]
    scales = np.concatenate([a & 63, (c & 15) | ((a >> 6) << 4)], axis=1)
    minimums = np.concatenate([b & 63, (c >> 4) | ((b >> 6) << 4)], axis=1)
    return scales, minimums


def _pairs(raw: np.ndarray) -> np.ndarray:
    """128 bytes of two codes: 32 low halves, then 32 high ones, and so on."""
    parts = raw.reshape(-1, 4, 32)
    return np.stack([parts & 15, parts >> 4], axis=2).reshape(len(raw), 256)


def _q4_k(raw: np.ndarray) -> Unpacked:
    scales, minimums = _six_bits(raw[:, 4:16])
    codes = _pairs(raw[:, 16:]).astype(np.float32)
    return Unpacked(codes, _half(raw, 0) * scales, -(_half(raw, 2) * minimums))


def _q5_k(raw: np.ndarray) -> Unpacked:
    scales, minimums = _six_bits(raw[:, 4:16])
    bits = raw[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None]
    codes = _pairs(raw[:, 48:]) | ((bits & 1).reshape(-1, 256) << 4)
    return Unpacked(codes.astype(np.float32), _half(raw, 0) * scales, -(_half(raw, 2) * minimums))


def _q6_k(raw: np.ndarray) -> Unpacked:
    both = raw[:, :128].reshape(-1, 2, 64)
    low = np.concatenate([both & 15, both >> 4], axis=2).reshape(-1, 256)
    codes = (low | (_crumbs(raw[:, 128:192]) << 4)).astype(np.float32) - 32
    return Unpacked(codes, _half(raw, 208) * raw[:, 192:208].view(np.int8))


def _iq4_xs(raw: np.ndarray) -> Unpacked:
    low = np.stack([raw[:, 4:8] & 15, raw[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    both = raw[:, 2:4].copy().view(np.uint16)
    high = (both >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    scales = (low | (high << 4)).astype(np.float32) - 32
    parts = raw[:, 8:].reshape(-1, 8, 16)
    codes = np.concatenate([parts & 15, parts >> 4], axis=2).reshape(-1, 256)
    return Unpacked(IQ4_VALUES[codes], _half(raw, 0) * scales)


UNPACK: dict[str, Callable[[np.ndarray], Unpacked]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
"""By the names of block types."""
READ_AS = {"IQ4_NL": "Q8_0 (exact)", "IQ4_XS": "f16", "MXFP4": "f16"}
"""What weights of types that no kernel unpacks become when they are loaded."""


def dequantize(kind: str, raw: np.ndarray) -> np.ndarray:
    """The numbers of packed rows, f32.

    Args:
        kind: the name of a block type.
        raw: bytes, (..., bytes of a row).

    Raises:
        FileFormatError: a type that cannot be read.

    Example:
        >>> block = np.concatenate([np.float16([2]).view(np.uint8), np.arange(32, dtype=np.uint8)])
        >>> dequantize("Q8_0", block)[:4]
        array([0., 2., 4., 6.], dtype=float32)
    """
    if kind not in UNPACK:
        raise FileFormatError(
            f"blocks of the type {kind} cannot be read",
            hint=f"those that can: {', '.join(UNPACK)}; quantize the model to one of them",
        )
    blocks = np.ascontiguousarray(raw).reshape(-1, BY_NAME[kind].nbytes)
    values = UNPACK[kind](blocks).values()
    elements = raw.shape[-1] // BY_NAME[kind].nbytes * BY_NAME[kind].elements
    found: np.ndarray = values.reshape(*raw.shape[:-1], elements)
    return found
