"""Files that are drawn, right and wrong ones: a result or an error of ours, in little memory."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import CubeError, FileFormatError, ModelError
from cubepy.models.formats.gguf import GGUF, read_gguf
from cubepy.models.generation.tokenizer import gguf_tokenizer
from cubepy.models.onnx import load
from cubepy.models.onnx.records import RECORDS, least_inputs, record_of
from tests.models.folders import fixture, folder
from tests.models.gguf_files import gguf_of, metadata_of
from tests.models.odd import run
from tests.models.odd.graphs import X, function
from tests.models.onnx.writer import graph, model, node, tensor
from tests.models.written import gguf, torch_zip

FILES = 60


@pytest.mark.parametrize("kind", run.KINDS)
def test_drawn_files(kind: str, tmp_path: Path) -> None:
    if kind == "vocabularies":
        pytest.importorskip("tokenizers")
    found = [run.tried(kind, (1, n), tmp_path) for n in range(FILES)]
    tracemalloc.start()  # of what compiles, too, it would take three times as long
    try:
        again = [run.tried(kind, (1, n), tmp_path) for n in range(FILES)]
    finally:
        tracemalloc.stop()
    wrong = [f"{kind} 1 {n % FILES}: {f.wrong}" for n, f in enumerate(found + again) if f.wrong]
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


def test_nodes_that_lack_inputs_are_refused_when_a_file_is_opened() -> None:
    """Each operator, alone and behind a constant: rules look at inputs before anything runs."""
    weight = [tensor("w", np.ones((3, 3), np.float32))]
    lacking = 0
    for (domain, op), records in RECORDS.items():
        version = 1 if domain else 17
        found = record_of(domain, op, version)
        if domain == "cubepy" or found is None:
            continue
        assert records
        for count in range(least_inputs(found.run)):
            for first in ("x", "w"):
                names = " ".join([first, *["w"] * 12][:count])
                made = graph([node(op, names, "y", domain)], ["x"], ["y"], weight)
                with pytest.raises(ModelError, match=f"has {count} inputs and 1 outputs"):
                    load(model(made, **({domain: 1} if domain else {})))
                lacking += 1
    assert lacking > 300
    with pytest.raises(ModelError, match="0 outputs"):
        load(model(graph([node("Relu", "x", ""), node("Relu", "x", "y")], ["x"], ["y"])))


def test_tensors_of_gguf_files_of_any_rank(tmp_path: Path) -> None:
    """Each tensor of a Llama as a number, flat, and with axes of one element around it."""
    net = cb.load(folder(tmp_path / "llama", fixture("decoders")["llama"]))
    path = tmp_path / "right.gguf"
    path.write_bytes(gguf_of(net))
    rows = [
        (t.name, t.shape, 0, np.asarray(t.data).tobytes()) for t in read_gguf(path).tensors.values()
    ]
    data = metadata_of(net.config)
    for n, (name, shape, kind, raw) in enumerate(rows):
        for other in ((), (1, *shape), (*shape, 1), (int(np.prod(shape)),)):
            if other == shape:
                continue
            changed = (name, other, kind, raw[:4] if other == () else raw)
            path.write_bytes(gguf(data, [*rows[:n], changed, *rows[n + 1 :]]))
            with pytest.raises(CubeError):
                cb.load(path)


def test_containers_that_are_there_again_and_again_take_no_time(tmp_path: Path) -> None:
    """Twenty lists, of which each holds the one before it twice: a million entries of a small file."""
    lists: Any = []
    for _ in range(20):
        lists = [lists, lists]
    path = tmp_path / "lists.pt"
    torch_zip(path, pickle.dumps(lists, 2), {})
    with pytest.raises(FileFormatError, match="hold too much"):
        cb.load(path)
