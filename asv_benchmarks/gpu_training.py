"""Training steps of language models on a GPU as programs, beside torch: eager, and through
torch.compile with CUDA graphs. Losses of the first steps are compared.

`mini` is a GPT of 4 layers, 4 heads, width 128 and 64 tokens; `small` is GPT-2 small's shape (12
layers, 12 heads, width 768) with 256 tokens. AdamW with one learning rate; the same weights. In bf16
parameters, activations and states of the optimizer are bf16 on both sides.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gpu_timing import Row, milliseconds

sys.path.append(str(Path(__file__).resolve().parents[1]))

SHAPES = {
    "mini, batch 8": (96, 128, 4, 4, 64, 8),
    "mini, batch 64": (96, 128, 4, 4, 64, 64),
    "small, batch 4": (50304, 768, 12, 12, 256, 4),
    "small, batch 4, bf16": (50304, 768, 12, 12, 256, 4),
}
"""Tokens of the vocabulary, width, heads, layers, length, batch."""
ROUNDS, CALLS = 7, 10


def weights(tokens: int, width: int, layers: int, length: int) -> dict[str, np.ndarray]:
    """Random ones, by the names that both models have."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) * 0.02

    found = {"tokens.weight": normal(tokens, width), "positions.weight": normal(length, width)}
    for n in range(layers):
        for name, rows, columns in (
            ("joined", 3 * width, width),
            ("out", width, width),
            ("up", 4 * width, width),
            ("down", width, 4 * width),
        ):
            found[f"blocks.{n}.{name}.weight"] = normal(rows, columns)
            found[f"blocks.{n}.{name}.bias"] = np.zeros(rows, np.float32)
        for name in ("norm", "other"):
            found[f"blocks.{n}.{name}.weight"] = np.ones(width, np.float32)
            found[f"blocks.{n}.{name}.bias"] = np.zeros(width, np.float32)
    found["norm.weight"], found["norm.bias"] = (
        np.ones(width, np.float32),
        np.zeros(width, np.float32),
    )
    found["head.weight"], found["head.bias"] = normal(tokens, width), np.zeros(tokens, np.float32)
    return found


def model(nn: Any, F: Any, arange: Callable[[int, Any], Any], shape: tuple[int, ...]) -> Any:
    """The model of ours or torch's modules: both have the names that it needs."""
    tokens, width, heads, layers, length, _ = shape

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.other = nn.LayerNorm(width), nn.LayerNorm(width)
            self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, n, _ = x.shape
            q, k, v = (
                part.reshape(batch, n, heads, width // heads).transpose(1, 2)
                for part in self.joined(self.norm(x)).chunk(3, -1)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, n, width))
            return x + self.down(F.gelu(self.up(self.other(x))))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(tokens, width)
            self.positions = nn.Embedding(length, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)

        def forward(self, x: Any) -> Any:
            where = arange(x.shape[1], x)
            return self.head(self.norm(self.blocks(self.tokens(x) + self.positions(where))))

    return Gpt()


def precision(name: str) -> str:
    """The dtype of a case, of its parameters."""
    return "bf16" if name.endswith("bf16") else "f32"


def batches(shape: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and what comes next."""
    rng = np.random.default_rng(1)
    tokens, length, batch = shape[0], shape[4], shape[5]
    found = [rng.integers(0, tokens, (batch, length + 1)) for _ in range(4)]
    return [(np.ascontiguousarray(x[:, :-1]), np.ascontiguousarray(x[:, 1:])) for x in found]


def ours(shape: tuple[int, ...], device: str, dtype: str) -> Callable[[int], Any]:
    """A step by its number."""
    import cubepy as cb
    from cubepy import nn

    def arange(n: int, like: Any) -> Any:
        return cb.tensor(np.arange(n), device=like.device)

    with nn.init.skip():
        net = model(nn, nn.functional, arange, shape)
    made = weights(shape[0], shape[1], shape[3], shape[4])
    net.load_state_dict({k: nn.Parameter(v) for k, v in made.items()})
    net.to(device, dtype)
    optimizer = nn.optim.AdamW(net.parameters(), lr=1e-3)

    @cb.jit
    def step(x: Any, y: Any) -> Any:
        loss = nn.functional.cross_entropy(net(x).reshape(-1, shape[0]), y.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    given = [tuple(cb.tensor(a, device=device) for a in pair) for pair in batches(shape)]

    def run(n: int) -> Any:
        return step(*given[n % len(given)])

    run.program = step  # type: ignore[attr-defined]
    return run


def theirs(shape: tuple[int, ...], device: str, dtype: str, compiled: bool) -> Callable[[int], Any]:
    """The same with torch."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.backends.cuda.matmul.allow_tf32 = False
    net = model(nn, F, lambda n, like: torch.arange(n, device=like.device), shape).to(device)
    made = weights(shape[0], shape[1], shape[3], shape[4])
    net.load_state_dict({k: torch.from_numpy(v) for k, v in made.items()})
    net.to({"f32": torch.float32, "bf16": torch.bfloat16}[dtype])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True, capturable=True)

    def loss_of(x: Any, y: Any) -> Any:
        return F.cross_entropy(net(x).reshape(-1, shape[0]), y.reshape(-1))

    if compiled:
        loss_of = torch.compile(loss_of, mode="reduce-overhead")
    given = [tuple(torch.from_numpy(a).to(device) for a in pair) for pair in batches(shape)]

    def run(n: int) -> Any:
        loss = loss_of(*given[n % len(given)])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach().clone()

    return run


def rows(name: str, device: str) -> Iterator[Row]:
    """The line of one shape."""
    import torch

    import cubepy as cb

    shape, dtype = SHAPES[name], precision(name)
    runs: dict[str, Callable[[int], Any]] = {"ours": ours(shape, device, dtype)}
    runs["eager"] = theirs(shape, device, dtype, False)
    try:
        runs["compiled"] = theirs(shape, device, dtype, True)
        first = {k: [float(run(n).item()) for n in range(8)] for k, run in runs.items()}
    except Exception as error:  # torch.compile needs a compiler of C
        print("no torch.compile:", str(error)[:200], file=sys.stderr)
        del runs["compiled"]
        first = {k: [float(run(n).item()) for n in range(8)] for k, run in runs.items()}
    for n in range(12):
        for run in runs.values():
            run(n)
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream), cb.Stream(device, handle=stream.cuda_stream):
        numbers = {k: iter(range(10**9)) for k in runs}
        calls = [lambda k=k: runs[k](next(numbers[k])) for k in runs]
        found = milliseconds(calls, stream, ROUNDS, [CALLS] * len(calls))
    ms = dict(zip(runs, found, strict=True))
    best = min(v for k, v in ms.items() if k != "ours")
    error = max(abs(a - b) / abs(b) for a, b in zip(first["ours"], first["eager"], strict=True))
    yield {
        "work": f"training step, GPT {name}{'' if dtype == 'bf16' else ', f32'}",
        "ours": f"{ms['ours']:.3f} ms",
        "peer": ", ".join(f"{k} {v:.3f} ms" for k, v in ms.items() if k != "ours"),
        "ratio": f"{best / ms['ours']:.2f}",
        "error": f"losses {error:.1e}",
        "ms": (ms["ours"], best),
    }


CASES = {name: (lambda device, name=name: rows(name, device)) for name in SHAPES}
