"""Graphs that torch exported, run without torch: operators one by one, and whole modules."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ModelError
from cubepy.models.exported.model import TorchModel
from cubepy.models.exported.program import Exported, Node
from cubepy.quant import quantize
from tests.models.exported.recorded import cases, decoded

GRAPHS, ARRAYS = cases()
LIMITS = {2: 1e-2, 4: 1e-5, 8: 1e-5}


def exported(name: str) -> Exported:
    return decoded(GRAPHS[name], ARRAYS)


def arguments(name: str, call: int) -> list[Any]:
    """The leaves of a recorded call."""
    fixed = GRAPHS[name]["fixed"]
    found = []
    while True:
        key = f"{name}/{call}/in/{len(found)}"
        if key in ARRAYS:
            found.append(ARRAYS[key])
        elif str(len(found)) in fixed:
            found.append(fixed[str(len(found))])
        else:
            return found


def called(model: TorchModel, leaves: list[Any]) -> Any:
    args, kwargs = model.exported.takes.build(iter(leaves))
    return model(*args, **kwargs)


def right(name: str, call: int) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    while (key := f"{name}/{call}/out/{len(found)}") in ARRAYS:
        found.append(ARRAYS[key])
    return found


def agrees(model: TorchModel, name: str, call: int) -> None:
    leaves = model.exported.gives.flatten(called(model, arguments(name, call)))
    wanted = right(name, call)
    assert len(leaves) == len(wanted) > 0
    for mine, one in zip(leaves, wanted, strict=True):
        if not isinstance(mine, cb.Tensor):
            assert mine == one
            continue
        array = mine.numpy()
        assert array.shape == one.shape
        limit = LIMITS[max(array.dtype.itemsize, 2)] if array.dtype.kind in "fV" else 0
        found, correct = array.astype(np.float64), one.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(correct))
        found, correct = np.nan_to_num(found), np.nan_to_num(correct)
        most = max(np.abs(correct).max(initial=0), 1)
        assert np.abs(found - correct).max(initial=0) <= limit * most


@pytest.mark.turns(6, "graphs of torch")
@pytest.mark.parametrize("name", GRAPHS)
def test_results_are_those_of_torch(name: str) -> None:
    model = TorchModel(exported(name))
    for call in range(GRAPHS[name]["calls"]):
        agrees(model, name, call)
        agrees(model, name, call)  # the program of the first time


def test_names_structure_and_ties_stay() -> None:
    model = TorchModel(exported("classifier"))
    assert set(model.state_dict()) >= {"features.0.weight", "head.weight", "tied.weight"}
    assert "scale" not in model.state_dict()
    assert model.head.weight is model.tied.weight
    assert isinstance(model.head, nn.Linear) and model.head.in_features == 4
    found = called(model, arguments("classifier", 0))
    assert list(found) == ["scores", "others"] and found["others"][1] == 2
    fields = called(TorchModel(exported("t5 encoder")), arguments("t5 encoder", 0))
    assert fields.last_hidden_state is fields["last_hidden_state"]


def test_another_batch_is_another_program_of_the_same_model() -> None:
    model = TorchModel(exported("llama"))
    agrees(model, "llama", 0)
    agrees(model, "llama", 1)
    assert sum(model.steps.program.traces.values()) == 2


def test_quantized_and_moved_models_run() -> None:
    model = TorchModel(exported("llama"))
    before = model(*arguments("llama", 0)).numpy()
    small = quantize(model, "int8", measure_speed=False, skip=()).model
    after = small(*arguments("llama", 0)).numpy()
    assert 0 < np.abs(after - before).max() < 0.1 * np.abs(before).max()
    np.testing.assert_array_equal(model(*arguments("llama", 0)).numpy(), before)
    state = {key: value * 0 for key, value in model.state_dict().items()}
    model.load_state_dict(state)
    assert not model(*arguments("llama", 0)).numpy().any()


def test_gradients_reach_the_weights() -> None:
    model = TorchModel(exported("classifier"))
    model.requires_grad_()
    found = called(model, arguments("classifier", 0))
    found["scores"].sum().backward()
    grad = model.head.weight.grad
    assert grad is not None and np.isfinite(grad.numpy()).all() and grad.numpy().any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[..., :7], r"x: f32\[.*3, 8, 8\] was given with the shape \[2, 3, 8, 7\]"),
        (lambda x: x[0], r"was given with the shape \[3, 8, 8\]"),
        (lambda x: x[:1], "axis 0 of 'x' must be from 2 to 64, not 1"),
        (lambda x: x.astype(np.float64), "'x' is f32, not f64"),
        (lambda x: None, "'x' is an array of float32, which None does not become"),
        (lambda x: "text", "'x' is an array of float32, which 'text' does not become"),
    ],
)
def test_arguments_that_do_not_fit(change: Any, message: str) -> None:
    model = TorchModel(exported("classifier"))
    with pytest.raises(ModelError, match=message):
        called(model, [change(arguments("classifier", 0)[0]), None, 1.5])


def test_structures_and_numbers_that_do_not_fit() -> None:
    model = TorchModel(exported("arguments inside"))
    image, shift, factor = arguments("arguments inside", 0)
    with pytest.raises(ModelError, match="'factor' was 2.5 when the module was exported"):
        model(image, {"shift": shift}, 1.0)
    with pytest.raises(ModelError, match=r"expected \{'shift'\}, not \{'shifted'\}"):
        model(image, {"shifted": shift}, factor)
    with pytest.raises(ModelError, match="expected 3 values, not 1"):
        model(image)
    with pytest.raises(ModelError, match="as one length"):
        model(image, {"shift": shift[:1].repeat(3, 0)}, factor)


def test_all_missing_operators_are_named_with_their_lines() -> None:
    graph = exported("classifier")
    wrong = [
        Node("one", "aten.svd_lowrank.default", graph.nodes[0].args, {}, "net.py:12: svd(x)"),
        Node("two", "aten.bernoulli.default", (graph.outputs[0],), {}, "net.py:13: noise(x)"),
    ]
    outputs = [*graph.outputs, *[type(graph.outputs[0])(n.name) for n in wrong]]
    with pytest.raises(ModelError) as caught:
        TorchModel(replace(graph, nodes=[*graph.nodes, *wrong], outputs=outputs))
    for text in ("svd_lowrank", "net.py:12: svd(x)", "bernoulli", "net.py:13: noise(x)"):
        assert text in str(caught.value)
    TorchModel(replace(graph, nodes=[*graph.nodes, *wrong]))  # nobody reads what they give


def test_an_operator_that_fails_says_where() -> None:
    graph = exported("linear")
    node = graph.nodes[-1]
    wrong = replace(node, args=(node.args[0], node.args[2], None), line="net.py:7: x @ w")
    with pytest.raises(ModelError, match=r"aten.linear.default \(net.py:7: x @ w\)"):
        model = TorchModel(replace(graph, nodes=[*graph.nodes[:-1], wrong]))
        called(model, arguments("linear", 0))


def test_projections_of_attention_are_quantized_though_they_are_no_layer() -> None:
    model = TorchModel(exported("encoder layer"))
    leaves = arguments("encoder layer", 0)
    before = called(model, leaves).numpy()
    result = quantize(model, "int8", measure_speed=False, calibrate=[tuple(leaves)])
    names = [layer.name for layer in result.report.quantized]
    assert names == ["self_attn.in_proj_weight", "self_attn.out_proj", "linear1", "linear2"]
    after = called(result.model, leaves).numpy()
    assert 0 < np.abs(after - before).max() < 0.1 * np.abs(before).max()


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_of_their_own(how: Any) -> None:
    model = TorchModel(exported("classifier")).requires_grad_()
    leaves = arguments("classifier", 0)
    right = called(model, leaves)["scores"].numpy()
    small = quantize(model, "int8", measure_speed=False).model
    for one in (model, small):
        other = how(one)
        assert other.head.weight is other.tied.weight
        assert other.head.bias.requires_grad
        assert np.array_equal(
            called(other, leaves)["scores"].numpy(), called(one, leaves)["scores"].numpy()
        )
        with cb.no_grad():
            other.head.bias.add_(1.0)
    assert np.array_equal(called(model, leaves)["scores"].numpy(), right)
