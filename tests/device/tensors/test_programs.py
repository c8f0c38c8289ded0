"""Programs on a GPU: launches of a plan and graphs of them give what the ops give."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.tensor import Tensor, concat
from tests.models.folders import fixture, folder
from tests.tensor.program.states import STEPS, called

HERE = "cuda"


def there(array: Any) -> Tensor:
    return cb.tensor(np.asarray(array), device=HERE)


def made_of(program: Any) -> list[Any]:
    """The programs of a function; all have plans."""
    made = [p for variants in program.programs.values() for p in variants]
    assert made and not [p.why for p in made if p.plan is None]
    return made


@pytest.mark.parametrize("seed", range(40))
def test_a_random_program_with_a_state(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = sorted(STEPS)
    steps = [
        (names[rng.integers(len(names))], *rng.integers(0, 10, 2)) for _ in range(rng.integers(12))
    ]
    former: list[Any] = []
    for program, results, ours, theirs in called(there, steps, rng.integers(0, 10, 3), rng, 10):
        former = [*former[-6:], *zip(results, ours, strict=False)]
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-6)
        for tensor, value in former:  # a later call writes to no result of a former one
            np.testing.assert_array_equal(tensor.numpy(), value)
    made_of(program)


def test_parts_of_an_argument_that_are_joined_again_are_a_view_of_it() -> None:
    """The program has a plan, and its result is the argument's memory whatever that is."""
    program = cb.jit(lambda x: (concat([x[:2], x[2:]], axis=0), x.sum()))
    for seed in range(6):
        given = np.random.default_rng(seed).standard_normal((5, 3)).astype(np.float32)
        x = there(given)
        whole, total = program(x)
        np.testing.assert_array_equal(whole.numpy(), given)
        np.testing.assert_allclose(total.numpy(), given.sum(), rtol=1e-5)
        assert whole.storage.dense().address == x.storage.dense().address
    made_of(program)


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm, self.other = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.joined(self.norm(x)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.other(x))))


class Gpt(nn.Module):
    """A small language model."""

    def __init__(self, tokens: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)

    def forward(self, x: Tensor) -> Tensor:
        where = cb.tensor(np.arange(x.shape[1]), device=x.device)
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions(where))))


def trained(jitted: bool, device: str, steps: int) -> tuple[list[float], Any]:
    """The losses of some steps of AdamW, and what ran them."""
    nn.init.manual_seed(1)
    net = Gpt(29, 64, 4, 2, 32).to(device)
    optimizer = nn.optim.AdamW(net.parameters(), lr=3e-3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(net(x).reshape(-1, 29), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    run, rng, losses = cb.jit(step) if jitted else step, np.random.default_rng(0), []
    for _ in range(steps):
        x = rng.integers(0, 29, (4, 32))
        given = (cb.tensor(a, device=device) for a in (x, (x * 3 + 1) % 29))
        losses.append(run(*given))
    return [loss.item() for loss in losses], run


def test_training_a_language_model() -> None:
    found, run = trained(True, HERE, 60)
    ops, _ = trained(False, HERE, 60)
    host, _ = trained(True, "cpu", 60)
    np.testing.assert_allclose(found[:20], ops[:20], rtol=1e-3)
    np.testing.assert_allclose(found[:20], host[:20], rtol=1e-3)
    assert found[-1] < 0.6 * found[0]
    graphs = made_of(run)[0].call.__globals__["run"]
    assert graphs.replayed > 30 and graphs.captured < 12


def test_threads_share_a_program() -> None:
    w = there(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) / 8)
    program = cb.jit(lambda x: ((x @ w).tanh() @ w).softmax(-1) + x)
    inputs = [
        np.random.default_rng(n).standard_normal((32, 64)).astype(np.float32) for n in range(8)
    ]
    wants = [program(there(x)).numpy() for x in inputs]
    errors: list[str] = []

    def work(n: int) -> None:
        try:
            for _ in range(150):
                found = program(there(inputs[n])).numpy()
                np.testing.assert_allclose(found, wants[n], rtol=1e-5, atol=1e-6)
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]


def test_a_program_in_a_capture_and_on_streams() -> None:
    program = cb.jit(lambda x: ((x * 2).exp() + x).sum(axis=0))
    x = there(np.linspace(0, 1, 600, dtype=np.float32).reshape(20, 30))
    want = program(x).numpy()
    for _ in range(6):
        with cb.Stream(HERE):
            y = program(x)
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-5)
    with cb.capture(HERE) as graph:
        z = program(x)
    graph.replay()
    np.testing.assert_allclose(z.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt2"])
def test_writing_a_text(name: str, tmp_path: Path) -> None:
    path, prompts = folder(tmp_path, fixture("decoders")[name]), [[5, 9, 2, 44], [7]]
    model, options = cb.load(path, device="cpu"), {"max_new_tokens": 24, "seed": 3}
    right = model.generate(prompts, **options)
    there = cb.load(path, device=HERE)
    assert there.generate(prompts, **options) == right
    drawn = there.generate(prompts, temperature=1.0, top_k=10, **options)
    assert drawn == model.generate(prompts, temperature=1.0, top_k=10, **options)
    assert made_of(there.steps.greedy)
