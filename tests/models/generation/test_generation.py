"""Generation: sampling, limits, streams, and the same text in any batch."""

from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError
from cubepy.models.generation.cache import KeyValueCache
from cubepy.models.generation.drafts import PromptLookup
from cubepy.models.generation.requests import Decoding
from cubepy.models.generation.sampling import Sampling, uniform
from cubepy.models.generation.tokenizer import Growing
from tests.models.folders import fixture, folder
from tests.pretend import NAME, pretend


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cb.load(folder(tmp_path_factory.mktemp("llama"), fixture("decoders")["llama"]))


PROMPTS = [[5, 9, 2, 44], [7], [1, 2, 3, 4, 5, 6, 7, 8, 9]]


def test_seeds_say_the_same_in_any_batch(model: Any) -> None:
    options: dict[str, Any] = {"max_new_tokens": 12, "temperature": 1.0, "top_k": 20, "seed": 3}
    together = model.generate(PROMPTS, **options)
    assert together == [model.generate(p, **options) for p in PROMPTS]
    assert together != model.generate(PROMPTS, **(options | {"seed": 4}))
    assert together == list(map(list, (model.stream(p, **options) for p in PROMPTS)))


def test_a_longer_text_begins_with_a_shorter_one(model: Any) -> None:
    long = model.generate(PROMPTS[0], max_new_tokens=30)
    assert model.generate(PROMPTS[0], max_new_tokens=11) == long[:11]


