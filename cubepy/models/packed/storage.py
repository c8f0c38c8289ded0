"""Blocks as the storage of a tensor: linear layers and embeddings read them as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from cubepy.errors import ArgumentError, KernelTypeError
from cubepy.kernels.indexing.bounds import check_indices
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.lang.dtypes import bf16, f32
from cubepy.models.formats.block_types import BY_NAME
from cubepy.models.formats.dequantize import dequantize
from cubepy.models.packed.codes import GROUP, most_of
from cubepy.models.packed.four_bits import FOUR_BITS, four_bits
from cubepy.models.packed.grouped import GroupedBytes
from cubepy.models.packed.integer_kernels import byte_product, facts_of, round_rows
from cubepy.models.packed.kernels import KINDS, Blueprint, product, unpack_all, unpack_rows
from cubepy.models.packed.prompt_kernels import lay_panels, panel_product, tile_of
from cubepy.quant.storage import Quantized, product_of_floats
from cubepy.runtime.device import Device, current, device_properties, gpu_of
from cubepy.runtime.memory.pool import empty
from cubepy.tensor import Storage, register
from cubepy.tensor.storage import HOST, packed_linear

ACTIVATIONS_OF_BLOCKS = ("int8", "float")
"""What may meet blocks: bytes with a scale for 32 of them, or floats."""
SMALL = 128  # codes up to it are summed by twos in 16 bits
ROWS = 8
"""Rows of activations that meet a block at once."""
MOST_ROWS = 16
"""Rows that meet the blocks; more meet a copy in panels of bytes, or in floats, which lives for a
call.
"""


class Blocks(Storage):
    """A matrix in blocks of a GGUF type.

    Args:
        kind_of_blocks: its name.
        raw: (rows, bytes of a row).
        activations: "int8": what meets the blocks is rounded to bytes by group of 32 (more than
            MOST_ROWS rows where a processor sums products of bytes by one instruction); "float":
            it is not.

    Raises:
        ArgumentError: other activations.
        KernelTypeError: blocks that no kernel reads.

    Example:
        >>> import numpy as np
        >>> block = np.concatenate([np.float16([2]).view(np.uint8), np.arange(32, dtype=np.uint8)])
        >>> stored = Blocks("Q8_0", block[None])
        >>> stored.shape, stored.nbytes, stored.host()[0, :3]
        ((1, 32), 34, array([0., 2., 4.], dtype=float32))
    """

    kind: ClassVar[str] = "blocks"
    __slots__ = ("activations", "blocks", "halves", "raw")

    def __init__(self, kind_of_blocks: str, raw: np.ndarray, activations: str = "int8") -> None:
        found = BY_NAME[kind_of_blocks]
        check_activations(activations)
        if kind_of_blocks not in KINDS:
            raise KernelTypeError(f"no kernel unpacks {kind_of_blocks}; {', '.join(KINDS)} are")
        columns = raw.shape[1] // found.nbytes * found.elements
        super().__init__((raw.shape[0], columns), f32, HOST)
        raw = raw if raw.flags.c_contiguous and raw.ctypes.data % 2 == 0 else raw.copy()
        self.blocks, self.raw, self.halves = found, raw, raw.view(np.float16)
        self.activations = activations

    def arrays(self) -> dict[str, Any]:
        return {"data": self.raw}

    def read(self) -> list[Any]:
        return [self.raw, self.halves]

    def plan(self) -> Any:
        return self.kind, self.blocks.name, self.activations, self.shape

    def dense(self) -> Any:
        """A float copy: for looking at it, never for computing."""
        return self.host()

    def host(self) -> np.ndarray:
        return dequantize(self.blocks.name, self.raw)

    def floats(self, dtype: np.dtype) -> np.ndarray:
        """All elements as floats."""
        return self.host().astype(dtype, copy=False)

    def to(self, device: Device) -> Storage:
        """On a GPU blocks of four bits become its own int4, all others bytes by group; both go
        with rows of bf16.
        """
        if device == self.device or gpu_of(device) is None:
            return self
        if self.blocks.name in FOUR_BITS and self.raw.size:
            return Quantized(four_bits(self.raw, self.blocks.name, device), bf16)
        return GroupedBytes.of(self.raw, self.halves, self.blueprint(), device)

    def blueprint(self, rows: int = 1, activation: Any = None) -> Blueprint:
        """What changes the code of kernels that read it."""
        properties = device_properties(current())
        lanes = min(properties.register_bytes // 4, 16)
        found = self.blocks
        together = 1 if rows > 2 else 4
        signed = found.elements == GROUP and "byte_pairs" in properties.features
        if signed and rows == 2:
            together = 2
        if rows > 1 and lanes == 16 and found.elements == GROUP:
            together = 8
        return Blueprint(
            found.name, found.elements, found.nbytes, lanes, rows, activation, together, signed
        )


def check_activations(given: str) -> None:
    """Raise unless it is one of `ACTIVATIONS_OF_BLOCKS`.

    Raises:
        ArgumentError: it is not.
    """
    if given not in ACTIVATIONS_OF_BLOCKS:
        raise ArgumentError(
            f"activations are {' or '.join(map(repr, ACTIVATIONS_OF_BLOCKS))}, not {given!r}"
        )


register("packed_product", "blocks")(product_of_floats)
for _kind in ("blocks", "block_codes", "grouped bytes"):  # they never change: a copy is the same
    register("clone", _kind)(lambda inputs, attrs: inputs[0])


@register("linear", "blocks")
def _linear(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, weight, bias, residual = packed_linear(inputs, Blocks, "in blocks")
    count, columns = weight.shape
    given, shape = x.dense(), (*x.shape[:-1], count)
    out = empty(shape, np.float32)
    if out.size == 0:
        return out
    rows = contiguous(given.reshape(-1, columns))
    if rows.dtype != np.float32:
        rows = _as_f32(rows)
    activation = attrs["activation"]
    function = None if activation is None else ACTIVATIONS[activation]
    if residual is not None:
        residual = contiguous(residual).reshape(1, len(rows), count)
    flat = out.reshape(1, len(rows), count)
    if len(rows) > MOST_ROWS and weight.activations == "int8" and prompts_in_bytes(weight):
        _many_rows(rows, weight, bias, residual, flat, function)
        return out
    if len(rows) > MOST_ROWS:
        wide = empty((count, columns), np.float32)
        unpack_all[count, 1](weight.raw, weight.halves, wide, weight.blueprint(), mode="unchecked")
        added = None if residual is None else residual.reshape(shape)
        options = {"bias": bias, "activation": activation, "residual": added}
        return matmul(
            given if given.dtype == np.float32 else rows.reshape(given.shape), wide.T, **options
        )
    for first in range(0, len(rows), ROWS):
        part = slice(first, first + ROWS)
        added = None if residual is None else residual[:, part]
        _few_rows(rows[part], weight, bias, added, flat[:, part], function)
    return out


def _few_rows(rows: Any, weight: Blocks, bias: Any, residual: Any, out: Any, function: Any) -> None:
    """The product of at most ROWS rows of activations, all that meet a block at once."""
    plan = weight.blueprint(len(rows), function)
    rest = (weight.raw, weight.halves, bias, residual, out, plan)
    cubes = -(-weight.shape[0] // plan.lanes)
    if weight.activations == "float":
        product[cubes, 1](rows, *rest, mode="unchecked")
        return
    byte_product[cubes, 1](*rounded(rows, plan), *rest, mode="unchecked")


def prompts_in_bytes(weight: Blocks) -> bool:
    """Whether many rows in bytes are quicker than floats: one instruction sums products of them, or
    two where codes are small.
    """
    features = device_properties(current()).features
    return "int8_dot" in features or (
        "byte_pairs" in features and most_of(weight.blocks.name) <= SMALL
    )


def _many_rows(
    rows: Any, weight: Blocks, bias: Any, residual: Any, out: Any, function: Any
) -> None:
    """The product of more than MOST_ROWS rows in bytes: blocks become panels, which live for it."""
    plan, (count, columns) = weight.blueprint(1, function), weight.shape
    plan = replace(plan, signed=False)  # codes are what they are in panels
    tile = tile_of(plan)
    panels, steps = -(-count // plan.lanes), -(-len(rows) // tile.rows)
    words = empty((panels, columns // 4, plan.lanes), np.uint32)
    facts = empty((panels, columns // tile.group, 2, plan.lanes), np.float32)
    lay_panels[panels * plan.lanes, 1](
        weight.raw, weight.halves, words, facts, plan, tile.group, mode="unchecked"
    )
    codes, given = rounded(rows, plan)
    cubes = -(-panels // tile.panels) * -(-steps // tile.deep)
    panel_product[cubes, 1](
        codes.view(np.uint32), given, words, facts, bias, residual, out, tile, mode="unchecked"
    )


def rounded(rows: Any, plan: Blueprint) -> tuple[Any, Any]:
    """Rows (M, K) f32 as bytes with what is known of their groups, as `round_rows` says."""
    codes = empty(rows.shape, np.int8)
    facts = empty(facts_of(len(rows), rows.shape[1], plan), np.float32)
    round_rows[len(rows), 1](rows, codes, facts, plan, mode="unchecked")
    return codes, facts


def _as_f32(x: Any) -> Any:
    out = empty(x.shape, np.float32)
    copy(x, out=out)
    return out


@register("embedding", "blocks")
def _embedding(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    indices, weight = inputs[0].dense(), inputs[1]
    check_indices(indices, weight.shape[0], "embedding")
    out = empty((*indices.shape, weight.shape[1]), np.float32)
    flat = contiguous(indices).reshape(-1)
    if out.size:
        unpack_rows[flat.size, 1](
            flat,
            weight.raw,
            weight.halves,
            out.reshape(flat.size, -1),
            weight.blueprint(),
            mode="unchecked",
        )
    return out
