"""Models of one node, drawn, against what onnxruntime 1.32 gave (`scripts/onnx_draws.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.models.onnx import load
from tests.backends.hip.emulator.device import emulated
from tests.models.onnx.drawn.fused import DRAWS
from tests.models.onnx.drawn.judged import apart, array_of, check_sum
from tests.models.onnx.drawn.node import file_of

KEPT = np.load(Path(__file__).parents[2] / "fixtures" / "onnx_draws.npz")
SEED = 1


def fixture_of(kind: str) -> list[int]:
    found = [key.split("/") for key in KEPT.files]
    return [int(parts[1]) for parts in found if parts[0] == kind and len(parts) == 2]


def compared(kind: str, n: int) -> None:
    drawn = DRAWS[kind](np.random.default_rng((SEED, n)))
    data, feeds, names = file_of(drawn)
    assert check_sum(data, feeds) == int(KEPT[f"{kind}/{n}"]), "draws are others: write anew"
    found = load(data)(**feeds)
    for name, rows in zip(names, drawn.rows(names), strict=True):
        theirs: Any = KEPT[f"{kind}/{n}/{name}"]
        ours = array_of(found[name])
        if rows is not None:
            ours, theirs = ours[rows], theirs[rows]
        kept = {"f": np.float32, "U": object}.get(theirs.dtype.kind, theirs.dtype)
        kept = theirs.dtype if theirs.dtype == np.float64 else kept
        said = apart(ours, theirs.astype(kept), max(drawn.far, 1e-3), drawn.codes)
        assert not said, f"{kind} {n} {name}: {said}; {drawn}"


@pytest.mark.parametrize("kind", DRAWS)
def test_nodes_give_what_onnxruntime_gives(kind: str) -> None:
    numbers = fixture_of(kind)
    assert len(numbers) >= 12
    for n in numbers:
        compared(kind, n)


@pytest.mark.parametrize("n", range(2))
def test_packed_layers_are_on_the_current_device(n: int) -> None:
    with emulated("gfx1100"), cb.use("gfx1100"):
        compared("MatMulNBits", fixture_of("MatMulNBits")[n])
