"""Random programs of products with what may follow them, as programs and op by op, with f64."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn, quant
from cubepy.nn import functional as F
from cubepy.tensor import record
from cubepy.tensor.fusion.optimise import optimise
from tests.backends.hip.emulator.device import emulated
from tests.tensor.fusion.test_rows import steps_of

FUNCTIONS: list[Callable[[Any], Any]] = [
    F.relu,
    F.silu,
    F.gelu,
    lambda x: F.gelu(x, "tanh"),
    lambda x: x.tanh(),
    lambda x: x.sigmoid(),
]
ROWS, WIDTH = 5, 16


class Drawn:
    """A program of a seed: values of (ROWS, WIDTH) or with one more axis, products with matrices
    between them, and what follows these.
    """

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.deep = rng.random() < 0.3
        self.steps: list[tuple[Any, ...]] = []
        count = 2
        for _ in range(rng.randrange(3, 12)):
            kind = rng.choice(
                ["linear", "linear", "matmul", "function", "add", "add", "mul", "bias"]
            )
            one, two = rng.randrange(max(0, count - 3), count), rng.randrange(count)
            self.steps.append((kind, one, two, rng.randrange(4), rng.choice(FUNCTIONS)))
            count += 1
        self.outputs = sorted({count - 1, *rng.sample(range(2, count), rng.choice([0, 0, 1]))})

    def given(self, seed: int) -> list[np.ndarray]:
        """Two values, four matrices, four biases."""
        rng = np.random.default_rng(seed)
        shape = (2, ROWS, WIDTH) if self.deep else (ROWS, WIDTH)
        sides = (WIDTH, WIDTH)
        values = [rng.standard_normal(shape) / 2 for _ in range(2)]
        matrices = [rng.standard_normal(sides) / 4 for _ in range(4)]
        return [*values, *matrices, *(rng.standard_normal(WIDTH) for _ in range(4))]

    def __call__(self, *given: Any) -> tuple[Any, ...]:
        values = list(given[:2])
        matrices, biases = given[2:6], given[6:]
        for kind, one, two, which, function in self.steps:
            x, y = values[one], values[two]
            values.append(
                {
                    "linear": lambda x=x, w=which: F.linear(x, matrices[w], biases[w]),
                    "matmul": lambda x=x, w=which: x @ matrices[w],
                    "function": lambda x=x, f=function: f(x),
                    "add": lambda x=x, y=y: x + y,
                    "mul": lambda x=x, y=y: x * y,
                    "bias": lambda x=x, w=which: x + biases[w],
                }[kind]()
            )
        return tuple(values[n] * 1 for n in self.outputs)


def error(found: Any, right: np.ndarray) -> float:
    """Relative to the norm."""
    return float(
        np.linalg.norm(found.astype("f64").numpy() - right) / (np.linalg.norm(right) + 1e-9)
    )


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_programs_give(dtype: str, seed: int) -> None:
    drawn = Drawn(seed)
    given = [cb.tensor(v, dtype) for v in drawn.given(seed)]
    with cb.no_grad():
        right = [t.numpy() for t in drawn(*(t.astype("f64") for t in given))]
        single = drawn(*given)
        program = cb.jit(drawn.__call__)
        for _ in range(3):
            found = program(*given)
    for one, other, want in zip(found, single, right, strict=True):
        assert one.dtype is other.dtype and one.shape == other.shape
        limit = 2e-6 if dtype == "f32" else 1.5e-2
        assert error(one, want) <= max(limit, 1.2 * error(other, want))


@pytest.mark.turns(6)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gpu", ["gfx1100", "gfx942"])
def test_what_emulated_gpus_give(gpu: str, seed: int) -> None:
    drawn = Drawn(100 + seed)
    given = [cb.tensor(v, "f32") for v in drawn.given(seed)]
    with cb.no_grad():
        right = [t.numpy() for t in drawn(*(t.astype("f64") for t in given))]
        with emulated(gpu), cb.use(gpu):
            program, moved = cb.jit(drawn.__call__), [t.to(gpu) for t in given]
            for _ in range(2):
                found = [t.to("cpu") for t in program(*moved)]
    for one, want in zip(found, right, strict=True):
        assert error(one, want) <= 2e-6


def mlp(x: Any, up: Any, gate: Any, down: Any) -> Any:
    return x + F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def late(x: Any, up: Any, gate: Any, down: Any) -> Any:
    y = F.linear(x, up)
    return F.relu(F.linear(y, down) + x)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(
    ("function", "ops"),
    [(mlp, ["linear", "fused_linear", "linear"]), (late, ["linear", "fused_linear"])],
)
def test_gates_and_residuals_before_activations(function: Any, ops: list[str], dtype: str) -> None:
    rng = np.random.default_rng(0)
    shapes = [(6, 24), (40, 24), (40, 24), (24, 40)]
    given = [cb.tensor(rng.standard_normal(s) / 4, dtype) for s in shapes]
    with record(*given) as recorder:
        y = function(*given)
    graph = optimise(recorder.graph(y))
    assert steps_of(graph) == ops


def test_what_a_map_makes_is_no_gate() -> None:
    """The map takes the product instead, and what else belongs to it."""
    rng = np.random.default_rng(0)
    x, w, c = (cb.tensor(rng.standard_normal(s), "f32") for s in ((6, 24), (40, 24), (6, 40)))
    with record(x, w, c) as recorder:
        y = F.linear(x, w) * (c + 1).exp()
    assert steps_of(optimise(recorder.graph(y))) == ["linear", "fused_map"]


def test_packed_weights_take_what_their_kernels_know() -> None:
    """A residual behind an activation, but none before it, and no gate."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            y = F.relu(self.first(x) + x)
            return F.silu(self.first(y)) * self.second(y) + (x + F.gelu(self.second(x)))

    net = quant.quantize(Net().eval(), "int8").model
    x = cb.tensor(np.random.default_rng(0).standard_normal((8, 64)), "f32")
    program = cb.jit(net)
    with cb.no_grad():
        for _ in range(3):
            found = program(x)
        np.testing.assert_allclose(found.numpy(), net(x).numpy(), rtol=1e-5, atol=1e-5)
    ((made,),) = program.programs.values()
    steps = steps_of(made.graph)
    assert steps.count("linear") == 4 and "fused_linear" not in steps
