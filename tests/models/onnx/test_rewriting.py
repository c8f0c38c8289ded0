"""What several nodes of a file compute together runs as one, and gives what they give."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.models.onnx import load, rewriting
from cubepy.models.onnx.model import OnnxModel
from tests.models.onnx.writer import field, fields, graph, model, node, tensor, value


def made(
    nodes: list[bytes], weights: dict[str, Any], inputs: Any = ("x",), opset: int = 17
) -> OnnxModel:
    given = [tensor(k, v) for k, v in weights.items()]
    return load(model(graph(nodes, list(inputs), ["y"], given), opset=opset))


def as_written(monkeypatch: pytest.MonkeyPatch, *args: Any, **how: Any) -> OnnxModel:
    """The same without rules of several nodes."""
    with monkeypatch.context() as changed:
        changed.setattr(rewriting, "PIECES", {})
        return made(*args, **how)


def close(one: Any, other: Any, by: float = 1e-4) -> bool:
    """Whether the largest difference is small beside the largest number."""
    a, b = one.numpy(), other.numpy()
    return bool(np.abs(a - b).max() <= by * np.abs(b).max())


ERF = [
    # x / 2 (1 + erf(x / sqrt 2)), in the orders of exporters
    ("Div x two d|Erf d e|Add e one a|Mul x a m|Mul m half y"),
    ("Mul x root d|Erf d e|Add one e a|Mul a half m|Mul m x y"),
    ("Div x two d|Erf d e|Add e one a|Mul half x m|Mul m a y"),
]
TANH = [
    "Pow x three c|Mul c small t|Add x t s|Mul s fast u|Tanh u e|Add e one a|Mul x a m|Mul m half y",
    "Mul x x q|Mul q x c|Mul small c t|Add t x s|Mul fast s u|Tanh u e|Add e one a|Mul x half m"
    "|Mul m a y",
    "Mul x x q|Mul q small t|Add t one s|Mul x fast f|Mul f s u|Tanh u e|Add e one a|Mul x a m"
    "|Mul half m y",
]
NUMBERS = {
    "two": 2**0.5,
    "root": 0.5**0.5,
    "one": 1.0,
    "half": 0.5,
    "three": 3.0,
    "small": 0.044715,
    "fast": (2 / np.pi) ** 0.5,
}


def nodes_of(text: str) -> list[bytes]:
    found = []
    for line in text.split("|"):
        op, *names = line.split()
        found.append(node(op, " ".join(names[:-1]), names[-1]))
    return found


@pytest.mark.parametrize("text", ERF + TANH)
def test_gelu_in_pieces_is_one_op(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {k: np.array(v, np.float32) for k, v in NUMBERS.items()}
    net = made(nodes_of(text), numbers)
    x = np.random.default_rng(3).standard_normal((3, 40)).astype(np.float32) * 3

    assert net.rewritten == {"Gelu": 1}
    assert [s.record.name for s in net.runner.steps] == ["Gelu"]
    assert close(net(x)["y"], as_written(monkeypatch, nodes_of(text), numbers)(x)["y"], 1e-6)


@pytest.mark.parametrize("name", ["two", "one", "half", "small", "fast", "three"])
def test_other_numbers_are_no_gelu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TANH[0] if name in ("small", "fast", "three") else ERF[0]
    numbers = {k: np.array(v, np.float32) for k, v in NUMBERS.items()}
    numbers[name] = np.float32(numbers[name] * 1.25).reshape(())
    net = made(nodes_of(text), numbers)
    x = np.abs(np.random.default_rng(3).standard_normal((3, 40))).astype(np.float32)

    assert not net.rewritten
    assert close(net(x)["y"], as_written(monkeypatch, nodes_of(text), numbers)(x)["y"], 1e-6)


def test_a_piece_that_is_read_elsewhere_stays() -> None:
    numbers = {k: np.array(v, np.float32) for k, v in NUMBERS.items()}
    net = made(nodes_of(ERF[0].replace(" y", " g") + "|Add g e y"), numbers)
    assert not net.rewritten and len(net.runner.steps) == 6


def attention_of(rng: np.random.Generator) -> tuple[list[bytes], dict[str, Any], dict[str, Any]]:
    """Random attention in pieces: nodes, constants, inputs."""
    b, h, length, keys, d = (int(n) for n in rng.integers(1, 9, 5))
    rank, kind = int(rng.choice([3, 4])), int(rng.integers(0, 5))
    batch = (b, h) if rank == 4 else (b,)
    given = {
        "q": rng.standard_normal((*batch, length, d)).astype(np.float32),
        "k": rng.standard_normal((*batch, keys, d)).astype(np.float32),
        "v": rng.standard_normal((*batch, keys, 5)).astype(np.float32),
    }
    turn = [*range(rank - 2), rank - 1, rank - 2]
    nodes = [node("Transpose", "k", "t", perm=turn), node("MatMul", "q t", "s")]
    last, constants = "s", {"by": np.array(rng.uniform(0.5, 2), np.float32)}
    if op := rng.choice(["", "Mul", "Div"]):
        nodes.append(node(op, f"{last} by", "scaled"))
        last = "scaled"
    shape = [(length, keys), (1, keys), (*batch, length, keys), (b, *(1,) * (rank - 2), keys)]
    full = shape[int(rng.integers(len(shape)))]
    if kind in (1, 2):
        given["m"] = rng.standard_normal(full).astype(np.float32)
        if kind == 2:
            given["m"][..., -1] = np.finfo(np.float32).min
        nodes.append(node("Add", f"{last} m" if kind == 1 else f"m {last}", "masked"))
    elif kind in (3, 4):
        given["m"] = rng.random(full) < 0.4
        constants["fill"] = np.array(rng.choice([-3.4028235e38, -1e30]), np.float32)
        order = f"m fill {last}" if kind == 3 else f"m {last} fill"
        nodes.append(node("Where", order, "masked"))
    last = "masked" if kind else last
    nodes += [
        node("Softmax", last, "p", axis=int(rng.choice([-1, rank - 1]))),
        node("MatMul", "p v", "y"),
    ]
    return nodes, constants, given


@pytest.mark.parametrize("seed", range(24))
def test_attention_in_pieces_is_one_op(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, constants, given = attention_of(np.random.default_rng(seed))
    inputs = [value(k, x.dtype) for k, x in given.items()]
    net = made(nodes, constants, inputs)

    assert net.rewritten == {"Attention": 1}
    other = as_written(monkeypatch, nodes, constants, inputs=inputs)(given)["y"]
    for _ in range(3):
        assert close(net(given)["y"], other)


def test_scores_that_an_output_shows_stay() -> None:
    nodes = [node("MatMul", "q t", "s"), node("Softmax", "s", "p"), node("MatMul", "p v", "y")]
    written = graph(nodes, ["q", "t", "v"], ["y", "p"])
    assert not load(model(written)).rewritten


def norm_of(rng: np.random.Generator) -> tuple[str, dict[str, Any], str]:
    """A random norm in pieces: nodes, constants, what it is."""
    axes = int(rng.integers(1, 3))
    shape = tuple(int(n) for n in rng.integers(1, 9, 3))[-axes:]
    layer, twice, eps = rng.random() < 0.5, rng.random() < 0.3, rng.random() < 0.8
    lines = ["ReduceMean x axes m", "Sub x m d"] if layer else []
    last = squared = "d" if layer else "x"
    if layer and twice:
        lines.append("ReduceMean x axes n"), lines.append("Sub x n e")
        squared = "e"
    lines.append(rng.choice([f"Pow {squared} two q", f"Mul {squared} {squared} q"]))
    lines.append("ReduceMean q axes v")
    if eps:
        lines.append(rng.choice(["Add v small w", "Add small v w"]))
    v = "w" if eps else "v"
    root = rng.choice([f"Sqrt {v} s", f"Pow {v} half s"])
    lines += {
        0: [root, f"Div {last} s z"],
        1: [root, "Reciprocal s r", f"Mul {last} r z"],
        2: [root, "Div one s r", f"Mul r {last} z"],
        3: [f"Pow {v} minus r", f"Mul {last} r z"],
    }[int(rng.integers(4))]
    constants = {
        "axes": np.arange(-axes, 0), "two": np.float32(2), "half": np.float32(0.5),
        "one": np.float32(1), "minus": np.float32(-0.5), "small": np.float32(1e-5),
    }  # fmt: skip
    result, part = "z", [shape, (1,), shape[-1:]][int(rng.integers(3))]
    for op, name in (("Mul", "gamma"), ("Add", "beta"))[: int(rng.integers(3))]:
        constants[name] = rng.standard_normal(part).astype(np.float32)
        lines.append(rng.choice([f"{op} {result} {name} {op}", f"{op} {name} {result} {op}"]))
        result = op
    lines[-1] = " ".join([*lines[-1].split()[:-1], "y"])
    return "|".join(lines), constants, "LayerNorm" if layer else "RMSNorm"


@pytest.mark.parametrize("seed", range(40))
def test_norms_in_pieces_are_one_op(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    text, constants, name = norm_of(rng)
    constants = {k: np.array(v) for k, v in constants.items() if f" {k} " in text}
    shape = [int(n) for n in rng.integers(2, 6, 3)]
    for n, part in enumerate(constants.get("gamma", np.zeros(1)).shape[::-1], 1):
        shape[-n] = part if part > 1 else shape[-n]
    net = made(nodes_of(text), constants, opset=18)
    x = rng.standard_normal(shape).astype(np.float32) + 0.5

    assert net.rewritten == {name: 1} and len(net.runner.steps) == 1
    other = as_written(monkeypatch, nodes_of(text), constants, opset=18)(x)["y"]
    for _ in range(3):
        assert close(net(x)["y"], other)


NORM = "ReduceMean x axes m|Sub x m d|Mul d d q|ReduceMean q axes v|Add v small w|Sqrt w s|Div d s"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{NORM} z|Mul z gamma p|Add p z y", {"LayerNorm": 1}),  # the norm is read twice
        (f"{NORM} z|Mul z gamma p|Add p x y", {"LayerNorm": 1}),  # a residual
        (f"{NORM} z|Mul z x y", {"LayerNorm": 1}),
        (f"{NORM.replace('Sub x m', 'Sub m x')} y", {"RMSNorm": 1}),
        (f"{NORM.replace('q axes v', 'q other v')} y", {"RMSNorm": 1}),
        (f"{NORM.replace('Mul d d', 'Mul d x')} y", {}),
        (f"{NORM.replace('Div d s', 'Div s d')} y", {}),
        (f"{NORM.replace('Sqrt w', 'Exp w')} y", {}),
    ],
)
def test_what_is_almost_a_norm(
    text: str, found: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    constants = {"axes": np.array([-1]), "other": np.array([-2]), "small": np.array(1e-5, "f")}
    constants["gamma"] = rng.standard_normal(7).astype(np.float32)
    net = made(nodes_of(text), constants, opset=18)
    x = rng.standard_normal((4, 3, 7)).astype(np.float32)

    assert net.rewritten == found
    other = as_written(monkeypatch, nodes_of(text), constants, opset=18)(x)["y"]
    assert close(net(x)["y"], other)


def test_a_norm_of_axes_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = {"axes": np.array([1]), "small": np.array(1e-3, np.float32)}
    net = made(nodes_of(f"{NORM} y"), constants, opset=18)
    x = np.random.default_rng(2).standard_normal((4, 3, 7)).astype(np.float32)

    assert net.rewritten == {"LayerNorm": 1}
    other = as_written(monkeypatch, nodes_of(f"{NORM} y"), constants, opset=18)(x)["y"]
    assert close(net(x)["y"], other)


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


def test_explain_shows_what_runs_instead() -> None:
    rng = np.random.default_rng(5)
    nodes, constants, shape = quantized(rng, "MatMul")
    shown = str(cb.explain(made(nodes, constants), np.zeros(shape, np.float32)))
    assert "matmul_codes" in shown

    nodes, constants, given = attention_of(rng)
    net = made(nodes, constants, [value(k, x.dtype) for k, x in given.items()])
    shown = str(cb.explain(net, given))
    assert "= attention" in shown and "softmax" not in shown


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


def test_outputs_of_a_function_are_kept_while_its_nodes_become_layers() -> None:
    """A product that is an output, and the sum behind it, are two results."""
    written = [node("MatMul", "x w", "p"), node("Add", "p b", "s")]
    body = fields(7, written) + field(1, "F") + fields(4, ["x", "w", "b"]) + fields(5, ["p", "s"])
    body += field(9, field(2, 17)) + field(10, "ours")
    weights = {"w": np.eye(3, dtype=np.float32), "b": np.ones(3, np.float32)}
    given = [tensor(k, v) for k, v in weights.items()]
    whole = graph([node("F", "x w b", "p s", "ours")], ["x"], ["p", "s"], given)
    found = load(model(whole, more=field(25, body), ours=1))(np.zeros((1, 3), np.float32))
    assert (found["p"].numpy().max(), found["s"].numpy().max()) == (0, 1)


def test_a_matrix_that_several_products_read_is_one_weight_of_several_layers() -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 4)).astype(np.float32), "b": np.ones(4, np.float32)}
    nodes = [
        node("Identity", "w", "again"),
        node("Identity", "b", "c"),
        node("MatMul", "x w", "m"),
        node("Add", "m b", "h"),
        node("MatMul", "h again", "n"),
        node("Add", "c n", "y"),
    ]
    found = made(nodes, weights)
    assert found.rewritten == {"Linear": 2}
    (first, second) = (m for m in found.modules() if isinstance(m, nn.Linear))
    assert first.weight is second.weight and first.bias is second.bias
    x = rng.standard_normal((3, 4)).astype(np.float32)
    right = (x @ weights["w"] + 1) @ weights["w"] + 1
    np.testing.assert_allclose(found(x)["y"].numpy(), right, rtol=1e-5)
    small = cb.quant.quantize(found, "int8", measure_speed=False)
    assert len(small.report.quantized) == 2
    assert np.linalg.norm(small.model(x)["y"].numpy() - right) < 0.03 * np.linalg.norm(right)


@pytest.mark.parametrize("reader", ["Mul", "Gemm", "output"])
def test_a_matrix_that_something_else_reads_is_no_layer(reader: str) -> None:
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    x = np.ones((3, 4), np.float32)
    product = x @ w
    nodes, outputs = [node("MatMul", "x w", "m")], ["y"]
    if reader == "Mul":
        nodes += [node("Mul", "w w", "s"), node("MatMul", "m s", "y")]
        right = product @ (w * w)
    elif reader == "Gemm":  # reads it the other way round
        nodes.append(node("Gemm", "m w", "y", transB=1))
        right = product @ w.T
    else:
        nodes.append(node("Identity", "w", "out"))
        nodes.append(node("Relu", "m", "y"))
        outputs, right = ["y", "out"], np.maximum(product, 0)
    found = load(model(graph(nodes, ["x"], outputs, [tensor("w", w)]), opset=17))
    assert "Linear" not in found.rewritten
    np.testing.assert_allclose(found(x)["y"].numpy(), right, rtol=1e-5)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_model_is_one_of_its_own(how: Any) -> None:
    weights = {"w": np.eye(32, 4, dtype=np.float32), "n": np.arange(80)}
    nodes = [
        node("MatMul", "x w", "m"),
        node("ReduceSum", "n", "s"),
        node("Cast", "s", "f", to=1),
        node("Add", "m f", "y"),
    ]
    found = made(nodes, weights)
    x = np.ones((2, 32), np.float32)
    right = found(x)["y"].numpy()
    found.requires_grad_()
    found.train()
    for one in (found, cb.quant.quantize(found, "int8", measure_speed=False).model):
        other = how(one)
        assert np.array_equal(other(x)["y"].numpy(), one(x)["y"].numpy())
        said = [[p.requires_grad for p in m.parameters()] for m in (one, other)]
        assert said[0] == said[1] and other.training
        with cb.no_grad():
            for p in other.parameters():
                if p.requires_grad:
                    p.mul_(0.0)
    assert np.array_equal(found(x)["y"].numpy(), right)
    weight = next(m for m in found.modules() if isinstance(m, nn.Linear)).weight
    assert weight.requires_grad and found.clone().training
