"""Requests that come and go, share what was read, fork, and are guessed ahead; beam search."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import quant
from cubepy.errors import ArgumentError, LaunchError, OutOfMemoryError
from cubepy.models.generation.cache import KeyValueCache
from cubepy.models.generation.drafts import DraftModel, PromptLookup
from cubepy.models.generation.requests import Decoding
from cubepy.models.generation.sampling import Sampling
from tests.models.folders import FIXTURES, fixture, folder
from tests.pretend import NAME, pretend

FAMILIES = ["llama", "gemma3", "gpt2", "phi3"]  # windows, learned positions, joined projections


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("models")
    found = {n: cb.load(folder(path / n, fixture("decoders")[n])) for n in FAMILIES}
    for model in found.values():
        model.ends = frozenset()
    return found


PROMPTS = [[5, 9, 2, 44], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9], [5, 9, 2, 44, 3, 3]]
SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_k": 20, "repetition_penalty": 1.2}


@pytest.mark.parametrize("options", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("drafts", ["none", "lookup", "model"])
@pytest.mark.parametrize("name", FAMILIES)
def test_all_together_write_what_each_one_writes(
    name: str, drafts: str, options: dict[str, Any], models: dict[str, Any]
) -> None:
    """Ragged lengths, fewer rows than requests, requests that come late, shared beginnings, guesses."""
    model = models[name]
    made: dict[str, Any] = {
        "none": lambda: None,
        "lookup": lambda: PromptLookup(4, 2, 1),
        "model": lambda: DraftModel(models["gpt2"], 3),
    }
    lengths = [12, 9, 5, 14]
    right = [
        model.generate(p, max_new_tokens=n, seed=3, **options)
        for p, n in zip(PROMPTS, lengths, strict=True)
    ]
    together = Decoding(model, rows=2, drafts=made[drafts]())
    requests = []
    for prompt, n in zip(PROMPTS, lengths, strict=True):
        requests.append(together.add(prompt, n, seed=3, **options))
        together.step()
    together.run()
    assert [r.written for r in requests] == right
    assert {r.ended for r in requests} == {"length"}


@pytest.mark.parametrize("name", FAMILIES)
def test_drafts_do_not_change_the_text(name: str, models: dict[str, Any]) -> None:
    model = models[name]
    right = model.generate(PROMPTS, max_new_tokens=25)
    assert model.generate(PROMPTS, max_new_tokens=25, drafts=PromptLookup()) == right
    assert model.generate(PROMPTS, max_new_tokens=25, drafts=DraftModel(model)) == right
    assert list(model.stream(PROMPTS[0], 25, drafts=PromptLookup())) == right[0]


def test_right_guesses_save_steps(models: dict[str, Any]) -> None:
    model = models["llama"]
    together = Decoding(model, rows=1, drafts=DraftModel(model, 4))
    request = together.add(PROMPTS[0], 21)
    steps = 0
    while together.active:
        together.step()
        steps += 1
    assert len(request.written) == 21 and steps <= 6  # the model guesses itself: five in a step


def test_programs_are_traced_once_for_a_width(models: dict[str, Any]) -> None:
    model = models["llama"].clone()
    for _ in range(2):
        together = Decoding(model, rows=3)
        for prompt in PROMPTS:
            together.add(prompt, 20)
        together.run()
    assert sum(together.steps.several.traces.values()) == 1
    assert not together.steps.scores.traces and not together.steps.likeliest.traces
    again = Decoding(model, rows=3, drafts=PromptLookup(3))
    again.add(PROMPTS[2], 30)
    again.run()
    assert sum(together.steps.likeliest.traces.values()) == 1
    assert sum(together.steps.several.traces.values()) == 1


@pytest.mark.parametrize("rows", [1, 4])
def test_a_step_that_goes_on_looks_at_nothing_else(rows: int, models: dict[str, Any]) -> None:
    """Where nothing comes, ends or is to be read, Python calls a handful of functions for all rows;
    what happens in between is seen by the next step.
    """
    model = models["llama"]
    together = Decoding(model, rows=rows)
    requests = [together.add([n, 2, 3], 40) for n in range(rows)]
    for _ in range(12):
        together.step()
    calls = []

    def count(_: Any, event: str, __: Any) -> None:
        calls.append(event)

    sys.setprofile(count)
    try:
        together.step()
    finally:
        sys.setprofile(None)
    assert calls.count("call") <= 40 and calls.count("c_call") <= 60 + 6 * rows
    programs = [one for found in model.steps.several.programs.values() for one in found]
    assert not any(program.plan.guards for program in programs if program.plan)
    together.finish(requests[0])
    later = together.add([9, 9], 5)
    together.run()
    assert later.written == model.generate([9, 9], 5)
    assert [r.written for r in requests[1:]] == [
        model.generate([n, 2, 3], 40) for n in range(1, rows)
    ]
    assert requests[0].written == model.generate([0, 2, 3], len(requests[0].written))


def test_guesses_beyond_the_vocabulary_are_none(models: dict[str, Any]) -> None:
    class Wild:
        count = 3

        def propose(self, texts: dict[int, list[int]]) -> dict[int, list[int]]:
            return {row: [tokens[-1], 10**6, -1] for row, tokens in texts.items()}

    right = models["llama"].generate(PROMPTS, max_new_tokens=12)
    assert models["llama"].generate(PROMPTS, max_new_tokens=12, drafts=Wild()) == right


def test_forks_go_on_from_the_same_text(models: dict[str, Any]) -> None:
    model = models["gemma3"]
    together = Decoding(model, rows=3)
    first = together.add(PROMPTS[2], 16, seed=1, **SAMPLED)
    for _ in range(6):
        together.step()
    same, other = together.fork(first), together.fork(first, seed=2)
    before = list(first.written)
    together.run()
    assert same.written == first.written
    assert other.written[: len(before)] == before and other.written != first.written
    with pytest.raises(LaunchError, match="has ended cannot be forked"):
        together.fork(first)


def test_a_beginning_that_a_row_has_is_not_read_again(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models["llama"]
    together = Decoding(model, rows=2)
    system = list(range(1, 30))
    first = together.add([*system, 3], 6)
    together.run()
    read: list[int] = []
    hidden = model.hidden

    def counted(tokens: Any, *rest: Any) -> Any:
        read.append(int(np.prod(tokens.shape)))
        return hidden(tokens, *rest)

    monkeypatch.setitem(model.__dict__, "hidden", counted)
    second = together.add([*system, 8, 9], 6)
    third = together.add([*system, 8, 9, 4], 6)
    together.step()
    assert read[0] == 2  # what is behind the shared beginning
    together.run()
    monkeypatch.undo()
    for request in (first, second, third):
        assert request.written == model.generate(request.prompt, max_new_tokens=6)


def test_finished_requests_free_their_rows(models: dict[str, Any]) -> None:
    model = models["llama"]
    together = Decoding(model, rows=1)
    first, second = together.add(PROMPTS[0], 50), together.add(PROMPTS[1], 4)
    third = together.add(PROMPTS[2], 4)
    for _ in range(3):
        together.step()
    together.finish(third)
    together.finish(first)
    together.run()
    assert first.ended == third.ended == "finished" and not third.written
    assert first.written == model.generate(PROMPTS[0], max_new_tokens=len(first.written))
    assert second.written == model.generate(PROMPTS[1], max_new_tokens=4)


def test_ends_and_contexts(models: dict[str, Any]) -> None:
    model = models["llama"]
    text = model.generate(PROMPTS[0], max_new_tokens=30)
    end = text[7]
    together = Decoding(model, rows=2, ends=frozenset([end]))
    request = together.add(PROMPTS[0], 30)
    full = together.add([1] * model.config.context, 3)
    near = together.add([2] * (model.config.context - 3), 30)
    together.run()
    assert request.written == text[: text.index(end) + 1] and request.ended == "end"
    assert full.ended == "context" and not full.written
    assert near.ended in ("context", "end") and len(near.written) <= 3


@pytest.mark.parametrize("drafts", [None, PromptLookup(4)])
def test_without_memory_the_longest_text_ends_and_the_others_go_on(
    drafts: Any, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models["llama"]
    monkeypatch.setattr("cubepy.models.generation.cache.LEAST", 16)
    monkeypatch.setattr("cubepy.models.generation.requests.PIECE", 16)
    right = model.generate(PROMPTS[1], max_new_tokens=10)
    together = Decoding(model, rows=2, drafts=drafts)
    long, short = together.add(PROMPTS[2], 40), together.add(PROMPTS[1], 10)

    def none(self: Any, positions: int) -> None:
        if positions > self.capacity:
            raise OutOfMemoryError("no memory for a cache")

    monkeypatch.setattr(KeyValueCache, "grow", none)
    together.run()
    assert long.ended == "memory" and 0 < len(long.written) < 40
    assert short.ended == "length" and short.written == right


def test_caches_that_grow_while_others_write(
    models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models["gemma3"]
    right = model.generate(PROMPTS, max_new_tokens=30)
    monkeypatch.setattr("cubepy.models.generation.cache.LEAST", 8)
    monkeypatch.setattr("cubepy.models.generation.requests.PIECE", 5)
    together = Decoding(model, rows=3, drafts=PromptLookup(3))
    requests = [together.add(p, 30) for p in PROMPTS]
    together.run()
    assert [r.written for r in requests] == right


def test_a_device_of_its_own(
    tmp_path: Path, models: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = models["llama"].generate(PROMPTS, max_new_tokens=9)
    best = models["llama"].beams(PROMPTS[0], 6, 3)
    with pretend(monkeypatch):
        there = cb.load(folder(tmp_path, fixture("decoders")["llama"]), device=NAME)
        there.ends = frozenset()
        together = Decoding(there, rows=2, drafts=PromptLookup(3))
        requests = [together.add(p, 9) for p in PROMPTS]
        together.run()
        assert [r.written for r in requests] == right
        assert [t for _, t in there.beams(PROMPTS[0], 6, 3)] == [t for _, t in best]


def test_log_probabilities(models: dict[str, Any]) -> None:
    model = models["llama"]
    together = Decoding(model, rows=2, drafts=PromptLookup(3))
    request = together.add(PROMPTS[0], 8, log_probabilities=True)
    together.add(PROMPTS[1], 8)
    together.run()
    whole = model.log_probabilities(request.tokens)
    assert len(whole) == len(request.tokens) - 1 and (whole < 0).all()
    np.testing.assert_allclose(request.log_probabilities, whole[len(PROMPTS[0]) - 1 :], atol=1e-4)


def test_beams_of_one_are_greedy(models: dict[str, Any]) -> None:
    model = models["llama"]
    ((score, tokens),) = model.beams(PROMPTS[0], 10, 1)
    assert tokens == model.generate(PROMPTS[0], max_new_tokens=10)
    total = model.log_probabilities([*PROMPTS[0], *tokens])[-10:].sum()
    assert abs(score - total / 10) < 1e-4


def test_beams_of_several_prompts_are_those_of_each(models: dict[str, Any]) -> None:
    model = models["llama"]
    found = model.beams(PROMPTS, 6, 3, length_penalty=0.5)
    assert found == [model.beams(p, 6, 3, length_penalty=0.5) for p in PROMPTS]
    assert model.beams([PROMPTS[0]], 6, 3, length_penalty=0.5) == found[:1]
    with pytest.raises(LaunchError, match="token 99 is not in the vocabulary"):
        model.beams([PROMPTS[0], [99]], 6, 3)


@pytest.mark.parametrize("count", [1, 2, 4, 30, 60, 61])
def test_beams_whatever_ends_them(count: int, models: dict[str, Any]) -> None:
    """Also where nothing goes on: all tokens end a text, or all others are forbidden."""
    model, rng = models["llama"], np.random.default_rng(count)
    model.ends = frozenset(rng.permutation(61)[:count].tolist())
    try:
        for beams in (1, 3, 30, 99):
            found = model.beams(PROMPTS[0], 5, beams)
            assert 0 < len(found) <= beams
            assert found == sorted(found, key=lambda one: -one[0])
            assert len({tuple(tokens) for _, tokens in found}) == len(found)
            for score, tokens in found:
                inner = [t for t in tokens[:-1] if t in model.ends]
                assert not inner and (tokens[-1] in model.ends or len(tokens) == 5)
                total = model.log_probabilities([*PROMPTS[0], *tokens])[-len(tokens) :].sum()
                assert abs(score - total / len(tokens)) < 1e-4
        few = dict.fromkeys(range(2, 61), -np.inf)
        found = model.beams(PROMPTS[0], 5, 4, logit_bias=few)
        assert found and all(set(tokens) <= {0, 1} for _, tokens in found)
    finally:
        model.ends = frozenset()


@pytest.mark.parametrize(
    ("options", "error", "rule"),
    [
        ({"temperature": 1.0}, ArgumentError, "are for generate"),
        ({"top_k": 3}, ArgumentError, "are for generate"),
        ({"typical_p": 0.5}, ArgumentError, "are for generate"),
        ({"seed": 3}, ArgumentError, "there is no option 'seed'"),
        ({"max_new_tokens": 2.5}, ArgumentError, "max_new_tokens must be an integer"),
        ({"beams": 2.0}, ArgumentError, "beams must be an integer"),
        ({"length_penalty": "a"}, ArgumentError, "length_penalty must be a finite number"),
        ({"length_penalty": np.nan}, ArgumentError, "length_penalty must be a finite number"),
        ({"early_stopping": "never"}, ArgumentError, "early_stopping must be a bool"),
        ({"logit_bias": dict.fromkeys(range(61), -np.inf)}, LaunchError, "leave no token"),
    ],
)
def test_wrong_options_of_beams(
    options: dict[str, Any], error: type, rule: str, models: dict[str, Any]
) -> None:
    with pytest.raises(error, match=rule):
        models["llama"].beams([1, 2], **options)
    found = models["llama"].beams([1, 2], np.int64(3), np.int64(2), length_penalty=1e308)
    assert len(found) == 2


def test_wrong_arguments(models: dict[str, Any]) -> None:
    model = models["llama"]
    together = Decoding(model)
    with pytest.raises(ArgumentError, match="rows must be an integer of at least 1, not 0"):
        Decoding(model, 0)
    with pytest.raises(ArgumentError, match="a Decoding takes a decoder"):
        Decoding(cb.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="warmth"):
        together.add([1], warmth=3)
    with pytest.raises(LaunchError, match="token 99 is not in the vocabulary"):
        together.add([99])
    with pytest.raises(ArgumentError, match="count must be an integer of at least 1"):
        PromptLookup(0)
    with pytest.raises(ArgumentError, match="beams must be an integer of at least 1"):
        model.beams([1], 3, 0)
    with pytest.raises(LaunchError, match="typical_p must be from 0.0 to 1.0"):
        Sampling(typical_p=1.5)
    assert not together.active


def judged() -> tuple[Any, dict[str, np.ndarray]]:
    """What transformers gave; see scripts/make_generation_fixture.py."""
    with np.load(FIXTURES / "generation.npz") as file:
        arrays = dict(file)
    return json.loads(arrays.pop("said").tobytes()), arrays


def test_distributions_are_those_of_transformers() -> None:
    said, arrays = judged()
    for scores, tokens, rows in zip(
        arrays["scores"], arrays["tokens"], arrays["distributions"], strict=True
    ):
        for options, right in zip(said["processors"], rows, strict=True):
            sampling = Sampling(**options)
            found = sampling.distribution(sampling.penalized(scores, tokens.tolist(), []))
            np.testing.assert_array_equal(found > 0, right > 0, err_msg=str(options))
            np.testing.assert_allclose(found, right, atol=1e-7, err_msg=str(options))


def test_beams_are_those_of_transformers(models: dict[str, Any]) -> None:
    model = models["llama"]
    ended = 0
    for case in judged()[0]["beams"]:
        options = dict(case["options"])
        count = options.pop("num_beams")
        model.ends = frozenset() if case["end"] is None else frozenset([case["end"]])
        found = model.beams(case["prompt"], 12, count, **options)
        model.ends = frozenset()
        assert [tokens for _, tokens in found] == case["texts"], case
        np.testing.assert_allclose([s for s, _ in found], case["scores"], atol=1e-4)
        ended += any(len(t) < 12 for t in case["texts"])
    assert ended > 5


@pytest.mark.parametrize("drafts", [None, PromptLookup(3)])
def test_quantized_weights_together(drafts: Any, models: dict[str, Any]) -> None:
    found = quant.quantize(models["gemma3"], "int8", measure_speed=False, skip=())
    small = found.model
    assert found.report.layers
    right = [small.generate(p, max_new_tokens=10) for p in PROMPTS]
    together = Decoding(small, rows=2, drafts=drafts)
    requests = [together.add(p, 10) for p in PROMPTS]
    together.run()
    assert [r.written for r in requests] == right
