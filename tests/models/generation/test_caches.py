"""Rings of layers with windows, bytes with scales, and all that a `Decoding` does, together: what
is written is what each text writes alone, with caches of all positions.
"""

from __future__ import annotations

import tempfile
from functools import cache
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.models.architectures.rotary import rotary
from cubepy.models.generation.cache import KeyValueCache, cache_for
from cubepy.models.generation.drafts import DraftModel, PromptLookup
from cubepy.models.generation.requests import Decoding
from cubepy.models.generation.text_model import TextModel

CONTEXT = 96
ORIGINAL = 40  # positions behind which angles of long texts begin


@cache
def model_of(
    windows: tuple[int, ...], depth: int = 16, longer: bool = False, learned: bool = False
) -> TextModel:
    """A small model with weights that make it choose clearly."""
    angles = {"rope_type": "longrope", "short_factor": [1.0] * (depth // 2)}
    angles |= {"long_factor": [3.0] * (depth // 2), "original_max_position_embeddings": ORIGINAL}
    c = DecoderConfig(
        vocabulary=40,
        width=32,
        layers=max(1, len(windows)),
        heads=4,
        groups=2,
        depth=depth,
        inner=48,
        context=CONTEXT,
        rotary=None if learned else rotary(depth, 100.0, angles if longer else None, CONTEXT),
        learned_positions=learned,
        windows=windows,
        tied=False,
    )
    model = TextModel(c)
    rng = np.random.default_rng(len(windows) + depth)
    weights = model.state_dict()
    for name, weight in weights.items():
        if len(weight.shape) == 2:
            size = (4.0 if "head" in name else 1.5) / weight.shape[-1] ** 0.5
            weights[name] = cb.tensor(size * rng.standard_normal(weight.shape, np.float32))
    model.load_state_dict(weights)
    return model


def prompt(rng: np.random.Generator, longest: int = 60) -> list[int]:
    return rng.integers(0, 40, int(rng.integers(1, longest))).tolist()


def is_greedy(model: TextModel, prompt: list[int], written: list[int]) -> bool:
    """Whether each token is the likeliest behind all before it, without any cache, but for ties."""
    with cb.no_grad():
        scores = model([[*prompt, *written]]).numpy()[0, len(prompt) - 1 : -1]
    short = scores.max(axis=1) - scores[np.arange(len(written)), written]
    return bool((short <= 1e-4 * np.abs(scores).max(initial=0)).all())


@pytest.mark.parametrize("windows", [(7,), (5, 0), (3, 20), (40, 9)], ids=str)
def test_rings_write_what_whole_caches_write(windows: tuple[int, ...]) -> None:
    model, rng = model_of(windows), np.random.default_rng(sum(windows))
    for _ in range(5):
        prompts = [prompt(rng) for _ in range(int(rng.integers(1, 4)))]
        chunk = int(rng.integers(1, 30))
        found = model.generate(prompts, max_new_tokens=30, chunk=chunk)
        assert found == model.generate(prompts, max_new_tokens=30, chunk=CONTEXT)
        for given, written in zip(prompts, found, strict=True):
            assert len(written) == 30 and is_greedy(model, given, written)


def test_rings_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubepy.models.generation.cache.LEAST", 16)
    model = model_of((5, 0))
    together = Decoding(model, 2, chunk=3, positions=4)
    request = together.add([1, 2, 3], 85)
    together.run()
    rooms = [layer[0].shape[2] for layer in together.cache.layers]
    assert rooms == [8, CONTEXT] and is_greedy(model, request.prompt, request.written)
    small = cache_for(model, 2, CONTEXT, cb.i8, 3).nbytes
    assert small == 2 * 2 * 2 * (16 + 4) * (8 + CONTEXT)


def test_a_beginning_that_a_ring_lost_is_read_again() -> None:
    model = model_of((5, 0))
    rng = np.random.default_rng(3)
    system = rng.integers(0, 40, 20).tolist()
    together = Decoding(model, 1, chunk=4)
    first = together.add([*system, 1], 3)
    together.run()
    assert together.cache.keeps(0, 21) and not together.cache.keeps(0, 12)
    second = together.add([*system, 1, *first.written, 7], 20)  # goes on where the row is
    together.step()
    third = together.add([*system[:12], 2], 20)  # begins where the ring has gone round
    together.run()
    for request in (first, second, third):
        assert is_greedy(model, request.prompt, request.written)


@pytest.mark.parametrize("depth", [16, 32, 40])
def test_bytes_are_near_floats_and_do_not_depend_on_how_a_prompt_is_read(depth: int) -> None:
    model, rng = model_of((0, 9), depth), np.random.default_rng(depth)
    given = prompt(rng)
    written = {}
    for chunk in (3, 17, CONTEXT):
        for dtype in (None, "int8", "f16", "bf16"):
            together = Decoding(model, 1, cache_dtype=dtype, chunk=chunk)
            request = together.add(given, 12, log_probabilities=True)
            together.run()
            assert written.setdefault(dtype, request.written) == request.written
            exact = model.log_probabilities(request.tokens)[len(given) - 1 :]
            off = np.abs(exact - request.log_probabilities).max()
            assert off < (1e-4 if dtype is None else 0.3), (dtype, chunk)
            assert dtype is None or off > 1e-6


@pytest.mark.parametrize("given", ["int4", "i32", 3, "magic"])
def test_other_dtypes_are_refused(given: Any) -> None:
    with pytest.raises(ArgumentError, match="cache_dtype must be f32, f16, bf16 or int8"):
        Decoding(model_of((0,)), cache_dtype=given)
    with pytest.raises(ArgumentError, match="chunk must be an integer of at least 1"):
        Decoding(model_of((0,)), chunk=0)


def test_copies_of_rows_and_what_they_keep() -> None:
    c = model_of((5, 0)).config
    held = KeyValueCache(c, 3, CONTEXT, dtype=cb.i8, chunk=4)
    rng = np.random.default_rng(0)
    for layer in held.layers:
        for tensor in layer:
            tensor.numpy()[:] = rng.integers(-9, 9, tensor.shape)
    before = [[t.numpy().copy() for t in layer] for layer in held.layers]
    held.wrote([0, 1], [50, 8], 1)
    held.copy_rows([0, 1], [1, 2], 30)
    assert held.oldest[:, 0].tolist() == [41, 41, 0]
    for layer, was in zip(held.layers, before, strict=True):
        for tensor, old in zip(layer, was, strict=True):
            now, n = tensor.numpy(), min(30, old.shape[2])
            np.testing.assert_array_equal(now[1, :, :n], old[0, :, :n])
            np.testing.assert_array_equal(now[2, :, :n], old[1, :, :n])
            np.testing.assert_array_equal(now[1:, :, n:], old[1:, :, n:])


def sampling(rng: np.random.Generator) -> dict[str, Any]:
    """Options of choosing tokens, none or many of them."""
    some: dict[str, list[Any]] = {
        "temperature": [0.3, 1.0, 2.5],
        "top_k": [1, 8, 30],
        "top_p": [0.0, 0.5, 0.95],
        "min_p": [0.05, 1.0],
        "typical_p": [0.2, 0.9],
        "repetition_penalty": [0.7, 1.3],
        "presence_penalty": [-1.0, 0.5],
        "frequency_penalty": [-0.3, 0.5],
        "logit_bias": [{3: -np.inf, 9: 2.0}, {np.int64(5): 3}],
        "log_probabilities": [True],
    }
    often = float(rng.choice([0.0, 0.2, 0.6]))
    return {
        name: values[int(rng.integers(len(values)))]
        for name, values in some.items()
        if rng.random() < often
    }


class Drawn:
    """A random life of a `Decoding`: requests of all kinds that come, fork and end at any step.

    Args:
        seed: of all that is drawn.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        windows = [(0, 0), (7, 0), (11, 4)][int(rng.integers(3))]
        kind = int(rng.integers(5))
        self.longer = kind == 0
        self.model = model_of(windows, 16, self.longer, kind == 1)
        self.dtype = [None, "int8", "bf16"][int(rng.integers(3))]
        small = [model_of((6, 0)), model_of((0, 0), learned=True)][int(rng.integers(2))]
        drafts = [None, PromptLookup(3, 2, 1), DraftModel(small, 3)]
        self.drafts: Any = drafts[int(rng.integers(3))]
        self.ends = frozenset(rng.integers(0, 40, int(rng.integers(3))).tolist())
        options: dict[str, Any] = {"cache_dtype": self.dtype, "chunk": int(rng.integers(1, 24))}
        options["ends"] = self.ends
        self.together = Decoding(self.model, int(rng.integers(1, 4)), drafts=self.drafts, **options)
        self.system = prompt(rng, 30)
        self.asked: list[tuple[Any, int, dict[str, Any]]] = []

    def add(self) -> None:
        """A request, with a beginning that others have, too."""
        rng = self.rng
        given = [*self.system[: int(rng.integers(len(self.system) + 1))], *prompt(rng, 20)]
        ends = {0: ORIGINAL, 1: CONTEXT - int(rng.integers(4))}  # where something else begins
        if (length := ends.get(int(rng.integers(6)))) is not None:
            given = (given * length)[:length]
        options = {"seed": int(rng.integers(9)), **sampling(rng)}
        limit = int(rng.integers(1, 30))
        made = self.together.add(given, limit, **options)
        self.asked.append((made, limit, options))

    def fork(self) -> None:
        """A fork of a request that goes on."""
        alive = [one for one in self.asked if not one[0].ended]
        if alive:
            request, limit, options = alive[int(self.rng.integers(len(alive)))]
            self.asked.append((self.together.fork(request), limit, options))

    def finish(self) -> None:
        """A request ends early."""
        alive = [request for request, *_ in self.asked if not request.ended]
        if alive:
            self.together.finish(alive[int(self.rng.integers(len(alive)))])

    def move(self) -> None:
        """All goes on from a file, perhaps with other guesses."""
        before = self.together.requests
        with tempfile.TemporaryDirectory() as folder:
            self.together.save(f"{folder}/state")
            drafts = None if self.together.chunk < 3 else self.drafts
            self.together = Decoding.restore(self.model, f"{folder}/state", drafts=drafts)
        new = dict(zip(map(id, before), self.together.requests, strict=True))
        self.asked = [(new.get(id(r), r), limit, options) for r, limit, options in self.asked]

    def live(self) -> None:
        """A few dozen steps."""
        for _ in range(40):
            drawn = self.rng.integers(20)
            if drawn < 5 and len(self.asked) < 10:
                self.add()
            elif drawn == 5:
                self.fork()
            elif drawn == 6:
                self.finish()
            elif drawn == 7:
                self.move()
            self.together.step(int(self.rng.integers(1, 12)))
        self.together.run()

    def check(self) -> None:
        """Compare each text with the one that is written alone, with whole caches, token by
        token.
        """
        for request, limit, options in self.asked:
            alone = Decoding(self.model, 1, cache_dtype=self.dtype, chunk=CONTEXT, ends=self.ends)
            right = alone.add(request.prompt, limit, **options)
            while alone.active:
                alone.step()
            if request.ended == "finished":
                assert request.written == right.written[: len(request.written)]
            else:
                assert (request.written, request.ended) == (right.written, right.ended)
            known = right.log_probabilities[: len(request.log_probabilities)]
            np.testing.assert_allclose(request.log_probabilities, known, atol=1e-2)
            assert len(known) == ("log_probabilities" in options) * len(request.written)
            if not self.dtype and not self.longer and request.sampling.greedy:
                assert is_greedy(self.model, request.prompt, request.written)


@pytest.mark.parametrize("seed", range(16))
def test_everything_together_writes_what_each_text_writes_alone(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cubepy.models.generation.several.SECONDS", 1e9)
    drawn = Drawn(seed)
    drawn.live()
    assert len(drawn.asked) > 3
    drawn.check()


@pytest.mark.parametrize("drafts", [None, PromptLookup(3, 2, 1)])
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}], ids=["greedy", "sampled"])
def test_prompts_that_end_where_other_angles_begin(drafts: Any, options: dict[str, Any]) -> None:
    model = model_of((0, 0), longer=True)
    for length in range(ORIGINAL - 2, ORIGINAL + 3):
        given = ([3, 1, 4, 1, 5, 9] * 9)[:length]
        alone = Decoding(model, 1, chunk=CONTEXT)
        right = alone.add(given, 6, **options)
        while alone.active:
            alone.step()
        assert model.generate(given, 6, drafts=drafts, **options) == right.written
        for k in range(0 if options else 6):
            before = [*given, *right.written[:k]]
            assert right.written[k] == int(model([before])[0, -1].argmax())


@pytest.mark.parametrize("windows", [(0, 0), (7, 0)], ids=str)
def test_tokens_come_several_at_a_time(
    windows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One, two, four, eight; up to what ends a text, or its length; one where calls are slow."""
    model = model_of(windows)
    given = [3, 1, 4, 1, 5]
    slow = Decoding(model, 1)
    right = slow.add(given, 40)
    monkeypatch.setattr("cubepy.models.generation.several.SECONDS", 0.0)
    counts = []
    while slow.active:
        counts.append([len(new) for _, new in slow.step(20)])
    assert counts == [[1, 1]] + [[1]] * 38
    monkeypatch.setattr("cubepy.models.generation.several.SECONDS", 1e9)
    fast = Decoding(model, 2)
    request = fast.add(given, 40)
    counts = []
    while fast.active:
        counts.append([len(new) for _, new in fast.step(20)])
    assert counts == [[1, 1], [2], [4], [8], [8], [8], [8]] and request.written == right.written
    end = right.written[20]
    until = right.written.index(end) + 1
    ends = Decoding(model, 2, ends=frozenset([end]))
    first, other = ends.add(given, 40), ends.add([9, 2], 40)
    ends.run()
    assert (first.written, first.ended) == (right.written[:until], "end")
    alone = Decoding(model, 1, ends=frozenset([end]))
    its = alone.add([9, 2], 40)
    while alone.active:
        alone.step()
    assert (other.written, other.ended) == (its.written, its.ended)
