"""Writing text on a GPU: prompts of 2,048 tokens and decoding steps of a decoder with the layers of
Mistral 7B, in bf16 and with weights of four bits (blocks of Q4_0), beside torch: eager operations
in a CUDA graph, and torch.compile; its product for four bits is tinygemm.

    python asv_benchmarks/gpu_decode.py 0 2      # models by number, lines as they come

Ours is `model.generate` without its texts: `read_first`, and the program of a step. A step's
bytes are those of the weights and of the keys and values that are there; the share is of what a
copy reaches. The error is that of the prompt's logits beside torch's, of the norm.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from gpu_timing import Row, milliseconds

sys.path.append(str(Path(__file__).resolve().parents[1]))

WIDTH, HEADS, GROUPS, DEPTH, INNER, VOCABULARY = 4096, 32, 8, 128, 14336, 32000
PROMPT, ROOM = 2048, 4096
ROUNDS, CALLS = 7, 8
MOST_COMPILED = 8
"""Layers that torch.compile is given: 32 take minutes."""
PARTS = {
    "attention.q": (HEADS * DEPTH, WIDTH),
    "attention.k": (GROUPS * DEPTH, WIDTH),
    "attention.v": (GROUPS * DEPTH, WIDTH),
    "attention.o": (WIDTH, HEADS * DEPTH),
    "network.gate": (INNER, WIDTH),
    "network.up": (INNER, WIDTH),
    "network.down": (WIDTH, INNER),
}


class Model(NamedTuple):
    """What is measured.

    Attributes:
        layers: how many; they have the same numbers, each in memory of its own.
        kind: "bf16" or "Q4_0".
        batch: prompts.
    """

    layers: int
    kind: str
    batch: int

    def weight_bytes(self) -> float:
        """Of what a step reads of the weights."""
        numbers = self.layers * sum(n * k for n, k in PARTS.values())
        each = 2 if self.kind == "bf16" else 18 / 32
        return numbers * each + 2 * VOCABULARY * WIDTH

    def cache_bytes(self) -> float:
        """Of the keys and values of a step."""
        return 2 * self.layers * self.batch * GROUPS * PROMPT * DEPTH * 2


@cache
def weights(kind: str) -> dict[str, np.ndarray]:
    """Random ones of a layer and of the tables, of Q4_0 bytes: a million numbers, repeated."""
    import ml_dtypes

    rng = np.random.default_rng(0)
    some = (rng.standard_normal((1 << 20) + 7, np.float32) * 0.02).astype(ml_dtypes.bfloat16)
    found: dict[str, np.ndarray] = {}
    tables = {"embed": (VOCABULARY, WIDTH), "head": (VOCABULARY, WIDTH)}
    for name, (n, k) in (PARTS | tables).items():
        if kind == "Q4_0" and name in PARTS:
            raw = rng.integers(0, 256, (n, k // 32, 18), np.uint8)
            scales = rng.choice(np.float16([2**-9, 1.5 * 2**-9, 2**-10]), (n, k // 32))
            raw[:, :, :2] = scales[..., None].view(np.uint8)
            found[name] = raw.reshape(n, -1)
        else:
            found[name] = np.resize(some, (n, k))
    return found


class Runs(NamedTuple):
    """What one side can do: read prompts, which gives logits, and a step after it."""

    read: Callable[[], np.ndarray]
    step: Callable[[], Any]


def ours(m: Model, given: dict[str, np.ndarray], prompts: np.ndarray, device: str) -> Runs:
    """Our decoder."""
    import cubepy as cb
    from cubepy import nn
    from cubepy import tensor as ct
    from cubepy.models.architectures.decoder import DecoderConfig
    from cubepy.models.architectures.rotary import rotary
    from cubepy.models.architectures.weights import fill
    from cubepy.models.generation.cache import KeyValueCache
    from cubepy.models.generation.steps import read_first, steps_of
    from cubepy.models.generation.text_model import TextModel
    from cubepy.models.packed.storage import Blocks

    sizes = {"width": WIDTH, "heads": HEADS, "groups": GROUPS, "depth": DEPTH, "inner": INNER}
    sizes |= {"vocabulary": VOCABULARY, "layers": m.layers, "context": ROOM}
    c = DecoderConfig(**sizes, rotary=rotary(DEPTH, 10000.0), tied=False)

    def there(name: str) -> Any:
        with cb.use("cpu"):
            made = (
                cb.Tensor(Blocks(m.kind, given[name]))
                if m.kind == "Q4_0" and name in PARTS
                else cb.tensor(given[name])
            )
        return made.to(device)

    with cb.use("cpu"), nn.init.skip():
        model = TextModel(c)
    tensors = {f"layers.{n}.{name}.weight": there(name) for n in range(m.layers) for name in PARTS}
    tensors |= {f"{name}.weight": there(name) for name in ("embed", "head")}
    for name, p in model.named_parameters():
        if name not in tensors:
            tensors[name] = cb.tensor(np.ones(p.shape, np.float32), device=device)
    fill(model, tensors, "the benchmark")
    model.to(device)
    rows = [[int(t) for t in row] for row in prompts]
    cache = KeyValueCache(c, m.batch, ROOM, model.embed.weight.device, cb.bf16)
    steps = steps_of(model)
    tokens = cb.tensor(prompts[:, -1:].copy(), device=device)
    starts = cb.tensor(np.full(m.batch, PROMPT - 1), device=device)

    def read() -> np.ndarray:
        with cb.no_grad():
            found = read_first(model, cache, dict(enumerate(rows)), False)
            hidden = ct.stack([found[n] for n in range(m.batch)])
            return np.asarray(model.logits(hidden).to("cpu").astype("f32"))

    def step() -> Any:
        with cb.no_grad():
            return steps.greedy(tokens, starts, cache.layers)

    return Runs(read, step)


def int4_layer(raw: np.ndarray, device: str) -> Callable[[Any], Any]:
    """torch's product with the same codes and scales."""
    import torch

    blocks = raw.reshape(len(raw), -1, 18)
    codes = np.concatenate([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1).reshape(len(raw), -1)
    pairs = torch.from_numpy(codes[:, ::2] << 4 | codes[:, 1::2]).to(device)
    packed = torch.ops.aten._convert_weight_to_int4pack(pairs, 8)
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0].T.astype(np.float32)
    pairs_of = np.ascontiguousarray(np.stack([scales, np.zeros_like(scales)], -1))
    facts = torch.from_numpy(pairs_of)
    facts = facts.to(device, torch.bfloat16)

    def product(x: Any) -> Any:
        flat = x.reshape(-1, x.shape[-1])
        found = torch.ops.aten._weight_int4pack_mm(flat, packed, 32, facts)
        return found.reshape(*x.shape[:-1], -1)

    return product


