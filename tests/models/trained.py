"""Models that others trained, in packages: where they are, and inputs that are the same everywhere."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".models"
FIXTURE = Path(__file__).parent / "fixtures" / "trained.json"
"""What scripts/make_trained_fixture.py wrote."""
FIRST = 6
"""Numbers of an output that are written down, beside its norm."""


@cache
def expected() -> dict[str, Any]:
    """By file: inputs, and what onnxruntime or transformers give."""
    return json.loads(FIXTURE.read_text())  # type: ignore[no-any-return]


def file_of(name: str) -> Path:
    """A file of a package; a test that lacks it is skipped."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no trained model: scripts/models/packages.py .models {name.split('/')[0]}")
    return path


def drawn(inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Inputs of a model by their dtypes, shapes and bounds."""
    rng = np.random.default_rng(7)
    found = {}
    for name, (dtype, shape, low, high) in inputs.items():
        if np.dtype(dtype).kind in "iu":
            found[name] = rng.integers(low, high + 1, shape).astype(dtype)
        else:
            found[name] = rng.uniform(low, high, shape).astype(dtype)
    return found


def facts(value: np.ndarray) -> dict[str, Any]:
    """Of an output: its shape, numbers spread over it, and its norm."""
    flat = np.asarray(value, np.float64).reshape(-1)
    places = np.linspace(0, max(len(flat) - 1, 0), min(FIRST, len(flat))).astype(int)
    return {
        "shape": list(value.shape),
        "some": [float(f"{v:.8g}") for v in flat[places]],
        "norm": float(f"{np.linalg.norm(flat):.8g}"),
    }
