"""Recurrent networks against loops in NumPy, their gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import LaunchError, ShapeError
from tests.tensor.finite import check_gradients

RNG = np.random.default_rng(2)
KINDS = {
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "gru": (nn.GRU, {}),
    "lstm": (nn.LSTM, {}),
}
CELLS = {"tanh": nn.RNNCell, "relu": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def cell(kind: str, x: np.ndarray, states: list[np.ndarray], p: list[np.ndarray]) -> list[Any]:
    """The next states, as the papers have them."""
    w, v, b, c = p
    h = states[0]
    if kind == "gru":
        (xr, xz, xn), (hr, hz, hn) = (np.split(t, 3, -1) for t in (x @ w.T + b, h @ v.T + c))
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        return [(1 - z) * np.tanh(xn + r * hn) + z * h]
    total = x @ w.T + b + h @ v.T + c
    if kind == "lstm":
        i, f, g, o = np.split(total, 4, -1)
        memory = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(memory), memory]
    return [np.maximum(total, 0) if kind == "relu" else np.tanh(total)]


def network(kind: str, model: Any, x: np.ndarray, first: list[np.ndarray]) -> tuple[Any, Any]:
    """(length, batch, width) through all layers, step by step."""
    ways = ["", "_reverse"] if model.bidirectional else [""]
    last: list[list[np.ndarray]] = []
    for layer in range(model.num_layers):
        outputs = []
        for n, way in enumerate(ways):
            p = [
                getattr(model, f"{name}_l{layer}{way}").detach().numpy()
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            states, found = [s[layer * len(ways) + n] for s in first], []
            narrow = getattr(model, f"weight_hr_l{layer}{way}") if model.proj_size else None
            for row in x[::-1] if way else x:
                states = cell(kind, row, states, p)
                if narrow is not None:
                    states[0] = states[0] @ narrow.detach().numpy().T
                found.append(states[0])
            outputs.append(np.stack(found[::-1] if way else found))
            last.append(states)
        x = np.concatenate(outputs, -1)
    return x, [np.stack(s) for s in zip(*last, strict=True)]


def made(kind: str, *sizes: int, **options: Any) -> Any:
    cls, more = KINDS[kind]
    return cls(*sizes, **more, **options).to("f64")


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_states_are_those_of_the_loop(kind: str, options: dict[str, Any]) -> None:
    model, x = made(kind, 3, 5, **options), RNG.standard_normal((4, 2, 3))
    count = model.num_layers * (2 if options else 1)
    states = [RNG.standard_normal((count, 2, 5)) for _ in range(model.states)]
    want, last = network(kind, model, x, states)
    y, ended = model(x, states[0] if len(states) == 1 else tuple(states))
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-12, atol=1e-14)
    for got, s in zip(ended if kind == "lstm" else [ended], last, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), s, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("seed", range(6))
def test_projected_states_are_those_of_the_loop(seed: int) -> None:
    """Layers in both directions, with biases or none, step by step and as a loop of a program."""
    rng = np.random.default_rng(seed)
    wide, layers, length = rng.integers(2, 7), int(rng.integers(1, 4)), int(rng.choice([1, 4, 103]))
    narrow, both = int(rng.integers(1, wide)), bool(rng.integers(2))
    model = made("lstm", 3, int(wide), num_layers=layers, bidirectional=both, proj_size=narrow)
    x, count = rng.standard_normal((length, 2, 3)), layers * (2 if both else 1)
    states = [rng.standard_normal((count, 2, n)) for n in (narrow, wide)]
    want, last = network("lstm", model, x, states)
    given = cb.tensor(x), tuple(map(cb.tensor, states))
    for run in (model, cb.jit(model)):
        y, ended = run(*given)
        assert y.shape == (length, 2, narrow * (2 if both else 1))
        np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-10, atol=1e-13)
        for got, s in zip(ended, last, strict=True):
            np.testing.assert_allclose(got.detach().numpy(), s, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_layouts_of_the_input(kind: str) -> None:
    model, x = made(kind, 3, 5), RNG.standard_normal((4, 2, 3))
    y, _ = model(x)
    zeros = [np.zeros((1, 2, 5))] * model.states
    np.testing.assert_allclose(
        y.detach().numpy(), network(kind, model, x, zeros)[0], rtol=1e-12, atol=1e-14
    )
    model.batch_first = True
    first, _ = model(x.transpose(1, 0, 2))
    np.testing.assert_array_equal(first.detach().numpy(), y.detach().numpy().transpose(1, 0, 2))
    alone, end = model(x[:, 0])
    np.testing.assert_allclose(
        alone.detach().numpy(), y.detach().numpy()[:, 0], rtol=1e-12, atol=1e-14
    )
    assert (end[0] if kind == "lstm" else end).shape == (1, 5)


@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_one_step(kind: str) -> None:
    options = {"nonlinearity": "relu"} if kind == "relu" else {}
    step = CELLS[kind](3, 5, **options).to("f64")
    p = [w.detach().numpy() for w in (step.weight_ih, step.weight_hh, step.bias_ih, step.bias_hh)]
    states = [RNG.standard_normal((2, 5)) for _ in range(2 if kind == "lstm" else 1)]
    x = RNG.standard_normal((2, 3))
    got = step(x, tuple(states) if kind == "lstm" else states[0])
    for one, want in zip(got if kind == "lstm" else [got], cell(kind, x, states, p), strict=True):
        np.testing.assert_allclose(one.detach().numpy(), want, rtol=1e-12, atol=1e-14)
    zeros = [0 * s for s in states]
    fresh = step(x)
    fresh = fresh[0] if kind == "lstm" else fresh
    np.testing.assert_allclose(
        fresh.detach().numpy(), cell(kind, x, zeros, p)[0], rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("kind", ["tanh", "gru", "lstm", "projected"])
def test_gradients_go_through_time(kind: str) -> None:
    options = {"proj_size": 2} if kind == "projected" else {}
    model = made("lstm" if options else kind, 2, 3, bidirectional=True, **options)
    names = [name for name, _ in model.named_parameters()]
    values = [p.detach().numpy() for p in model.parameters()]

    def run(x: Any, *weights: Any) -> Any:
        for name, w in zip(names, weights, strict=True):
            model.__dict__["_parameters"][name] = w
        return model(x)[0]

    check_gradients(run, RNG.standard_normal((3, 2, 2)), *values, second=kind == "tanh")


def test_names_and_shapes_are_torchs() -> None:
    shapes = {n: p.shape for n, p in nn.LSTM(3, 5, 2, bidirectional=True).named_parameters()}
    assert list(shapes)[:4] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert shapes["weight_ih_l1_reverse"] == (20, 10) and shapes["bias_hh_l1"] == (20,)
    shapes = {n: p.shape for n, p in nn.LSTM(3, 5, 2, proj_size=2).named_parameters()}
    assert list(shapes)[3:6] == ["bias_hh_l0", "weight_hr_l0", "weight_ih_l1"]
    assert [shapes[f"weight_{n}_l1"] for n in ("ih", "hh", "hr")] == [(20, 2), (20, 2), (2, 5)]
    assert not [n for n, _ in nn.GRU(3, 5, bias=False).named_parameters() if "bias" in n]


def test_dropout_lies_between_layers() -> None:
    nn.init.manual_seed(0)
    model, x = nn.RNN(3, 50, 2, dropout=0.5), np.ones((2, 1, 3), np.float32)
    assert (model(x)[0].numpy() != model(x)[0].numpy()).any()
    with cb.no_grad():  # where a layer is one launch
        assert (model(x)[0].numpy() != model(x)[0].numpy()).any()
    model.eval()
    np.testing.assert_array_equal(model(x)[0].numpy(), model(x)[0].numpy())


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: nn.RNN(2, 3, nonlinearity="sin"), LaunchError, "nonlinearity"),
        (lambda: nn.LSTM(0, 3), ShapeError, "input_size must be at least 1"),
        (lambda: nn.LSTM(2, 3, proj_size=3), LaunchError, r"below hidden_size \(3\), not 3"),
        (lambda: nn.LSTM(2, 3, proj_size=-1), ShapeError, "proj_size must be at least 0"),
        (lambda: nn.GRU(2, 3)(np.ones((4, 2, 3), np.float32)), ShapeError, r"takes \(length"),
        (
            lambda: nn.GRU(2, 3)(np.ones((4, 2, 2), np.float32), np.ones((1, 1, 3))),
            ShapeError,
            r"a state of shape \(1, 2, 3\)",
        ),
        (
            lambda: nn.LSTM(2, 3)(np.ones((4, 2, 2), np.float32), (np.ones((1, 2, 3)),)),
            ShapeError,
            "LSTM begins with 2 states, not 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_an_empty_sequence_gives_its_state_back() -> None:
    h = cb.tensor(np.ones((1, 2, 5), np.float32))
    y, end = nn.GRU(3, 5)(np.ones((0, 2, 3), np.float32), h)
    assert y.shape == (0, 2, 5) and end.tolist() == h.tolist()
