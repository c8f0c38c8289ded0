"""Files with bytes changed, cut or added: a result or an error of the file, never anything else."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import CubeError, FileFormatError
from tests.models import written
from tests.models.folders import fixture, folder
from tests.models.gguf_files import LLAMA_KEYS, gguf_of
from tests.models.odd.run import mutated

ROUNDS = 400
X = np.arange(64, dtype=np.float32).reshape(2, 32)


def seed_of(kind: str, folder: Path) -> bytes:
    """A right file of a format."""
    if kind == "gguf":
        metadata = {
            "general.architecture": "llama",
            "words": ["ab", "c"] * 20,
            "general.alignment": 32,
        }
        blocks = ("q", (2, 64), 8, bytes(136))
        return written.gguf(metadata, [written.plain("x", X), blocks])
    if kind == "safetensors":
        nn.save_safetensors({"a": X, "b": X[0]}, folder / "seed", {"made": "here"})
    elif kind == "legacy":
        return (Path(__file__).parent / "fixtures" / "legacy.pt").read_bytes()
    else:
        opcodes = {"x": written.tensor_opcodes("0", (2, 32), (32, 1), 64)}
        written.torch_zip(folder / "seed", written.state_opcodes(opcodes), {"0": X})
    return (folder / "seed").read_bytes()


@pytest.mark.parametrize("kind", ["gguf", "safetensors", "zip", "legacy"])
def test_mutated_files(tmp_path: Path, kind: str) -> None:
    raw = seed_of(kind, tmp_path)
    rng = np.random.default_rng(7)
    path = tmp_path / {"gguf": "m.gguf", "safetensors": "m.safetensors"}.get(kind, "m.pt")
    path.write_bytes(raw)
    cb.look(path)  # imports
    tracemalloc.start()
    slowest = refused = 0
    for _ in range(ROUNDS):
        path.write_bytes(mutated(raw, rng))
        before = time.perf_counter()
        try:
            cb.look(path)
        except FileFormatError:
            refused += 1
        slowest = max(slowest, time.perf_counter() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused > ROUNDS // 4
    assert peak < len(raw) + (64 << 20)
    assert slowest < 30  # a hang, not a measurement


ODD: list[Any] = [
    None,
    -1,
    0,
    1,
    3,
    2**40,
    1.5,
    float("nan"),
    True,
    "x",
    [],
    [None, "a"],
    {},
    {"rope_type": "yarn", "factor": 0},
    {"rope_type": "longrope", "short_factor": [1], "long_factor": [1, 2, 3], "factor": 2},
    {"rope_type": 3},
    ["sliding_attention", "full_attention"],
]
"""What may stand in a config instead of the right value."""
EXTRA = [
    "rope_scaling",
    "rope_parameters",
    "layer_types",
    "sliding_window",
    "head_dim",
    "model_type",
]


def tried(path: Path) -> bool:
    """Whether a model loads and runs; errors other than ours go on."""
    try:
        model = cb.load(path)
        with cb.no_grad():
            model(np.array([[3, 4, 5]]))
    except CubeError:
        return False
    return True


@pytest.mark.parametrize("name", ["llama", "gemma3", "phi3_long", "smollm3", "gpt2", "bert"])
def test_configs_with_odd_values(name: str, tmp_path: Path) -> None:
    given = fixture("encoders" if name == "bert" else "decoders")[name]
    path = folder(tmp_path, given)
    right = json.loads((path / "config.json").read_text())
    rng = np.random.default_rng(len(name))
    refused = 0
    for _ in range(60):
        names = [str(k) for k in rng.choice([*right, *EXTRA], 2)]
        values = {k: ODD[rng.integers(len(ODD))] for k in names}
        (path / "config.json").write_text(json.dumps(right | values))
        refused += not tried(path)
    assert 5 < refused < 60


def test_metadata_with_odd_values(tmp_path: Path) -> None:
    model = cb.load(folder(tmp_path / "llama", fixture("decoders")["llama"]))
    odd: list[Any] = [0, 1, 3, 2**31, 1.5, float("nan"), True, "x", ["a", "b"]]
    odd += [np.array([4, 4], np.uint32), np.array([4, 2], np.uint32), np.array([], np.float32)]
    refused = 0
    for key in LLAMA_KEYS:
        for value in odd:
            (tmp_path / "m.gguf").write_bytes(gguf_of(model, **{key: value}))
            refused += not tried(tmp_path / "m.gguf")
    assert refused > len(LLAMA_KEYS) * 4
