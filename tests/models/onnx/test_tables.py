"""Models of tables: maps, what is refused, and trees beside a walk in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ModelError
from cubepy.models.onnx import load
from tests.models.onnx.drawn.node import ML, Drawn, file_of
from tests.models.onnx.drawn.tabular import tree_regressor
from tests.models.onnx.writer import graph, map_value, model, node, value


def net(op: str, x: Any, outputs: str = "y", **how: Any) -> Any:
    made = graph(
        [node(op, "x", outputs, ML, **how)], [value("x", x.dtype, x.shape)], outputs.split()
    )
    return load(model(made, ai_onnx_ml=3))


def test_scores_become_maps_of_classes() -> None:
    x = np.array([[0.25, 0.75], [1, 0]], np.float32)
    found = net("ZipMap", x, classlabels_strings=["no", "yes"])(x)["y"]
    assert found == [{"no": 0.25, "yes": 0.75}, {"no": 1.0, "yes": 0.0}]
    found = net("ZipMap", x, classlabels_int64s=[7, 9])(x)["y"]
    assert found == [{7: 0.25, 9: 0.75}, {7: 1.0, 9: 0.0}]
    with pytest.raises(ModelError, match="not scores of 3 classes"):
        net("ZipMap", x, classlabels_int64s=[7, 9, 1])(x)


def test_categories_are_mapped_both_ways() -> None:
    how = {"cats_strings": ["a", "b"], "cats_int64s": [5, 6], "default_string": "?"}
    x = np.array([["a", "c"]], object)
    assert net("CategoryMapper", x, **how)(x)["y"].tolist() == [[5, -1]]
    x = np.array([6, 5, 0])
    found = net("CategoryMapper", x, **how)(x)["y"]
    assert found.tolist() == ["b", "a", "?"]


def of_maps(op: str, keys: Any, values: Any, out: Any, **how: Any) -> Any:
    made = graph([node(op, "x", "y", ML, **how)], [map_value("x", keys, values)], [value("y", out)])
    return load(model(made, ai_onnx_ml=3))


@pytest.mark.parametrize("values", [np.float32, np.int64, np.float64, object])
@pytest.mark.parametrize("keys", [object, np.int64])
def test_maps_become_columns(keys: Any, values: Any) -> None:
    """What a map lacks is zero, what no word is for is passed over, as onnxruntime does."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        words = rng.permutation(9)[: rng.integers(1, 9)].tolist()
        given = rng.permutation(9)[: rng.integers(0, 9)].tolist()
        name = "string_vocabulary" if keys is object else "int64_vocabulary"
        words, given = ([str(w) if keys is object else w for w in t] for t in (words, given))
        numbers = rng.integers(-9, 9, len(given)).tolist()
        texts = [str(n) if values is object else n for n in numbers]
        table = dict(zip(given, texts, strict=True))
        net = of_maps("DictVectorizer", keys, values, values, **{name: words})
        right = [[table.get(w, "" if values is object else 0) for w in words]]
        for found in (net(table)["y"], net(x=table)["y"], net({"x": table})["y"]):
            assert found.tolist() == right
            assert values is object or found.dtype.numpy == values


def test_maps_are_cast() -> None:
    """Beside what onnxruntime 1.32 gives for the same maps."""
    given = {3: 1.5, 1: -2.7, 5: 1e20, 6: 1 / 3}
    net = of_maps("CastMap", np.int64, np.float32, np.float32)
    assert net(given)["y"].tolist() == [
        [np.float32(-2.7), 1.5, np.float32(1e20), np.float32(1 / 3)]
    ]
    net = of_maps("CastMap", np.int64, np.float32, np.int64, cast_to="TO_INT64")
    assert net({3: 1.5, 1: -2.7})["y"].tolist() == [[-2, 1]]
    net = of_maps("CastMap", np.int64, np.float32, object, cast_to="TO_STRING")
    right = [["-2.700000", "1.500000", "100000002004087734272.000000", "0.333333"]]
    assert net(given)["y"].tolist() == right
    net = of_maps("CastMap", np.int64, np.float32, np.float32, map_form="SPARSE", max_map=6)
    assert net({3: 1.5, 1: 2, 7: 4})["y"].tolist() == [[0, 2, 0, 1.5, 0, 0]]
    with pytest.raises(ModelError, match="columns"):
        net({3: 1.5, -1: 2})
    net = of_maps("CastMap", np.int64, object, np.float32)
    assert net({3: "1.5", 1: "2"})["y"].tolist() == [[2, 1.5]]
    with pytest.raises(ModelError, match="a value of the map"):
        net({3: "x"})
    net = of_maps("CastMap", np.int64, np.float32, np.float32)
    for wrong, said in (({"a": 1.0}, "does not go with"), ([1.0], "is a map, not list")):
        with pytest.raises(ModelError, match=said):
            net(x=wrong)
    with pytest.raises(ModelError, match="max_map|columns"):
        of_maps("CastMap", np.int64, np.float32, np.float32, map_form="SPARSE", max_map=1 << 40)({})


