"""Ensembles of trees: a kernel walks all of them for a row, on the CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ModelError
from cubepy.models.onnx.ops.tabular.scores import (
    both,
    label_at,
    labels_of,
    of_tables,
    rows_of,
    transformed,
)
from cubepy.models.onnx.records import Call
from cubepy.runtime.device import use
from cubepy.tensor.storage import HOST

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
MEMBER, SEVERAL, MISSING = 6, -1, 8
MOST = 1 << 16
"""Targets that there may be although no tree speaks of them."""
ROWS = 32
"""Rows of a cube: they meet a tree while its nodes are in the cache."""


@dataclass(frozen=True)
class Plan:
    """What changes the code.

    Attributes:
        mode: the comparison of all nodes, an index of `MODES`; -1: each has its own.
        missing: whether NaN goes to the true branch of some nodes.
        kind: "SUM", "MIN" or "MAX" of what trees say.
    """

    mode: int
    missing: bool
    kind: str


@cb.func
def goes(number: Any, bound: Any, flags: Any, plan: cb.Comptime[Plan]) -> Any:
    """Whether a number goes to the true branch of a node."""
    if plan.mode == 0:
        chosen = number <= bound
    elif plan.mode == 1:
        chosen = number < bound
    elif plan.mode == 2:
        chosen = number >= bound
    elif plan.mode == 3:
        chosen = number > bound
    elif plan.mode == 4:
        chosen = number == bound
    elif plan.mode == 5:
        chosen = number != bound
    else:
        mode = flags & 7
        chosen = (mode == 0) & (number <= bound)
        chosen = chosen | ((mode == 1) & (number < bound))
        chosen = chosen | ((mode == 2) & (number >= bound))
        chosen = chosen | ((mode == 3) & (number > bound))
        chosen = chosen | ((mode == 4) & (number == bound))
        chosen = chosen | ((mode == 5) & (number != bound))
    if plan.missing:
        chosen = chosen | ((number != number) & ((flags & MISSING) != 0))
    return chosen


@cb.kernel
def walk(
    x: cb.Array,
    nodes: cb.Array,
    bounds: cb.Array,
    roots: cb.Array,
    targets: cb.Array,
    weights: cb.Array,
    out: cb.Array,
    plan: cb.Comptime[Plan],
) -> None:
    """out[n, targets] = what the ends say to which row n of x comes; a cube does 32 rows.

    x (N, F) and bounds (M,) of one dtype; nodes (M, 4) i32: feature, the numbers of the true and
    the false branch, flags; at an end -1, and where its targets begin and end. roots (T,) i32,
    targets (W,) i32, weights (W,), out (N, C) f64.
    """
    first = cb.CUBE_POS * ROWS
    last = cb.min(first + ROWS, x.shape[0])
    for tree in range(roots.shape[0]):
        for row in range(first, last):
            node = cb.cast(roots[tree], cb.i64)
            feature = cb.cast(nodes[node, 0], cb.i64)
            while feature >= 0:
                chosen = goes(x[row, feature], bounds[node], nodes[node, 3], plan)
                node = cb.cast(nodes[node, 2 - cb.cast(chosen, cb.i64)], cb.i64)
                feature = cb.cast(nodes[node, 0], cb.i64)
            for k in range(cb.cast(nodes[node, 1], cb.i64), cb.cast(nodes[node, 2], cb.i64)):
                target, weight = cb.cast(targets[k], cb.i64), cb.cast(weights[k], cb.f64)
                if plan.kind == "SUM":
                    out[row, target] = out[row, target] + weight
                elif plan.kind == "MIN":
                    out[row, target] = cb.min(out[row, target], weight)
                else:
                    out[row, target] = cb.max(out[row, target], weight)


@dataclass(frozen=True)
class Forest:
    """Trees as the kernel takes them.

    Attributes:
        nodes, bounds, roots, targets, weights: see `walk`.
        features: columns that are read at least.
        spoken: targets that some end names; whether no weight is negative; whether each end speaks
            of all.
        count: of targets.
        plan: of the kernel.
    """

    nodes: Any
    bounds: Any
    roots: Any
    targets: Any
    weights: Any
    features: int
    spoken: tuple[frozenset[int], bool, bool]
    count: int
    plan: Plan

    def __call__(self, x: Any) -> Any:
        """What the trees say of rows (N, F), (N, count) f64; of no tree's targets 0."""
        if x.shape[1] < self.features:
            raise ModelError(f"{self.features} columns are looked at, but there are {x.shape[1]}")
        start = {"MIN": np.inf, "MAX": -np.inf}.get(self.plan.kind, 0.0)
        lengths = len(x), self.count
        out = np.full(lengths, start) if start else np.zeros(lengths)
        x = np.ascontiguousarray(x, self.bounds.dtype)
        arrays = (self.nodes, self.bounds, self.roots, self.targets, self.weights)
        if out.size and len(self.roots):
            with use(HOST):
                walk[-(-len(x) // ROWS), 1](x, *arrays, out, self.plan, mode="unchecked")
        return np.where(np.isfinite(out), out, 0) if start else out

    def votes(self, x: Any) -> Any:
        """How many trees say something of each target (N, count); None where all are spoken of."""
        if self.spoken[2]:
            return None
        return replace(self, weights=np.ones_like(self.weights))(x)


def forest(
    call: Call,
    branches: tuple[Any, Any, Any],
    bounds: Any,
    modes: Any,
    missing: Any,
    ends: tuple[Any, Any, Any],
    shape: tuple[int, str],
    roots: Any = None,
) -> Forest:
    """Nodes as a forest.

    Args:
        call: the node of the graph.
        branches: features, and nodes of true and false branches; at an end -1 and its number.
        bounds: (M,) floats.
        modes: (M,) indices of `MODES`.
        missing: (M,) whether NaN goes to the true branch.
        ends: how many targets each end has, and these and their weights, one end's after the other.
        shape: how many targets, and what is done with what trees say of one.
        roots: of trees; None: nodes that no other one names.
    """
    feature, true, false = (np.asarray(t, np.int64) for t in branches)
    inner = feature >= 0
    count, kind = shape
    below = np.concatenate([true[inner], false[inner]])
    if len(below) and (below.min() < 0 or below.max() >= len(feature)):
        raise call.refuse("a branch to a node that is not there")
    if roots is None:
        named = np.zeros(len(feature), bool)
        named[below] = True
        roots = np.flatnonzero(~named)
    _check_depth(call, inner, true, false, roots)
    counts, targets, weights = ends
    if count > max(MOST, len(weights)):
        raise call.refuse(f"{count} targets of {len(weights)} weights")
    sizes = np.concatenate([[0], np.cumsum(counts)])
    if len(targets) and (targets.min() < 0 or targets.max() >= count):
        raise call.refuse(f"a weight of target {targets.max()} of {count}")
    nodes = np.empty((len(feature), 4), np.int32)
    nodes[:, 0] = feature
    nodes[:, 1] = np.where(inner, true, sizes[np.where(inner, 0, true)])
    nodes[:, 2] = np.where(inner, false, sizes[np.where(inner, 0, true) + 1])
    nodes[:, 3] = np.asarray(modes) + MISSING * np.asarray(missing, np.int64)
    used = set(np.asarray(modes)[inner].tolist())
    mode = used.pop() if len(used) == 1 else SEVERAL
    plan = Plan(mode if used or inner.any() else 0, bool(np.any(missing)), kind)
    most = int(feature.max(initial=-1)) + 1
    found = np.asarray(roots, np.int32), targets.astype(np.int32), weights.astype(np.float64)
    spoken = (
        frozenset(np.unique(targets).tolist()),
        bool((weights >= 0).all()),
        bool((counts >= count).all()),
    )
    return Forest(nodes, np.ascontiguousarray(bounds), *found, most, spoken, count, plan)


def _check_depth(call: Call, inner: Any, true: Any, false: Any, roots: Any) -> None:
    """Raise where a way through a tree has no end."""
    waits = np.zeros(len(inner), np.int64)  # branches that lead to a node
    np.add.at(waits, np.concatenate([true[inner], false[inner]]), 1)
    free = np.flatnonzero(waits == 0)
    seen = 0
    while len(free):
        seen += len(free)
        free = free[inner[free]]
        below = np.concatenate([true[free], false[free]])
        np.subtract.at(waits, below, 1)
        free = np.unique(below[waits[below] == 0])
    if seen < len(inner) or len(roots) and (roots.min() < 0 or roots.max() >= len(inner)):
        raise call.refuse("trees whose branches come back, or that begin nowhere")


def of_attributes(call: Call, prefix: str, count: int, kind: str) -> Forest:
    """The forest of a node of the first form: weights are named after trees and nodes."""
    names = "treeids nodeids featureids truenodeids falsenodeids".split()
    trees, ids, features, true, false = (
        np.asarray(call.get(f"nodes_{n}", []), np.int64) for n in names
    )
    modes = call.get("nodes_modes", [])
    bounds = floats_of(call, "nodes_values")
    if len({len(t) for t in (trees, ids, features, true, false, modes, bounds)}) > 1:
        raise call.refuse("nodes whose attributes have several lengths")
    if not set(modes) <= {*MODES, "LEAF"}:
        raise call.refuse(f"a node of the kind {(set(modes) - {*MODES, 'LEAF'}).pop()!r}")
    numbered = Lookup(trees, ids)
    if numbered.twice:
        raise call.refuse("two nodes of a tree with one number")
    at_end = np.array([m == "LEAF" for m in modes], bool)
    if (features[~at_end] < 0).any():
        raise call.refuse("a node that looks at no column")
    rows = [
        np.asarray(call.get(f"{prefix}_{n}", []), np.int64) for n in ("treeids", "nodeids", "ids")
    ]
    weights = floats_of(call, f"{prefix}_weights")
    if len({len(t) for t in (*rows, weights)}) > 1:
        raise call.refuse("weights whose attributes have several lengths")
    where = numbered(rows[0], rows[1])
    if (where < 0).any():
        tree, node = (t[where < 0][0] for t in rows[:2])
        raise call.refuse(f"a weight of node {node} of tree {tree}, which is not there")
    number = at_end.cumsum() - 1
    used = np.flatnonzero(at_end[where])  # inner nodes say nothing
    of_end = number[where[used]]
    used = used[np.argsort(of_end, kind="stable")]
    ends = np.bincount(of_end, minlength=int(at_end.sum())), rows[2][used], weights[used]
    found = (
        np.where(at_end, -1, features),
        np.where(at_end, number, numbered(trees, true)),
        np.where(at_end, 0, numbered(trees, false)),
    )
    codes = np.array([0 if m == "LEAF" else MODES.index(m) for m in modes], np.int64)
    missing = np.asarray(call.get("nodes_missing_value_tracks_true") or np.zeros(len(modes)))
    return forest(call, found, bounds, codes, missing, ends, (count, kind))


class Lookup:
    """Where the nodes of trees are by the numbers of both.

    Attributes:
        twice: whether two nodes have the same.
    """

    def __init__(self, trees: Any, ids: Any) -> None:
        self.trees, self.ids = np.unique(trees), np.unique(ids)
        keys = self._keys(trees, ids)[0]
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        self.twice = bool((np.diff(self.keys) == 0).any())

    def _keys(self, trees: Any, ids: Any) -> tuple[Any, Any]:
        """Of each pair one number, and whether both are known."""
        found, known = [], np.ones(len(trees), bool)
        for values, given in ((self.trees, trees), (self.ids, ids)):
            at = np.minimum(np.searchsorted(values, given), max(len(values) - 1, 0))
            known &= values[at] == given if len(values) else False
            found.append(at)
        return found[0] * len(self.ids) + found[1], known

    def __call__(self, trees: Any, ids: Any) -> Any:
        """Lookup of pairs; -1 of those that there are not."""
        keys, known = self._keys(trees, ids)
        if not len(self.keys):
            return np.full(len(keys), -1)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(known & (self.keys[at] == keys), self.order[at], -1)


def floats_of(call: Call, name: str) -> Any:
    """Floats of an attribute, or doubles of the tensor beside it."""
    wide = call.get(f"{name}_as_tensor")
    if wide is not None:
        return wide.array().reshape(-1)
    return np.asarray(call.get(name) or [], np.float32)


def based(found: Any, base: Any) -> Any:
    """With what is there before any tree: for each target, or one for all."""
    return found + base if len(base) and len(base) in (1, found.shape[1]) else found


@of_tables("TreeEnsembleRegressor")
def tree_regressor(call: Call, x: Any) -> Any:
    """Sums, means, least or largest of what trees say."""
    kind = call.get("aggregate_function", "SUM")
    if call.kept is None:
        if kind not in ("SUM", "AVERAGE", "MIN", "MAX"):
            raise call.refuse(f"an aggregate_function {kind!r}")
        how = call.get("n_targets", 1), "SUM" if kind == "AVERAGE" else kind
        call.kept = of_attributes(call, "target", *how), floats_of(call, "base_values")
    trees, base = call.kept
    found = trees(rows_of(x))
    found = found / max(len(trees.roots), 1) if kind == "AVERAGE" else found
    found = based(found, base)
    return transformed(call, found).astype(np.float32)


@of_tables("TreeEnsembleClassifier")
def tree_classifier(call: Call, x: Any) -> Any:
    """The class that has most votes, and the scores of all."""
    if call.kept is None:
        labels = labels_of(call, "classlabels_int64s", "classlabels_strings")
        trees = of_attributes(call, "class", len(labels), "SUM")
        call.kept = trees, floats_of(call, "base_values"), labels
    trees, base, labels = call.kept
    x = rows_of(x)
    found = trees(x)
    classes, positive, _ = trees.spoken
    if len(labels) == 2 and len(classes) == 1:  # votes for one of two
        (voted,) = classes
        score = found[:, voted] + (base[min(voted, len(base) - 1)] if len(base) else 0)
        index = (score > 0).astype(np.int64)
        if positive and call.get("post_transform", "NONE") == "NONE":
            index = (score > 0.5).astype(np.int64)
        if voted == 0:
            found = both(call, score, positive)[1]
        else:  # those of the first one stay zero
            found = transformed(call, np.stack([np.zeros_like(score), score], axis=1))
    else:
        found = based(found, base)
        votes = None if len(base) else trees.votes(x)
        index = (found if votes is None else np.where(votes > 0, found, -np.inf)).argmax(axis=1)
        found = transformed(call, found)
    return label_at(labels, index), found.astype(np.float32)


@of_tables("TreeEnsemble", 5)
def tree_ensemble(call: Call, x: Any) -> Any:
    """What trees whose inner nodes and ends are apart say."""
    kind = ("AVERAGE", "SUM", "MIN", "MAX")[call.get("aggregate_function", 1)]
    if call.kept is None:
        call.kept = _second_form(call, "SUM" if kind == "AVERAGE" else kind)
    found = call.kept(rows_of(x))
    found = found / max(len(call.kept.roots), 1) if kind == "AVERAGE" else found
    return transformed(call, found).astype(x.dtype)


def _second_form(call: Call, kind: str) -> Forest:
    """The forest of a node of the second form; tests of sets become a chain of nodes."""
    features, bounds = list(call["nodes_featureids"]), call["nodes_splits"].array().reshape(-1)
    modes = call["nodes_modes"].array().reshape(-1).astype(np.int64).tolist()
    missing = list(call.get("nodes_missing_value_tracks_true") or [0] * len(modes))
    below = [list(call[f"nodes_{n}nodeids"]) for n in ("true", "false")]
    is_end = [call[f"nodes_{n}leafs"] for n in ("true", "false")]
    targets, weights = call["leaf_targetids"], call["leaf_weights"].array().reshape(-1).tolist()
    values, bounds = bounds, bounds.tolist()
    if len({len(t) for t in (features, bounds, modes, missing, *below, *is_end)}) > 1:
        raise call.refuse("nodes whose attributes have several lengths")
    count, first = len(features), len(features)
    members: list[list[float]] = [[]]
    given = call.get("membership_values")
    for value in [] if given is None else given.array().reshape(-1).tolist():
        members = [*members, []] if value != value else [*members[:-1], [*members[-1], value]]
    sets = iter(members)
    for way in (0, 1):  # ends lie behind the nodes
        below[way] = [p + first if e else p for p, e in zip(below[way], is_end[way], strict=True)]
    ends = len(weights)
    features += [-1] * ends
    bounds += [0.0] * ends
    modes += [0] * ends
    missing += [0] * ends
    below[0] += range(ends)
    below[1] += [0] * ends
    for n in range(count):
        if modes[n] != MEMBER:
            continue
        modes[n], rest = 4, next(sets, [])
        bounds[n] = rest[0] if rest else np.nan
        last = n
        for value in rest[1:]:
            features.append(features[n])
            bounds.append(value)
            modes.append(4)
            missing.append(missing[n])
            below[0].append(below[0][n])
            below[1].append(below[1][last])
            below[1][last] = len(features) - 1
            last = len(features) - 1
    if len(targets) != ends:
        raise call.refuse(f"{ends} weights of {len(targets)} targets")
    found = np.ones(ends, np.int64), np.asarray(targets, np.int64), np.asarray(weights)
    return forest(
        call,
        (features, below[0], below[1]),
        np.array(bounds, values.dtype if values.dtype.itemsize > 2 else np.float32),
        modes,
        missing,
        found,
        (call.get("n_targets", 1), kind),
        np.asarray(call["tree_roots"], np.int64),
    )
