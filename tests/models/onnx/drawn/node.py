"""Models of one node, as they are drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.models.onnx.writer import graph, model, node, tensor, value

MS = "com.microsoft"
ML = "ai.onnx.ml"


@dataclass
class Drawn:
    """A node.

    Attributes:
        op, domain, how: the operator and its attributes.
        given: inputs, None for absent ones; names that begin with "=" are constants of the file.
        outputs: dtypes of its outputs, None for absent ones.
        far: how far floats may be, of the largest or 1.
        codes: how far integers may be.
        seen: of the output at a place, what is to be compared: an index.
        opset: of ONNX.
    """

    op: str
    how: dict[str, Any]
    given: list[tuple[str, Any] | None]
    outputs: list[Any]
    domain: str = MS
    far: float = 2e-5
    codes: int = 0
    seen: dict[int, Any] = field(default_factory=dict)
    opset: int = 21

    def rows(self, names: list[str]) -> list[Any]:
        """For each output what is compared."""
        return [self.seen.get(int(name[1:])) for name in names]

    def __str__(self) -> str:
        parts = ["_" if g is None else f"{g[0]} {g[1].dtype}{list(g[1].shape)}" for g in self.given]
        return f"{self.op} {self.how} ({', '.join(parts)})"


def file_of(drawn: Drawn) -> tuple[bytes, dict[str, Any], list[str]]:
    """The file, what it is fed, and the names of its outputs."""
    names, feeds, constants = [], {}, []
    for one in drawn.given:
        if one is None:
            names.append("_")
            continue
        name, array = one
        plain = name.removeprefix("=")
        names.append(plain)
        if name != plain:
            constants.append(tensor(plain, array))
        else:
            feeds[plain] = np.asarray(array)
    while names[-1] == "_":
        names.pop()
    outputs = [f"o{k}" for k, dtype in enumerate(drawn.outputs) if dtype is not None]
    all_outputs = " ".join("_" if d is None else f"o{k}" for k, d in enumerate(drawn.outputs))
    made = graph(
        [node(drawn.op, " ".join(names), all_outputs, drawn.domain, **drawn.how)],
        [value(n, a.dtype, a.shape) for n, a in feeds.items()],
        [value(o, drawn.outputs[int(o[1:])]) for o in outputs],
        constants,
    )
    other = {"ai_onnx_ml": 5 if drawn.op == "TreeEnsemble" else 3} if drawn.domain == ML else {}
    return model(made, drawn.opset, ir=10, com_microsoft=1, **other), feeds, outputs


def floats(rng: Any, *shape: int, by: float = 1.0) -> Any:
    return (rng.standard_normal(shape) * by).astype(np.float32)


def yes(rng: Any, chance: float = 0.5) -> bool:
    return bool(rng.random() < chance)
