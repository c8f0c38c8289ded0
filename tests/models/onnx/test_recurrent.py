"""Recurrent layers of random files against a loop in NumPy: matrices of floats and of codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.models.onnx import load
from cubepy.models.onnx.ops.sequence import recurrent
from tests.kernels.recurrent.test_recurrence import expected
from tests.models.onnx.rewritten import laid_out_once
from tests.models.onnx.writer import graph, model, node, tensor, value

ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}
"""The gates of ONNX in our order."""
CELLS = {"LSTM": "lstm", "GRU": "gru", "RNN": "tanh"}


def in_order(kind: str, w: Any, axis: int) -> Any:
    parts = np.split(w, len(ORDER[kind]), axis)
    return np.concatenate([parts[k] for k in ORDER[kind]], axis)


def wanted(kind: str, x: Any, w: Any, r: Any, b: Any, lengths: Any, reverse: bool) -> list[Any]:
    """Y (T, D, B, H) and the last states, of matrices (D, G * H, n)."""
    d, rows, width = r.shape
    w, r = in_order(kind, w, 1), in_order(kind, r, 1)
    b_w, b_r = (in_order(kind, part, 1) for part in np.split(b, 2, 1))
    gates = x @ w.reshape(d * rows, -1).T + b_w.reshape(-1)
    zero = np.zeros((d, x.shape[1], width))
    first = (zero, zero) if kind == "LSTM" else (zero,)
    y, *last = expected(CELLS[kind], gates, r, b_r, None, lengths, first, reverse)
    return [y.reshape(*y.shape[:2], d, width).transpose(0, 2, 1, 3), *last]


def drawn(rng: np.random.Generator, kind: str) -> tuple[Any, ...]:
    """Inputs, matrices, biases, lengths and a direction."""
    t, b, i = int(rng.choice([1, 2, 9])), int(rng.integers(1, 4)), int(rng.choice([1, 4, 8]))
    h, way = int(rng.choice([1, 4, 16, 33])), rng.choice(["forward", "reverse", "bidirectional"])
    d, rows = 2 if way == "bidirectional" else 1, len(ORDER[kind]) * h

    def some(*shape: int) -> Any:
        return rng.standard_normal(shape) * h**-0.5

    lengths = rng.integers(1, t + 1, b).astype(np.int32) if rng.random() < 0.5 else None
    x = rng.standard_normal((t, b, i)).astype(np.float32)
    return x, some(d, rows, i), some(d, rows, h), some(d, 2 * rows), lengths, str(way)


def outputs_of(
    op: str, x: Any, lengths: Any, way: str, constants: dict[str, Any], names: str, **how: Any
) -> list[Any]:
    """What three calls of a file give, which are the same."""
    outputs = ["y", "h", "c"][: 3 if "LSTM" in op else 2]
    domain = "" if op in CELLS else "com.microsoft"
    given, inputs = {"x": x}, [value("x", np.float32)]
    if lengths is not None:
        given["n"], inputs = lengths, [*inputs, value("n", np.int32)]
    names = names.replace("n", "_" if lengths is None else "n")
    one = node(op, names, " ".join(outputs), domain, direction=way, **how)
    made = graph([one], inputs, outputs, [tensor(k, v) for k, v in constants.items()])
    layer = load(model(made, com_microsoft=1))
    found = [[layer(given)[o].numpy() for o in outputs] for _ in range(3)]
    assert laid_out_once(layer) == 1
    for again in found[1:]:
        for one, other in zip(again, found[0], strict=True):
            np.testing.assert_array_equal(one, other)
    return found[0]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("seed", range(2))
def test_layers_of_floats(kind: str, seed: int) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    for _ in range(4):
        x, w, r, b, lengths, way = drawn(rng, kind)
        constants = {k: v.astype(np.float32) for k, v in (("w", w), ("r", r), ("b", b))}
        how = {"linear_before_reset": 1} if kind == "GRU" else {}
        size = r.shape[2]
        found = outputs_of(kind, x, lengths, way, constants, "x w r b n", hidden_size=size, **how)
        for one, other in zip(
            found, wanted(kind, x, w, r, b, lengths, way == "reverse"), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


NAMES = [
    *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh"),
    *("HardSigmoid", "Elu", "Softsign", "Softplus"),
]


def odd(rng: np.random.Generator, kind: str, directions: int) -> dict[str, Any]:
    """Attributes that make a layer another one than most are."""
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[kind]
    found: dict[str, Any] = {}
    if rng.integers(3):
        names = [str(name) for name in rng.choice(NAMES, count * directions)]
        if rng.integers(2):  # directions that are alike
            names = names[:count] * directions
        found["activations"] = names
        for which in ("activation_alpha", "activation_beta"):
            if rng.integers(2):  # one for each that takes it; others are what they are without
                found[which] = [0.5] * len(names)
    if rng.integers(2):
        found["clip"] = float(rng.choice([0.3, 2.0]))
    if kind == "LSTM" and rng.integers(2):
        found["input_forget"] = 1
    if kind == "GRU":
        found["linear_before_reset"] = int(rng.integers(2))
    return found


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("seed", range(3))
def test_odd_layers_are_one_launch(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They give what they give step by step, in float64; directions may have activations of their
    own.
    """
    rng = np.random.default_rng([seed, len(kind), 7])
    for _ in range(3):
        x, w, r, b, lengths, way = drawn(rng, kind)
        how = {"hidden_size": r.shape[2], **odd(rng, kind, len(r))}
        constants = {"w": w, "r": r, "b": b}
        if kind == "LSTM" and rng.integers(2):
            constants["p"] = rng.standard_normal((len(r), 3 * r.shape[2]))
        names = "x w r b n" + (" _ _ p" if "p" in constants else "")
        floats = {k: v.astype(np.float32) for k, v in constants.items()}
        found = outputs_of(kind, x, lengths, way, floats, names, **how)
        with monkeypatch.context() as patch:
            patch.setattr(recurrent, "at_once", lambda *_: None)
            outputs = ["y", "h", "c"][: len(found)]
            inputs = [value("x", np.float64), value("n", np.int32)]
            given = {"x": x.astype(np.float64), "n": lengths}
            if lengths is None:
                names, inputs = names.replace("n", "_"), inputs[:1]
                del given["n"]
            one = node(kind, names, " ".join(outputs), direction=way, **how)
            weights = [tensor(k, v.astype(np.float64)) for k, v in constants.items()]
            slow = load(model(graph([one], inputs, outputs, weights)))(given)
        for one, name in zip(found, outputs, strict=True):
            np.testing.assert_allclose(one, slow[name].numpy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("seed", range(4))
def test_layers_of_codes(seed: int) -> None:
    """Near what the floats give that the codes mean, also where one matrix is a few numbers."""
    rng = np.random.default_rng(seed)
    for _ in range(4):
        x, w, r, b, lengths, way = drawn(rng, "LSTM")
        constants: dict[str, Any] = {"b": b.astype(np.float32)}
        floats = []
        signed = bool(rng.integers(2))
        for name, matrix in (("w", w), ("r", r)):
            across = (2,) if rng.random() < 0.5 else (1, 2)
            scale = (np.abs(matrix).max(across, keepdims=True) / 127).astype(np.float32)
            zero = np.zeros(scale.shape) + (0 if signed else 128)
            kind = np.int8 if signed else np.uint8
            codes = np.rint(matrix / scale)
            floats.append(codes * scale)
            constants[name] = np.ascontiguousarray((codes + zero).transpose(0, 2, 1).astype(kind))
            flat = (len(scale), -1) if len(across) == 1 else (len(scale),)
            constants[name + "s"] = scale.reshape(flat)
            constants[name + "z"] = zero.astype(kind).reshape(flat)
        names = "x w r b n _ _ _ ws wz rs rz"
        size = r.shape[2]
        found = outputs_of(
            "DynamicQuantizeLSTM", x, lengths, way, constants, names, hidden_size=size
        )
        want = wanted("LSTM", x, *floats, b, lengths, way == "reverse")
        for one, other in zip(found, want, strict=True):
            assert one.shape == other.shape and np.abs(one - other).max() < 0.06
