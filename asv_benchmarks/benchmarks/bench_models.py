"""Whole models in f32 from plain `nn` code: inference beside torch, torch.compile with constant
weights and onnxruntime; training steps beside torch.
"""

from __future__ import annotations

import io
import resource
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import models, networks
from benchmarks.bench_training import library
from benchmarks.cases import warmed
from benchmarks.peers import threads, torch_module

LIBRARIES = ("cubepy", "cubepy eager", "torch", "torch.compile", "onnxruntime")


def built(model: str, lib: networks.Library) -> Any:
    """A model with the same first values in all libraries."""
    return networks.first_values(models.MODELS[model].make(lib), lib)


def by_onnxruntime(model: str, x: np.ndarray) -> Callable[[], Any]:
    """A model that torch exported."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise NotImplementedError("onnxruntime or onnxscript is not installed") from None
    torch = torch_module()
    file = io.BytesIO()
    net = built(model, networks.theirs(torch)).eval()
    exported = torch.onnx.export(net, (torch.from_numpy(x),), dynamo=True)
    exported.save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads(), 1
    session = onnxruntime.InferenceSession(
        file.getvalue(), options, providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    return lambda: session.run(None, {name: x})


def inference(model: str, name: str, batch: int) -> Callable[[], Any]:
    """A call of a model, warmed."""
    x = models.MODELS[model].draw(batch)
    if name == "onnxruntime":
        return warmed(by_onnxruntime(model, x))
    lib = library(name)
    net, given = built(model, lib).eval(), lib.tensor(x)
    if name == "torch" and x.ndim == 4:
        torch = torch_module()
        net, given = (
            net.to(memory_format=torch.channels_last),
            given.contiguous(memory_format=torch.channels_last),
        )

    def run(x: Any) -> Any:
        with lib.no_grad():
            return net(x)

    if name == "torch.compile":
        torch = torch_module()
        with torch.no_grad(), torch._inductor.config.patch(freezing=True):
            compiled = torch.compile(net)
            compiled(given)
            return warmed(lambda: compiled(given))
    compiled = lib.compiled(run)
    return warmed(lambda: compiled(given))


def training(model: str, name: str) -> Callable[[], Any]:
    """A step of AdamW, warmed."""
    if name == "onnxruntime":
        raise NotImplementedError("onnxruntime does not train here")
    whole, lib = models.MODELS[model], library(name)
    net, given = built(model, lib).train(), whole.draw(whole.trained)
    count = given.size if given.ndim == 2 else len(given)
    classes = lib.tensor(np.random.default_rng(1).integers(0, 1000, count))
    optimizer, x = lib.optim.AdamW(net.parameters(), lr=1e-4), lib.tensor(given)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled = lib.compiled(step)
    return warmed(lambda: compiled(x, classes))


class ModelInference:
    """One batch, nothing else."""

    params = (LIBRARIES, tuple(models.MODELS), (1, 8))
    param_names = ("library", "model", "batch")
    timeout = 1200

    def setup(self, name: str, model: str, batch: int) -> None:
        """Trace, compile, warm."""
        self.run = inference(model, name, batch)

    def time_model_inference(self, name: str, model: str, batch: int) -> None:
        """One batch."""
        self.run()

    def track_greatest_resident_size(self, name: str, model: str, batch: int) -> float:
        """Of the process that made the model and ran it."""
        self.run()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    track_greatest_resident_size.unit = "MiB"  # type: ignore[attr-defined]


class ModelTraining:
    """One step: forward, gradients, AdamW."""

    params = (LIBRARIES[:-1], ("resnet50", "roberta", "gpt2"))
    param_names = ("library", "model")
    timeout = 3600

    def setup(self, name: str, model: str) -> None:
        """Trace, compile, warm."""
        self.run = training(model, name)

    def time_model_training(self, name: str, model: str) -> None:
        """One step."""
        self.run()
