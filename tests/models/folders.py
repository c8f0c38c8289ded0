"""Folders of small models from the fixtures."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

from cubepy import nn
from tests.models.drawn import drawn

FIXTURES = Path(__file__).parent / "fixtures"


@cache
def fixture(name: str) -> dict[str, dict[str, np.ndarray]]:
    """What scripts/make_text_fixture.py wrote, by model and name."""
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        for key in arrays.files:
            model, _, rest = key.partition("/")
            found.setdefault(model, {})[rest] = arrays[key]
    return found


def weights(given: dict[str, np.ndarray], dtype: str = "float32") -> dict[str, np.ndarray]:
    """The weights of a model by the names of Hugging Face's library."""
    return {k[2:]: v.astype(dtype) for k, v in given.items() if k.startswith("w:")}


def folder(path: Path, given: dict[str, np.ndarray], dtype: str = "float32") -> Path:
    """Write the folder of a model."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_bytes(given["config"].tobytes())
    nn.save_safetensors(weights(given, dtype), path / "model.safetensors")
    return path


def drawn_folder(path: Path, given: dict[str, np.ndarray], dtype: str = "float32") -> Path:
    """Write the folder of a model whose weights are drawn from their names."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_bytes(given["config"].tobytes())
    shapes = json.loads(given["shapes"].tobytes())
    arrays = {name: drawn(name, tuple(shape)).astype(dtype) for name, shape in shapes.items()}
    nn.save_safetensors(arrays, path / "model.safetensors")
    return path