def walked(how: dict[str, Any], row: Any) -> np.ndarray:
    """What trees say of a row: sums in f64."""
    keys = list(zip(how["nodes_treeids"], how["nodes_nodeids"], strict=True))
    said = np.zeros(how["n_targets"])
    tests = {
        "BRANCH_LEQ": np.less_equal,
        "BRANCH_LT": np.less,
        "BRANCH_GTE": np.greater_equal,
        "BRANCH_GT": np.greater,
        "BRANCH_EQ": np.equal,
        "BRANCH_NEQ": np.not_equal,
    }
    for tree in sorted(set(how["nodes_treeids"])):
        at = keys.index((tree, 0))
        while how["nodes_modes"][at] != "LEAF":
            number = row[how["nodes_featureids"][at]]
            true = tests[how["nodes_modes"][at]](number, np.float32(how["nodes_values"][at]))
            missing = how.get("nodes_missing_value_tracks_true", [0] * len(keys))[at]
            true = true or (missing and np.isnan(number))
            branch = "true" if true else "false"
            at = keys.index((tree, how[f"nodes_{branch}nodeids"][at]))
        votes = zip(
            *(how[f"target_{n}"] for n in ("treeids", "nodeids", "ids", "weights")), strict=True
        )
        for t, n, target, weight in votes:
            if (t, n) == keys[at]:
                said[target] += np.float32(weight)
    return said


@pytest.mark.parametrize("seed", range(12))
def test_trees_are_walked(seed: int) -> None:
    """Also for one row, for none, and in f64."""
    drawn = tree_regressor(np.random.default_rng([seed, 5]))
    how = {k: v for k, v in drawn.how.items() if k not in ("base_values", "post_transform")}
    how["aggregate_function"] = "SUM"
    ((_, x),) = drawn.given
    right = np.array([walked(how, row) for row in x])
    for rows in (x, x[:1], x[:0]):
        data, feeds, _ = file_of(Drawn(drawn.op, how, [("x", rows)], [np.float32], ML))
        found = load(data)(**feeds)["o0"].numpy()
        np.testing.assert_allclose(found, right[: len(rows)], rtol=1e-6, atol=1e-6)
    with cb.use("python"):  # the default device does not matter
        found = load(data)(**feeds)["o0"].numpy()
    assert found.shape == (0, how["n_targets"])


TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
    "n_targets": 1,
}


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"nodes_truenodeids": [0, 0, 0]}, "branches come back"),
        ({"nodes_truenodeids": [7, 0, 0]}, "a node that is not there"),
        ({"nodes_featureids": [-1, 0, 0]}, "looks at no column"),
        ({"nodes_featureids": [9, 0, 0]}, "10 columns are looked at, but there are 2"),
        ({"nodes_nodeids": [0, 1, 1]}, "with one number"),
        ({"nodes_values": [0.5, 0.0]}, "several lengths"),
        ({"nodes_modes": ["BRANCH_FAR", "LEAF", "LEAF"]}, "BRANCH_FAR"),
        ({"target_ids": [0, 4]}, "target 4 of 1"),
        ({"target_nodeids": [1, 9]}, "node 9 of tree 0"),
        ({"target_weights": [1.0]}, "shorter|longer|lengths"),
        ({"post_transform": "CUBIC"}, "CUBIC"),
        ({"n_targets": -1}, "target 0 of -1"),
        ({"aggregate_function": "MODE"}, "MODE"),
    ],
)
def test_damaged_trees_are_refused(changed: dict[str, Any], rule: str) -> None:
    x = np.zeros((3, 2), np.float32)
    assert net("TreeEnsembleRegressor", x, **TREE)(x)["y"].tolist() == [[1.0]] * 3
    with pytest.raises(ModelError, match=rule):
        net("TreeEnsembleRegressor", x, **(TREE | changed))(x)


@pytest.mark.parametrize(
    ("op", "how", "rule"),
    [
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "targets": 2}, "3 coefficients"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0]}, "2 columns, but 3"),
        ("LinearClassifier", {"coefficients": [1.0, 2.0]}, "no labels"),
        ("Scaler", {"scale": [1.0] * 3, "offset": [0.0]}, "scale has 3 numbers"),
        ("Normalizer", {"norm": "L7"}, "L7"),
        ("OneHotEncoder", {"cats_int64s": [3], "zeros": 0}, "no category"),
        ("SVMRegressor", {"coefficients": [1.0], "kernel_type": "CUBE"}, "CUBE"),
        ("SVMRegressor", {"coefficients": [1.0], "n_supports": 1}, "2 columns, but 0"),
    ],
)
def test_what_does_not_go_together_is_refused(op: str, how: dict[str, Any], rule: str) -> None:
    x = np.zeros((3, 2), np.float32)
    with pytest.raises(ModelError, match=rule):
        net(op, x, **how)(x)
