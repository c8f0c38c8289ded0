"""Blocks of GGUF files on a GPU: four bits as int4, others as bytes by group."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.models.packed.four_bits import FOUR_BITS
from cubepy.models.packed.kernels import KINDS
from cubepy.models.packed.storage import Blocks
from cubepy.nn import functional as F
from tests.models.folders import fixture


def blocks_of(kind: str, rows: int) -> tuple[cb.Tensor, np.ndarray]:
    """A weight of so many rows on the GPU, and its numbers."""
    given = fixture("blocks")[kind]
    times = -(-rows // len(given["raw"]))
    raw, values = (np.concatenate([given[n]] * times)[:rows] for n in ("raw", "values"))
    return cb.Tensor(Blocks(kind, raw)).to("cuda"), values.astype(float)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_products_from_blocks(kind: str, rows: int, dtype: type) -> None:
    weight, values = blocks_of(kind, 131)
    rng = np.random.default_rng(rows)
    x = rng.standard_normal((rows, 512)).astype(dtype)
    residual = rng.standard_normal((rows, 131)).astype(dtype)
    given, added = (cb.tensor(a, device="cuda") for a in (x, residual))
    found = F.linear(given, weight, residual=added).numpy().astype(float)
    right = x.astype(float) @ values.T + residual.astype(float)
    scale = np.abs(x.astype(float)) @ np.abs(values).T + 1
    off = 1e-2 if dtype is ml_dtypes.bfloat16 else 1e-3 if kind == "Q4_K" else 1e-4
    assert (np.abs(found - right) <= off * scale).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_blocks(kind: str) -> None:
    weight, values = blocks_of(kind, 19)
    tokens = np.array([[3, 18], [0, 3]])
    found = F.embedding(cb.tensor(tokens, device="cuda"), weight).numpy().astype(float)
    off = 2**-8 * np.abs(values).max() if kind in FOUR_BITS else 2**-8 * np.abs(values[tokens])
    assert (np.abs(found - values[tokens]) <= off).all()
