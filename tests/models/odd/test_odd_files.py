"""Files that are drawn, right and wrong ones: a result or an error of ours, in little memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from cubepy.errors import ModelError
from cubepy.models.formats.gguf import GGUF
from cubepy.models.generation.tokenizer import gguf_tokenizer
from cubepy.models.onnx import load
from tests.models.odd import run
from tests.models.odd.graphs import X, function
from tests.models.onnx.writer import graph, model, node

FILES = 60


@pytest.mark.parametrize("kind", run.KINDS)
def test_drawn_files(kind: str, tmp_path: Path) -> None:
    if kind == "vocabularies":
        pytest.importorskip("tokenizers")
    tracemalloc.start()
    try:
        found = [run.tried(kind, (1, n), tmp_path) for n in range(FILES)]
    finally:
        tracemalloc.stop()
    wrong = [f"{kind} 1 {n}: {one.wrong}" for n, one in enumerate(found) if one.wrong]
    assert not wrong, wrong  # scripts/fuzz_files.py draws one again
    assert 0 < sum(one.refused for one in found) < FILES


def of(*functions: bytes, call: bytes) -> bytes:
    return model(graph([call], ["x"], ["y"]), more=b"".join(functions), one=1, two=1)


def test_functions_of_one_name_in_two_domains_may_call_each_other() -> None:
    inner = function("two", "f", (["a"], ["b"]), [node("Neg", "a", "b")])
    outer = function(
        "one", "f", (["a"], ["b"]), [node("f", "a", "c", "two"), node("Exp", "c", "b")]
    )
    found = load(of(inner, outer, call=node("f", "x", "y", "one")))(X)["y"]
    np.testing.assert_allclose(found.numpy(), np.exp(-X), rtol=1e-5)


def test_functions_that_never_end_or_come_to_too_much_are_refused() -> None:
    one = function("one", "f", (["a"], ["b"]), [node("g", "a", "b", "one")])
    two = function("one", "g", (["a"], ["b"]), [node("f", "a", "b", "one")])
    with pytest.raises(ModelError, match="calls itself"):
        load(of(one, two, call=node("f", "x", "y", "one")))

    def chain(count: int, times: int) -> list[bytes]:
        made = [function("one", f"f{count}", (["v0"], ["b"]), [node("Relu", "v0", "b")])]
        for k in range(count):
            calls = [node(f"f{k + 1}", f"v{n}", f"v{n + 1}", "one") for n in range(times)]
            made.append(function("one", f"f{k}", (["v0"], [f"v{times}"]), calls))
        return made

    call = node("f0", "x", "y", "one")
    with pytest.raises(ModelError, match="come to more than"):
        load(of(*chain(40, 2), call=call))
    with pytest.raises(ModelError, match="deep"):
        load(of(*chain(400, 1), call=call))
    found = load(of(*chain(6, 2), call=call))(X)["y"]
    np.testing.assert_array_equal(found.numpy(), np.maximum(X, 0))


def test_long_tokens_take_no_time_by_the_square() -> None:
    """Two tokens of a million letters, which are no whole of others."""
    pytest.importorskip("tokenizers")
    words = ["<unk>", "a", "b", "ab", "a" * 1_000_000, "b" * 1_000_001]
    data = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.scores": -np.arange(6, dtype=np.float32),
        "tokenizer.ggml.token_type": np.array([2, 1, 1, 1, 1, 1], np.int32),
        "tokenizer.ggml.add_space_prefix": False,
    }
    found = gguf_tokenizer(GGUF(3, data, {}), "drawn")
    assert found is not None and found.encode("ab")[-1] == 3
