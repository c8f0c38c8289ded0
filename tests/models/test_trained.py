"""Models that others trained give what onnxruntime and transformers do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from tests.models.trained import drawn, expected, facts, file_of

GRAPHS = sorted(name for name in expected() if name.endswith(".onnx"))
TEXTS = next(name for name in expected() if name.endswith(".gguf"))


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str) -> None:
    """Three calls, the last of which is a program."""
    want = expected()[name]
    model = cb.load(file_of(name))
    given = drawn(want["inputs"])
    for _ in range(3):
        found = model(**given)
        assert list(found) == list(want["outputs"])
        for key, right in want["outputs"].items():
            got = facts(np.asarray(found[key].numpy()))
            assert got["shape"] == right["shape"]
            near = 1e-4 * max(np.abs(right["some"]).max(initial=0), 1e-2)
            np.testing.assert_allclose(got["some"], right["some"], rtol=1e-4, atol=near)
            np.testing.assert_allclose(got["norm"], right["norm"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("prompt", sorted(expected()[TEXTS]))
def test_texts(prompt: str, smollm: Any) -> None:
    """Tokens, first choices with their scores, and a text of 24 tokens; bytes as activations keep
    the first choice.
    """
    want = expected()[TEXTS][prompt]
    exact, rounded = smollm
    tokens = [int(t) for t in exact.tokenizer.encode(prompt)]
    assert tokens == want["tokens"]
    scores = exact.logits([tokens]).numpy()[0, -1]
    best = {int(t): v for t, v in want["best"].items()}
    assert [int(t) for t in np.argsort(-scores)[: len(best)]] == list(best)
    np.testing.assert_allclose(scores[list(best)], list(best.values()), rtol=2e-4)
    exact.ends = frozenset()
    assert exact.generate(tokens, max_new_tokens=len(want["written"])) == want["written"]
    near = rounded.logits([tokens]).numpy()[0, -1]
    assert int(near.argmax()) == next(iter(best))
    p, q = (np.exp(x - x.max(), dtype=np.float64) for x in (scores, near))
    p, q = p / p.sum(), q / q.sum()
    assert float((p * np.log(p / q)).sum()) <= 0.1


@pytest.fixture(scope="module")
def smollm() -> Any:
    """SmolLM2 with floats and with bytes as activations."""
    path = file_of(TEXTS)
    return cb.load(path, activations="float"), cb.load(path)