def test_a_device_of_its_own_writes_the_same(
    tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are plans of launches there, too, which write to the cache in place."""
    right = model.generate(PROMPTS, max_new_tokens=16)
    with pretend(monkeypatch):
        there = cb.load(folder(tmp_path, fixture("decoders")["llama"]), device=NAME)
        assert there.generate(PROMPTS, max_new_tokens=16) == right
        (step,) = there.steps.greedy.explain().programs
        assert step.planned == ""


@pytest.mark.parametrize("name", ["gemma3", "gpt2"])
def test_files_are_read_on_the_host(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while another device is the current one."""
    path = folder(tmp_path, fixture("decoders")[name])
    right = cb.load(path).generate(PROMPTS, max_new_tokens=8)
    with pretend(monkeypatch), cb.use(NAME):
        model, host = cb.load(path), cb.load(path, device="cpu")
        assert str(model.words.weight.device) == NAME and str(host.words.weight.device) == "cpu"
        assert model.generate(PROMPTS, max_new_tokens=8) == right
        assert host.generate(PROMPTS, max_new_tokens=8) == right


def test_prompts_read_in_pieces(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = model.generate(PROMPTS, max_new_tokens=6)
    monkeypatch.setattr("cubepy.models.generation.requests.PIECE", 4)
    assert model.generate(PROMPTS, max_new_tokens=6) == right


def test_caches_grow(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = model.generate(PROMPTS[0], max_new_tokens=40)
    monkeypatch.setattr("cubepy.models.generation.cache.LEAST", 4)
    monkeypatch.setattr("cubepy.models.generation.requests.PIECE", 4)
    assert model.generate(PROMPTS[0], max_new_tokens=40) == right


def test_texts_end_at_the_context_and_at_end_tokens(model: Any) -> None:
    assert len(model.generate(PROMPTS[2], max_new_tokens=1000)) == 64 - 9
    right = model.generate(PROMPTS, max_new_tokens=10)
    model.ends = frozenset([right[0][3]])
    try:
        found = model.generate(PROMPTS, max_new_tokens=10)
    finally:
        model.ends = frozenset()
    for cut, whole in zip(found, right, strict=True):
        end = whole.index(right[0][3]) + 1 if right[0][3] in whole else 10
        assert cut == whole[:end]
    assert model.generate(PROMPTS[0], max_new_tokens=0) == []


@pytest.mark.parametrize(
    ("prompt", "options", "error", "rule"),
    [
        ([], {}, ArgumentError, "a prompt is"),
        ([[]], {}, ArgumentError, "a prompt is"),
        ([61], {}, LaunchError, "token 61 is not in the vocabulary of 61"),
        ([-1], {}, LaunchError, "token -1"),
        ([1] * 65, {}, LaunchError, "65 tokens is longer than the context of 64"),
        ("text", {}, ArgumentError, "no tokenizer"),
        ([1], {"temperature": -1.0}, LaunchError, "temperature must be at least 0.0, not -1.0"),
        ([1], {"temperature": math.inf}, LaunchError, "temperature must be finite"),
        ([1], {"top_p": 1.5}, LaunchError, "top_p must be from 0.0 to 1.0"),
        ([1], {"top_k": 0.5}, LaunchError, "top_k must be an integer"),
        ([1], {"magic": 1}, ArgumentError, "there is no option 'magic'"),
        ([1], {"temperature": 10**400}, LaunchError, "temperature must be finite, not inf"),
        ([1], {"frequency_penalty": -(10**400)}, LaunchError, "must be finite, not -inf"),
        ([1], {"logit_bias": {3: 10**400}}, LaunchError, "logit_bias must be below infinity"),
        ([1], {"logit_bias": dict.fromkeys(range(61), -math.inf)}, LaunchError, "leave no token"),
        (b"text", {}, ArgumentError, "a prompt is a text, messages or tokens, not b'text'"),
        ([1], {"stop": "x"}, ArgumentError, "stop texts need prompts that are texts"),
        ([1], {"seed": [1, 2]}, ArgumentError, "a seed"),
        ([1], {"max_new_tokens": -1}, ArgumentError, "max_new_tokens"),
        ([1], {"logit_bias": {99: 1.0}}, LaunchError, "logit_bias names token 99"),
        ([["a"], [1]], {}, ArgumentError, "no tokenizer"),
    ],
)
def test_wrong_arguments(model: Any, prompt: Any, options: dict, error: type, rule: str) -> None:
    with pytest.raises(error, match=rule):
        model.generate(prompt, **options)


def test_nan_scores_are_an_error(tmp_path: Path) -> None:
    given = dict(fixture("decoders")["llama"])
    given["w:model.norm.weight"] = np.full(16, np.nan)
    model = cb.load(folder(tmp_path, given))
    with pytest.raises(LaunchError, match="NaN or infinity"):
        model.generate([1], max_new_tokens=2)


def test_a_cache_longer_than_the_context_is_refused(model: Any) -> None:
    with pytest.raises(LaunchError, match="65 positions are more than the 64"):
        KeyValueCache(model.config, 1, 65)


# Sampling against transformers' processors: what each leaves, written down


SCORES = np.array([1.0, 3.0, 2.0, -1.0, 0.5])


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def test_distributions() -> None:
    whole = softmax(SCORES)
    np.testing.assert_allclose(Sampling(temperature=1.0).distribution(SCORES), whole)
    np.testing.assert_allclose(Sampling(temperature=2.0).distribution(SCORES), softmax(SCORES / 2))
    top = Sampling(temperature=1.0, top_k=2).distribution(SCORES)
    np.testing.assert_allclose(top, softmax(np.where(SCORES < 2, -np.inf, SCORES)))
    # .66 + .24 = .9 reach .7 at the second token
    nucleus = Sampling(temperature=1.0, top_p=0.7).distribution(SCORES)
    np.testing.assert_array_equal(nucleus > 0, [False, True, True, False, False])
    least = Sampling(temperature=1.0, min_p=0.1).distribution(SCORES)
    np.testing.assert_array_equal(least > 0, [True, True, True, False, False])
    assert Sampling(temperature=1.0, top_p=0.0).distribution(SCORES)[1] == 1


def test_temperatures_near_zero_take_the_likeliest() -> None:
    with np.errstate(all="raise", under="ignore"):
        for temperature in (1e-320, 1e-300, 1e-30):
            sampling = Sampling(temperature=temperature, top_p=0.9, typical_p=0.5)
            assert sampling.choose(SCORES, [], [], 3) == 1


def test_penalties() -> None:
    s = Sampling(repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    found = s.penalized(SCORES, [3], [1, 1])
    np.testing.assert_allclose(found, [1.0, 1.5 - 0.5 - 0.5, 2.0, -2.0, 0.5])
    biased = Sampling(logit_bias={4: 10.0})
    assert biased.choose(SCORES, [], [], 0) == 4 and not biased.greedy


def test_random_numbers_are_those_of_numpy() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        seed, at = (
            int(rng.integers(0, 2 ** int(rng.integers(1, 65)), dtype=np.uint64)) for _ in "ab"
        )
        philox = np.random.Philox(key=seed, counter=np.array([0, 0, 0, at], np.uint64))
        assert uniform(seed, at) == np.random.Generator(philox).random()


def test_random_numbers_are_uniform_and_choices_follow_them() -> None:
    drawn = np.array([uniform(1, n) for n in range(2000)])
    assert abs(drawn.mean() - 0.5) < 0.02 and 0 <= drawn.min() and drawn.max() < 1
    s = Sampling(temperature=1.0)
    counts = np.bincount([s.choose(SCORES, [], [0] * n, 1) for n in range(2000)], minlength=5)
    np.testing.assert_allclose(counts / 2000, softmax(SCORES), atol=0.03)


def plainly(scores: np.ndarray, s: Sampling) -> np.ndarray:
    """Probabilities of all tokens, with all of them sorted."""
    scores = scores.astype(np.float64) / s.temperature
    if s.top_k:
        scores = np.where(scores < np.sort(scores)[-s.top_k], -np.inf, scores)
    found = np.exp(scores - scores.max())
    found /= found.sum()
    order = np.argsort(-found, kind="stable")
    before = np.cumsum(found[order]) - found[order]
    if s.top_p < 1:
        found[order[before > s.top_p]] = 0
    return found / found.sum()


@pytest.mark.parametrize("top_k", [0, 1, 7, 60, 900])
@pytest.mark.parametrize("top_p", [0.1, 0.95, 0.9999, 1.0])
def test_few_of_many_tokens_are_sorted(top_k: int, top_p: float) -> None:
    rng = np.random.default_rng([top_k, int(top_p * 10_000)])
    for spread, size in ((0.1, 3000), (4.0, 3001), (2.0, 70)):
        scores = (spread * rng.standard_normal(size)).astype(np.float32)
        scores[: size // 2] = scores[: size // 2].round(1)  # many are equal
        sampling = Sampling(temperature=0.7, top_k=min(top_k, size - 1), top_p=top_p)
        found, wanted = sampling.distribution(scores), plainly(scores, sampling)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=0)
        for seed in range(5):
            at = np.searchsorted(np.cumsum(wanted), uniform(seed, 2) * wanted.sum(), "right")
            assert sampling.choose(scores, [1], [2, 3], seed) == at


def as_bytes(tokens: Any) -> str:
    return bytes(tokens).decode("utf-8", "replace")


def as_words(tokens: Any) -> str:
    return "".join(f" w{t}" for t in tokens).lstrip()


def with_a_count(tokens: Any) -> str:
    return f"{len(tokens) // 100} hundred:" + as_words(tokens)


@pytest.mark.parametrize("decode", [as_bytes, as_words, with_a_count])
def test_a_text_that_grows_is_that_of_all_its_tokens(decode: Any) -> None:
    """Letters of several bytes, a space that goes at the beginning, words that change what is
    before them.
    """
    rng = np.random.default_rng(2)
    letters = rng.choice(list("ab \u00e9\u20ac\U0001f600"), 300)
    tokens = list("".join(letters).encode())
    decoded: list[int] = []

    def counting(given: Any) -> str:
        decoded.append(len(given))
        return str(decode(given))

    grows = Growing(counting)
    for n, token in enumerate(tokens, 1):
        text = grows.add(token)
        if decode is not with_a_count or not 100 <= n < 120:  # that is seen when the few move on
            assert text == decode(tokens[:n])
    if decode is not with_a_count:
        assert sum(decoded) < 60 * len(tokens) < sum(range(len(tokens))) / 2


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"logit_bias": [1]}, r"maps tokens to numbers, unlike \[1\]"),
        ({"logit_bias": {"a": 1.0}}, "maps tokens to numbers"),
        ({"logit_bias": {3: math.nan}}, "logit_bias must be below infinity, not nan for token 3"),
        ({"seed": "a"}, "a seed from 0 to 2.64 for each of 1 prompts, not 'a'"),
        ({"seed": 1.5}, r"not 1\.5"),
        ({"seed": None}, "not None"),
        ({"seed": ["a"]}, r"not \['a'\]"),
        ({"stop": 3}, "stop must be texts that are not empty, not 3"),
        ({"drafts": "words"}, "a number `count` and a method `propose`, unlike 'words'"),
        ({"drafts": PromptLookup}, "unlike"),
    ],
)
def test_options_of_a_wrong_kind(model: Any, options: dict[str, Any], rule: str) -> None:
    with pytest.raises((ArgumentError, LaunchError), match=rule):
        model.generate([1, 2], max_new_tokens=2, **options)


