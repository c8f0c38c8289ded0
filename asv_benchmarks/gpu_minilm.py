"""The sentence-embedding model of the demo on a GPU: float32, float16, int8 and int4, plain and as a captured graph.

The architecture is that of all-MiniLM-L6-v2 with random weights, so that nothing has to be downloaded; sentences of
32 tokens. Peers: the same model in torch, eager and through torch.compile with CUDA graphs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples" / "minilm"))

TOKENS = 32
ROUNDS, CALLS = 11, 10
SCHEMES = ("f32", "f16", "int8", "int4")


def ours(scheme: str) -> Any:
    """The model in a scheme, on the GPU."""
    from model import Config, MiniLM

    from cubepy import nn, quant

    rng = np.random.default_rng(0)
    with nn.init.skip():
        model = MiniLM(Config())
    state = {}
    for name, value in model.state_dict().items():
        if value.dtype.is_float:
            scale = 0.05 if value.ndim > 1 else 0.02
            array = rng.standard_normal(value.shape).astype(np.float32) * scale
            state[name] = array + (1 if name.endswith("LayerNorm.weight") else 0)
        else:
            state[name] = value.numpy()
    model.load_state_dict({k: nn.Parameter(v) if v.dtype == np.float32 else _tensor(v) for k, v in state.items()})
    model.eval()
    if scheme in ("int8", "int4"):
        model = quant.quantize(model, scheme, measure_speed=False).model
    elif scheme == "f16":
        model = model.to("f16")
    return model.to("cuda")


def _tensor(value: np.ndarray) -> Any:
    import cubepy as cb

    return cb.tensor(value)


def theirs(model: Any, dtype: Any) -> Callable[[Any, Any, Any], Any]:
    """The same model in torch, with the weights of ours."""
    import torch
    from torch.nn import functional as F

    w = {k: torch.from_numpy(np.array(v.numpy())).cuda() for k, v in model.state_dict().items()}
    w = {k: v.to(dtype) if v.is_floating_point() else v for k, v in w.items()}
    layers = 1 + max(int(k.split(".")[2]) for k in w if k.startswith("encoder.layer."))

    def linear(x: Any, name: str) -> Any:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, (384,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def forward(ids: Any, looks: Any, weights: Any) -> Any:
        b, s = ids.shape
        e = "embeddings."
        places = w[e + "position_embeddings.weight"][:s] + w[e + "token_type_embeddings.weight"][0]
        x = norm(F.embedding(ids, w[e + "word_embeddings.weight"]) + places, e + "LayerNorm")
        for i in range(layers):
            a = f"encoder.layer.{i}."
            q, k, v = (linear(x, f"{a}attention.self.{n}").view(b, s, 12, 32).transpose(1, 2)
                       for n in ("query", "key", "value"))  # fmt: skip
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=looks).transpose(1, 2).reshape(b, s, 384)
            x = norm(linear(y, f"{a}attention.output.dense") + x, f"{a}attention.output.LayerNorm")
            y = linear(F.gelu(linear(x, f"{a}intermediate.dense")), f"{a}output.dense")
            x = norm(y + x, f"{a}output.LayerNorm")
        pooled = (weights.to(x.dtype) @ x)[:, 0]
        return F.normalize(pooled, dim=-1)

    return forward


def seconds(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Seconds of one call, host and GPU together: calls follow each other, the last one is waited for."""
    wait()
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    wait()
    return (time.perf_counter() - start) / CALLS


def rows() -> Iterator[dict[str, str]]:
    """One row for each scheme, batch and way to run."""
    import torch

    import cubepy as cb

    torch.set_grad_enabled(False)
    reference = ours("f32")
    models = {s: (reference if s == "f32" else ours(s)) for s in SCHEMES}
    for batch in (1, 32):
        rng = np.random.default_rng(batch)
        ids = rng.integers(1000, 20000, (batch, TOKENS))
        looks = np.ones((batch, 1, 1, TOKENS), bool)
        weights = np.full((batch, 1, TOKENS), 1 / TOKENS, np.float32)
        inputs = [cb.tensor(x, device="cuda") for x in (ids, looks, weights)]
        torch_inputs = [torch.from_numpy(x).cuda() for x in (ids, looks, weights)]
        peers: dict[str, Callable[[], Any]] = {}
        for name, dtype in (("f32", torch.float32), ("f16", torch.float16)):
            forward = theirs(reference, dtype)
            peers[f"torch {name} eager"] = lambda f=forward, x=torch_inputs: f(*x)
            compiled = torch.compile(forward, mode="reduce-overhead")
            for _ in range(3):
                compiled(*torch_inputs)
            peers[f"torch {name} compiled"] = lambda f=compiled, x=torch_inputs: f(*x)
        exact = models["f32"].embed(*inputs).numpy().astype(np.float64)
        runs: dict[str, Callable[[], Any]] = {}
        cosine: dict[str, float] = {}
        for scheme, model in models.items():
            near = model.embed(*inputs).numpy().astype(np.float64)
            cosine[scheme] = float((exact * near).sum(1).mean())
            runs[f"{scheme} plain"] = lambda m=model, x=inputs: m.embed(*x)
            with cb.capture() as graph:
                model.embed(*inputs)
            runs[f"{scheme} captured"] = graph.replay
        times: dict[str, list[float]] = {n: [] for n in (*runs, *peers)}
        for _ in range(ROUNDS):
            for name, run in runs.items():
                times[name].append(seconds(run, cb.sync))
            for name, run in peers.items():
                times[name].append(seconds(run, torch.cuda.synchronize))
        ms = {n: median(t) * 1e3 for n, t in times.items()}
        for name in runs:
            scheme, way = name.split()
            peer = "f32" if scheme == "f32" else "f16"
            eager, compiled_ms = ms[f"torch {peer} eager"], ms[f"torch {peer} compiled"]
            yield {
                "work": f"MiniLM, batch {batch}, {TOKENS} tokens, {scheme}, {way}",
                "ours": f"{ms[name]:.3f} ms",
                "peer": f"torch {peer} eager {eager:.3f} ms, compiled {compiled_ms:.3f} ms",
                "ratio": f"{eager / ms[name]:.2f}x, {compiled_ms / ms[name]:.2f}x",
                "error": f"1 - cosine {1 - cosine[scheme]:.1e}",
            }
