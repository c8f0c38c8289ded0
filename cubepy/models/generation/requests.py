"""`Decoding`: texts that are written together, and come and go at any step.

A cache has a row for each text. A step reads a piece of a prompt, if one waits, and writes a token
of every text that is being written: one program, whatever the lengths are. Rows keep what they hold
when a text ends, so that a later prompt that begins with the same tokens need not read them again.

With drafts a step looks at several tokens at once, and keeps those that the model chooses itself
(Leviathan et al., 2023): the text is the one that it writes without them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, LaunchError, OutOfMemoryError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.decoder import Decoder
from cubepy.models.generation import saved
from cubepy.models.generation.cache import PIECE, cache_dtype_of, cache_for
from cubepy.models.generation.drafts import guesses
from cubepy.models.generation.request import (
    Drafts,
    Request,
    at_least_one,
    checked,
    drafts_of,
    ends_of,
    shared,
)
from cubepy.models.generation.sampling import Sampling
from cubepy.models.generation.several import Several
from cubepy.models.generation.steps import (
    MOST,
    PIECE_OF_GPU,
    Given,
    check_prompts,
    read_first,
    read_on,
    steps_of,
    trained_on,
)
from cubepy.runtime.device import gpu_of
from cubepy.tensor import no_grad


class Decoding:
    """Requests to a model that are answered together.

    Args:
        model: a decoder.
        rows: how many texts are written at the same time; others wait.
        ends: tokens after which a text is done; those of the model by default.
        drafts: `PromptLookup()` or `DraftModel(small)`: guesses that are checked in one step.
        cache_dtype: of keys and values: "f32", "bf16", "f16", or "int8" with scales of groups of 32
            numbers; None: what goes with the weights and the device.
        chunk: tokens of a prompt that a step reads at most; layers that look back at a window keep
            the window and so many positions. (On a GPU the first part of a prompt may be longer.)
        positions: of each text for which there is room at first.

    Raises:
        ArgumentError: no decoder, less than one row or token, an unknown dtype, ends that are none.

    Example:
        >>> from cubepy.models.architectures.decoder import DecoderConfig
        >>> from cubepy.models.generation.text_model import TextModel
        >>> c = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, groups=1, depth=4, inner=16,
        ...     context=32)
        >>> model = TextModel(c)
        >>> together = Decoding(model, rows=2)
        >>> first = together.add([1, 2, 3], max_new_tokens=6)
        >>> _ = together.step()
        >>> second = together.add([4, 5], max_new_tokens=4)
        >>> together.run()
        >>> first.written == model.generate([1, 2, 3], max_new_tokens=6)
        True
        >>> second.written == model.generate([4, 5], max_new_tokens=4)
        True
    """

    def __init__(
        self,
        model: Decoder,
        rows: int = 8,
        *,
        ends: frozenset[int] | None = None,
        drafts: Drafts | None = None,
        cache_dtype: Any = None,
        chunk: int | None = None,
        positions: int | None = None,
    ) -> None:
        if not isinstance(model, Decoder):
            raise ArgumentError(f"a Decoding takes a decoder, not {shown(model)}")
        rows = at_least_one("rows", rows)
        chunk = at_least_one("chunk", PIECE if chunk is None else chunk)
        positions = at_least_one("positions", PIECE if positions is None else positions)
        dtype = None if cache_dtype is None else cache_dtype_of(cache_dtype)
        self.model, self.drafts = model, drafts_of(drafts)
        ends = ends_of(getattr(model, "ends", frozenset()) if ends is None else ends)
        self.ends = frozenset(t for t in ends if 0 <= t < model.config.vocabulary)
        self.context, self.trained = model.config.context, trained_on(model)
        self.device = model.words.weight.device
        self.on_host = self.device.backend == "cpu"
        self.chunk = max(chunk, drafts.count if drafts is not None else 1)
        self.most = self.chunk if gpu_of(self.device) is None else max(self.chunk, PIECE_OF_GPU)
        self.cache = cache_for(model, rows, min(positions, self.context), dtype, self.chunk)
        self.rows: list[Request | None] = [None] * rows
        self.held: list[list[int]] = [[] for _ in range(rows)]
        self.long = [False] * rows
        self.waiting: list[Request] = []
        self.steps = steps_of(model)
        self.several = Several(rows, self.ends)
        self.going: dict[int, Request] | None = None
        self.following: tuple[Any, ...] | None = None
        self.given: Given | None = None

    def add(
        self,
        prompt: Sequence[int],
        max_new_tokens: int = 128,
        *,
        seed: int = 0,
        log_probabilities: bool = False,
        **options: Any,
    ) -> Request:
        """Ask for a text; it is begun when a row is free.

        Args:
            prompt: tokens.
            max_new_tokens: where it ends at the latest.
            seed: of the random choice.
            log_probabilities: whether they are kept.
            options: of `Sampling`.

        Raises:
            ArgumentError: a prompt that is no list of tokens; options that are unknown.
            LaunchError: tokens beyond the vocabulary, a prompt longer than the context.
        """
        check_prompts([prompt], self.model.config.vocabulary, self.context)
        given = [int(t) for t in prompt]
        made = Request(given, Sampling.of(options), max_new_tokens, seed, log_probabilities)
        if not made.limit or len(given) >= self.context:
            made.ended = "length" if not made.limit else "context"
        else:
            self.waiting.append(made)
        return made

    def fork(self, request: Request, seed: int | None = None) -> Request:
        """Another text that goes on from where one is; with another seed.

        Raises:
            ArgumentError, LaunchError: it is no request; it has ended.
        """
        if checked(request).ended:
            raise LaunchError("a request that has ended cannot be forked", hint="add its tokens")
        check_prompts([request.tokens], self.model.config.vocabulary, self.context)
        self.waiting.append(request.forked(request.seed if seed is None else seed))
        return self.waiting[-1]

    def finish(self, request: Request) -> None:
        """End a request, at any step; its row is free."""
        if not checked(request).ended:
            request.ended = "finished"
        self._look_again()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that is needed to go on to a file, which appears whole or not at all.

        Raises:
            FileNotFoundError, IsADirectoryError: there is no folder to write in, or it is one.
        """
        self._look_again()
        saved.save(self, path)

    @classmethod
    def restore(
        cls, model: Decoder, path: str | os.PathLike[str], *, drafts: Drafts | None = None
    ) -> Decoding:
        """What `save` wrote, with the same model; `requests` are those that go on.

        Args:
            model: the one that was saved.
            path: of the file.
            drafts: guesses, which are not part of the file.

        Raises:
            FileFormatError: a file that is truncated, changed, of another model, or no such file.
            ArgumentError: drafts that guess more tokens than the chunk of what was saved.
        """
        if not isinstance(model, Decoder):
            raise ArgumentError(f"a Decoding takes a decoder, not {shown(model)}")
        return saved.restored(cls, model, path, drafts_of(drafts))

    @property
    def active(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.waiting) or any(r is not None for r in self.rows)

    @property
    def requests(self) -> list[Request]:
        """Those that go on: by rows, then those that wait, in their order."""
        found = [r for r in self.rows if r is not None] + self.waiting
        return [r for r in found if not r.ended]

    def run(self) -> None:
        """Go on until every request has ended."""
        while self.active:
            self.step(MOST)

    def step(self, tokens: int = 1) -> list[tuple[Request, list[int]]]:
        """Read pieces of prompts, and write; gives the new tokens.

        Args:
            tokens: how many a text may get; those of texts that take the likeliest tokens come out
                of one call, up to the first token that ends a text.

        Raises:
            ArgumentError, LaunchError: no such number; scores that are not numbers.
        """
        if type(tokens) is not int or tokens < 1:
            tokens = at_least_one("tokens", tokens)
        found: list[tuple[Request, list[int]]] = []
        with no_grad():
            writing = self.going
            if writing is None or (self.waiting and None in self.rows):
                self._look_again()
                found, writing = self._looked()
            if writing:
                found += self._write(writing, tokens)
        if self.going is None:
            self._release()
        return found

    def _looked(self) -> tuple[list[tuple[Request, list[int]]], dict[int, Request]]:
        """Begin what waits, and read; gives the tokens behind prompts, and what is written next.
        Until something else comes, a step need not look again.
        """
        if self.waiting:
            self._begin()
        for row, request in enumerate(self.rows if self.trained else ()):
            if request is not None and self._is_long(request) and not self.long[row]:
                self.held[row], self.long[row] = [], True  # other angles from here on: all anew
        found: list[tuple[Request, list[int]]] = []
        reading = self._reading()
        if reading:
            found += self._read(reading)
            self.several.turns = 1  # what comes first is waited for
        writing = {
            row: request
            for row, request in enumerate(self.rows)
            if request is not None
            and request.written
            and not request.ended
            and len(self.held[row]) == len(request.tokens) - 1
            and (self.long[row] or not self._is_long(request))
        }
        if not (reading or self.trained) and len(writing) == sum(r is not None for r in self.rows):
            self.going = writing
        return found, writing

    def _look_again(self) -> None:
        """The next step looks at what is to be done: something else has come."""
        self.several.settle(self)
        self.going = None
        self._release()

    # Rows

    def _release(self) -> None:
        if any(r.ended for r in self.waiting):
            self.waiting = [r for r in self.waiting if not r.ended]
        for row, request in enumerate(self.rows):
            if request is not None and request.ended:
                self.rows[row] = None

    def _begin(self) -> None:
        """Give free rows to those who wait, with what another row has of their beginning."""
        for request in list(self.waiting):
            free = [n for n, r in enumerate(self.rows) if r is None]
            if not free:
                return
            wanted, long = request.tokens[:-1], self._is_long(request)
            same = [self._shared(row, wanted, long) for row in range(len(self.rows))]
            best = max(range(len(same)), key=lambda n: (same[n], n in free))
            row = best if best in free else min(free, key=lambda n: len(self.held[n]))
            self.cache.copy_rows([best], [row], same[best])
            self.held[row], self.long[row] = wanted[: same[best]], long
            self.rows[row] = request
            self.waiting.remove(request)

    def _shared(self, row: int, wanted: list[int], long: bool) -> int:
        """How many tokens of a text a row holds from the first on, so that it can go on there."""
        if self.long[row] != long:
            return 0
        same = shared(self.held[row], wanted)
        return same if self.cache.keeps(row, same) else 0

    def _is_long(self, request: Request) -> bool:
        """Whether a text has come to where other angles begin."""
        return bool(self.trained) and len(request.tokens) > self.trained

    def _reading(self) -> list[int]:
        """The rows whose pieces are read next: one, or several that begin."""
        found, longest = list[int](), 0
        for row, request in enumerate(self.rows):
            if request is None or request.ended:
                continue
            left = len(request.tokens) - len(self.held[row])
            if left <= 1 and request.written:
                continue
            if self.held[row]:
                return found or [row]
            longest = max(longest, self._first(request, 1))
            if found and (
                self.long[found[0]] != self.long[row] or longest * (1 + len(found)) > self.most
            ):
                break
            found.append(row)
        return found

    def _first(self, request: Request, rows: int) -> int:
        """How many tokens of a text that begins are read at once, beside others."""
        return min(len(request.tokens) - bool(request.written), max(1, self.most // rows))

    def _read(self, rows: list[int]) -> list[tuple[Request, list[int]]]:
        """Read a piece of each row; behind the last one of a prompt comes the first token."""
        pieces = {}
        for row in rows:
            request, first = self._request(row), len(self.held[row])
            last = len(request.tokens) - bool(request.written)
            most = self.chunk if first else self._first(request, len(rows))
            pieces[row] = request.tokens[first : min(first + most, last)]
        if not self._room(max(len(self.held[row]) + len(piece) for row, piece in pieces.items())):
            pieces = {row: piece for row, piece in pieces.items() if not self._request(row).ended}
            return self._read(list(pieces)) if pieces else []
        long = self.long[rows[0]]
        if self.held[rows[0]]:
            (row,) = rows
            first = len(self.held[row])
            hidden = {row: read_on(self.model, self.cache, row, pieces[row], first, long)}
        else:
            hidden = read_first(self.model, self.cache, pieces, long)
        found = []
        for row, piece in pieces.items():
            request = self._request(row)
            self.held[row] += piece
            if request.written or len(self.held[row]) < len(request.tokens):
                continue
            scores = self.model.logits(hidden[row].unsqueeze(0))[0].numpy()
            token = request.choose(scores)
            request.took(token, scores, self.ends, self.context)
            found.append((request, [token]))
        return found

    def _request(self, row: int) -> Request:
        found = self.rows[row]
        assert found is not None
        return found

    def _write(self, writing: dict[int, Request], most: int) -> list[tuple[Request, list[int]]]:
        """A step of all rows, or several."""
        several = self.several
        if several.left and self.going is writing:
            found = several.go_on(self, writing, most)
            if found is not None:
                return found
        several.settle(self)
        guessed = {} if self.drafts is None else guesses(self, writing)
        width = 1 + (self.drafts.count if self.drafts is not None and guessed else 0)
        if not self._room(max([len(self.held[row]) for row in writing]) + width):
            writing = {row: r for row, r in writing.items() if not r.ended}
            return self._write(writing, most) if writing else []
        plain = all(r.plain for r in writing.values())
        if plain and width == 1 and self.on_host:
            return self._ended(several.write(self, writing, most))
        tokens, starts, *there = self._there(width, writing, guessed)
        if not plain:
            scores = self.steps.scores(*there, self.cache.layers).numpy()
        elif width > 1:
            scores = self.steps.likeliest(*there, self.cache.layers).numpy()
        else:
            likeliest, later = self.steps.greedy(*there, self.cache.layers)
            scores = likeliest.numpy()
            self.following = scores.tobytes(), (starts + 1).tobytes(), likeliest, later
        if self.cache.windows:
            self.cache.wrote(slice(None), starts + width, width)
        found = [
            (request, self._checked(row, request, tokens[row], guessed.get(row, ()), scores[row]))
            for row, request in writing.items()
        ]
        return self._ended(found)

    def _ended(self, found: list[tuple[Request, list[int]]]) -> list[tuple[Request, list[int]]]:
        """The same; where a request has ended, the next step looks at what is to be done."""
        for request, _ in found:
            if request.ended:
                self._look_again()
                break
        return found

    def _there(
        self, width: int, writing: dict[int, Request], guessed: dict[int, list[int]]
    ) -> tuple[np.ndarray, np.ndarray, Any, Any]:
        """Tokens and starts of all rows, and the same on the device: on a GPU what the step before
        left there, if it is that.
        """
        given = self.given
        if given is None or given.width != width:
            given = self.given = Given(len(self.rows), width)
        tokens, starts = given.fill(self.held, writing, guessed)
        if self.on_host:
            return tokens, starts, *given.tensors
        last, self.following = self.following, None
        if last is not None and last[:2] == (tokens.tobytes(), starts.tobytes()):
            return tokens, starts, last[2], last[3]
        there, begin = (tensor.to(self.device) for tensor in given.tensors)
        return tokens, starts, there, begin

    def _checked(
        self, row: int, request: Request, line: np.ndarray, guess: Sequence[int], found: np.ndarray
    ) -> list[int]:
        """The tokens of a row that the model chooses: as long as guesses are right, and one more;
        `line` was read, and `found` are the likeliest tokens behind that, or scores of all.
        """
        new: list[int] = []
        for k in range(len(guess) + 1):
            self.held[row].append(int(line[k]))
            if found.ndim == 1:
                token, scores = int(found[k]), None
            else:
                token, scores = request.choose(found[k]), found[k]
            request.took(token, scores, self.ends, self.context)
            new.append(token)
            if request.ended or k == len(guess) or token != guess[k]:
                break
        return new

    def _room(self, positions: int) -> bool:
        """Make room; where there is no memory, the longest text ends, and this says False."""
        try:
            self.cache.grow(min(positions, self.context))
            return True
        except OutOfMemoryError:
            alive = [r for r in self.rows if r is not None and not r.ended]
            max(alive, key=lambda r: len(r.tokens)).ended = "memory"
            self._look_again()
            return False
