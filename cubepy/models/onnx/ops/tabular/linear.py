"""Linear models of tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.models.onnx.ops.tabular.scores import (
    both,
    label_at,
    labels_of,
    of_tables,
    rows_of,
    transformed,
)
from cubepy.models.onnx.records import Call


def scores_of(call: Call, x: Any, count: int) -> Any:
    """x coefficients^T + intercepts, (N, count)."""
    if call.kept is None:
        flat = np.asarray(call["coefficients"], np.float64)
        if count <= 0 or not len(flat) or len(flat) % count:
            raise call.refuse(f"{len(flat)} coefficients of {count} results")
        call.kept = flat.reshape(count, -1).T, np.asarray(call.get("intercepts") or 0.0, np.float64)
    matrix, first = call.kept
    if x.shape[1] != len(matrix):
        raise call.refuse(f"{x.shape[1]} columns, but {len(matrix)} coefficients of each result")
    return x.astype(np.float64) @ matrix + first


@of_tables("LinearRegressor")
def linear_regressor(call: Call, x: Any) -> Any:
    """x coefficients^T + intercepts."""
    found = scores_of(call, rows_of(x), call.get("targets", 1))
    return transformed(call, found).astype(np.float32)


@of_tables("LinearClassifier")
def linear_classifier(call: Call, x: Any) -> Any:
    """The class that has the largest score, and the scores of all."""
    labels = labels_of(call, "classlabels_ints", "classlabels_strings")
    rows = rows_of(x)
    count = len(call["coefficients"]) // max(rows.shape[1], 1)
    found = scores_of(call, rows, count)
    if count == 1 and len(labels) == 2:
        index, found = both(call, found[:, 0], True)
    elif count == len(labels):
        index, found = found.argmax(axis=1), transformed(call, found)
    else:
        raise call.refuse(f"scores of {count} of {len(labels)} classes")
    return label_at(labels, index), found.astype(np.float32)
