"""Whole models on a GPU, beside torch: ResNet-50 in f16, and a training step of RoBERTa-base in bf16.

The models are those of `benchmarks/models.py`, written once for both libraries, with the same
random weights. Ours are programs (`cb.jit`); torch's are compiled, with CUDA graphs, and eager.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gpu_timing import Row, milliseconds

sys.path.append(str(Path(__file__).resolve().parents[1]))

from benchmarks.models import MODELS
from benchmarks.networks import Library

ROUNDS, CALLS = 7, 10
Made = tuple[Any, Callable[[np.ndarray], Any]]
"""A model on the device, and what makes a tensor there."""


def torchs(name: str, device: str, dtype: str) -> Made:
    """A model of torch."""
    import torch

    torch.manual_seed(0)
    lib: Any = Library(torch.nn, torch.nn.functional, None, None, None, torch.no_grad)  # type: ignore[arg-type]
    net = MODELS[name].make(lib).to(device, getattr(torch, dtype))
    return net, lambda a: torch.from_numpy(a).to(device)


def mine(name: str, device: str, dtype: str, values: dict[str, np.ndarray]) -> Made:
    """The same of ours, with the values of torch's."""
    import cubepy as cb
    from cubepy import nn

    lib: Any = Library(nn, nn.functional, None, None, None, cb.no_grad)  # type: ignore[arg-type]
    with nn.init.skip():
        net = MODELS[name].make(lib)
    net.load_state_dict(values)
    short = {"float16": "f16", "bfloat16": "bf16", "float32": "f32"}[dtype]
    net.to(device, short)
    return net, lambda a: cb.tensor(a, device=device)


def settle(net: Any, images: Any) -> None:
    """Give batch norms the statistics of a batch, so that values are neither large nor nothing at
    the end of many layers of random weights.
    """
    import torch

    norms = [m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        with torch.no_grad():
            net.train()(images)


def inference(name: str, dtype: str, batch: int, device: str) -> dict[str, Callable[[], Any]]:
    """Forward passes, by whose they are."""
    import torch

    import cubepy as cb

    net, tensor = torchs(name, device, dtype)
    drawn = MODELS[name].draw(batch)
    if drawn.ndim == 4:
        settle(net.float(), tensor(MODELS[name].draw(2)))
        net.to(getattr(torch, dtype))
    net.eval()
    values = {k: v.float().cpu().numpy() for k, v in net.state_dict().items()}
    ours, made = mine(name, device, dtype, values)
    ours.eval()
    x, y = made(drawn), tensor(drawn)
    if drawn.ndim == 4:
        x = x.astype({"float16": "f16", "bfloat16": "bf16", "float32": "f32"}[dtype])
        net = net.to(memory_format=torch.channels_last)
        y = y.to(getattr(torch, dtype)).contiguous(memory_format=torch.channels_last)
    program = cb.jit(ours)
    compiled = torch.compile(net, mode="reduce-overhead")

    def forward() -> Any:
        with cb.no_grad():
            return program(x)

    def inferred(net: Any) -> Callable[[], Any]:
        def run() -> Any:
            with torch.no_grad():
                return net(y)

        return run

    return {"ours": forward, "eager": inferred(net), "compiled": inferred(compiled)}


def training(name: str, dtype: str, batch: int, device: str) -> dict[str, Callable[[], Any]]:
    """Steps of AdamW, by whose they are."""
    import torch

    import cubepy as cb
    from cubepy import nn

    drawn = MODELS[name].draw(batch)
    goals = np.random.default_rng(6).integers(0, 50000, drawn.size)
    runs: dict[str, Callable[[], Any]] = {}
    values: dict[str, np.ndarray] = {}
    for kind in ("eager", "compiled"):
        net, tensor = torchs(name, device, dtype)
        values = {k: v.float().cpu().numpy() for k, v in net.state_dict().items()}
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True, capturable=True)
        x, y = tensor(drawn), tensor(goals)

        def loss_of(x: Any, y: Any, net: Any = net) -> Any:
            return torch.nn.functional.cross_entropy(net(x), y)

        forward = torch.compile(loss_of, mode="reduce-overhead") if kind == "compiled" else loss_of

        def run(forward: Any = forward, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> Any:
            loss = forward(x, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss.detach().clone()

        runs[kind] = run
    ours, made = mine(name, device, dtype, values)
    steps = nn.optim.AdamW(ours.parameters(), lr=1e-4)
    given = made(drawn), made(goals)

    @cb.jit
    def step(x: Any, y: Any) -> Any:
        loss = nn.functional.cross_entropy(ours(x), y)
        steps.zero_grad()
        loss.backward()
        steps.step()
        return loss

    return {"ours": lambda: step(*given), **runs}


def difference(a: Any, b: Any) -> float:
    """How far results are apart, relative to the second's norm."""
    mine, other = np.asarray(a.astype("f32").numpy()), b.float().cpu().numpy()
    return float(np.linalg.norm(mine - other) / np.linalg.norm(other))


def rows(name: str, dtype: str, batch: int, trained: bool, device: str) -> Iterator[Row]:
    """The line of one model."""
    import torch

    import cubepy as cb

    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream), cb.Stream(device, handle=stream.cuda_stream):
        runs = (training if trained else inference)(name, dtype, batch, device)
        first = {k: run() for k, run in runs.items()}
        error = difference(first["ours"], first["eager"])
        for _ in range(12):
            for run in runs.values():
                run()
        found = milliseconds(list(runs.values()), stream, ROUNDS, [CALLS] * len(runs))
    ms = dict(zip(runs, found, strict=True))
    best = min(v for k, v in ms.items() if k != "ours")
    yield {
        "work": f"{'training step' if trained else 'inference'}, {name}, {dtype}, batch {batch}",
        "ours": f"{ms['ours']:.3f} ms",
        "peer": ", ".join(f"{k} {v:.3f} ms" for k, v in ms.items() if k != "ours"),
        "ratio": f"{best / ms['ours']:.2f}",
        "error": f"{error:.1e}",
        "ms": (ms["ours"], best),
    }


MEASURED = (
    ("roberta", "bfloat16", 8, True),
    ("resnet50", "float16", 1, False),
    ("resnet50", "float16", 32, False),
    ("vit", "float16", 1, False),
    ("vit", "float16", 32, False),
    ("yolov8n", "float16", 1, False),
    ("yolov8n", "float16", 16, False),
)
CASES = {
    " ".join(map(str, case)): (lambda device, case=case: rows(*case, device)) for case in MEASURED
}
