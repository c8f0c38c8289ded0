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
        turns: how many tokens the next call writes at most.
    """

    def __init__(self, rows: int, ends: Collection[int]) -> None:
        known = sorted(ends) or [-1]
        self.first = 1 + len(known)
        self.given = np.zeros(self.first + 3 * rows, np.int64)
        self.given[1 : self.first] = known
        self.tensor, self.turns = Tensor(Dense(self.given, HOST)), 1

    def write(
        self, decoding: Any, writing: dict[int, Request], most: int
    ) -> list[tuple[Request, list[int]]]:
        """Write the likeliest tokens of rows, as many as come before anything else is to be done.

        Args:
            decoding: a `Decoding` whose caches have room for one token more.
            writing: requests by their rows.
            most: tokens of each.

        Returns:
            The new tokens of each request.
        """
        held, long, trained = decoding.held, decoding.long, decoding.trained
        tokens, starts = [0] * len(held), [len(h) for h in held]
        written = [0] * len(held)
        most = min(most, self.turns, MOST)
        for row, request in writing.items():
            length = len(request.tokens)
            tokens[row], written[row] = request.tokens[-1], 1
            most = min(
                most,
                request.limit - len(request.written),
                decoding.context - length,
                decoding.cache.capacity - starts[row],
            )
            if trained and not long[row]:  # behind that angles are others
                most = min(most, trained + 1 - length)
        self.given[0] = most
        self.given[self.first :] = tokens + starts + written
        begin = time.perf_counter()
        found = decoding.steps.several(self.tensor, decoding.cache.layers).numpy()
        lines: list[list[int]] = found[:most].T.tolist()
        count, ends = most, decoding.ends
        for row in writing if ends else ():
            for n, token in enumerate(lines[row][:count], 1):
                if token in ends:
                    count = n
        seconds = (time.perf_counter() - begin) / count
        self.turns = max(1, min(2 * self.turns, MOST, int(SECONDS / seconds)))
        if decoding.cache.windows:
            behind = [s + (count if w else 1) for s, w in zip(starts, written, strict=True)]
            decoding.cache.wrote(slice(None), behind, 1)
        new = []
        for row, request in writing.items():
            line = lines[row][:count]
            held[row] += [tokens[row], *line[:-1]]
            request.took_all(line, ends, decoding.context)
            new.append((request, line))
        return new
