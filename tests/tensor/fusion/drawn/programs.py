"""Programs that are drawn: their steps, and inputs of several sizes.

A step is drawn where NumPy can do it. Sizes are named by letters, so that the same program has
inputs of others: some that are equal, 0 or 1 by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.tensor.fusion.drawn.spaces import OfNumPy, OfTensors
from tests.tensor.fusion.drawn.steps import STEPS, Numbers, Unfit

LENGTHS = (2, 4, 6, 8, 3, 5, 7, 1, 17)
MOST, RANK = 900, 4
"""Elements of a value, and its axes."""
NUMPY, OURS = OfNumPy(), OfTensors()


class Taken(NamedTuple):
    """A step of a program: what it does, with which values and numbers."""

    run: Callable[..., Any]
    values: tuple[int, ...]
    numbers: Numbers


class Program:
    """A drawn program.

    Args:
        seed: of what is drawn.
        dtypes: of its floats.
        families: of its steps; all of them if not given.

    Attributes:
        shapes: of its inputs, as letters of sizes; 1 is one, too.
        kinds: the dtypes of its inputs.
        steps: what it does.
        wanted: which values are its results.
        floats: which values are floats.
    """

    def __init__(
        self, seed: int, dtypes: Sequence[str] = ("f64",), families: Sequence[str] = ()
    ) -> None:
        self.rng = rng = random.Random(seed)
        self.seed, self.dtypes = seed, dtypes
        names = sorted(STEPS)
        self.families = families or rng.sample(names, rng.randrange(2, 9))
        letters = [*"abcd"][-rng.randrange(1, 5) :]
        self.shapes: list[tuple[str, ...]] = []
        for _ in range(rng.randrange(2, 5)):
            shape = letters[rng.randrange(len(letters) + 1) :] if rng.random() < 0.7 else letters
            self.shapes.append(tuple("1" if rng.random() < 0.15 else s for s in shape))
        if any("products" in f for f in self.families):
            self.shapes += [(rng.choice(letters), letters[-1]), (letters[-1],)]
        self.kinds = [
            rng.choice(["i32", "bool"]) if rng.random() < 0.15 else rng.choice(dtypes)
            for _ in self.shapes
        ]
        self.twice = rng.random() < 0.15
        self.steps: list[Taken] = []
        self.sizes = self._sizes()
        with np.errstate(all="ignore"):
            self._draw()

    def _sizes(self) -> dict[str, int]:
        rng, most = self.rng, MOST
        while True:
            found = {s: rng.choice(LENGTHS) for s in "abcd"} | {"1": 1}
            if rng.random() < 0.05:
                found[rng.choice("abcd")] = 0
            if all(np.prod([found[s] for s in shape]) <= most for shape in self.shapes):
                return found

    def others(self, many: int) -> list[dict[str, int]]:
        """Other sizes: one is new, equal to another, 1, 0 or 2."""
        found, sizes = [], self.sizes
        for _ in range(many):
            name = self.rng.choice("abcd")
            choices = [1, 0, 2, *LENGTHS, *sizes.values()]
            sizes = {**sizes, name: self.rng.choice(choices)}
            found.append(sizes)
        return found

    def inputs(self, sizes: dict[str, int]) -> list[np.ndarray]:
        """Arrays of float64, int32 and bool."""
        rng, found = np.random.default_rng(self.seed), []
        for shape, kind in zip(self.shapes, self.kinds, strict=True):
            made: Any = np.asarray(rng.standard_normal([sizes[s] for s in shape]))
            made = made.astype(np.float32).astype(np.float64)
            if kind in ("i32", "bool"):
                made = (made * 3).astype(np.int32) if kind == "i32" else made > 0
            else:
                made = NUMPY.cast(made, kind)
            found.append(made)
        return found

    def _draw(self) -> None:
        rng = self.rng
        values: list[Any] = self.inputs(self.sizes)
        exact = [True] * len(values)
        count = rng.randrange(2, 13)
        for _ in range(20 * count):
            if len(self.steps) == count:
                break
            family = rng.choice(self.families)
            kind = rng.choice(STEPS[family])
            numbers = tuple(rng.randrange(1 << 16) for _ in range(6))
            run = kind.run
            if family == "casts":
                run = _cast_to(rng.choice([*self.dtypes, *self.dtypes, "i32", "bool"]))
            chosen = [self._operand(t, values, exact) for t in kind.takes]
            if None in chosen:
                continue
            given = [values[i] for i in chosen]  # type: ignore[index]
            try:
                made = np.asarray(run(NUMPY, numbers, *given))
            except (Unfit, ValueError, IndexError, TypeError):
                continue
            if made.size > MOST or made.ndim > RANK:
                continue
            self.steps.append(Taken(run, tuple(chosen), numbers))  # type: ignore[arg-type]
            values.append(made)
            exact.append(kind.exact and all(exact[i] for i in chosen))  # type: ignore[index]
        self.floats = [v.dtype.kind == "f" for v in values]
        made = range(len(self.shapes), len(values))
        most = min(len(made), rng.choice([1, 1, 2, 3]))
        self.wanted = [*rng.sample(made, most - 1), *made[-1:]] if most else [0]
        if rng.random() < 0.15:
            self.wanted.append(rng.choice([0, self.wanted[0]]))

    def _operand(self, letter: str, values: list[Any], exact: list[bool]) -> int | None:
        """A value of a kind, one of the last ones more often."""
        kinds = {"f": "f", "i": "i", "b": "b", "*": "fib"}[letter.lower()]
        fits = [
            n
            for n, v in enumerate(values)
            if v.dtype.kind in kinds and (exact[n] or letter not in "FIB")
        ]
        if not fits:
            return None
        kind = self.rng.random()
        return fits[-1] if kind < 0.4 else self.rng.choice(fits[-3:] if kind < 0.7 else fits)

    def __call__(self, *given: Any) -> list[Any]:
        """What it gives for tensors."""
        return self.run(OURS, given)

    def run(self, xp: Any, given: Sequence[Any]) -> list[Any]:
        """What it gives in a space."""
        values = list(given)
        for run, chosen, numbers in self.steps:
            values.append(run(xp, numbers, *(values[i] for i in chosen)))
        return [values[i] for i in self.wanted]

    def in_numpy(self, given: Sequence[Any]) -> list[Any] | None:
        """What NumPy gives; None where it cannot do a step for these sizes."""
        try:
            with np.errstate(all="ignore"):
                return [np.asarray(x) for x in self.run(NUMPY, given)]
        except (Unfit, ValueError, IndexError, TypeError):
            return None


def _cast_to(dtype: str) -> Callable[..., Any]:
    def cast(xp: Any, n: Numbers, x: Any) -> Any:
        return xp.cast(x, dtype)

    cast.__name__ = f"to_{dtype}"
    return cast
