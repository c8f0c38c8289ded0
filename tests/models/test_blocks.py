"""Blocks of GGUF files: numbers bit by bit as `gguf` has them, and products from the blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import FileFormatError
from cubepy.models.formats.dequantize import UNPACK, dequantize
from cubepy.models.packed.kernels import KINDS as PACKED
from cubepy.models.packed.storage import Blocks
from cubepy.nn import functional as F
from tests.models.folders import fixture

KINDS = list(fixture("blocks"))


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_gguf(kind: str) -> None:
    given = fixture("blocks")[kind]
    found = dequantize(kind, given["raw"])
    np.testing.assert_array_equal(found.view(np.uint32), given["values"].view(np.uint32))


def test_all_types_that_can_be_read_are_tested() -> None:
    assert set(KINDS) == set(UNPACK)
    with pytest.raises(FileFormatError, match="IQ1_S cannot be read"):
        dequantize("IQ1_S", np.zeros((1, 50), np.uint8))


def blocks_of(kind: str) -> tuple[Any, np.ndarray]:
    given = fixture("blocks")[kind]
    raw = np.concatenate([given["raw"]] * 5)[:19]
    values = np.concatenate([given["values"]] * 5)[:19]
    return cb.Tensor(Blocks(kind, raw)), values


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("rows", [1, 3, 12])
def test_products_from_blocks(kind: str, rows: int) -> None:
    weight, values = blocks_of(kind)
    rng = np.random.default_rng(rows)
    x, residual = (rng.standard_normal((rows, n)).astype(np.float32) for n in (512, 19))
    bias = rng.standard_normal(19).astype(np.float32)
    found = F.linear(x, weight, bias, activation="silu", residual=residual).numpy()
    sums = x.astype(float) @ values.T.astype(float)
    right = (sums + bias) / (1 + np.exp(-np.clip(sums + bias, -700, 700))) + residual
    scale = np.abs(x) @ np.abs(values).T + 1
    assert np.abs((found - right) / scale).max() < 1e-5
    plain = F.linear(x, weight).numpy()
    assert np.abs((plain - sums) / scale).max() < 1e-5


@pytest.mark.parametrize("kind", PACKED)
def test_rows_of_blocks(kind: str) -> None:
    weight, values = blocks_of(kind)
    found = F.embedding(np.array([[3, 18], [0, 3]]), weight).numpy()
    np.testing.assert_array_equal(found, values[[[3, 18], [0, 3]]])
    with pytest.raises(cb.errors.OutOfBoundsError):
        F.embedding(np.array([19]), weight)


def test_blocks_in_programs() -> None:
    weight, values = blocks_of("Q4_K")

    @cb.jit
    def f(tokens: Any) -> Any:
        return F.linear(F.embedding(tokens, weight) * 2, weight)

    for n in range(5):
        found = f(cb.tensor(np.array([n, 7])))
        right = values[[n, 7]].astype(float) * 2 @ values.T
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-4, atol=1e-2)
    assert not f.explain().programs[0].planned
