"""A `Decoding` as a file: what its rows hold, keys and values, and the requests that go on.

It is a safetensors file. Its metadata are a JSON text and the SHA-256 of that and of all arrays; as
a file comes from anywhere, everything that the text says is checked before it is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, CubeError, FileFormatError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.decoder import Decoder
from cubepy.models.generation.cache import KeyValueCache, array_of
from cubepy.models.generation.request import Drafts, Request
from cubepy.models.generation.sampling import Sampling
from cubepy.nn.safetensors import load_safetensors, safetensors_metadata, save_safetensors
from cubepy.tensor import as_tensor
from cubepy.tensor.storage import Dense

KIND = "cubepy decoding 1"
SMALL = 1 << 16
"""Elements of a weight that tells a model from another one."""
ROWS = 16
"""Words whose vectors do so."""


def identity(model: Decoder) -> str:
    """What tells a model from another one: its config, its small weights, vectors of some words."""
    c, digest = model.config, hashlib.sha256()
    for field in dataclasses.fields(c):
        value = getattr(c, field.name)
        if field.name in ("rotary", "local_rotary") and value is not None:
            digest.update(value.frequencies.tobytes() + f"{value.factor} {value.original}".encode())
            digest.update(b"" if value.long is None else value.long.tobytes())
        else:
            digest.update(f"{field.name} {value!r}".encode())
    words = np.linspace(0, c.vocabulary - 1, min(ROWS, c.vocabulary)).astype(np.int64)
    with cb.no_grad():
        vectors = model.words(as_tensor(words).to(model.words.weight.device))
        digest.update(vectors.astype(cb.f32).numpy().tobytes())
        for name, weight in sorted(model.state_dict().items()):
            digest.update(f"{name} {weight.shape}".encode())
            if type(weight.storage) is Dense and weight.size <= SMALL and weight.dtype.is_float:
                digest.update(weight.astype(cb.f32).numpy().tobytes())
    return digest.hexdigest()


def save(decoding: Any, path: str | os.PathLike[str]) -> None:
    """Write a file from which `restore` goes on."""
    cache = decoding.cache
    longest = max(map(len, decoding.held))
    arrays = {}
    for n, layer in enumerate(cache.layers):
        for part, tensor in enumerate(layer):
            count = min(longest, tensor.shape[2])
            arrays[f"{n}.{part}"] = np.ascontiguousarray(tensor[:, :, :count].numpy())
    rows = {id(r): n for n, r in enumerate(decoding.rows) if r is not None}
    said = {
        "model": identity(decoding.model),
        "dtype": cache.dtype.name,
        "chunk": cache.chunk,
        "capacity": cache.capacity,
        "ends": sorted(map(int, decoding.ends)),
        "held": decoding.held,
        "long": decoding.long,
        "oldest": cache.oldest.tolist(),
        "requests": [
            {"row": rows.get(id(request)), **_said(request)} for request in decoding.requests
        ],
    }
    text = json.dumps(said)
    digest = _digest(text, arrays.items())
    save_safetensors(arrays, path, {"kind": KIND, "state": text, "sha256": digest})


def _said(request: Request) -> dict[str, Any]:
    sampling = dataclasses.asdict(request.sampling)
    sampling["logit_bias"] = [[int(k), float(v)] for k, v in request.sampling.logit_bias.items()]
    return {
        "prompt": request.prompt,
        "written": request.written,
        "log_probabilities": request.log_probabilities,
        "wants_log_probabilities": request.wants_log_probabilities,
        "limit": int(request.limit),
        "seed": int(request.seed),
        "sampling": sampling,
    }


def _digest(text: str, arrays: Iterable[tuple[str, np.ndarray]]) -> str:
    found = hashlib.sha256(text.encode())
    for name, array in sorted(arrays):
        found.update(f"{name} {array.shape} {array.dtype}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


class Saved:
    """A file that was checked.

    Args:
        path: of the file.
        model: that goes on.

    Attributes:
        said: what it says: the names that `save` gives.
        arrays: of the caches, by number of the layer and of the part.
        requests: those that go on, with their rows.

    Raises:
        FileFormatError: it is truncated, changed, of another kind, or of another model, or says
            what cannot be.
    """

    def __init__(self, path: str | os.PathLike[str], model: Decoder) -> None:
        self.path, self.model = path, model
        tensors, metadata = load_safetensors(path), safetensors_metadata(path)
        if metadata.get("kind") != KIND:
            self.refuse(f"expected a file of the kind {KIND!r}, not {metadata.get('kind')!r}")
        self.arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        text = metadata.get("state", "")
        if _digest(text, self.arrays.items()) != metadata.get("sha256"):
            self.refuse("its SHA-256 is not that of its contents")
        try:
            self.said = json.loads(text)
        except (ValueError, RecursionError) as error:
            self.refuse(f"its state is no JSON text: {error}")
        try:
            self.check()
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            self.refuse(f"its state lacks something, or has something else: {error!r}")
        except CubeError as error:
            if isinstance(error, FileFormatError):
                raise
            self.refuse(str(error))

    def refuse(self, rule: str) -> NoReturn:
        """Raise with the path."""
        raise FileFormatError(
            f"{os.fspath(self.path)}: {rule}", hint="Decoding.save of the same model writes one"
        )

    def expect(self, holds: bool, rule: str) -> None:
        """Refuse what cannot be."""
        if not holds:
            self.refuse(rule)

    def tokens(self, given: Any) -> list[int]:
        """A list of tokens of the model."""
        c = self.model.config
        fits = type(given) is list and len(given) <= c.context
        self.expect(fits and all(type(t) is int for t in given), "tokens must be short lists")
        self.expect(all(0 <= t < c.vocabulary for t in given), "tokens beyond the vocabulary")
        return given  # type: ignore[no-any-return]

    def integer(self, name: str, given: Any, low: int, high: int) -> int:
        """A number in bounds."""
        fits = type(given) is int and low <= given <= high
        self.expect(fits, f"{name} must be from {low} to {high}, not {shown(given)}")
        return given  # type: ignore[no-any-return]

    def check(self) -> None:
        """Check all that the file says."""
        said, c = self.said, self.model.config
        self.expect(said["model"] == identity(self.model), "it was saved with another model")
        self.expect(said["dtype"] in ("f32", "f16", "bf16", "i8"), "its caches have no such dtype")
        self.integer("chunk", said["chunk"], 1, 1 << 40)
        self.integer("capacity", said["capacity"], 1, c.context)
        ends = said["ends"]
        plain = type(ends) is list and all(type(t) is int and t >= 0 for t in ends)
        self.expect(plain, "ends must be tokens")
        held, rows = [self.tokens(h) for h in said["held"]], len(said["held"])
        self.integer("rows", rows, 1, 1 << 20)
        longest = max(map(len, held))
        self.expect(longest <= said["capacity"], "a row holds more than its capacity")
        flags = type(said["long"]) is list and [type(x) for x in said["long"]] == [bool] * rows
        self.expect(flags, "long must be a flag for each row")
        oldest = np.asarray(said["oldest"], np.int64)
        windows = len({w for w in c.windows if w})
        self.expect(oldest.shape == (rows, windows), "a number for each row and window")
        self.expect(bool((oldest >= 0).all()), "positions are not negative")
        self.requests = [(self.request(one), one["row"]) for one in said["requests"]]
        taken = [row for _, row in self.requests if row is not None]
        self.expect(len(set(taken)) == len(taken), "a row has two requests")
        for request, row in self.requests:
            if row is not None:
                have = held[self.integer("row", row, 0, rows - 1)]
                self.expect(request.tokens[: len(have)] == have, "a row does not hold its request")
        small = KeyValueCache(c, 1, 1, dtype=getattr(cb, said["dtype"]), chunk=said["chunk"])
        wanted = {}
        for n, layer in enumerate(small.layers):
            count = min(longest, small.room(n, said["capacity"]))
            for part, tensor in enumerate(layer):
                shape = (rows, tensor.shape[1], count, tensor.shape[3])
                wanted[f"{n}.{part}"] = shape, tensor.dtype.numpy
        got = {name: (a.shape, a.dtype) for name, a in self.arrays.items()}
        self.expect(got == wanted, "its arrays are not those of the model's caches")

    def request(self, one: Any) -> Request:
        """A request that goes on."""
        c, options = self.model.config, dict(one["sampling"])
        options["logit_bias"] = {int(k): float(v) for k, v in options["logit_bias"]}
        prompt, written = self.tokens(one["prompt"]), self.tokens(one["written"])
        limit = self.integer("a limit", one["limit"], len(written) + 1, 1 << 62)
        seed = self.integer("a seed", one["seed"], 0, 2**64 - 1)
        wants = one["wants_log_probabilities"] is True
        likely = [float(x) for x in one["log_probabilities"]]
        self.expect(len(likely) in (0, len(written)), "a log-probability for each token")
        self.expect(0 < len(prompt) + len(written) < c.context and bool(prompt), "a text too long")
        made = Request(list(prompt), Sampling.of(options), limit, seed, wants)
        return made.goes_on(written, likely)

    def fill(self, cache: KeyValueCache) -> None:
        """Write what rows hold."""
        for n, layer in enumerate(cache.layers):
            for part, tensor in enumerate(layer):
                array = self.arrays[f"{n}.{part}"]
                if array.size:
                    there = as_tensor(array.copy()).to(tensor.device)
                    cache.write(array_of(tensor)[:, :, : array.shape[2]], array_of(there))
        cache.oldest[:] = self.said["oldest"]


def restored(kind: Any, model: Decoder, path: str | os.PathLike[str], drafts: Drafts | None) -> Any:
    """A `Decoding` that goes on (see there)."""
    found = Saved(path, model)
    said = found.said
    if drafts is not None and drafts.count > said["chunk"]:
        raise ArgumentError(
            f"drafts of {drafts.count} tokens are more than the chunk of {said['chunk']} that "
            "was saved"
        )
    options: dict[str, Any] = {"ends": frozenset(said["ends"]), "cache_dtype": said["dtype"]}
    options |= {"chunk": said["chunk"], "positions": said["capacity"]}
    made = kind(model, len(said["held"]), drafts=drafts, **options)
    made.held, made.long = said["held"], said["long"]
    for request, row in found.requests:
        if row is None:
            made.waiting.append(request)
        else:
            made.rows[row] = request
    found.fill(made.cache)
    return made
