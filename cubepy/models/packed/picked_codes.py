"""Products with matrices that are picked out of a stack of codes by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cubepy.errors import KernelTypeError
from cubepy.kernels.movement.copy import contiguous
from cubepy.models.packed.nbits import BlockCodes, ordered
from cubepy.models.packed.picked import launched
from cubepy.models.packed.picked_kernels import Groups
from cubepy.runtime.device import current, device_properties
from cubepy.tensor import register


@register("grouped_products", "block_codes")
def _grouped(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, stack, order, ends = inputs
    if not isinstance(stack, BlockCodes):
        raise KernelTypeError("of products by groups only the stack of matrices is in blocks")
    found = stack.blueprint()
    lanes = min(found.lanes, device_properties(current()).register_bytes // 4)
    layout = replace(found, lanes=lanes)
    plan = Groups(layout.lanes, layout, ends is not None)
    groups = order.dense(), None if ends is None else ends.dense()
    rows, facts = ordered(contiguous(x.dense()), stack), (stack.codes, stack.scales, stack.zeros)
    return launched(rows, facts, groups, attrs["count"], plan, "unchecked")


@register("slice", "block_codes")
def _slice(inputs: Sequence[Any], attrs: dict[str, Any]) -> BlockCodes:
    """Some rows, as one matrix is taken out of a stack."""
    storage, index = inputs[0], attrs["index"]
    whole = index and all(isinstance(part, tuple) for part in index)
    if not whole or any(part != (None, None, None) for part in index[1:]):
        raise KernelTypeError(
            f"of a matrix of codes whole rows can be taken, as weight[a:b]; the index was {index}",
            hint="use weight.numpy() for a float copy",
        )
    rows = slice(*index[0])
    taken = {name: contiguous(array[rows]) for name, array in storage.arrays().items()}
    said = storage.shape[1], storage.bits, storage.block, storage.table
    return BlockCodes(taken["codes"], taken["scales"], taken.get("zeros"), *said)
