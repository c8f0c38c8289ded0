"""Which outputs of a plan lie in which new memory of its results."""

from __future__ import annotations

from typing import Any


def users(operands: Any) -> list[list[int]]:
    """The outputs in each new memory.

    Args:
        operands: of a plan on the host.
    """
    found: list[list[int]] = [[] for _ in operands.memory]
    for n, r in enumerate(operands.outputs):
        if r.kind == "new":
            found[r.of].append(n)
    return found


def separate(operands: Any) -> set[int]:
    """The outputs that are arrays of memory of their own, which begins anywhere."""
    found = set[int]()
    for (size, line), (n, *others) in zip(operands.memory, users(operands), strict=True):
        array = operands.outputs[n].array
        if not (others or line) and array.nbytes == size and array.flags.c_contiguous:
            found.add(n)
    return found
