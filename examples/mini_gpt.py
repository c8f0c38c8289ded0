"""A GPT of two layers that learns a text letter by letter, on this machine, in seconds.

    python examples/mini_gpt.py [--steps 300] [--text FILE]

Everything is here: the model, batches, the training step with its schedule and clipped gradients as
one program, and the model that writes on by itself.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F

TEXT = """A kernel is a function that runs once for each element. A tensor is a handle of a value.
A value is never changed. What was computed from it can be computed again. A gradient is a walk back
over what was computed. A step goes a little way against the gradient. A model is a function with
numbers that were learned. Learning is many small steps. Many small steps are a long way.
"""


class Block(nn.Module):
    """Attention to what came before, then a network at each position; norms come first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        """(batch, length, width) -> the same."""
        batch, length, width = x.shape
        parts = self.attend(self.norm1(x)).reshape(batch, length, 3, self.heads, -1)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norm2(x))


class MiniGPT(nn.Module):
    """Letters before -> a number for each letter that may come next."""

    def __init__(self, letters: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.length = length
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)

    def forward(self, codes: Any) -> Any:
        """Integers (batch, length) -> (batch, length, letters)."""
        x = self.letters(codes) + self.places.weight[: codes.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def written(model: MiniGPT, codes: list[int], count: int) -> list[int]:
    """The codes and `count` more, each one the likeliest."""
    with cb.no_grad():
        for _ in range(count):
            seen = np.array([codes[-model.length :]])
            codes = [*codes, int(model(seen)[0, -1].argmax().item())]
    return codes


def train(text: str, steps: int, batch: int = 8, length: int = 48) -> tuple[list[float], str]:
    """The losses of all steps, and what the model writes after the first letters of the text."""
    nn.init.manual_seed(0)
    rng = np.random.default_rng(0)
    known = sorted(set(text))
    codes = np.array([known.index(letter) for letter in text])
    model = MiniGPT(len(known), length, width=64, heads=4, layers=2)
    optimizer = nn.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = nn.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps + 1)

    @cb.jit
    def learn(seen: Any, following: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(seen).flatten(0, 1), following.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    losses = []
    for step in range(steps):
        starts = rng.integers(0, len(codes) - length, batch)
        window = np.stack([codes[s : s + length + 1] for s in starts])
        losses.append(learn(cb.tensor(window[:, :-1]), cb.tensor(window[:, 1:])).item())
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:4d}  loss {losses[-1]:.3f}  rate {schedule.get_last_lr()[0]:.5f}")
    model.eval()
    said = written(model, codes[:16].tolist(), 64)
    return losses, "".join(known[code] for code in said)


def main(arguments: list[str] | None = None) -> list[float]:
    """Train, and show what was learned; gives the losses."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--text", type=Path, default=None, help="a file to learn")
    options = parser.parse_args(arguments)
    text = TEXT if options.text is None else options.text.read_text()
    before = time.perf_counter()
    losses, said = train(text, options.steps)
    print(f"{time.perf_counter() - before:.1f} s; it writes:\n{said}")
    return losses


if __name__ == "__main__":
    main()