def test_prompts_and_requests_of_a_wrong_kind(model: Any) -> None:
    with pytest.raises(ArgumentError, match=r"tokens are integers, unlike those of \[1, 'a'\]"):
        model.generate([1, "a"])
    together = Decoding(model, rows=1)
    ragged: Any = [[1], [2, 3]]
    for given in ("text", b"text", None, 3, {1: 2}, {1}, iter([1]), ragged, [[1]], [2**70], [0.5]):
        for use in (together.add, model.log_probabilities):
            with pytest.raises(ArgumentError, match="a prompt is a list of integers, not "):
                use(given)
    ends: Any
    for ends in ("a", [0.5], [True], {1: 2}, [None]):
        with pytest.raises(ArgumentError, match="ends are numbers of tokens, not "):
            Decoding(model, ends=ends)
    ends = [np.int64(3), 4]
    assert Decoding(model, ends=ends).ends == frozenset([3, 4])
    for use in (together.fork, together.finish):
        with pytest.raises(ArgumentError, match="expected a request, which add"):
            use("text")
    for given in (-1, 0, "a"):
        with pytest.raises(ArgumentError, match="tokens must be an integer of at least 1"):
            together.step(given)
    with pytest.raises(ArgumentError, match="max_new_tokens must be an integer"):
        together.add([1], max_new_tokens="3")


def test_numbers_of_numpy_are_options(model: Any) -> None:
    given = {"temperature": np.float32(0.9), "top_k": np.int64(9), "seed": np.int64(4)}
    plain = {"temperature": float(np.float32(0.9)), "top_k": 9, "seed": 4}
    right = model.generate([1, 2], max_new_tokens=5, **plain)
    assert model.generate([1, 2], max_new_tokens=np.int64(5), **given) == right
    assert model.generate([1, 2], max_new_tokens=5, seed=np.array([4]), stop=None) == (
        model.generate([1, 2], max_new_tokens=5, seed=4)
    )


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_of_a_model_that_wrote_writes_of_its_own_weights(model: Any, how: Any) -> None:
    right = model.generate([1, 2], max_new_tokens=5)
    other = how(model)
    assert other.generate([1, 2], max_new_tokens=5) == right
    with cb.no_grad():
        for p in other.parameters():
            p.mul_(-1.0)
    tokens = [1, 2]
    for _ in range(5):
        tokens.append(int(other([tokens])[0, -1].argmax()))
    assert other.generate([1, 2], max_new_tokens=5) == tokens[2:]
    assert model.generate([1, 2], max_new_tokens=5) == right
