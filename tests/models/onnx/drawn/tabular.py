"""Models of tables, drawn: trees, linear ones, support vectors, features."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.models.onnx.drawn.node import ML, Drawn, floats, yes

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
AFTER = ("NONE", "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")


def table(rng: Any, columns: int, missing: bool = False) -> Any:
    """Rows of few numbers, so that some are equal to bounds; on demand with NaN."""
    x = rng.integers(-4, 5, (int(rng.integers(1, 70)), columns)).astype(np.float32) / 2
    return np.where(rng.random(x.shape) < 0.1, np.float32(np.nan), x) if missing else x


def labels(rng: Any, count: int, name: str) -> tuple[dict[str, Any], Any]:
    """Labels of classes as an attribute, and their dtype."""
    if yes(rng):
        return {f"classlabels_{name}": rng.permutation(50)[:count].tolist()}, np.int64
    return {"classlabels_strings": [f"c{k}" for k in rng.permutation(50)[:count]]}, object


def trees(rng: Any, columns: int, targets: Any, weights: str, several: bool) -> dict[str, Any]:
    """Random trees as attributes; ends have a weight of one target or of several."""
    how: dict[str, list[Any]] = {f"nodes_{n}": [] for n in NODES}
    said: dict[str, list[Any]] = {n: [] for n in ("treeids", "nodeids", "ids", "weights")}
    modes = MODES if yes(rng, 0.3) else (str(rng.choice(MODES[:4])),)
    for tree in range(int(rng.integers(1, 6))):
        free, waiting = itertools.count(1), [(0, 0)]
        while waiting:
            node, depth = waiting.pop()
            inner = depth < 5 and yes(rng, 0.75)
            pair = [next(free), next(free)] if inner else [0, 0]
            waiting += [(n, depth + 1) for n in pair] if inner else []
            row = [tree, node, int(rng.integers(columns)) if inner else 0, *pair]
            row += [float(rng.integers(-4, 5)) / 2 if inner else 0.0]
            row += [str(rng.choice(modes)) if inner else "LEAF", int(yes(rng, 0.3)) if inner else 0]
            for name, given in zip(NODES, row, strict=True):
                how[f"nodes_{name}"].append(given)
            if inner:
                continue
            many = targets if several else [int(rng.choice(targets))]
            for target in many:
                number = rng.random() if weights == "positive" else rng.standard_normal()
                for name, given in zip(said, (tree, node, target, float(number)), strict=True):
                    said[name].append(given)
    if yes(rng):
        how.pop("nodes_missing_value_tracks_true")
    return how | said


NODES = "treeids nodeids featureids truenodeids falsenodeids values modes".split()
NODES += ["missing_value_tracks_true"]
VOTES = ("treeids", "nodeids", "ids", "weights")


def named(how: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Attributes of what ends say under the names of an operator."""
    return {k if k not in VOTES else f"{prefix}_{k}": v for k, v in how.items()}


def tree_regressor(rng: Any) -> Drawn:
    columns, count = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    several = yes(rng)  # else a target may have no end, and onnxruntime leaves its base out
    how = named(trees(rng, columns, list(range(count)), "any", several), "target")
    kind = str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
    how |= {"n_targets": count, "aggregate_function": kind}
    if yes(rng) and (several or count == 1):
        how["base_values"] = rng.standard_normal(count).tolist()
    if count > 1 and yes(rng, 0.3):
        how["post_transform"] = str(rng.choice(AFTER[:4]))
    x = table(rng, columns, yes(rng, 0.4))
    return Drawn("TreeEnsembleRegressor", how, [("x", x)], [np.float32], ML)


