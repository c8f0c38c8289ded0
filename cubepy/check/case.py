"""What is checked: one thing that the device does and the python backend does, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cb

REFERENCE = "python"
Put = Callable[[np.ndarray], Any]
"""Brings an array to where a case runs."""


@dataclass(frozen=True)
class Case:
    """One thing to check.

    Attributes:
        name: of the thing.
        run: computes, with arrays that are brought there; what it gives is compared.
        tolerance: how far results may be off, relative to the largest; 0: the same bits.
    """

    name: str
    run: Callable[[Put], Any]
    tolerance: float = 0.0


def results(case: Case, device: str) -> list[np.ndarray]:
    """What a case gives on a device."""
    own = device != REFERENCE

    def put(array: np.ndarray) -> Any:
        return cb.tensor(array, device=device) if own else array.copy()

    with cb.use(device):
        found = case.run(put)
        several = found if isinstance(found, tuple) else (found,)
        return [v if isinstance(v, np.ndarray) else np.asarray(v.numpy()) for v in several]


def difference(case: Case, found: list[np.ndarray], wanted: list[np.ndarray]) -> str:
    """How results differ; an empty text where they do not."""
    for n, (got, want) in enumerate(zip(found, wanted, strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"result {n} is {got.dtype}{list(got.shape)}, not {want.dtype}{list(want.shape)}"
        a, b = got.astype(np.float64), want.astype(np.float64)
        off = np.abs(a - b)
        wrong = (off > case.tolerance * max(1.0, float(np.abs(b).max(initial=0)))) | (
            np.isnan(a) != np.isnan(b)
        )
        if wrong.any():
            at = tuple(int(k) for k in np.argwhere(wrong)[0])
            return (
                f"result {n}: {int(wrong.sum())} of {wrong.size} elements differ, the first at "
                f"{list(at)}: {got[at]} instead of {want[at]}"
            )
    return ""
