"""Files with bytes changed, cut or added: a result or an error of the file, never anything else."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import FileFormatError
from tests.models import written

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


def mutated(raw: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes changed, cut, repeated, or made large."""
    data = bytearray(raw)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, max(len(data), 1)))
        what = rng.integers(0, 6)
        if what == 0:
            data[at : at + 1] = bytes([int(rng.integers(0, 256))])
        elif what == 1:
            data[at : at + 8] = b"\xff" * 8
        elif what == 2:
            del data[at : at + int(rng.integers(1, 32))]
        elif what == 3:
            data[at:at] = data[: int(rng.integers(1, 64))]
        elif what == 4:
            data = data[:at]
        else:
            data[at : at + 4] = bytes(4)
    return bytes(data)


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