def tree_classifier(rng: Any) -> Drawn:
    """Several classes; two of which one has votes, with probabilities or distances."""
    columns, count = int(rng.integers(1, 6)), int(rng.integers(2, 5))
    said, dtype = labels(rng, count, "int64s")
    how: dict[str, Any]
    if count == 2:
        kind, voted = "positive" if yes(rng) else "any", int(rng.integers(2))
        how = named(trees(rng, columns, [voted], kind, False), "class")
        if kind == "any":
            how["post_transform"] = "LOGISTIC" if yes(rng) else "NONE"
        if yes(rng) and not voted:  # onnxruntime leaves it out for the second one
            how["base_values"] = [float(rng.standard_normal())]
    else:
        several = yes(rng)
        how = named(trees(rng, columns, list(range(count)), "any", several), "class")
        how["post_transform"] = str(rng.choice(AFTER))
        if yes(rng) and several:
            how["base_values"] = rng.standard_normal(count).tolist()
    x = table(rng, columns, yes(rng, 0.4))
    return Drawn("TreeEnsembleClassifier", how | said, [("x", x)], [dtype, np.float32], ML)


def tree_ensemble(rng: Any) -> Drawn:
    """Trees whose nodes and ends are apart, with tests of sets."""
    columns, count = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    dtype = np.float32 if yes(rng, 0.7) else np.float64
    rows: list[list[Any]] = []
    ends: list[list[Any]] = []
    members: list[float] = []
    roots: list[int] = []

    def end() -> int:
        ends.append([int(rng.integers(count)), float(rng.standard_normal())])
        return len(ends) - 1

    def grown(depth: int) -> int:
        place = len(rows)
        mode = int(rng.choice([0, 1, 2, 3, 4, 5, 6]))
        bound = float(rng.integers(-4, 5)) / 2 if mode < 6 else 0.0
        if mode == 6:
            some = rng.permutation(9)[: int(rng.integers(1, 4))] - 4.0
            members.extend([*some.tolist(), np.nan])
        rows.append([int(rng.integers(columns)), bound, mode, int(yes(rng, 0.3)), 0, 0, 0, 0])
        for way in (0, 1):
            deeper = depth < 4 and yes(rng, 0.6)
            rows[place][4 + way] = grown(depth + 1) if deeper else end()
            rows[place][6 + way] = int(not deeper)
        return place

    for _ in range(int(rng.integers(1, 5))):
        roots.append(grown(0))
    feature, bounds, modes, missing, true, false, true_ends, false_ends = zip(*rows, strict=True)
    how: dict[str, Any] = {
        "n_targets": count,
        "aggregate_function": int(rng.integers(0, 4)),
        "tree_roots": roots,
        "nodes_featureids": list(feature),
        "nodes_splits": np.array(bounds, dtype),
        "nodes_modes": np.array(modes, np.uint8),
        "nodes_truenodeids": list(true),
        "nodes_falsenodeids": list(false),
        "nodes_trueleafs": list(true_ends),
        "nodes_falseleafs": list(false_ends),
        "leaf_targetids": [t for t, _ in ends],
        "leaf_weights": np.array([w for _, w in ends], dtype),
    }
    if members:
        how["membership_values"] = np.array(members, dtype)
    if yes(rng):
        how["nodes_missing_value_tracks_true"] = list(missing)
    x = table(rng, columns, yes(rng, 0.4)).astype(dtype)
    x = np.trunc(x) if members else x  # onnxruntime looks for whole numbers
    return Drawn("TreeEnsemble", how, [("x", x)], [dtype], ML)


def linear(rng: Any) -> Drawn:
    """Regressors and classifiers of tables."""
    columns, count = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    x = floats(rng, int(rng.integers(1, 9)), columns)
    how: dict[str, Any] = {"intercepts": rng.standard_normal(count).tolist()}
    how["coefficients"] = rng.standard_normal(count * columns).tolist()
    if yes(rng):
        return Drawn("LinearRegressor", how | {"targets": count}, [("x", x)], [np.float32], ML)
    said, dtype = labels(rng, max(count, 2), "ints")
    # onnxruntime leaves other transforms of one score out
    how["post_transform"] = str(rng.choice(AFTER[:4] if count > 1 else ["NONE", "LOGISTIC"]))
    return Drawn("LinearClassifier", how | said, [("x", x)], [dtype, np.float32], ML)


