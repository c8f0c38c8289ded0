"""What several nodes of a file compute together runs as one, and gives what they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.models.onnx import load
from tests.models.onnx.rewritten import as_written, close, made, nodes_of
from tests.models.onnx.writer import graph, model, node, value

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
    guarded = bool(rng.integers(2))
    batch = (b, h) if rank == 4 else (b,)
    given = {
        "q": rng.standard_normal((*batch, length, d)).astype(np.float32),
        "k": rng.standard_normal((*batch, keys, d)).astype(np.float32),
        "v": rng.standard_normal((*batch, keys, 5)).astype(np.float32),
    }
    turn = [*range(rank - 2), rank - 1, rank - 2]
    nodes, sides = [node("Transpose", "k", "t", perm=turn)], ["q", "t"]
    constants = {k: np.array(rng.uniform(0.5, 2), np.float32) for k in ("by", "by_q", "by_t")}
    for n, side in enumerate(sides):
        if rng.integers(2):  # scaled before they meet
            nodes.append(node(str(rng.choice(["Mul", "Div"])), f"{side} by_{side}", f"{side}_by"))
            sides[n] = f"{side}_by"
    nodes.append(node("MatMul", " ".join(sides), "s"))
    last = "s"
    if op := rng.choice(["", "Mul", "Div"]):
        nodes.append(node(op, f"{last} by", "scaled"))
        last = "scaled"
    shape = [(length, keys), (1, keys), (*batch, length, keys), (b, *(1,) * (rank - 2), keys)]
    full = shape[int(rng.integers(len(shape)))]
    if kind in (1, 2):
        given["m"] = rng.standard_normal(full).astype(np.float32)
        if kind == 2:
            given["m"][..., -1] = np.finfo(np.float32).min
        if guarded:  # keys that nobody sees, rows that see nothing
            given["m"][rng.random(full) < 0.4] = -np.inf
            given["m"][..., : length // 2, :] = rng.choice([-np.inf, np.finfo(np.float32).min])
        nodes.append(node("Add", f"{last} m" if kind == 1 else f"m {last}", "masked"))
    elif kind in (3, 4):
        given["m"] = rng.random(full) < 0.4
        fills = [-3.4028235e38, -1e30, *([-np.inf] if guarded else [])]
        constants["fill"] = np.array(rng.choice(fills), np.float32)
        order = f"m fill {last}" if kind == 3 else f"m {last} fill"
        nodes.append(node("Where", order, "masked"))
    last = "masked" if kind else last
    nodes.append(node("Softmax", last, "p", axis=int(rng.choice([-1, rank - 1]))))
    if guarded:
        constants["none"] = np.array(0, np.float32)
        nodes += [node("IsNaN", "p", "nan"), node("Where", "nan none p", "kept")]
    nodes.append(node("MatMul", "kept v" if guarded else "p v", "y"))
    return nodes, constants, given


@pytest.mark.parametrize("seed", range(36))
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


def test_explain_shows_what_runs_instead() -> None:
    nodes, constants, given = attention_of(np.random.default_rng(5))
    net = made(nodes, constants, [value(k, x.dtype) for k, x in given.items()])
    shown = str(cb.explain(net, given))
    assert "= attention" in shown and "softmax" not in shown
