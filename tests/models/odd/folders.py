"""Folders of models of which one JSON text is another one, and saved states of a `Decoding`."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import nn
from cubepy.models.generation import saved
from cubepy.models.generation.requests import Decoding
from cubepy.nn.safetensors import load_safetensors, safetensors_metadata, save_safetensors
from tests.models.folders import fixture, weights

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 1.5, float("nan"), float("inf"), -1e308),
    *("", "a", "true", "\ud800", "a\0b", "x" * 5000, [], {}, [[]], [None], [1, [2]], {"a": 1}),
]
"""What stands nowhere in a right file."""


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a JSON value: keys and numbers."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:30] if isinstance(value, list) else ())
    )
    return [path, *(p for k, part in inner for p in places(part, (*path, k)))]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(value: Any, rng: np.random.Generator) -> Any:
    """A JSON value of which a few parts are gone, odd, or those of other places."""
    value = json.loads(json.dumps(value))
    for _ in range(int(rng.integers(1, 4))):
        known = places(value)
        path = known[rng.integers(len(known))]
        if not path:
            continue
        holder, key = at(value, path[:-1]), path[-1]
        odd = copy.deepcopy(ODD[rng.integers(len(ODD))])  # which parts of it may change, too
        what, here = rng.integers(6), holder[key]
        if what == 0 and isinstance(holder, dict):
            del holder[key]
        elif what == 1 and isinstance(holder, list):
            holder.insert(key, odd)
        elif what == 2:
            holder[key] = json.loads(json.dumps(at(value, known[rng.integers(len(known))])))
        elif what == 3 and type(here) in (int, float):
            holder[key] = here * int(rng.choice([-1, 0, 2, 1000])) + int(rng.integers(-1, 2))
        else:
            holder[key] = odd
    return value


_home: dict[Path, Any] = {}


def _right(home: Path) -> dict[str, Any]:
    """The JSON texts of a folder that can be loaded."""
    if home not in _home:
        given = fixture("decoders")["llama"]
        arrays = weights(given)
        names, half = sorted(arrays), len(arrays) // 2
        (home / "odd").mkdir(exist_ok=True)
        nn.save_safetensors({k: arrays[k] for k in names[:half]}, home / "odd" / "a.safetensors")
        nn.save_safetensors({k: arrays[k] for k in names[half:]}, home / "odd" / "b.safetensors")
        files = {k: f"{'a' if n < half else 'b'}.safetensors" for n, k in enumerate(names)}
        _home[home] = {
            "config.json": json.loads(given["config"].tobytes()),
            "generation_config.json": {"eos_token_id": [2, 5], "bos_token_id": 1, "top_k": 50},
            "model.safetensors.index.json": {"metadata": {"total_size": 1}, "weight_map": files},
        }
    return _home[home]  # type: ignore[no-any-return]


def folder(rng: np.random.Generator, home: Path) -> tuple[bytes, Any]:
    """The text of a file of a folder, and its name."""
    right = _right(home)
    name = str(rng.choice([*right]))
    text = json.dumps(changed(right[name], rng)).encode()
    return text, name


def open_folder(path: Path, name: Any) -> None:
    home = path.parent / "odd"
    for other, value in _right(path.parent).items():
        (home / other).write_text(json.dumps(value))
    (home / name).write_bytes(path.read_bytes())
    cb.look(home)
    model = cb.load(home)
    if model.config.context <= 4096:
        model.generate([3, 4, 5], 2)


_state: list[Any] = []


def state(rng: np.random.Generator, home: Path) -> tuple[bytes, Any]:
    """A saved `Decoding` whose text is another one, with the digest of that."""
    if not _state:
        given = fixture("decoders")["llama"]
        (home / "llama").mkdir(exist_ok=True)
        (home / "llama" / "config.json").write_bytes(given["config"].tobytes())
        nn.save_safetensors(weights(given), home / "llama" / "model.safetensors")
        model = cb.load(home / "llama")
        together = Decoding(model, 2)
        for prompt, how in (([3, 4, 5], {}), ([6, 7], {"temperature": 0.5})):
            together.add(prompt, 20, **how)
        for _ in range(4):
            together.step()
        together.save(home / "right")
        arrays = {k: t.numpy().copy() for k, t in load_safetensors(home / "right").items()}
        _state.extend([model, arrays, json.loads(safetensors_metadata(home / "right")["state"])])
    _, arrays, said = _state
    text = json.dumps(changed(said, rng))
    digest = saved._digest(text, arrays.items())
    save_safetensors(arrays, home / "made", {"kind": saved.KIND, "state": text, "sha256": digest})
    raw = (home / "made").read_bytes()
    os.unlink(home / "made")
    return raw, None


def open_state(path: Path, _: Any) -> None:
    together = Decoding.restore(_state[0], path)
    for _ in range(3):
        together.step()
