"""What the demo measures: sizes, times, and how far a variant's vectors are from those of float32."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cubepy import nn


@dataclass
class Variant:
    """A model and what was measured of it.

    Attributes:
        name: as the table shows it.
        model: float32 or quantized.
        sentences, queries: their vectors, (n, 384) each.
        one, batch: milliseconds of every repetition.
    """

    name: str
    model: nn.Module
    sentences: np.ndarray = field(default_factory=lambda: np.empty((0, 384), np.float32))
    queries: np.ndarray = field(default_factory=lambda: np.empty((0, 384), np.float32))
    one: list[float] = field(default_factory=list)
    batch: list[float] = field(default_factory=list)

    @property
    def megabytes(self) -> float:
        """Of all weights, as they are in memory."""
        return sum(p.nbytes for p in self.model.parameters()) / 1e6

    @property
    def linear_megabytes(self) -> float:
        """Of the weights of the linear layers, scales and all; biases apart."""
        return sum(m.weight.nbytes for m in self.model.modules() if isinstance(m, nn.Linear)) / 1e6

    @property
    def one_ms(self) -> float:
        """Median time of one sentence."""
        return statistics.median(self.one)

    @property
    def batch_ms(self) -> float:
        """Median time of the batch."""
        return statistics.median(self.batch)

    def answers(self) -> np.ndarray:
        """The index of the nearest sentence for every query."""
        return (self.queries @ self.sentences.T).argmax(axis=1)

    def cosine(self, reference: Variant, rows: Sequence[int] | np.ndarray) -> float:
        """Mean cosine to the reference's vectors, over the queries and some of the sentences."""
        mine, other = (np.concatenate([v.sentences[rows], v.queries]) for v in (self, reference))
        return float((mine * other).sum(axis=1).mean())

    def ranked(self, rows: Sequence[int] | np.ndarray, count: int) -> np.ndarray:
        """The indices of the nearest sentences of every query, and of some of the sentences,
        themselves left out.
        """
        scores = np.concatenate([self.queries, self.sentences[rows]]) @ self.sentences.T
        scores[len(self.queries) + np.arange(len(rows)), rows] = -np.inf
        return np.argsort(-scores, axis=1, kind="stable")[:, :count]

    def agreement(self, reference: Variant, rows: Sequence[int] | np.ndarray, count: int) -> float:
        """How many of the reference's `count` nearest are among the own ones, over queries and some
        sentences.
        """
        mine, other = (v.ranked(rows, count) for v in (self, reference))
        return float((mine[:, :, None] == other[:, None, :]).any(axis=1).mean())


def measure(
    variants: Sequence[Variant],
    one: tuple[Any, Any],
    batch: tuple[Any, Any],
    repeats: int,
    step: Callable[[], None],
) -> None:
    """Time every variant on one sentence and on a batch; they take turns, so that the machine's
    moods are shared.
    """
    for variant in variants:  # the first call of a shape chooses and loads kernels
        variant.model(*one)
        variant.model(*batch).numpy()
    for _ in range(repeats):
        for variant in variants:
            for inputs, times, calls in ((one, variant.one, 3), (batch, variant.batch, 1)):
                start = time.perf_counter()
                result = variant.model(*inputs)
                for _ in range(calls - 1):
                    result = variant.model(*inputs)
                result.numpy()  # waits for the device
                times.append((time.perf_counter() - start) / calls * 1e3)
            step()
