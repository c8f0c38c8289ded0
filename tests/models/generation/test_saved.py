"""Files of a `Decoding`: what goes on from them, and which files are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, FileFormatError
from cubepy.models.generation.drafts import PromptLookup
from cubepy.models.generation.requests import Decoding
from cubepy.models.generation.saved import KIND, _digest
from cubepy.nn.safetensors import load_safetensors, safetensors_metadata, save_safetensors
from tests.models.generation.test_caches import CONTEXT, model_of
from tests.pretend import NAME, pretend

OPTIONS: dict[str, Any] = {"temperature": 0.9, "top_k": 9, "seed": 5, "logit_bias": {3: -1.5}}


def begun(dtype: Any = "int8") -> Decoding:
    """Two texts under way, one that waits, and a row that only holds what was read."""
    together = Decoding(model_of((7, 0)), 3, cache_dtype=dtype, chunk=6)
    together.add([1, 2, 3], 2)
    together.run()
    together.add([5, 6] * 9, 30)
    together.add([7, 8, 9], 40, log_probabilities=True, **OPTIONS)
    together.add([4] * 20, 25)
    for _ in range(9):
        together.step()
    together.add([1, 2, 3, 4, 5], 9)
    return together


@pytest.mark.parametrize("dtype", [None, "int8", "bf16"])
def test_what_goes_on_is_the_very_text(dtype: Any, tmp_path: Path) -> None:
    before = begun(dtype)
    before.save(tmp_path / "state")
    after = Decoding.restore(before.model, tmp_path / "state")
    assert after.cache.dtype is before.cache.dtype and after.cache.windows == [7]
    first, second = before.requests, after.requests
    assert len(first) == len(second) == 4 and any(r.written for r in second)
    before.run()
    after.run()
    for one, other in zip(first, second, strict=True):
        assert (one.written, one.ended) == (other.written, other.ended)
        assert one.log_probabilities == other.log_probabilities
    assert len(second[-1].written) == 9
    after.save(tmp_path / "state")  # in place of the first one
    assert not Decoding.restore(before.model, tmp_path / "state").active


def test_rows_that_end_keep_what_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = Decoding(model_of((0,)), 1)
    together.add(list(range(20)), 4)
    together.run()
    together.save(tmp_path / "state")
    after = Decoding.restore(together.model, tmp_path / "state", drafts=PromptLookup())
    assert after.held == together.held
    request = after.add([*range(20), 9], 6)
    after.run()
    assert request.written == together.model.generate(request.prompt, max_new_tokens=6)


def test_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is of a model, wherever that is."""
    before = begun("int8")
    before.save(tmp_path / "state")
    right = before.requests
    before.run()
    with pretend(monkeypatch):
        there = before.model.clone().to(NAME)
        after = Decoding.restore(there, tmp_path / "state")
        requests = after.requests
        after.run()
        assert [r.written for r in requests] == [r.written for r in right]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "state"
    begun().save(path)
    return path.read_bytes()


def test_truncated_and_garbled_files_are_refused(state: bytes, tmp_path: Path) -> None:
    rng, path, model = np.random.default_rng(0), tmp_path / "state", model_of((7, 0))
    cuts = [0, 7, 8, len(state) - 1, *rng.integers(9, len(state), 40).tolist()]
    for cut in cuts:
        path.write_bytes(state[:cut])
        with pytest.raises(FileFormatError):
            Decoding.restore(model, path)
    for at in rng.integers(0, len(state), 300).tolist():
        changed = bytearray(state)
        changed[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(changed))
        with pytest.raises(FileFormatError):
            Decoding.restore(model, path)
    path.write_bytes(state)
    assert Decoding.restore(model, path).active


