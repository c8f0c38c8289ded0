"""The sentence-embedding model of the demo on a GPU: float32, float16, int8 and int4, plain and as
a captured graph.

The architecture is that of all-MiniLM-L6-v2 with random weights, so that nothing has to be
downloaded; sentences of 32 tokens. Peers: the same model as a module of torch, eager, in a CUDA
graph, and through torch.compile with CUDA graphs, its weights as parameters or as constants, its
inputs at fixed addresses. The ratio is to the fastest of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from gpu_timing import Row

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples" / "minilm"))

TOKENS = 32
ROUNDS, CALLS = 11, 10
SCHEMES = ("f32", "f16", "int8", "int4")


def ours(scheme: str, device: str) -> Any:
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
    model.load_state_dict(
        {k: nn.Parameter(v) if v.dtype == np.float32 else _tensor(v) for k, v in state.items()}
    )
    model.eval()
    if scheme in ("int8", "int4"):
        model = quant.quantize(model, scheme, measure_speed=False).model
    elif scheme == "f16":
        model = model.to("f16")
    return model.to(device)


def _tensor(value: np.ndarray) -> Any:
    import cubepy as cb

    return cb.tensor(value)


def theirs(model: Any, dtype: Any) -> Any:
    """The same model as a module of torch whose parameters are the weights of ours.

    As parameters, because torch.compile copies every other tensor into its graph's memory at each
    call.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    state = {k: torch.from_numpy(np.array(v.numpy())).cuda() for k, v in model.state_dict().items()}
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}
    depth = 1 + max(int(k.split(".")[2]) for k in state if k.startswith("encoder.layer."))

    def layer(kind: Any, name: str, *sizes: Any, **options: Any) -> Any:
        made = kind(*sizes, **options, device="cuda", dtype=dtype)
        made.load_state_dict({k: state[f"{name}.{k}"] for k in made.state_dict()})
        return made

    def linear(name: str) -> Any:
        return layer(nn.Linear, name, *state[f"{name}.weight"].shape[::-1])

    def norm(name: str) -> Any:
        return layer(nn.LayerNorm, name, 384, eps=1e-12)

    def table(name: str) -> Any:
        return layer(nn.Embedding, name, *state[f"{name}.weight"].shape)

    class Block(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            attention = f"{name}attention."
            self.query, self.key, self.value = (
                linear(f"{attention}self.{n}") for n in ("query", "key", "value")
            )
            self.out, self.first = (
                linear(f"{attention}output.dense"),
                norm(f"{attention}output.LayerNorm"),
            )
            self.wide, self.narrow = (
                linear(f"{name}intermediate.dense"),
                linear(f"{name}output.dense"),
            )
            self.second = norm(f"{name}output.LayerNorm")

        def forward(self, x: Any, looks: Any) -> Any:
            b, s, _ = x.shape
            q, k, v = (
                f(x).view(b, s, 12, 32).transpose(1, 2) for f in (self.query, self.key, self.value)
            )
            y = (
                F.scaled_dot_product_attention(q, k, v, attn_mask=looks)
                .transpose(1, 2)
                .reshape(b, s, 384)
            )
            x = self.first(self.out(y) + x)
            return self.second(self.narrow(F.gelu(self.wide(x))) + x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            e = "embeddings."
            self.words, self.places = table(f"{e}word_embeddings"), table(f"{e}position_embeddings")
            self.kinds, self.norm = table(f"{e}token_type_embeddings"), norm(f"{e}LayerNorm")
            self.blocks = nn.ModuleList(Block(f"encoder.layer.{i}.") for i in range(depth))

        def forward(self, ids: Any, looks: Any, weights: Any) -> Any:
            x = self.norm(
                self.words(ids) + (self.places.weight[: ids.shape[1]] + self.kinds.weight[0])
            )
            for block in self.blocks:
                x = block(x, looks)
            return F.normalize((weights.to(x.dtype) @ x)[:, 0], dim=-1)

    return Model().eval()


def best_forms(model: Any, dtype: Any, inputs: list[Any]) -> dict[str, Callable[[], Any]]:
    """The ways in which torch may run the model: eager, in a CUDA graph, compiled, compiled with
    weights as constants.

    Raises:
        AssertionError: one of them gives something else.
    """
    import torch

    for x in inputs:
        torch._dynamo.mark_static_address(
            x
        )  # as our graph reads them: in place, without copies at each call
    module = theirs(model, dtype)
    exact = module(*inputs)
    ways: dict[str, Callable[[], Any]] = {"eager": lambda: module(*inputs)}
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(*inputs)
    ways["eager in a graph"] = graph.replay
    for name, frozen in (("compiled", False), ("compiled and frozen", True)):
        torch.compiler.reset()
        copy = theirs(model, dtype)
        run = torch.compile(copy, mode="reduce-overhead", dynamic=False)
        with torch._inductor.config.patch(freezing=frozen):
            for _ in range(4):  # compile, warm up, record, replay
                result = run(*inputs)
        assert torch.allclose(result, exact, atol=1e-2), f"torch {name} gives something else"
        ways[name] = lambda f=run: f(*inputs)  # type: ignore[misc]
    return ways


def seconds(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Seconds of one call, host and GPU together: calls follow each other, the last one is waited
    for.
    """
    wait()
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    wait()
    return (time.perf_counter() - start) / CALLS


def sentences(device: str) -> Iterator[Row]:
    """One row for each scheme, batch and way to run."""
    import torch

    import cubepy as cb

    torch.set_grad_enabled(False)
    torch.cuda.set_device(device)
    reference = ours("f32", device)
    models = {s: (reference if s == "f32" else ours(s, device)) for s in SCHEMES}
    for batch in (1, 32):
        rng = np.random.default_rng(batch)
        ids = rng.integers(1000, 20000, (batch, TOKENS))
        looks = np.ones((batch, 1, 1, TOKENS), bool)
        weights = np.full((batch, 1, TOKENS), 1 / TOKENS, np.float32)
        inputs = [cb.tensor(x, device=device) for x in (ids, looks, weights)]
        torch_inputs = [torch.from_numpy(x).to(device) for x in (ids, looks, weights)]
        peers: dict[str, Callable[[], Any]] = {}
        for name, dtype in (("f32", torch.float32), ("f16", torch.float16)):
            for way, run in best_forms(reference, dtype, torch_inputs).items():
                peers[f"torch {name} {way}"] = run
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
            forms = {
                n.removeprefix(f"torch {peer} "): t
                for n, t in ms.items()
                if n.startswith(f"torch {peer} ")
            }
            best = min(forms, key=forms.__getitem__)
            yield {
                "work": f"MiniLM, batch {batch}, {TOKENS} tokens, {scheme}, {way}",
                "ms": (ms[name], forms[best]),
                "ours": f"{ms[name]:.3f} ms",
                "peer": f"torch {peer} " + ", ".join(f"{n} {t:.3f} ms" for n, t in forms.items()),
                "ratio": f"{forms[best] / ms[name]:.2f}x ({best}), {forms['eager'] / ms[name]:.2f}x (eager)",
                "error": f"1 - cosine {1 - cosine[scheme]:.1e}",
            }


CASES = {"MiniLM": sentences}
