"""Models that learn: each one from its first values to a task that is solved, in seconds."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import GradientError
from cubepy.nn import functional as F
from cubepy.tensor.control.repeated import AFTER


@pytest.fixture(autouse=True)
def _seeded() -> None:
    nn.init.manual_seed(1)


def trained(model: Any, optimizer: Any, loss_of: Any, steps: int) -> float:
    loss = None
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
    assert loss is not None
    return float(loss.item())


def test_logistic_regression_finds_the_best_line() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    y = (x @ [2.0, -1.0] + 0.5 + rng.logistic(size=200) > 0).astype(np.float64)
    model = nn.Linear(2, 1).to("f64")
    optimizer = nn.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    criterion = nn.BCEWithLogitsLoss()
    trained(model, optimizer, lambda: criterion(model(x).squeeze(1), y), 300)
    w = np.append(model.weight.detach().numpy().ravel(), model.bias.detach().numpy())
    wide = np.c_[x, np.ones(200)]
    best = np.zeros(3)
    for _ in range(20):  # Newton's method
        p = 1 / (1 + np.exp(-wide @ best))
        best += np.linalg.solve((wide * (p * (1 - p))[:, None]).T @ wide, wide.T @ (y - p))
    np.testing.assert_allclose(w, best, rtol=1e-6)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_every_optimizer_learns_exclusive_or(kind: str) -> None:
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    y = np.array([[0], [1], [1], [0]], np.float32)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    options = {
        "SGD": {"lr": 0.3, "momentum": 0.9, "nesterov": True},
        "Adam": {"lr": 0.05},
        "AdamW": {"lr": 0.05},
        "RMSprop": {"lr": 0.01},
        "Adagrad": {"lr": 0.2},
    }[kind]
    optimizer = getattr(nn.optim, kind)(model.parameters(), **options)
    loss = trained(model, optimizer, lambda: F.binary_cross_entropy_with_logits(model(x), y), 200)
    assert loss < 0.05
    np.testing.assert_array_equal(model(x).numpy() > 0, y > 0)


def test_two_spirals_are_told_apart_with_a_schedule() -> None:
    t = np.linspace(0.5, 3 * np.pi, 100)
    arm = np.stack([t * np.cos(t), t * np.sin(t)], 1) / 6
    x, y = np.r_[arm, -arm].astype(np.float32), np.repeat([0, 1], 100)
    model = nn.Sequential(
        nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2)
    )
    optimizer = nn.optim.AdamW(model.parameters(), lr=0.01)
    schedule = nn.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=401)
    for _ in range(400):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    assert (model(x).numpy().argmax(1) == y).mean() > 0.98


def test_an_lstm_learns_to_copy() -> None:
    """Symbols come first, then blanks during which they are said again."""

    class Copier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.symbols = nn.Embedding(5, 16)
            self.memory = nn.LSTM(16, 48, batch_first=True)
            self.head = nn.Linear(48, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.memory(self.symbols(x))[0])

    model = Copier()
    optimizer = nn.optim.Adam(model.parameters(), lr=0.01)
    said = np.stack(np.meshgrid(*[np.arange(4)] * 3), -1).reshape(-1, 3)
    x = np.concatenate([said, np.full_like(said, 4)], 1)
    loss = trained(model, optimizer, lambda: F.cross_entropy(
        model(x)[:, 3:].transpose(1, 2), said), 150)  # fmt: skip
    assert loss < 0.1
    assert (model(x).numpy()[:, 3:].argmax(-1) == said).mean() > 0.98


class MiniGPT(nn.Module):
    def __init__(self, symbols: int, length: int, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(symbols, width)
        self.places = nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, symbols, bias=False)

    def forward(self, x: Any) -> Any:
        x = self.words(x) + self.places(np.arange(x.shape[1]))
        return self.head(self.blocks(x, is_causal=True))


def test_a_gpt_learns_a_text_by_heart() -> None:
    text = "the quick brown fox jumps over the lazy dog while the slow red hen sleeps all day"
    known = sorted(set(text))
    codes = np.array([known.index(c) for c in text])
    x, y = codes[None, :-1], codes[None, 1:]
    model = MiniGPT(len(known), x.shape[1])
    optimizer = nn.optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    before = criterion(model(x).transpose(1, 2), y).item()
    loss = trained(model, optimizer, lambda: criterion(model(x).transpose(1, 2), y), 120)
    assert before > 2.5 and loss < 0.05
    assert "".join(known[c] for c in model.eval()(x).numpy()[0].argmax(-1)) == text[1:]


def test_a_small_network_sees_shapes() -> None:
    """Bars across, bars down, and noise, wherever they are."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 1, 8, 8)).astype(np.float32) * 0.3
    y = np.arange(120) % 3
    for n, at in enumerate(rng.integers(0, 8, 120)):
        if y[n] == 0:
            x[n, 0, at] += 1
        elif y[n] == 1:
            x[n, 0, :, at] += 1
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip
    optimizer = nn.optim.Adam(model.parameters(), lr=0.02)
    loss = trained(model, optimizer, lambda: F.cross_entropy(model(x[:90]), y[:90]), 60)
    assert loss < 0.1
    assert (model.eval()(x[90:]).numpy().argmax(1) == y[90:]).mean() > 0.9


