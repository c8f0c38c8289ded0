"""Blocks of GGUF files: numbers bit by bit as `gguf` has them, and products from the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, FileFormatError
from cubepy.models.formats.block_types import BY_NAME
from cubepy.models.formats.dequantize import UNPACK, dequantize
from cubepy.models.packed import storage
from cubepy.models.packed.four_bits import FOUR_BITS
from cubepy.models.packed.kernels import KINDS as PACKED
from cubepy.models.packed.storage import MOST_ROWS, Blocks, prompts_in_bytes
from cubepy.nn import functional as F
from cubepy.quant.storage import Quantized
from cubepy.runtime.device import device_properties
from cubepy.tensor.storage import HOST
from tests.models.folders import fixture
from tests.pretend import NAME, pretend

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


def blocks_of(kind: str, activations: str = "int8") -> tuple[Any, np.ndarray]:
    given = fixture("blocks")[kind]
    raw = np.concatenate([given["raw"]] * 5)[:19]
    values = np.concatenate([given["values"]] * 5)[:19]
    return cb.Tensor(Blocks(kind, raw, activations)), values


def rounded(x: np.ndarray) -> np.ndarray:
    """Each group of 32 as bytes and a scale."""
    groups = x.reshape(len(x), -1, 32)
    scale = np.abs(groups).max(-1, keepdims=True).astype(float) / 127
    return (np.round(groups / np.where(scale, scale, 1)) * scale).reshape(x.shape)


@pytest.mark.parametrize("kind", PACKED)
def test_groups_of_the_smallest_numbers_are_zeros(kind: str) -> None:
    """127 over the greatest of them is infinite; times zero it would be NaN."""
    weight, _ = blocks_of(kind)
    x = np.random.default_rng(1).uniform(0.5, 1, (2, 512)).astype(np.float32)
    for tiny in (1e-37, 1e-42):
        small = x.copy()
        small[:, 32:64] *= np.float32(tiny)
        zero = x.copy()
        zero[:, 32:64] = 0
        np.testing.assert_array_equal(F.linear(small, weight).numpy(), F.linear(zero, weight))
        assert np.abs(F.linear(x * np.float32(tiny), weight).numpy()).max() < 1e-30


@pytest.mark.turns(6)
@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("rows", [1, 2, 12, 20, 70])
@pytest.mark.parametrize("activations", ["int8", "float"])
def test_products_from_blocks(kind: str, rows: int, activations: str) -> None:
    weight, values = blocks_of(kind, activations)
    rng = np.random.default_rng(rows)
    x, residual = (rng.standard_normal((rows, n)).astype(np.float32) for n in (512, 19))
    x[0, 64:96] = 0
    bias = rng.standard_normal(19).astype(np.float32)
    found = F.linear(x, weight, bias, activation="silu", residual=residual).numpy()
    bytes_ = prompts_in_bytes(weight.storage)
    met = rounded(x) if activations == "int8" and (rows <= MOST_ROWS or bytes_) else x
    sums = met.astype(float) @ values.T.astype(float)
    right = (sums + bias) / (1 + np.exp(-np.clip(sums + bias, -700, 700))) + residual
    scale = np.abs(x) @ np.abs(values).T + 1
    assert np.abs((found - right) / scale).max() < 1e-5
    plain = F.linear(x, weight).numpy()
    assert np.abs((plain - sums) / scale).max() < 1e-5


def play(pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose as on a processor that sums products of bytes by pairs, or by fours."""
    properties = device_properties(cb.Device("cpu"))
    features = properties.features - {"byte_pairs"} | ({"byte_pairs"} if pairs else set())
    other = replace(properties, features=frozenset(features))
    monkeypatch.setattr(storage, "device_properties", lambda device: other)


@pytest.fixture
def on_the_host() -> Iterator[None]:
    with cb.use("cpu"):
        yield


