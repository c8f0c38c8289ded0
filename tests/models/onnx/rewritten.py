"""Small graphs that rewriting changes, with rules of several nodes and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.models.onnx import load, rewriting
from cubepy.models.onnx.model import OnnxModel
from cubepy.tensor.fusion.prepared import NEVER
from tests.models.onnx.writer import graph, model, node, tensor


def made(
    nodes: list[bytes], weights: dict[str, Any], inputs: Any = ("x",), opset: int = 17
) -> OnnxModel:
    given = [tensor(k, v) for k, v in weights.items()]
    return load(model(graph(nodes, list(inputs), ["y"], given), opset=opset))


def as_written(monkeypatch: pytest.MonkeyPatch, *args: Any, **how: Any) -> OnnxModel:
    """The same without rules of several nodes."""
    with monkeypatch.context() as changed:
        changed.setattr(rewriting, "PIECES", {})
        return made(*args, **how)


def close(one: Any, other: Any, by: float = 1e-4) -> bool:
    """Whether the largest difference is small beside the largest number."""
    a, b = one.numpy(), other.numpy()
    return bool(np.abs(a - b).max() <= by * np.abs(b).max())


def nodes_of(text: str) -> list[bytes]:
    found = []
    for line in text.split("|"):
        op, *names = line.split()
        found.append(node(op, " ".join(names[:-1]), names[-1]))
    return found


def laid_out_once(net: OnnxModel) -> int:
    """How many programs of a graph keep what they made of its weights; none makes it in each call."""
    programs = [
        program
        for segment in net.runner.segments
        for variants in segment.program.programs.values()
        for program in variants
    ]
    prepared = [p.writer.prepared for p in programs if p.writer.prepared is not None]
    assert all(p.state[1] != NEVER for p in prepared)
    return len(prepared)
