"""Packing: where the stored numbers of a quantized weight lie.

A weight has N output channels (rows) and K inputs (columns). Channels are cut into panels of 16,
because a 512-bit register holds 16 sums; N is filled up with zeros to whole panels. Within a panel
four neighbours along K lie together, because a dot instruction (VNNI on the CPU, dp4a on a GPU)
multiplies four pairs of bytes and adds them into one 32-bit lane. So one load of 64 bytes is "16
channels x 4 inputs", and meets 4 activations that are broadcast to all lanes.

    int8  codes  i8 [panels, ceil(K/4), 16, 4]  byte (p, i, c, j): channel 16p+c, input 4i+j
    int4  codes  u8 [panels, K/8, 16, 4]        low half: input 8i+j, high half: input 8i+4+j

An int4 load of 64 bytes so gives two operands with one `and` and one shift, both of them in the
order that the dot instruction wants. Values that belong to (channel, group) lie as [panels, groups,
16]: one load of 16 neighbours beside each block of codes. Values that belong to a channel lie as
[panels, 16].

Files hold these very arrays: saving and loading is lossless, and a file can be mapped into memory
and used. `LAYOUT_VERSION` names this page.
"""

from __future__ import annotations

import numpy as np

from cubepy.errors import QuantizationError

LAYOUT_VERSION = 1
PANEL = 16
DEPTH = 4


def panels(rows: int) -> int:
    """How many panels of 16 channels hold `rows` channels.

    Example:
        >>> panels(17)
        2
    """
    return -(-rows // PANEL)


def pack_int8(codes: np.ndarray) -> np.ndarray:
    """Pack int8 codes.

    Args:
        codes: int8, (N, K), any sizes.

    Returns:
        int8, (panels, ceil(K/4), 16, 4); what hangs over N or K is zero.
    """
    rows, columns = codes.shape
    full = np.zeros((panels(rows) * PANEL, -(-columns // DEPTH) * DEPTH), np.int8)
    full[:rows, :columns] = codes
    blocks = full.reshape(panels(rows), PANEL, -1, DEPTH)
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3))


def unpack_int8(packed: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The int8 codes (N, K) of a packed array; the inverse of `pack_int8`."""
    rows, columns = shape
    flat = packed.transpose(0, 2, 1, 3).reshape(packed.shape[0] * PANEL, -1)
    return np.ascontiguousarray(flat[:rows, :columns])


def pack_int4(codes: np.ndarray) -> np.ndarray:
    """Pack int4 codes, two to a byte.

    Args:
        codes: uint8 of 0 to 15, (N, K); K a multiple of 8.

    Returns:
        uint8, (panels, K/8, 16, 4); channels that hang over N have the code 0.

    Raises:
        QuantizationError: K is not a multiple of 8.
    """
    rows, columns = codes.shape
    if columns % (2 * DEPTH):
        raise QuantizationError(
            f"int4 codes are packed eight inputs at a time: K={columns} is not a multiple of 8"
        )
    full = np.zeros((panels(rows) * PANEL, columns), np.uint8)
    full[:rows] = codes
    halves = full.reshape(panels(rows), PANEL, columns // (2 * DEPTH), 2, DEPTH)
    both = halves[:, :, :, 0] | (halves[:, :, :, 1] << 4)
    return np.ascontiguousarray(both.transpose(0, 2, 1, 3))


def unpack_int4(packed: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The codes 0 to 15, uint8 (N, K), of a packed array; the inverse of `pack_int4`."""
    rows, columns = shape
    both = packed.transpose(0, 2, 1, 3)
    codes = np.stack([both & 15, both >> 4], axis=3)
    return np.ascontiguousarray(codes.reshape(packed.shape[0] * PANEL, -1)[:rows, :columns])


def pack_groups(values: np.ndarray) -> np.ndarray:
    """Lay out one value for each (channel, group): (N, groups) to (panels, groups, 16), zeros
    beyond N.
    """
    rows, groups = values.shape
    full = np.zeros((panels(rows) * PANEL, groups), values.dtype)
    full[:rows] = values
    return np.ascontiguousarray(full.reshape(panels(rows), PANEL, groups).transpose(0, 2, 1))


def unpack_groups(packed: np.ndarray, rows: int) -> np.ndarray:
    """The inverse of `pack_groups`: (N, groups)."""
    return np.ascontiguousarray(packed.transpose(0, 2, 1).reshape(-1, packed.shape[1])[:rows])


def pack_channels(values: np.ndarray) -> np.ndarray:
    """Lay out one value for each channel: (N,) to (panels, 16), zeros beyond N."""
    full = np.zeros(panels(len(values)) * PANEL, values.dtype)
    full[: len(values)] = values
    return full.reshape(-1, PANEL)


def unpack_channels(packed: np.ndarray, rows: int) -> np.ndarray:
    """The inverse of `pack_channels`: (N,)."""
    return packed.reshape(-1)[:rows]