@pytest.mark.parametrize("kind", sorted(k for k in PACKED if BY_NAME[k].elements == 32))
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.usefixtures("on_the_host")
def test_products_by_pairs_and_by_fours(
    kind: str, pairs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a processor multiplies that sums products by pairs, and one that sums them by fours."""
    play(pairs, monkeypatch)
    weight, values = blocks_of(kind)
    assert weight.storage.blueprint().signed == pairs
    for rows in (1, 2, 5, 12):
        x = np.random.default_rng(rows).standard_normal((rows, 512)).astype(np.float32)
        x[-1, 64:96] = 0
        right = rounded(x).astype(float) @ values.T.astype(float)
        scale = np.abs(x) @ np.abs(values).T + 1
        assert np.abs((F.linear(x, weight).numpy() - right) / scale).max() < 1e-5


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize("pairs", [False, True])
def test_the_least_code_of_all(pairs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """-128, which a file may hold though nobody writes it, beside the largest activations."""
    play(pairs, monkeypatch)
    raw = np.zeros((3, 34), np.uint8)
    raw[:, :2] = np.float16([1]).view(np.uint8)
    raw[0, 2:], raw[1, 2:], raw[2, 2:] = 128, 127, 129
    weight = nn.Parameter(cb.Tensor(Blocks("Q8_0", raw)), False)
    for sign in (1, -1):
        x = np.full((5, 32), 127 * sign, np.float32)
        want = np.tile(np.array([-128, 127, -127]) * 127.0 * 32 * sign, (5, 1))
        np.testing.assert_allclose(F.linear(x, weight).numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "Q6_K", "Q2_K"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_spoils_its_row_alone(kind: str, value: float) -> None:
    weight, _ = blocks_of(kind)
    x = np.ones((2, 512), np.float32)
    x[1, 100] = value
    found = F.linear(x, weight).numpy()
    assert np.isfinite(found[0]).all() and np.isnan(found[1]).all()


def test_other_activations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="'int8' or 'float', not 'int4'"):
        blocks_of("Q8_0", "int4")
    path = tmp_path / "w.safetensors"
    nn.save_safetensors({"w": np.zeros(2, np.float32)}, path)
    with pytest.raises(ArgumentError, match="is for GGUF files"):
        cb.load(path, activations="int8")


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
        x = values[[n, 7]] * 2
        error = np.abs(found.numpy() - rounded(x) @ values.T.astype(float))
        assert (error <= 1e-5 * (np.abs(x) @ np.abs(values).T)).all()
    assert not f.explain().programs[0].planned


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q4_K"])
def test_four_bits_become_int4_on_a_gpu(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers, but for scales of Q4_K, which are rounded to 16 bits."""
    weight, values = blocks_of(kind)
    x = np.random.default_rng(0).standard_normal((2, 512)).astype(np.float32)
    with pretend(monkeypatch):
        there = weight.to(NAME)
        assert isinstance(there.storage, Quantized) and there.storage.nbytes < values.nbytes / 3
        found = there.storage.weight.on(HOST).dequantize()
        rows = F.embedding(cb.tensor(np.array([[3, 18], [0, 3]]), device=NAME), there)
        assert there.dtype is rows.dtype is cb.bf16
        rows = rows.numpy()
        product = F.linear(cb.tensor(x, device=NAME), there).numpy()
    if kind == "Q4_K":
        assert np.abs(found - values).max() <= 2e-3 * np.abs(values).max()
    else:
        np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(rows, found[[[3, 18], [0, 3]]].astype(rows.dtype))
    error = np.abs(product - x.astype(float) @ found.T.astype(float))
    assert (error <= 1e-5 * (np.abs(x) @ np.abs(found).T)).all()


def test_small_scales_of_four_bits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    given = fixture("blocks")["Q4_K"]
    raw = given["raw"].copy()
    facts = raw.view(np.float16).reshape(-1, 72)
    facts[:, :2] = np.float16(6e-7)  # of the smallest that there are
    values = dequantize("Q4_K", raw)
    with pretend(monkeypatch):
        found = cb.Tensor(Blocks("Q4_K", raw)).to(NAME).storage.weight.on(HOST).dequantize()
    assert np.abs(found - values).max() <= 2e-3 * np.abs(values).max()


@pytest.mark.parametrize("kind", sorted({*PACKED} - {*FOUR_BITS}))
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_other_blocks_become_bytes_on_a_gpu(
    kind: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very numbers of the file; what meets many rows is rounded to the dtype of the rows."""
    weight, values = blocks_of(kind)
    rng = np.random.default_rng(rows)
    x, residual = (rng.standard_normal((rows, n)).astype(np.float32) for n in (512, 19))
    tokens = np.array([[3, 18], [0, 3]])
    with pretend(monkeypatch):
        there = weight.to(NAME)
        assert there.storage.nbytes < values.nbytes / 2 and there.dtype is cb.bf16
        given, added, at = (cb.tensor(a, device=NAME) for a in (x, residual, tokens))
        product = F.linear(given, there, activation="silu", residual=added).numpy()
        taken = F.embedding(at, there).numpy()
        with cb.use(NAME):
            found = there.storage.taken(None, np.float32).numpy()
        back = there.to("cpu").numpy()
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(back, values.astype(back.dtype))
    np.testing.assert_array_equal(taken, values[tokens].astype(taken.dtype))
    sums = x.astype(float) @ values.T.astype(float)
    right = sums / (1 + np.exp(-np.clip(sums, -700, 700))) + residual
    assert (np.abs(product - right) <= 1e-5 * (np.abs(x) @ np.abs(values).T + 1)).all()