def test_files_of_other_models_and_kinds_are_refused(state: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(state)
    for other in (model_of((7, 1)), model_of((7, 0), 32), model_of((7, 0), 16, True)):
        with pytest.raises(FileFormatError, match="it was saved with another model"):
            Decoding.restore(other, path)
    tuned = model_of((7, 0)).clone()
    weights = tuned.state_dict()
    weights["norm.weight"] = weights["norm.weight"] * 1.001
    tuned.load_state_dict(weights)
    with pytest.raises(FileFormatError, match="it was saved with another model"):
        Decoding.restore(tuned, path)
    save_safetensors({"w": np.zeros(3)}, path)
    with pytest.raises(FileFormatError, match="expected a file of the kind"):
        Decoding.restore(tuned, path)
    with pytest.raises(ArgumentError, match="a Decoding takes a decoder"):
        Decoding.restore(cb.nn.Linear(2, 2), path)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        Decoding.restore(tuned, tmp_path / "none")
    path.write_bytes(state)
    with pytest.raises(ArgumentError, match="drafts of 7 tokens are more than the chunk of 6"):
        Decoding.restore(model_of((7, 0)), path, drafts=PromptLookup(7))


def _set(*path: Any) -> Callable[[Any], None]:
    """A change of what a file says: keys, and a value."""

    def change(said: Any) -> None:
        for key in path[:-2]:
            said = said[key]
        said[path[-2]] = path[-1]

    return change


LIES = {
    "nothing": lambda said: said.clear(),
    "a list": _set("held", {}),
    "rows": lambda said: said["held"].append([]),
    "no rows": _set("held", []),
    "tokens": _set("held", 0, [40]),
    "signs": _set("held", 0, [-1]),
    "numbers": _set("held", 0, [1.5]),
    "longer": lambda said: said["held"][0].extend([1] * 30),
    "too long": lambda said: said["held"][0].extend([1] * CONTEXT),
    "capacity": _set("capacity", 10**12),
    "small capacity": _set("capacity", 3),
    "chunk": _set("chunk", 0),
    "large chunk": _set("chunk", 900),
    "dtype": _set("dtype", "f32"),
    "no dtype": _set("dtype", "magic"),
    "long": _set("long", [1, 0, 0]),
    "oldest": _set("oldest", [[0]]),
    "older": _set("oldest", 0, [-5]),
    "windows": _set("oldest", [[0, 0]] * 3),
    "huge": _set("oldest", 0, [10**40]),
    "ends": _set("ends", ["x"]),
    "request": _set("requests", [3]),
    "row": _set("requests", 0, "row", 3),
    "row of two": lambda said: said["requests"][1].update(row=said["requests"][0]["row"]),
    "row of another": lambda said: said["requests"][0].update(prompt=[9, 9, 9]),
    "no prompt": lambda said: said["requests"][-1].update(prompt=[]),
    "prompt": lambda said: said["requests"][-1].update(prompt=[1] * CONTEXT),
    "limit": lambda said: said["requests"][0].update(limit=0),
    "seed": lambda said: said["requests"][0].update(seed=-1),
    "sampling": lambda said: said["requests"][0]["sampling"].update(magic=1),
    "top_p": lambda said: said["requests"][0]["sampling"].update(top_p=7),
    "likely": lambda said: said["requests"][0].update(log_probabilities=[1.0] * 50),
    "kind": lambda said: said["requests"][0].update(sampling=[1, 2]),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_files_are_refused(lie: str, state: bytes, tmp_path: Path) -> None:
    """Also those whose SHA-256 is right."""
    path = tmp_path / "state"
    path.write_bytes(state)
    arrays = {name: t.numpy() for name, t in load_safetensors(path).items()}
    said = json.loads(safetensors_metadata(path)["state"])
    change: Any = LIES[lie]
    change(said)
    text = json.dumps(said)
    digest = _digest(text, arrays.items())
    save_safetensors(arrays, path, {"kind": KIND, "state": text, "sha256": digest})
    with pytest.raises(FileFormatError, match="state"):
        Decoding.restore(model_of((7, 0)), path)


def test_lying_arrays_are_refused(state: bytes, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(state)
    whole = {name: t.numpy() for name, t in load_safetensors(path).items()}
    text = safetensors_metadata(path)["state"]
    for change in (
        {"0.0": whole["0.0"][:, :, :-1]},
        {"0.0": whole["0.0"].astype(np.float32)},
        {"0.4": whole["0.0"]},
    ):
        arrays = whole | change
        digest = _digest(text, arrays.items())
        save_safetensors(arrays, path, {"kind": KIND, "state": text, "sha256": digest})
        with pytest.raises(FileFormatError, match="its arrays are not those"):
            Decoding.restore(model_of((7, 0)), path)


def test_a_folder_that_is_not_there_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        begun().save(tmp_path / "none" / "state")
    with pytest.raises(IsADirectoryError):
        begun().save(tmp_path)
    assert not list(tmp_path.iterdir())