def support_vectors(rng: Any) -> Drawn:
    """Support vector machines of all kernels, with chances and without."""
    columns, count = int(rng.integers(1, 6)), int(rng.integers(2, 5))
    x = floats(rng, int(rng.integers(1, 9)), columns)
    how: dict[str, Any] = {"kernel_type": str(rng.choice(["LINEAR", "POLY", "RBF", "SIGMOID"]))}
    how["kernel_params"] = [float(rng.random() + 0.1), float(rng.standard_normal()), 3.0]
    if yes(rng, 0.4):
        vectors = int(rng.integers(1, 7))
        how |= {"n_supports": vectors, "coefficients": rng.standard_normal(vectors).tolist()}
        how |= {"support_vectors": rng.standard_normal(vectors * columns).tolist()}
        how["rho"] = [float(rng.standard_normal())]
        how["one_class"] = int(yes(rng, 0.3))
        return Drawn("SVMRegressor", how, [("x", x)], [np.float32], ML)
    sizes = rng.integers(1, 4, count).tolist()
    duels = count * (count - 1) // 2
    how |= {"vectors_per_class": sizes, "rho": rng.standard_normal(duels).tolist()}
    how["support_vectors"] = rng.standard_normal(sum(sizes) * columns).tolist()
    how["coefficients"] = rng.standard_normal(sum(sizes) * (count - 1)).tolist()
    if yes(rng):
        how |= {"prob_a": (-rng.random(duels) - 0.1).tolist()}
        how |= {"prob_b": rng.standard_normal(duels).tolist()}
    said, dtype = labels(rng, count, "ints")
    return Drawn("SVMClassifier", how | said, [("x", x)], [dtype, np.float32], ML, far=2e-4)


def features(rng: Any) -> Drawn:
    """Scaled, filled in, encoded, put together."""
    columns = int(rng.integers(1, 6))
    x = table(rng, columns)
    kind = str(
        rng.choice(["Scaler", "Normalizer", "Imputer", "OneHotEncoder", "FeatureVectorizer"])
    )
    count = 1 if yes(rng) else columns
    if kind == "Scaler":
        how = {n: (rng.random(count) + 0.5).tolist() for n in ("offset", "scale")}
        return Drawn(kind, how, [("x", x)], [np.float32], ML)
    if kind == "Normalizer":
        return Drawn(kind, {"norm": str(rng.choice(["L1", "L2"]))}, [("x", x)], [np.float32], ML)
    if kind == "Imputer" and yes(rng):
        how = {"imputed_value_int64s": rng.integers(10, 20, count).tolist()}
        how["replaced_value_int64"] = 2
        return Drawn(kind, how, [("x", x.astype(np.int64))], [np.int64], ML)
    if kind == "Imputer":
        gone = float("nan") if yes(rng) else 0.5
        how = {"imputed_value_floats": rng.standard_normal(count).tolist()}
        x = table(rng, columns, True) if gone != gone else x
        return Drawn(kind, how | {"replaced_value_float": gone}, [("x", x)], [np.float32], ML)
    if kind == "OneHotEncoder":
        if yes(rng):
            how = {"cats_strings": ["a", "bb", "c"]}
            x = rng.choice(["a", "bb", "c", "d"], x.shape).astype(object)
            return Drawn(kind, how, [("x", x)], [np.float32], ML)
        dtype = np.int64 if yes(rng) else np.float32
        how = {"cats_int64s": [1, 3, -2, 0]}
        return Drawn(kind, how, [("x", np.trunc(x).astype(dtype))], [np.float32], ML)
    parts = [floats(rng, 4, int(rng.integers(1, 4))) for _ in range(int(rng.integers(1, 4)))]
    how = {"inputdimensions": [p.shape[1] for p in parts]}
    given = [(f"x{k}", p) for k, p in enumerate(parts)]
    return Drawn(kind, how, given, [np.float32], ML)
