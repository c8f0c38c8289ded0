"""Support vector machines (Cortes and Vapnik, 1995)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.models.onnx.ops.tabular.scores import (
    both,
    label_at,
    labels_of,
    logistic,
    of_tables,
    rows_of,
    transformed,
)
from cubepy.models.onnx.records import Call

ROUNDS, NEAR = 100, 0.005
LEAST = 1e-7


@dataclass(frozen=True)
class Machine:
    """Vectors (S, F), coefficients (C, S) or those of a linear one, what is added, and the kernel's
    parameters.
    """

    vectors: Any
    coefficients: Any
    rho: Any
    kind: str
    gamma: float
    first: float
    degree: float

    @staticmethod
    def of(call: Call, count: int) -> Machine:
        """That of a node with so many support vectors; 0: a linear one."""
        if call.kept is None:
            flat = np.asarray(call["coefficients"], np.float64)
            vectors = np.asarray(call.get("support_vectors") or [], np.float64)
            rho = np.asarray(call.get("rho") or [0.0], np.float64)
            gamma, first, degree = (*(call.get("kernel_params") or ()), 0.0, 0.0, 0.0)[:3]
            if count and (len(vectors) % count or len(flat) % count):
                raise call.refuse(f"{len(vectors)} numbers of {count} support vectors")
            kind = call.get("kernel_type", "LINEAR")
            if kind not in ("LINEAR", "POLY", "RBF", "SIGMOID"):
                raise call.refuse(f"a kernel {kind!r}")
            vectors = vectors.reshape(count, -1) if count else vectors
            flat = flat.reshape(-1, count) if count else flat
            call.kept = Machine(vectors, flat, rho, kind, gamma, first, degree)
        return call.kept  # type: ignore[no-any-return]

    def near(self, call: Call, x: Any, to: Any) -> Any:
        """The kernel of rows (N, F) and (S, F), (N, S)."""
        if x.shape[1] != to.shape[1]:
            raise call.refuse(f"{x.shape[1]} columns, but {to.shape[1]} of each vector")
        x = x.astype(np.float64)
        if self.kind == "RBF":
            if x.size * len(to) < 1 << 22:
                squares = ((x[:, None] - to) ** 2).sum(axis=2)
            else:
                squares = (x * x).sum(axis=1)[:, None] + (to * to).sum(axis=1) - 2 * (x @ to.T)
            return np.exp(-self.gamma * squares)
        dots = x @ to.T
        if self.kind == "POLY":
            return (self.gamma * dots + self.first) ** self.degree
        return np.tanh(self.gamma * dots + self.first) if self.kind == "SIGMOID" else dots


@of_tables("SVMRegressor")
def svm_regressor(call: Call, x: Any) -> Any:
    """Kernels of support vectors, weighted; of one class 1 inside and -1 outside."""
    rows, count = rows_of(x), call.get("n_supports", 0)
    machine = Machine.of(call, count)
    if count:
        found = machine.near(call, rows, machine.vectors) @ machine.coefficients[0]
    else:
        found = machine.near(call, rows, machine.coefficients[None])[:, 0]
    found = found + machine.rho[0]
    if call.get("one_class", 0):
        return np.where(found > 0, 1, -1).astype(np.float32).reshape(-1, 1)
    return transformed(call, found.reshape(-1, 1)).astype(np.float32)


@of_tables("SVMClassifier")
def svm_classifier(call: Call, x: Any) -> Any:
    """The class that wins most duels, and scores of the duels or probabilities of the classes."""
    labels = labels_of(call, "classlabels_ints", "classlabels_strings")
    rows, sizes = rows_of(x), list(call.get("vectors_per_class") or [])
    machine = Machine.of(call, sum(sizes))
    if not sizes:
        matrix = machine.coefficients.reshape(len(labels), -1)
        found = machine.near(call, rows, matrix) + machine.rho[0]
        return label_at(labels, found.argmax(axis=1)), transformed(call, found).astype(np.float32)
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    if len(sizes) != len(labels) or len(machine.rho) != len(pairs):
        raise call.refuse(f"{len(sizes)} classes with vectors, {len(labels)} labels")
    if len(machine.coefficients) != len(sizes) - 1:
        raise call.refuse(f"{len(machine.coefficients)} coefficients of each vector")
    near = machine.near(call, rows, machine.vectors)
    ends = np.cumsum([0, *sizes])
    duels = np.empty((len(rows), len(pairs)))
    votes = np.zeros((len(rows), len(sizes)))
    for n, (i, j) in enumerate(pairs):
        a, b = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        duels[:, n] = near[:, a] @ machine.coefficients[j - 1, a] + machine.rho[n]
        duels[:, n] += near[:, b] @ machine.coefficients[i, b]
        wins = duels[:, n] > 0
        votes[:, i] += wins
        votes[:, j] += ~wins
    index = votes.argmax(axis=1)
    first, second = (np.asarray(call.get(f"prob_{n}") or [], np.float64) for n in "ab")
    if len(first) or len(second):
        if len(first) != len(pairs) or len(second) != len(pairs):
            raise call.refuse(f"prob_a and prob_b of {len(pairs)} duels")
        chances = probabilities(duels, first, second, pairs, len(sizes))
        return label_at(labels, index), chances.astype(np.float32)
    if len(pairs) == 1:
        duels = both(call, duels[:, 0], False)[1]
        return label_at(labels, index), duels.astype(np.float32)
    return label_at(labels, index), transformed(call, duels).astype(np.float32)


def probabilities(duels: Any, a: Any, b: Any, pairs: list[tuple[int, int]], count: int) -> Any:
    """The chances of classes that fit those of their duels best (Wu, Lin and Weng, 2004)."""
    each = np.full((len(duels), count, count), 0.0)
    for n, (i, j) in enumerate(pairs):
        chance = np.clip(1 - logistic(duels[:, n] * a[n] + b[n]), LEAST, 1 - LEAST)
        each[:, i, j], each[:, j, i] = chance, 1 - chance
    q = -each.swapaxes(1, 2) * each
    q[:, range(count), range(count)] = (each**2).sum(axis=1)
    found = np.full((len(duels), count), 1.0 / count)
    for row, chance in zip(q, found, strict=True):
        for _ in range(max(ROUNDS, count)):
            product = row @ chance
            total = chance @ product
            if np.abs(product - total).max() < NEAR / count:
                break
            for t in range(count):
                by = (total - product[t]) / row[t, t]
                chance[t] += by
                total = (total + by * (by * row[t, t] + 2 * product[t])) / (1 + by) ** 2
                product = (product + by * row[t]) / (1 + by)
                chance /= 1 + by
    return found
