"""MatMulNBits from the codes as they lie in the file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.models.onnx import load
from cubepy.models.packed.nbits import MOST_ROWS, BlockCodes, bytes_of
from cubepy.nn import functional as F
from cubepy.quant.storage import Quantized
from tests.models.onnx.writer import graph, model, node, tensor, value

RNG = np.random.default_rng(0)
ROWS = 19


def codes_of(values: np.ndarray, bits: int) -> np.ndarray:
    """Codes (rows, n) packed with low bits first; a row ends with a whole byte."""
    each = 8 // bits
    full = np.pad(values, ((0, 0), (0, -values.shape[1] % each))).astype(np.uint8)
    found = np.zeros((len(full), full.shape[1] // each), np.uint8)
    for k in range(each):
        found |= full[:, k::each] << (k * bits)
    return found


def given(bits: int, block: int, columns: int) -> tuple[np.ndarray, ...]:
    """Packed codes, scales, zero points, and the matrix that they mean (f64)."""
    blocks = -(-columns // block)
    values = RNG.integers(0, 1 << bits, (ROWS, blocks * block))
    scales = RNG.uniform(0.01, 0.1, (ROWS, blocks)).astype(np.float32)
    zeros = RNG.integers(0, 1 << bits, (ROWS, blocks))
    wide = values.reshape(ROWS, blocks, block) - zeros[..., None].astype(np.float64)
    weight = (wide * scales[..., None]).reshape(ROWS, -1)[:, :columns]
    return codes_of(values, bits), scales, zeros, weight


def network(bits: int, block: int, columns: int, level: int = 0, kind: str = "codes") -> Any:
    codes, scales, zeros, weight = given(bits, block, columns)
    points = codes_of(zeros, bits) if kind == "codes" else zeros.astype(np.float32)
    how = {"K": columns, "N": ROWS, "bits": bits, "block_size": block, "accuracy_level": level}
    bias = RNG.standard_normal(ROWS).astype(np.float32)
    made = graph(
        [node("MatMulNBits", "x q s z _ b", "y", "com.microsoft", **how)],
        ["x"],
        ["y"],
        [
            tensor("q", codes.reshape(ROWS, scales.shape[1], -1)),
            tensor("s", scales.reshape(-1)),
            tensor("z", points.reshape(-1)),
            tensor("b", bias),
        ],
    )
    return load(model(made, com_microsoft=1)), weight, bias


def weight_of(net: Any) -> Any:
    (found,) = [p for p in net.parameters() if len(p.shape) == 2]
    return found.storage


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32, 128, 256])
def test_products_with_codes(bits: int, block: int) -> None:
    """Rows that meet the codes, and more of them; the last block reaches beyond the matrix."""
    columns = 2 * block - 5
    codes, scales, zeros, weight = given(bits, block, columns)
    points = zeros.astype(np.float32)
    stored = BlockCodes(codes, scales, points, columns, bits, block)
    np.testing.assert_allclose(stored.host(), weight, atol=1e-5)
    bias = RNG.standard_normal(ROWS).astype(np.float32)
    for rows in (1, 3, 9, MOST_ROWS, MOST_ROWS + 5):
        x = RNG.standard_normal((rows, columns)).astype(np.float32)
        residual = RNG.standard_normal((rows, ROWS)).astype(np.float32)
        right = np.maximum(x @ weight.T + bias, 0) + residual
        made = cb.Tensor(stored)
        layer = cb.jit(lambda t, r, w=made: F.linear(t, w, bias, activation="relu", residual=r))
        for _ in range(4):  # what is repeated writes what was padded, too
            found = layer(cb.tensor(x), cb.tensor(residual)).numpy()
            np.testing.assert_allclose(found, right, rtol=0, atol=2e-5 * np.abs(right).max())
    half = cb.tensor(x.astype(np.float16))
    close = x.astype(np.float16).astype(np.float64) @ weight.T
    found = F.linear(half, cb.Tensor(stored)).numpy()
    np.testing.assert_allclose(found, close, atol=2e-5 * np.abs(close).max())


def test_bytes_of_packed_codes() -> None:
    for bits in (2, 4, 8):
        values = RNG.integers(0, 1 << bits, (3, 10), np.uint8)
        np.testing.assert_array_equal(bytes_of(codes_of(values, bits), bits)[:, :10], values)


@pytest.mark.parametrize("kind", ["codes", "floats"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_nodes_become_layers_that_read_the_file_codes(bits: int, kind: str) -> None:
    net, weight, bias = network(bits, 32, 90, kind=kind)
    assert isinstance(weight_of(net), BlockCodes)
    for shape in ((1, 90), (2, 7, 90), (40, 90)):
        x = RNG.standard_normal(shape).astype(np.float32)
        right = x @ weight.T + bias
        np.testing.assert_allclose(net(x)["y"].numpy(), right, atol=2e-5 * np.abs(right).max())


@pytest.mark.parametrize("block", [16, 32, 128])
def test_at_the_fourth_level_of_accuracy_activations_are_bytes(block: int) -> None:
    net, weight, bias = network(4, block, 3 * block, level=4)
    stored = weight_of(net)
    assert isinstance(stored, Quantized) and stored.weight.scheme.group == block
    np.testing.assert_allclose(stored.host(), weight, atol=2e-3 * np.abs(weight).max())
    x = RNG.standard_normal((5, 3 * block)).astype(np.float32)
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    step = (high - low) / 255  # of a row's bytes; each is off by half of it
    right, found = x @ weight.T + bias, net(x)["y"].numpy()
    assert not np.array_equal(found, right)
    most = step * np.abs(weight).sum(1) + 2e-3 * np.abs(right).max()
    assert (np.abs(found - right) < most).all()
    net, _, _ = network(8, block, 3 * block, level=4)
    assert isinstance(weight_of(net), BlockCodes)  # bytes have no groups
    net, _, _ = network(4, block, 3 * block - 1, level=4)
    assert isinstance(weight_of(net), BlockCodes)


def grouped(
    kind: str, bits: int, block: int, columns: int, dtype: Any = np.float32
) -> tuple[Any, Any]:
    """A node whose columns have groups of their own, and the matrix that it means."""
    codes, scales, zeros, _ = given(bits, block, columns)
    scales = scales.astype(dtype)
    groups = np.arange(columns, dtype=np.int32) // block
    if kind == "shuffled":
        groups = RNG.permutation(groups)
    elif kind in ("uneven", "float points"):
        groups = RNG.integers(0, scales.shape[1], columns, np.int32)
    elif kind == "one":
        groups = np.full(columns, 1, np.int32)
    how = {"K": columns, "N": ROWS, "bits": bits, "block_size": block}
    weights = {
        "q": codes.reshape(ROWS, scales.shape[1], -1),
        "s": scales,
        "z": codes_of(zeros, bits),
    }
    if kind == "float points":
        zeros = zeros + np.float32(0.25)
        weights["z"] = zeros.astype(dtype)
    names = "x q s z" if kind == "none" else "x q s z g"
    made = graph(
        [node("MatMulNBits", names, "y", "com.microsoft", **how)],
        [value("x", dtype)],
        [value("y", dtype)],
        [tensor(k, v) for k, v in (weights | {"g": groups}).items()],
    )
    wide = bytes_of(codes, bits)[:, :columns].astype(np.float64) - zeros[:, groups]
    return load(model(made, com_microsoft=1)), wide * scales[:, groups]


@pytest.mark.parametrize("kind", ["plain", "shuffled", "uneven", "one", "float points"])
@pytest.mark.parametrize(("bits", "block"), [(2, 16), (4, 32), (8, 16)])
def test_columns_have_the_scales_of_their_groups(kind: str, bits: int, block: int) -> None:
    """Groups of any size are read packed, where zero points are codes."""
    net, weight = grouped(kind, bits, block, 5 * block - 3)
    packed = [isinstance(p.storage, BlockCodes) for p in net.parameters() if len(p.shape) == 2]
    assert any(packed) == (kind != "float points")
    for shape in ((5 * block - 3,), (3, 5 * block - 3), (2, 20, 5 * block - 3)):
        x = RNG.standard_normal(shape).astype(np.float32)
        right = x @ weight.T
        for _ in range(3):
            found = net(x)["y"].numpy()
            np.testing.assert_allclose(found, right, rtol=0, atol=2e-5 * np.abs(right).max())


@pytest.mark.parametrize("kind", ["none", "shuffled"])
def test_weights_of_16_bits_compute_in_wide_floats(kind: str) -> None:
    net, weight = grouped(kind, 4, 32, 90, np.float16)
    assert any(isinstance(p.storage, BlockCodes) for p in net.parameters())
    x = RNG.standard_normal((6, 90)).astype(np.float16)
    found, right = net(x)["y"].numpy(), x.astype(np.float64) @ weight.T
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-3 * np.abs(right).max())
