"""Tokens that one program writes one after the other, without Python between them."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import numpy as np

from cubepy.models.generation.request import Request
from cubepy.models.generation.steps import MOST
from cubepy.tensor import Tensor
from cubepy.tensor.storage import HOST, Dense

SECONDS = 0.05
"""Longer than this no call writes several tokens: who reads along sees them come, and who
interrupts need not wait."""

New = list[tuple[Request, list[int]]]
"""The new tokens of requests."""


class Several:
    """How rows are written on the host, several tokens in a call.

    A call ends with the token that ends a text, so nothing is written in vain. It writes one token
    at first, then twice as many each time.

    Args:
        rows: of the caches.
        ends: tokens that end a text.

    Attributes:
        given: what the program reads: how many tokens, those that end a text, and for each row
            the last token, how many positions it holds, whether it is written.
        tokens, starts, written: the parts of it that are of rows.
        turns: how many tokens the next call writes at most.
        left: tokens that come before anything else is to be done, for the rows of the call before;
            0: somebody has to look.
        behind: requests, by their rows, of which `held` is not up to date.
    """

    def __init__(self, rows: int, ends: Collection[int]) -> None:
        known = sorted(ends) or [-1]
        first = 1 + len(known)
        self.given = np.zeros(first + 3 * rows, np.int64)
        self.given[1:first] = known
        self.tokens, self.starts, self.written = self.given[first:].reshape(3, rows)
        self.tensor, self.turns, self.left = Tensor(Dense(self.given, HOST)), 1, 0
        self.behind: dict[int, Request] = {}

    def write(self, decoding: Any, writing: dict[int, Request], most: int) -> New:
        """Write the likeliest tokens of rows, as many as come before anything else is to be done.

        Args:
            decoding: a `Decoding` whose caches have room for one token more.
            writing: requests by their rows.
            most: tokens of each.

        Returns:
            The new tokens of each request.
        """
        self.settle(decoding)
        held, long, trained = decoding.held, decoding.long, decoding.trained
        self.starts[:], self.written[:] = [len(h) for h in held], 0
        left = decoding.context
        for row, request in writing.items():
            length = len(request.tokens)
            self.tokens[row], self.written[row] = request.tokens[-1], 1
            left = min(
                left,
                request.limit - len(request.written),
                decoding.context - length,
                decoding.cache.capacity - len(held[row]),
            )
            if trained and not long[row]:  # behind that angles are others
                left = min(left, trained + 1 - length)
        new = self.call(decoding, writing, min(most, self.turns, left))
        for request, line in new:
            request.took_all(line, decoding.ends, decoding.context)
        if decoding.going is writing:
            self.left = left - len(line)
        return new

    def go_on(self, decoding: Any, writing: dict[int, Request], most: int) -> New | None:
        """The same for the rows of the call before, without a look at anything else; None where
        there is something.
        """
        left, self.left = self.left, 0
        most = min(most, self.turns)
        if most >= left:
            return None
        new = self.call(decoding, writing, most)
        ended = False
        for request, line in new:
            request.written += line
            request.tokens += line
            if line[-1] in decoding.ends:
                request.ended, ended = "end", True
        if ended:
            decoding.going = None
        else:
            self.left = left - len(line)
        return new

    def call(self, decoding: Any, writing: dict[int, Request], most: int) -> New:
        """The new tokens of rows, at most so many."""
        self.behind, self.given[0], ends = writing, most, decoding.ends
        begin = time.perf_counter()
        found = decoding.steps.several(self.tensor, decoding.cache.layers).numpy()
        seconds = time.perf_counter() - begin
        count, lines = most, found[:most].T.tolist()
        new = [(request, lines[row]) for row, request in writing.items()]
        for _, line in new:
            if not ends.isdisjoint(line):  # nothing was written behind the first one of all
                count = next(
                    n for n, token in enumerate(line[:count], 1) if token in ends or n == count
                )
        if count < most:
            new = [(request, line[:count]) for request, line in new]
        self.tokens[:] = found[count - 1]
        self.starts += count * self.written
        self.turns = max(1, min(2 * self.turns, MOST, int(SECONDS * count / seconds)))
        return new

    def settle(self, decoding: Any) -> None:
        """Say what rows hold, and what rolling caches lost."""
        self.left = 0
        if not self.behind:
            return
        held = decoding.held
        for row, request in self.behind.items():
            held[row] += request.tokens[len(held[row]) : -1]
        if decoding.cache.windows:
            decoding.cache.wrote(slice(None), self.starts + 1 - self.written, 1)
        self.behind = {}