def test_training_compiles_nothing_after_its_first_steps() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = nn.optim.AdamW(model.parameters())
    schedule = nn.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    x, y = np.ones((3, 4), np.float32), np.array([0, 1, 0])

    def step() -> None:
        trained(model, optimizer, lambda: F.cross_entropy(model(x), y), 1)
        schedule.step()

    for _ in range(AFTER + 4):  # gradients that come so often are programs
        step()
    before = cb.stats().compiled
    for _ in range(30):
        step()
    assert cb.stats().compiled == before


def test_evaluation_keeps_no_graph_and_draws_no_numbers() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.BatchNorm1d(8))
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    assert (model(x).numpy() != model(x).numpy()).any()
    model.eval()
    tracked = model[2].running_mean.numpy().copy()
    with cb.no_grad():
        first = model(x)
    assert not first.requires_grad
    np.testing.assert_array_equal(first.numpy(), model(x).numpy())
    np.testing.assert_array_equal(model[2].running_mean.numpy(), tracked)


def example(name: str) -> Any:
    """A module of the examples."""
    path = Path(__file__).resolve().parents[2] / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_example_writes_what_it_learned(capsys: pytest.CaptureFixture[str]) -> None:
    losses = example("mini_gpt").main(["--steps", "30"])
    assert losses[-1] < 0.85 * losses[0]
    assert "it writes:\nA kernel is a fu" in capsys.readouterr().out


def test_the_example_tells_digits_apart(capsys: pytest.CaptureFixture[str]) -> None:
    shares = example("image_classifier").main(["--epochs", "4"])
    assert shares[-1] > 0.95
    assert "epoch 4" in capsys.readouterr().out


def test_running_values_of_a_clone_are_its_own() -> None:
    layer = nn.BatchNorm1d(3)
    other = layer.clone()
    other(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))
    assert layer.num_batches_tracked.item() == 0 and other.num_batches_tracked.item() == 1
    np.testing.assert_array_equal(layer.running_mean.numpy(), 0)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_values_move_in_programs(momentum: float | None) -> None:
    layers = [nn.BatchNorm2d(4, momentum=momentum) for _ in range(2)]
    program = cb.jit(lambda x: layers[0](x))
    rng = np.random.default_rng(1)
    for _ in range(8):
        x = cb.tensor(rng.standard_normal((3, 4, 5, 5)).astype(np.float32))
        near: dict[str, Any] = {"rtol": 2e-6, "atol": 1e-6}  # a program fuses, else it is an op
        np.testing.assert_allclose(program(x).numpy(), layers[1](x).detach().numpy(), **near)
        for name, value in layers[1].state_dict().items():
            np.testing.assert_allclose(layers[0].state_dict()[name].numpy(), value.numpy(), **near)
    assert sum(program.traces.values()) == 1
    assert "one call of machine code" in program.explain()


@pytest.mark.parametrize("how", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_learns_by_itself(how: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    x = np.ones((1, 2), np.float32)
    model(x).sum().backward()
    gradient = model[0].weight.grad.numpy().copy()
    other = how(model)
    assert np.array_equal(other[0].weight.grad.numpy(), gradient)
    other.zero_grad()
    (other(x) * 2).sum().backward()
    assert np.allclose(other[0].weight.grad.numpy(), 2 * gradient)
    assert np.array_equal(model[0].weight.grad.numpy(), gradient)
    before = model[0].weight.numpy().copy()
    nn.optim.SGD(other.parameters(), lr=1.0).step()
    assert np.array_equal(model[0].weight.numpy(), before)
    assert type(other[0].weight) is nn.Parameter and not np.array_equal(other[0].weight, before)
    with pytest.raises(GradientError, match="not copied or pickled"):
        how(model(x))


def test_what_is_shared_in_a_model_is_shared_in_its_copy() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    other = copy.deepcopy(model)
    assert other[0].weight is other[1].weight is not model[0].weight
    one = copy.copy(model[0].weight)
    (one * 3).sum().backward()
    assert one.grad is not None and model[0].weight.grad is None


def test_data_of_parameters_are_written_in_place() -> None:
    """Weights that are clipped, and others that follow slowly, as old code writes it."""
    made = []
    for program in (False, True):
        nn.init.manual_seed(0)
        model, slow = nn.Linear(2, 2), nn.Linear(2, 2)
        optimizer = nn.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any, model: Any = model, slow: Any = slow, o: Any = optimizer) -> None:
            o.zero_grad()
            (model(x) ** 2).sum().backward()
            o.step()
            for p, q in zip(model.parameters(), slow.parameters(), strict=True):
                p.data.clamp_(-0.1, 0.1)
                q.data.copy_(0.75 * q.data + 0.25 * p.data)

        run = cb.jit(step) if program else step
        for _ in range(4):
            run(cb.tensor(np.ones((3, 2), np.float32)))
        made.append([p.detach().numpy() for m in (model, slow) for p in m.parameters()])
        assert model.weight.is_leaf and model.weight.requires_grad
        assert abs(model.weight.detach().numpy()).max() <= np.float32(0.1)
    for a, b in zip(*made, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_what_was_computed_keeps_the_elements_before_data_are_written() -> None:
    p = nn.Parameter([2.0, 3.0])
    loss = (p * p).sum()
    p.data[0] = 9.0
    p.data *= 2
    loss.backward()
    assert p.grad.tolist() == [4.0, 6.0] and p.detach().tolist() == [18.0, 6.0]
    p.data = [1.0, 1.0]
    assert p.tolist() == [1.0, 1.0] and not p.data.requires_grad
    assert type(p.data + 1) is cb.Tensor and type(copy.deepcopy(p.data).detach()) is cb.Tensor