def theirs(
    m: Model, given: dict[str, np.ndarray], prompts: np.ndarray, device: str
) -> tuple[Callable[[], np.ndarray], dict[str, Callable[[], Any]]]:
    """The same with torch: reading, and steps by how they run."""
    import torch
    from torch.nn import functional as F

    def there(array: np.ndarray) -> Any:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(device)

    def layer(name: str) -> Callable[[Any], Any]:
        if m.kind == "Q4_0":
            return int4_layer(given[name], device)
        weight = there(given[name])
        return lambda x: F.linear(x, weight)

    layers = [{name: layer(name) for name in PARTS} for _ in range(m.layers)]
    embed, head = there(given["embed"]), there(given["head"])
    room = PROMPT + 128
    shape = (m.layers, 2, m.batch, GROUPS, room, DEPTH)
    caches = torch.zeros(shape, device=device, dtype=torch.bfloat16)
    ones = torch.ones(WIDTH, device=device, dtype=torch.bfloat16)
    pairs = torch.arange(DEPTH // 2, device=device, dtype=torch.float32)
    frequencies = 10000.0 ** (-pairs * 2 / DEPTH)

    def turned(x: Any, at: Any) -> Any:
        angles = at.float()[:, None] * frequencies
        c, s = angles.cos(), angles.sin()
        a, b = x[..., : DEPTH // 2].float(), x[..., DEPTH // 2 :].float()
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)

    def logits(tokens: Any, at: Any, mask: Any) -> Any:
        x = embed[tokens]
        for n, part in enumerate(layers):
            y = F.rms_norm(x, (WIDTH,), ones, 1e-5)
            q, k, v = (
                part[f"attention.{name}"](y).reshape(m.batch, -1, heads, DEPTH).transpose(1, 2)
                for name, heads in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))
            )
            q, k = turned(q, at), turned(k, at)
            caches[n, 0].index_copy_(2, at, k)
            caches[n, 1].index_copy_(2, at, v)
            if mask is not None:
                k, v = caches[n, 0], caches[n, 1]
            causal = mask is None
            z = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, enable_gqa=True)
            x = x + part["attention.o"](z.transpose(1, 2).reshape(m.batch, -1, HEADS * DEPTH))
            y = F.rms_norm(x, (WIDTH,), ones, 1e-5)
            z = F.silu(part["network.gate"](y)) * part["network.up"](y)
            x = x + part["network.down"](z)
        return F.linear(F.rms_norm(x[:, -1], (WIDTH,), ones, 1e-5), head)

    whole = torch.from_numpy(prompts).to(device)
    every = torch.arange(PROMPT, device=device)

    def read() -> np.ndarray:
        with torch.no_grad():
            return logits(whole, every, None).float().cpu().numpy()

    token, at = whole[:, -1:].contiguous(), every[-1:].contiguous()
    positions = torch.arange(room, device=device)

    def plain(token: Any, at: Any) -> Any:
        return logits(token, at, (positions <= at)[None, None, None]).argmax(-1)

    read()
    steps: dict[str, Callable[[], Any]] = {}
    with torch.no_grad():
        for _ in range(3):
            plain(token, at)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plain(token, at)
        steps["graph"] = graph.replay
        if m.layers > MOST_COMPILED:
            return read, steps
        try:
            compiled = torch.compile(plain, mode="reduce-overhead", fullgraph=True)
            for _ in range(4):
                compiled(token, at)
            steps["compiled"] = no_grad(lambda: compiled(token, at))
        except Exception as error:  # torch.compile needs a compiler of C
            print("no torch.compile:", str(error)[:300], file=sys.stderr)
    return read, steps


