"""Products, convolutions and rows of codes run as such, and give what floats give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.models.onnx import load
from cubepy.models.onnx.rules import quantized as rules
from tests.models.onnx.rewritten import as_written, close, laid_out_once, made
from tests.models.onnx.writer import graph, model, node, tensor, value


def rounded(name: str, low: str, zero: Any) -> tuple[list[bytes], dict[str, Any]]:
    """QuantizeLinear and DequantizeLinear of activations of up to 4."""
    point = np.array(zero)
    scale = np.array(8 / 255, np.float32)
    nodes = [
        node("QuantizeLinear", f"{name} {name}_s {name}_z", f"{name}_q"),
        node("DequantizeLinear", f"{name}_q {name}_s {name}_z", low),
    ]
    return nodes, {f"{name}_s": scale, f"{name}_z": point}


def stored(
    rng: np.random.Generator, shape: tuple[int, ...], axis: int, dtype: Any
) -> tuple[bytes, dict[str, Any]]:
    """DequantizeLinear of a constant: scales by output or one, zero points or none."""
    many, pointed = rng.random(2) < 0.6
    outputs = shape[axis] if many else 1
    info = np.iinfo(dtype)
    kept = {"w_q": rng.integers(info.min, info.max + 1, shape).astype(dtype)}
    scale = rng.uniform(0.01, 0.02, outputs).astype(np.float32)
    kept["w_s"] = scale if many else scale.reshape(())
    names = "w_q w_s"
    if pointed:
        middle = 128 if info.min == 0 else 0
        point = (rng.integers(-9, 9, outputs) + middle).astype(dtype)
        kept["w_z"], names = point if many else point.reshape(()), "w_q w_s w_z"
    return node("DequantizeLinear", names, "w", axis=axis), kept


def quantized(
    rng: np.random.Generator, kind: str
) -> tuple[list[bytes], dict[str, Any], tuple[int, ...]]:
    """A product, or convolution, between QuantizeLinear and DequantizeLinear, with a bias."""
    zero = rng.choice([np.uint8(rng.integers(100, 150)), np.int8(rng.integers(-9, 9))])
    zero = zero.astype(np.uint8) if zero > 50 else zero.astype(np.int8)
    nodes, constants = rounded("x", "d", zero)
    n, k = (int(v) for v in rng.integers(1, 50, 2))
    dtype = [np.uint8, np.int8][int(rng.integers(2))]
    if kind == "Conv":
        channels, window = int(rng.integers(1, 5)), (int(rng.integers(1, 4)), 3)
        step, kept = stored(rng, (n, channels, *window), 0, dtype)
        how: dict[str, Any] = {"pads": [1, 1, 0, 2], "strides": [1, int(rng.integers(1, 3))]}
        shape: tuple[int, ...] = (2, channels, 9, 8)
    else:
        turned = bool(kind == "Gemm" and rng.random() < 0.5)
        step, kept = stored(rng, (n, k) if turned else (k, n), 0 if turned else 1, dtype)
        how = {"transB": 1} if turned else {}
        shape = (2, 3, k) if kind == "MatMul" else (5, k)
    bias = kind != "MatMul" and rng.random() < 0.6
    if bias:
        kept["b_q"] = rng.integers(-9999, 9999, n).astype(np.int32)
        kept["b_s"] = np.array(1e-4, np.float32)
        nodes.append(node("DequantizeLinear", "b_q b_s", "b"))
    nodes += [step, node(kind, "d w b" if bias else "d w", "y", **how)]
    return nodes, constants | kept, shape


@pytest.mark.turns(6)
@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "Conv"])
@pytest.mark.parametrize("seed", range(8))
def test_products_of_what_is_dequantized_are_those_of_codes(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    nodes, constants, shape = quantized(rng, kind)
    monkeypatch.setattr(rules, "MOST_FLOATS", 0)
    net = made(nodes, constants)
    x = rng.standard_normal(shape).astype(np.float32)

    wanted = "CodesWindows" if kind == "Conv" else "CodesProduct"
    assert net.rewritten == {wanted: 1}
    assert [s.record.name for s in net.runner.steps] == ["QuantizeLinear", wanted]
    other = as_written(monkeypatch, nodes, constants)(x)["y"]
    for _ in range(3):
        assert close(net(x)["y"], other, 1e-5)
    laid_out_once(net)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_what_is_made_of_a_table_is_made_once(raw: bool, dtype: Any) -> None:
    """Whether the file has its bytes or its numbers, which stay with the reader, too."""
    rng = np.random.default_rng(3)
    table = rng.integers(-9, 9, (20, 30)).astype(dtype)
    nodes = [node("Concat", "t t", "both", axis=0), node("Cast", "both", "f", to=1)]
    nodes.append(node("MatMul", "x f", "y"))
    net = load(model(graph(nodes, ["x"], ["y"], [tensor("t", table, raw)])))
    x = rng.standard_normal((4, 40)).astype(np.float32)
    for _ in range(4):
        assert np.allclose(net(x)["y"].numpy(), x @ np.concatenate([table, table]), atol=1e-4)
    assert laid_out_once(net) == 1


def test_dequantized_rows_of_a_table_are_taken_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    step, constants = stored(rng, (70, 33), 1, np.uint8)
    nodes = [step, node("Gather", "w x", "y")]
    inputs = [value("x", np.int64)]
    net = made(nodes, constants, inputs)
    at = rng.integers(-70, 70, (2, 3))

    assert [s.record.name for s in net.runner.steps] == ["GatherCodes"]
    other = as_written(monkeypatch, nodes, constants, inputs=inputs)
    assert close(net(at)["y"], other(at)["y"], 1e-6)


def test_a_dequantized_matrix_of_floats_is_a_linear_layer() -> None:
    rng = np.random.default_rng(2)
    step, constants = stored(rng, (30, 20), 1, np.int8)
    net = made([step, node("MatMul", "x w", "y")], constants)
    x = rng.standard_normal((4, 30)).astype(np.float32)

    assert [s.record.name for s in net.runner.steps] == ["Linear"]
    w = constants["w_q"].astype(np.float32) - constants.get("w_z", np.float32(0))
    assert np.allclose(net(x)["y"].numpy(), x @ (w * constants["w_s"]), atol=1e-4)
    assert "w_q" not in net.state_dict()


@pytest.mark.parametrize("turned", [False, True])
def test_codes_of_a_matrix_are_turned_behind_their_scales(
    turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    nodes, constants = rounded("x", "d", np.uint8(120))
    step, kept = stored(rng, (20, 30), 0, np.int8)
    nodes += [step, node("Transpose", "w", "t", perm=[1, 0])]
    nodes.append(node("Gemm", "d t", "y") if turned else node("MatMul", "d t", "y"))
    net = made(nodes, constants | kept)
    x = rng.standard_normal((5, 30)).astype(np.float32)

    assert [s.record.name for s in net.runner.steps] == ["QuantizeLinear", "CodesProduct"]
    other = as_written(monkeypatch, nodes, constants | kept)(x)["y"]
    assert close(net(x)["y"], other, 1e-5)


def blocks(rng: np.random.Generator, dtype: Any, block: int, axis: int) -> tuple[Any, ...]:
    """Codes (N, K) or (K, N) with scales by block of K, or by column; nodes, constants, floats."""
    info = ml_dtypes.iinfo(dtype)
    n, k = (int(v) for v in rng.integers(1, 90, 2))
    shape = (n, k) if axis else (k, n)
    codes = rng.integers(int(info.min), int(info.max) + 1, shape).astype(dtype)
    lengths = [n, n]
    lengths[axis] = -(-k // block) if block else 1
    scales = rng.uniform(0.01, 0.02, lengths).astype(np.float32)
    points = rng.integers(int(info.min) // 2, int(info.max) // 2 + 1, lengths).astype(dtype)
    if block:
        how: dict[str, Any] = {"axis": axis, "block_size": block}
        spread = [np.repeat(p, block, axis)[: shape[0], : shape[1]] for p in (scales, points)]
    else:
        how = {"axis": 1 - axis}
        spread = [scales, points]
        scales, points = scales.reshape(-1), points.reshape(-1)
    kept = {"w_q": codes, "w_s": scales}
    pointed = rng.random() < 0.5
    if pointed:
        kept["w_z"] = points
    floats = codes.astype(np.float64) - (spread[1].astype(np.float64) if pointed else 0)
    step = node("DequantizeLinear", "w_q w_s w_z" if pointed else "w_q w_s", "w", **how)
    return step, kept, (floats * spread[0]).T if axis else floats * spread[0]


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "Gemm, transB", "Transpose"])
@pytest.mark.parametrize("block", [0, 16, 64])
def test_a_matrix_of_few_bits_stays_packed(dtype: str, kind: str, block: int) -> None:
    """Scaled by block, or with less than 8 bits by column, whichever way round it lies."""
    rng = np.random.default_rng([block, len(kind), len(dtype)])
    kinds = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}
    axis = int(kind in ("Gemm, transB", "Transpose"))
    step, constants, w = blocks(rng, np.dtype(kinds.get(dtype, dtype)), block, axis)
    nodes, bias = [step], 0.0
    if kind == "Transpose":
        nodes += [node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "y")]
    elif kind == "MatMul":
        nodes.append(node("MatMul", "x w", "y"))
    else:
        constants["b"] = bias = rng.standard_normal(w.shape[1]).astype(np.float32)
        how = {"transB": 1} if axis else {}
        nodes.append(node("Gemm", "x w b", "y", **how))
    net = made(nodes, constants, opset=21)

    assert [s.record.name for s in net.runner.steps] == ["Linear"]
    packed = block or dtype.endswith("4")
    (weight,) = (m.weight for m in net.modules() if isinstance(m, nn.Linear))
    assert weight.storage.kind == ("block_codes" if packed else "dense")
    for rows in (1, 5, 40):
        x = rng.standard_normal((rows, w.shape[0])).astype(np.float32)
        right = x.astype(np.float64) @ w + bias
        found = net(x)["y"].numpy()
        assert np.abs(found - right).max() <= 1e-5 * np.abs(right).max()


@pytest.mark.parametrize(("channels", "filters", "groups"), [(4, 8, 1), (12, 12, 12), (64, 64, 4)])
def test_small_filters_and_those_of_groups_are_floats(
    channels: int, filters: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(filters)
    nodes, constants = rounded("x", "d", np.int8(-5))
    step, kept = stored(rng, (filters, channels // groups, 3, 3), 0, np.uint8)
    nodes += [step, node("Conv", "d w", "y", group=groups)]
    net = made(nodes, constants | kept)
    x = rng.standard_normal((2, channels, 6, 7)).astype(np.float32)

    kinds = [s.record.name for s in net.runner.steps]
    assert kinds == ["QuantizeLinear", "DequantizeLinear", "Conv"]
    other = as_written(monkeypatch, nodes, constants | kept)(x)["y"]
    assert close(net(x)["y"], other, 1e-5)


def test_explain_shows_products_of_codes() -> None:
    nodes, constants, shape = quantized(np.random.default_rng(5), "MatMul")
    shown = str(cb.explain(made(nodes, constants), np.zeros(shape, np.float32)))
    assert "matmul_codes" in shown


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("seed", range(4))
def test_pools_of_the_last_axis_are_those_of_the_first(dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = rng.integers(4, 9, 2)
    x = rng.integers(-100, 100, (2, *size, int(rng.integers(1, 5)))).astype(dtype)
    window = [int(n) for n in rng.integers(1, 4, 2)]
    how = {"kernel_shape": window, "strides": [1, 2], "pads": [0, window[1] // 2] * 2}
    nodes = [
        node("NhwcMaxPool", "x", "y", "com.microsoft", **how),
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("MaxPool", "t", "m", **how),
        node("Transpose", "m", "z", perm=[0, 2, 3, 1]),
    ]
    ends = [value("y", dtype), value("z", dtype)]
    found = load(model(graph(nodes, [value("x", dtype)], ends), com_microsoft=1))(x)
    np.testing.assert_array_equal(found["y"].numpy(), found["z"].numpy())
