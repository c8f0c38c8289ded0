"""`Decoding`: texts that are written together, and come and go at any step.

A cache has a row for each text. A step reads a piece of a prompt, if one waits, and writes a token
of every text that is being written: one program, whatever the lengths are. Rows keep what they hold
when a text ends, so that a later prompt that begins with the same tokens need not read them again.

With drafts a step looks at several tokens at once, and keeps those that the model chooses itself
(Leviathan et al., 2023): the text is the one that it writes without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, LaunchError, OutOfMemoryError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.decoder import Decoder
from cubepy.models.generation.cache import cache_for
from cubepy.models.generation.decoding import PIECE, check_prompts, trained_on
from cubepy.models.generation.sampling import Sampling, log_probability
from cubepy.tensor import Tensor, as_tensor


class Drafts(Protocol):
    """What guesses the next tokens of texts.

    Attributes:
        count: how many it guesses at most.
    """

    count: int

    def propose(self, texts: dict[int, list[int]]) -> dict[int, list[int]]:
        """Guesses for texts, by numbers of rows."""
        ...


@dataclass(eq=False)
class Request:
    """A text that is asked for.

    Attributes:
        prompt: its tokens.
        written: tokens that came so far, with that which ends it.
        log_probabilities: of those, where they are asked for.
        ended: why it is done: "end" (a token that ends it), "length", "context", "memory" (there
            was none for a larger cache), "finished" (by the caller); empty while it goes on.
    """

    prompt: list[int]
    sampling: Sampling
    limit: int
    seed: int
    wants_log_probabilities: bool = False
    written: list[int] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    ended: str = ""

    @property
    def tokens(self) -> list[int]:
        """The prompt and what was written."""
        return [*self.prompt, *self.written]


class Steps:
    """The programs of a model: of a few tokens of every row, what comes behind each.

    Attributes:
        scores: (rows, width, vocabulary).
        likeliest: the best ones, (rows, width).
    """

    def __init__(self, model: Decoder) -> None:
        def scores(tokens: Tensor, starts: Tensor, caches: Any) -> Tensor:
            return model.logits(model.hidden(tokens, starts, caches))

        def likeliest(tokens: Tensor, starts: Tensor, caches: Any) -> Tensor:
            return scores(tokens, starts, caches).argmax(-1)

        self.model = model
        self.scores, self.likeliest = cb.jit(scores), cb.jit(likeliest)


def steps_of(model: Decoder) -> Steps:
    """The programs of a model, which it keeps; a clone has its own."""
    found = model.__dict__.get("_steps")
    if found is None or found.model is not model:
        found = model.__dict__["_steps"] = Steps(model)
    return found  # type: ignore[no-any-return]


class Decoding:
    """Requests to a model that are answered together.

    Args:
        model: a decoder.
        rows: how many texts are written at the same time; others wait.
        ends: tokens after which a text is done; those of the model by default.
        drafts: `PromptLookup()` or `DraftModel(small)`: guesses that are checked in one step.

    Raises:
        ArgumentError: a model that is no decoder, or less than one row.

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
    ) -> None:
        if not isinstance(model, Decoder):
            raise ArgumentError(f"a Decoding takes a decoder, not {shown(model)}")
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise ArgumentError(f"rows must be an integer of at least 1, not {shown(rows)}")
        c = model.config
        self.model, self.drafts = model, drafts
        self.ends = getattr(model, "ends", frozenset()) if ends is None else ends
        self.context = trained_on(model) or c.context
        self.device = model.embed.weight.device
        self.cache = cache_for(model, rows, min(PIECE, self.context))
        self.rows: list[Request | None] = [None] * rows
        self.held: list[list[int]] = [[] for _ in range(rows)]
        self.waiting: list[Request] = []
        self.steps = steps_of(model)

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
        if max_new_tokens <= 0 or len(given) >= self.context:
            made.ended = "length" if max_new_tokens <= 0 else "context"
        else:
            self.waiting.append(made)
        return made

    def fork(self, request: Request, seed: int | None = None) -> Request:
        """Another text that goes on from where one is; with another seed.

        Raises:
            LaunchError: the request has ended.
        """
        if request.ended:
            raise LaunchError("a request that has ended cannot be forked", hint="add its tokens")
        made = Request(
            list(request.prompt),
            request.sampling,
            request.limit,
            request.seed if seed is None else seed,
            request.wants_log_probabilities,
            list(request.written),
            list(request.log_probabilities),
        )
        self.waiting.append(made)
        return made

    def finish(self, request: Request) -> None:
        """End a request, at any step; its row is free."""
        if not request.ended:
            request.ended = "finished"
        self._release()

    @property
    def active(self) -> bool:
        """Whether anything is left to do."""
        return bool(self.waiting) or any(r is not None for r in self.rows)

    def run(self) -> None:
        """Go on until every request has ended."""
        while self.active:
            self.step()

    def step(self) -> list[tuple[Request, list[int]]]:
        """Read a piece of a prompt, and write; gives the new tokens.

        Raises:
            LaunchError: scores that are not numbers.
        """
        self._release()
        self._begin()
        found: list[tuple[Request, list[int]]] = []
        with cb.no_grad():
            reading = self._reading()
            if reading is not None:
                found += self._read(reading)
            self._release()
            writing = {
                row: request
                for row, request in enumerate(self.rows)
                if request is not None and len(self.held[row]) == len(request.tokens) - 1
            }
            writing = {row: r for row, r in writing.items() if r.written}
            if writing:
                found += self._write(writing)
        self._release()
        return found

    # Rows

    def _release(self) -> None:
        self.waiting = [r for r in self.waiting if not r.ended]
        self.rows = [None if r is None or r.ended else r for r in self.rows]

    def _begin(self) -> None:
        """Give free rows to those who wait, with what another row has of their beginning."""
        for request in list(self.waiting):
            free = [n for n, r in enumerate(self.rows) if r is None]
            if not free:
                return
            wanted = request.tokens[:-1]
            same = [_shared(held, wanted) for held in self.held]
            best = max(range(len(same)), key=lambda n: (same[n], n in free))
            row = best if best in free else min(free, key=lambda n: len(self.held[n]))
            self.cache.copy_rows([best], [row], same[best])
            self.held[row] = wanted[: same[best]]
            self.rows[row] = request
            self.waiting.remove(request)

    def _reading(self) -> int | None:
        """A row whose request has tokens that were not read."""
        for row, request in enumerate(self.rows):
            if request is None:
                continue
            left = len(request.tokens) - len(self.held[row])
            if left > 1 or not request.written:
                return row
        return None

    def _read(self, row: int) -> list[tuple[Request, list[int]]]:
        """Read a piece; behind the last one of a prompt comes the first token."""
        request = self.rows[row]
        assert request is not None
        last = len(request.tokens) if not request.written else len(request.tokens) - 1
        first = len(self.held[row])
        piece = request.tokens[first : min(first + PIECE, last)]
        if not self._room(first + len(piece)) or request.ended:
            return []
        tokens = as_tensor(np.array([piece], np.int64)).to(self.device)
        starts = as_tensor(np.array([first], np.int64)).to(self.device)
        if first == 0:  # what is new sees itself alone
            new = [self.cache.pair(len(piece), 1) for _ in self.cache.layers]
            hidden = self.model.hidden(tokens, starts, new, False, True)
            self.cache.store(row, new)
        else:
            hidden = self.model.hidden(tokens, starts, self.cache.row(row), False)
        self.held[row] += piece
        if request.written or first + len(piece) < last:
            return []
        scores = self.model.logits(hidden[:, -1])[0].numpy()
        token = request.sampling.choose(scores, request.prompt, request.written, request.seed)
        self._took(request, token, scores if request.wants_log_probabilities else None)
        return [(request, [token])]

    def _write(self, writing: dict[int, Request]) -> list[tuple[Request, list[int]]]:
        """A step of all rows."""
        texts = {row: request.tokens for row, request in writing.items()}
        guessed = {} if self.drafts is None else self.drafts.propose(texts)
        guessed = {row: self._usable(writing[row], guess) for row, guess in guessed.items()}
        guessed = {row: guess for row, guess in guessed.items() if guess}
        width = 1 + (self.drafts.count if self.drafts is not None and guessed else 0)
        if not self._room(max(len(self.held[row]) for row in writing) + width):
            writing = {row: r for row, r in writing.items() if not r.ended}
            if not writing:
                return []
        tokens = np.zeros((len(self.rows), width), np.int64)
        for row in writing:
            line = [texts[row][-1], *guessed.get(row, [])]
            tokens[row, : len(line)] = line
        starts = as_tensor(np.array([len(h) for h in self.held], np.int64)).to(self.device)
        given = as_tensor(tokens).to(self.device), starts, self.cache.layers
        plain = all(r.sampling.greedy and not r.wants_log_probabilities for r in writing.values())
        found = (self.steps.likeliest if plain else self.steps.scores)(*given).numpy()
        return [
            (request, self._checked(row, request, tokens[row], guessed.get(row, []), found[row]))
            for row, request in writing.items()
        ]

    def _usable(self, request: Request, guess: list[int]) -> list[int]:
        """The guesses that a request can take: of its vocabulary, as far as it goes."""
        most = self.model.config.vocabulary
        beyond = next((k for k, token in enumerate(guess) if not 0 <= token < most), len(guess))
        return guess[: min(beyond, request.limit - len(request.written) - 1)]

    def _checked(
        self, row: int, request: Request, line: np.ndarray, guess: list[int], found: np.ndarray
    ) -> list[int]:
        """The tokens of a row that the model chooses: as long as guesses are right, and one more.

        Args:
            row: its number.
            request: of it.
            line: tokens that were read: the last one, and guesses.
            guess: the guesses.
            found: the likeliest tokens behind them, (width,), or scores, (width, vocabulary).
        """
        new = []
        for k in range(len(guess) + 1):
            self.held[row].append(int(line[k]))
            if found.ndim == 1:
                token, scores = int(found[k]), None
            else:
                scores = found[k]
                chosen = request.sampling.choose
                token = chosen(scores, request.prompt, request.written, request.seed)
            self._took(request, token, scores if request.wants_log_probabilities else None)
            new.append(token)
            if request.ended or k == len(guess) or token != guess[k]:
                break
        return new

    def _took(self, request: Request, token: int, scores: np.ndarray | None) -> None:
        request.written.append(token)
        if scores is not None:
            request.log_probabilities.append(log_probability(scores, token))
        if token in self.ends:
            request.ended = "end"
        elif len(request.written) >= request.limit:
            request.ended = "length"
        elif len(request.tokens) >= self.context:
            request.ended = "context"

    def _room(self, positions: int) -> bool:
        """Make room; where there is no memory, the longest texts end and the others go on."""
        while True:
            try:
                self.cache.grow(min(positions, self.model.config.context))
                return True
            except OutOfMemoryError:
                lengths = [
                    (len(r.tokens), row)
                    for row, r in enumerate(self.rows)
                    if r is not None and not r.ended
                ]
                if not lengths:
                    return False
                longest = self.rows[max(lengths)[1]]
                assert longest is not None
                longest.ended = "memory"
                return False


def _shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts begin with together.

    Example:
        >>> _shared([1, 2, 3], [1, 2, 4, 5])
        2
    """
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def stepwise(decoding: Decoding, requests: list[Request]) -> Iterator[list[int | None]]:
    """The tokens of requests one after the other: of each its next one, None where none came."""
    order = {id(request): n for n, request in enumerate(requests)}
    given = [0] * len(requests)
    while any(not r.ended or given[n] < len(r.written) for n, r in enumerate(requests)):
        if decoding.active:
            decoding.step()
        while any(given[n] < len(r.written) for n, r in enumerate(requests)):
            row: list[int | None] = [None] * len(requests)
            for request in requests:
                n = order[id(request)]
                if given[n] < len(request.written):
                    row[n] = request.written[given[n]]
                    given[n] += 1
            yield row