def no_grad(run: Callable[[], Any]) -> Callable[[], Any]:
    """A call without gradients."""
    import torch

    def inside() -> Any:
        with torch.no_grad():
            return run()

    return inside


def bandwidth(device: str) -> float:
    """Bytes a second of a copy, read and written."""
    import torch

    x = torch.empty(1 << 31, dtype=torch.uint8, device=device)
    y = torch.empty_like(x)
    y.copy_(x)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(5):
        start.record()
        y.copy_(x)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * x.numel() / median(times)


def seconds(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median of each, in turns, by the host's clock: they end with numbers on the host."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - began)
    return {name: median(found) for name, found in times.items()}


def rows(m: Model, device: str) -> Iterator[Row]:
    """The lines of one model: its prompt and its step."""
    import torch

    import cubepy as cb

    given = weights(m.kind)
    prompts = np.random.default_rng(1).integers(0, VOCABULARY, (m.batch, PROMPT))
    reached = bandwidth(device)
    named = f"{m.layers} layers of Mistral 7B, {m.kind}, batch {m.batch}"
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream), cb.Stream(device, handle=stream.cuda_stream):
        read, steps = theirs(m, given, prompts, device)
        mine = ours(m, given, prompts, device)
        a, b = mine.read(), read()
        error = float(np.linalg.norm(a - b) / np.linalg.norm(b))
        found = seconds({"ours": mine.read, "torch": read}, 5)
        tokens = m.batch * PROMPT
        yield {
            "work": f"prompt of {PROMPT}, {named}",
            "ours": f"{found['ours'] * 1e3:.1f} ms, {tokens / found['ours']:.0f} tokens/s",
            "peer": f"torch {found['torch'] * 1e3:.1f} ms",
            "ratio": f"{found['torch'] / found['ours']:.2f}",
            "error": f"logits {error:.1e}",
            "ms": (found["ours"] * 1e3, found["torch"] * 1e3),
        }
        for _ in range(6):
            mine.step()
        calls = [mine.step, *steps.values()]
        timed = milliseconds(calls, stream, ROUNDS, [CALLS] * len(calls))
        host = seconds({"ours": lambda: mine.step()[0].numpy()}, 20)["ours"] * 1e3
    ms, best = timed[0], min(timed[1:])
    share = (m.weight_bytes() + m.cache_bytes()) / (ms * 1e-3) / reached
    peers = ", ".join(f"{name} {t:.3f} ms" for name, t in zip(steps, timed[1:], strict=True))
    yield {
        "work": f"step after {PROMPT}, {named}",
        "ours": (
            f"{ms:.3f} ms ({host:.3f} with the token on the host), "
            f"{m.batch / ms * 1e3:.0f} tokens/s, {share:.0%} of {reached / 1e12:.2f} TB/s"
        ),
        "peer": peers,
        "ratio": f"{best / ms:.2f}",
        "error": "",
        "ms": (ms, best),
    }


MODELS = [
    *(Model(4, kind, batch) for kind in ("bf16", "Q4_0") for batch in (1, 32)),
    *(Model(32, kind, 1) for kind in ("bf16", "Q4_0")),
]
CASES = {str(tuple(m)): (lambda device, m=m: rows(m, device)) for m in MODELS}


if __name__ == "__main__":
    for number in map(int, sys.argv[1:] or range(len(MODELS))):
        for row in rows(MODELS[number], "cuda:0"):
            print({name: text for name, text in row.items() if name != "ms"}, flush=True)
