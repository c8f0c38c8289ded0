"""GGUF files beside transformers (scores, texts), llama.cpp (times) and gguf (headers)."""

from __future__ import annotations

import gc
import pydoc_data.topics as topics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rows import Options, Row, at_least, at_most, in_turns, ratio

import cubepy as cb

PROMPTS = (
    "Once upon a time",
    "The capital of France is",
    "def fibonacci(n):",
    "Water boils at",
    "Dear Sir or Madam,",
    "The three primary colours are",
    "In 1969 the first",
    "To bake bread you need",
    "Light travels faster than",
    "A good friend",
)
NEW = 64
TIE = 0.02
"""Scores that are no further apart are a tie: f32 sums in another order move them so far."""


def pieces(text: str, encode: Any, count: int = 4, length: int = 256) -> np.ndarray:
    """Tokens of a text, (count, length)."""
    tokens = encode(text)[: count * length]
    return np.asarray(tokens, np.int64).reshape(count, length)


def log_probabilities(scores: np.ndarray) -> np.ndarray:
    """Of logits, in f64."""
    x = scores.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    x -= np.log(np.exp(x).sum(-1, keepdims=True))
    return x


def divergence(tokens: np.ndarray, exact: Any, rounded: Any) -> tuple[float, float, float]:
    """Perplexities of two functions that give logits of (1, n) tokens, and the mean KL of the
    second from the first.
    """
    losses: list[list[float]] = [[], []]
    kl: list[float] = []
    for row in tokens:
        p, q = (log_probabilities(f(row[None])[0]) for f in (exact, rounded))
        kl.append(float((np.exp(p) * (p - q)).sum(-1).mean()))
        for kept, x in zip(losses, (p, q), strict=True):
            kept.append(-float(x[np.arange(len(row) - 1), row[1:]].mean()))
    a, b = (float(np.exp(np.mean(kept))) for kept in losses)
    return a, b, float(np.mean(kl))


def greedy(model: Any, scores: Any, encode: Any) -> tuple[int, int]:
    """How many texts of `NEW` tokens are those of `scores`, and how many part at a tie.

    A text is read once by the peer: each token has to be its first choice, too.
    """
    same = ties = 0
    for prompt in PROMPTS:
        start = encode(prompt)
        written = model.generate(start, max_new_tokens=NEW, temperature=0)
        theirs = scores(np.asarray([start + written]))[0]
        rows = theirs[len(start) - 1 : len(start) - 1 + len(written)]
        lacking = rows.max(-1) - rows[np.arange(len(written)), written]
        same += not lacking.any()
        ties += bool(lacking.any() and lacking.max() <= TIE)
    return same, ties


def torch_scores(path: Path) -> Any:
    """A function of transformers' model in f32."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_grad_enabled(False)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    return lambda tokens: model(torch.from_numpy(np.asarray(tokens, np.int64))).logits.numpy()


def correct(path: Path, what: str, options: Options) -> Iterator[Row]:
    """Scores and texts."""
    exact = cb.load(path, activations="float")
    encode = lambda text: [int(t) for t in exact.tokenizer.encode(text)]
    reference = torch_scores(path)
    texts = {"pydoc": "\n".join(topics.topics.values())}
    plays = list(options.folder.rglob("hamlet_gut.txt"))
    if plays:
        texts["Hamlet"] = plays[0].read_text(encoding="utf-8", errors="replace")[4000:40000]
    tokens = {name: pieces(text, encode) for name, text in texts.items()}
    first = tokens["pydoc"][:1]
    ours, theirs = exact.logits(first).numpy(), reference(first)
    far = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    yield at_most(f"{what}: logits, float activations, beside transformers", 1e-3, far)
    same, ties = greedy(exact, reference, encode)
    found = f"{same} equal, {ties} but for ties of {TIE}"
    wanted = f"{len(PROMPTS)} prompts x {NEW} greedy tokens"
    yield Row(f"{what}: texts", wanted, found, same + ties == len(PROMPTS))
    rounded = cb.load(path)
    for name, rows in tokens.items():
        a, b, kl = divergence(rows, reference, lambda t: rounded.logits(t).numpy())
        told = f"{a:.2f} and {b:.2f}"
        yield at_most(
            f"{what}: perplexity on {name}, int8 activations, beside f32", 1.01, b / a, told
        )
        yield at_most(f"{what}: mean KL on {name}", 0.01, kl)


def peer(path: Path, threads: int) -> Any:
    """llama.cpp's: a function of a prompt and how many tokens; gives its own timings."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx, settings.n_parallel = 2048, 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(settings)

    def run(prompt: str, count: int) -> dict[str, float]:
        asked = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True}
        found = server.handle_completions(asked | {"cache_prompt": False})
        return found["timings"]  # type: ignore[no-any-return]

    return run


def timed(path: Path, what: str, options: Options) -> Iterator[Row]:
    """Prompts and decoding, in turns with llama.cpp."""
    import xllamacpp  # noqa: F401 - before ours: without it there is nothing to compare

    model, theirs = cb.load(path), peer(path, options.threads)
    model.ends = frozenset()
    text = "\n".join(topics.topics.values())[2000:]
    encode = lambda t: [int(x) for x in model.tokenizer.encode(t)]
    long = encode(text)[:512]
    decode: list[list[float]] = [[], []]
    prompts: list[list[float]] = [[], []]
    for n in range(6):
        short = long[16 * n : 16 * n + 32]
        start = time.perf_counter()
        stamps = [time.perf_counter() for _ in model.stream(short, max_new_tokens=33)]
        found = theirs(model.tokenizer.decode(short), 32)
        if n:
            decode[0].append((stamps[-1] - stamps[0]) / (len(stamps) - 1))
            decode[1].append(found["predicted_per_token_ms"] / 1e3)
        start = time.perf_counter()
        model.generate(long, max_new_tokens=1)
        ours = time.perf_counter() - start
        found = theirs(model.tokenizer.decode(long), 1)
        if n:
            prompts[0].append(ours)
            prompts[1].append(found["prompt_per_token_ms"] * len(long) / 1e3)
    for name, times in (("decode, one text", decode), ("a prompt of 512", prompts)):
        yield at_least(f"{what}: {name}, beside llama.cpp", 1.2, *ratio(times))
    eight = [long[8 * n : 8 * n + 32] for n in range(8)]
    times = in_turns(
        lambda: model.generate(eight[0], max_new_tokens=32),
        lambda: model.generate(eight, max_new_tokens=32),
        rounds=5,
    )
    one, all_ = (min(t) for t in times)
    yield at_least(f"{what}: tokens a second, eight texts beside one", 3, 8 * one / all_)


def header(path: Path, what: str) -> Iterator[Row]:
    """Reading a header."""
    from gguf import GGUFReader

    from cubepy.models.formats import gguf

    times = in_turns(lambda: gguf.read_gguf(path), lambda: GGUFReader(path), rounds=5)
    ours, theirs = (min(t) for t in times)
    told = f"{ours:.3f} s beside {theirs:.3f}"
    yield at_most(f"{what}: reading the header, beside gguf", 0.1, ours / theirs, told)


def run(options: Options) -> Iterator[Row]:
    """Every GGUF file."""
    for path in sorted(options.folder.rglob("*.gguf")):
        yield from header(path, path.stem)
        yield from timed(path, path.stem, options)
        yield from correct(path, path.stem, options)
        gc.collect()
