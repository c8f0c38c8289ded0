"""Products, convolutions and rows of codes run as such, and give what floats give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from tests.models.onnx.rewritten import as_written, close, made
from tests.models.onnx.writer import node, value


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


@pytest.mark.parametrize("kind", ["MatMul", "Gemm", "Conv"])
@pytest.mark.parametrize("seed", range(8))
def test_products_of_what_is_dequantized_are_those_of_codes(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    nodes, constants, shape = quantized(rng, kind)
    net = made(nodes, constants)
    x = rng.standard_normal(shape).astype(np.float32)

    wanted = "CodesWindows" if kind == "Conv" else "CodesProduct"
    assert net.rewritten == {wanted: 1}
    assert [s.record.name for s in net.runner.steps] == ["QuantizeLinear", wanted]
    other = as_written(monkeypatch, nodes, constants)(x)["y"]
    for _ in range(3):
        assert close(net(x)["y"], other, 1e-5)


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


def test_explain_shows_products_of_codes() -> None:
    nodes, constants, shape = quantized(np.random.default_rng(5), "MatMul")
    shown = str(cb.explain(made(nodes, constants), np.zeros(shape, np.float32)))
    assert "matmul_codes" in shown
