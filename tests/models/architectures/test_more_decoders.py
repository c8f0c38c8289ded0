"""Decoders with experts and with rarer settings against transformers, weights drawn by name."""

from __future__ import annotations

import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import FileFormatError, ShapeError
from cubepy.models.formats.dequantize import dequantize
from cubepy.models.formats.stored import Stored
from cubepy.models.gguf_model import stack_of
from cubepy.models.packed.picked import picked
from cubepy.runtime.device import current
from tests.models.folders import drawn_folder, fixture
from tests.models.gguf_files import experts_of

MODELS = fixture("more_decoders")


def error(found: cb.Tensor, right: np.ndarray) -> float:
    return float(np.abs(found.numpy() - right).max() / np.abs(right).max())


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_text(name: str, tmp_path: Path) -> None:
    given = MODELS[name]
    model = cb.load(drawn_folder(tmp_path, given))
    with cb.no_grad():
        assert error(model(given["tokens"])[:, -5:], given["logits"]) < 1e-5
        assert error(model(given["long"])[:, -1], given["long_logits"]) < 1e-5
    model.ends = frozenset()
    assert model.generate(given["tokens"].tolist(), max_new_tokens=12) == given["greedy"].tolist()
    steps = model.steps.several if current().backend == "cpu" else model.steps.greedy
    assert sum(steps.traces.values()) == 1


@pytest.mark.parametrize("name", ["qwen2_window", "qwen2_moe_window", "qwen3_moe_window"])
def test_kinds_of_layers_that_a_config_does_not_list(name: str, tmp_path: Path) -> None:
    """Configs of older versions say from where on layers have a window."""
    given = MODELS[name]
    said = json.loads(given["config"].tobytes())
    listed = cb.load(drawn_folder(tmp_path / "listed", given)).config.windows
    said.pop("layer_types", None)
    changed = given | {"config": np.frombuffer(json.dumps(said).encode(), np.uint8)}
    assert cb.load(drawn_folder(tmp_path / "not", changed)).config.windows == listed
    assert any(listed)


def test_decoders_that_see_what_is_behind_are_refused(tmp_path: Path) -> None:
    given = MODELS["gemma3_linear"]
    said = json.loads(given["config"].tobytes()) | {"use_bidirectional_attention": True}
    changed = given | {"config": np.frombuffer(json.dumps(said).encode(), np.uint8)}
    with pytest.raises(FileFormatError, match="positions see those behind them"):
        cb.load(drawn_folder(tmp_path, changed))


def test_every_way_through_experts_is_the_same(tmp_path: Path) -> None:
    given = MODELS["qwen2_moe"]
    model = cb.load(drawn_folder(tmp_path, given))
    layer = model.layers[1].network
    x = cb.tensor(np.random.default_rng(0).standard_normal((1, 7, 16)).astype(np.float32))
    with cb.no_grad():
        rows = x.reshape(7, 16)
        shares, which = layer.router(rows).softmax(-1).topk(2)
        ways = [way(rows, shares, which).numpy() for way in (layer.few, layer.all, layer.sorted)]
        np.testing.assert_allclose(ways[1], ways[0], atol=1e-6)
        np.testing.assert_allclose(ways[2], ways[0], atol=1e-6)
        traced = cb.jit(lambda x: layer(x, None))
        for _ in range(3):
            np.testing.assert_allclose(traced(x).numpy(), layer(x, None).numpy(), atol=1e-6)
    y = layer(x, None)
    assert not y.requires_grad
    layer.requires_grad_()
    single = layer(x[:, :1], None)  # few rows that learn
    assert single.requires_grad
    layer(x, None).sum().backward()
    assert layer.gate.grad.shape == layer.gate.shape and float(layer.router.weight.grad.abs().sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_products_with_picked_matrices(dtype: type) -> None:
    rng = np.random.default_rng(1)
    for pairs, rows, count, depth in ((1, 1, 1, 1), (6, 3, 33, 50), (4, 4, 16, 64), (2, 1, 7, 5)):
        x = rng.standard_normal((rows, depth)).astype(np.float32)
        stack = rng.standard_normal((5, count, depth)).astype(dtype)
        which = rng.integers(0, 5, pairs)
        right = np.einsum("pk,pnk->pn", x.repeat(pairs // rows, 0), stack[which].astype(np.float32))
        given = cb.tensor(x), cb.tensor(stack), cb.tensor(which)
        np.testing.assert_allclose(picked(*given).numpy(), right, rtol=1e-4, atol=1e-4)
        cut = cb.tensor(np.repeat(stack, 2, axis=2))[:, :, ::2]
        np.testing.assert_allclose(picked(given[0], cut, given[2]).numpy(), right, atol=1e-4)
    with pytest.raises(ShapeError, match="do not go with a stack"):
        picked(cb.tensor(x), cb.tensor(stack[:, :, 1:]), cb.tensor(which))
    with pytest.raises(ShapeError, match="cannot be picked"):
        picked(cb.tensor(np.ones((3, 5), np.float32)), cb.tensor(stack), cb.tensor(which))


def test_experts_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    given = MODELS["mixtral"]
    shapes = json.loads(given["shapes"].tobytes())
    prefix = "model.layers.1.block_sparse_moe.experts"
    del shapes[f"{prefix}.2.w1.weight"]
    shapes[f"{prefix}.3.w2.weight"] = [16, 21]
    shapes[f"{prefix}.4.w3.weight"] = [20, 16]
    changed = given | {"shapes": np.frombuffer(json.dumps(shapes).encode(), np.uint8)}
    with pytest.raises(FileFormatError) as caught:
        cb.load(drawn_folder(tmp_path, changed))
    for line in (
        "layers.1.network.experts.2.gate.weight: missing",
        "layers.1.network.experts.3.down.weight: expected (16, 20), got (16, 21)",
        "layers.1.network.experts.4.up.weight: unexpected",
    ):
        assert line in str(caught.value)


def test_more_experts_chosen_than_there_are(tmp_path: Path) -> None:
    path = drawn_folder(tmp_path, MODELS["mixtral"])
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"num_experts_per_tok": 9}))
    with pytest.raises(FileFormatError, match="9 of 4 experts"):
        cb.load(path)


def test_scores_of_tokens(tmp_path: Path) -> None:
    given = MODELS["mixtral"]
    model = cb.load(drawn_folder(tmp_path, given))
    with cb.no_grad():
        assert error(model.logits(given["tokens"])[:, -5:], given["logits"]) < 1e-5
        assert error(model.logits(given["tokens"][0].tolist())[-5:], given["logits"][0]) < 1e-5


@pytest.mark.parametrize(
    ("name", "architecture"),
    [("mixtral", "llama"), ("qwen2_moe", "qwen2moe"), ("qwen3_moe", "qwen3moe")],
)
def test_experts_of_gguf_files(name: str, architecture: str, tmp_path: Path) -> None:
    given = MODELS[name]
    path = drawn_folder(tmp_path / "folder", given)
    config = json.loads((path / "config.json").read_text())
    same = {"sliding_window": None, "mlp_only_layers": [], "rope_parameters": {"rope_theta": 10000}}
    (path / "config.json").write_text(json.dumps(config | same))
    if name == "qwen2_moe":  # its first layer has one network here, which GGUF does not say
        shapes = json.loads(given["shapes"].tobytes())
        more = {n.replace("layers.1.", "layers.0."): s for n, s in shapes.items()}
        more = {n: s for n, s in (shapes | more).items() if not re.search(r"0.mlp.\w+_proj", n)}
        text = np.frombuffer(json.dumps(more).encode(), np.uint8)
        config_text = np.frombuffer((path / "config.json").read_bytes(), np.uint8)
        drawn_folder(path, {"config": config_text, "shapes": text})
    model = cb.load(path)
    (tmp_path / "m.gguf").write_bytes(experts_of(model, architecture))
    other = cb.load(tmp_path / "m.gguf")
    with cb.no_grad():
        right = model(given["tokens"]).numpy()
        assert error(other(given["tokens"]), right) < 1e-5
    assert other.generate([3, 4], max_new_tokens=5) == model.generate([3, 4], max_new_tokens=5)


def test_experts_in_blocks_become_16_bit_floats() -> None:
    rng = np.random.default_rng(2)
    blocks = np.zeros((3, 4, 34), np.uint8)  # Q8_0: a scale, 32 codes
    blocks[..., :2] = rng.random((3, 4, 1)).astype(np.float16).view(np.uint8)
    blocks[..., 2:] = rng.integers(0, 256, (3, 4, 32))
    found = stack_of(Stored("x", "Q8_0", (3, 4, 32), blocks))
    assert found.shape == (3, 4, 32) and str(found.dtype) == "cb.f16"
    np.testing.assert_array_equal(found.numpy(), dequantize("Q8_0", blocks).astype(np.float16))


@pytest.mark.parametrize(
    ("file", "name", "kind"),
    [
        ("more_decoders", "qwen3_moe", "decoder"),
        ("more_encoders", "modernbert", "encoder"),
        ("sequences", "t5", "encoder with decoder"),
        ("vision", "clip", "vision"),
        ("speech", "many", "speech"),
    ],
)
def test_look_says_the_kind(file: str, name: str, kind: str, tmp_path: Path) -> None:
    path = drawn_folder(tmp_path, fixture(file)[name])
    found = cb.look(path)
    assert found.facts["kind"] == kind and found.parameters > 1000 and not found.notes
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    assert cb.look(path).notes == ("models of this architecture cannot be loaded",)
