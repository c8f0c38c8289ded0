"""The race: candidates take turns, the slow ones drop out early, and it ends when nothing more is
to be gained.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cubepy.tune.decision import Trial
from cubepy.tune.stopwatch import Stopwatch


@dataclass(frozen=True)
class Limits:
    """How much a race may cost.

    Attributes:
        seconds: time for compiling, checking and sampling, once the first candidate is compiled.
        prepare: share of the time after which no further candidate is compiled.
        least, most: samples of a candidate that stays in.
        share: of the roofline at which the leader is good enough.
        factors: after the n-th sample a candidate this many times slower than the leader drops out
            (the last holds on).
        sample: seconds that one sample should last at least.
        all_groups: race every priority group, not only the highest that works.
    """

    seconds: float
    prepare: float = 0.7
    least: int = 3
    most: int = 10
    share: float = 0.85
    factors: tuple[float, ...] = (4.0, 2.0, 1.5, 1.2)
    sample: float = 2e-3
    all_groups: bool = False


LIMITS = {
    "quick": Limits(seconds=3.0),
    "full": Limits(
        seconds=60.0,
        prepare=0.8,
        least=5,
        most=25,
        share=0.97,
        factors=(5.0, 3.0, 2.0, 1.5, 1.2, 1.1),
        sample=5e-3,
        all_groups=True,
    ),
}
"""What each level may cost for one key."""
TIE = 1.02
"""A candidate that is preferred wins unless another is faster by more than this."""
LONG = 0.05
"""Seconds of a run that is a sample by itself."""


@dataclass
class Entrant:
    """A candidate on the start line: `run(i)` works on the i-th set of arguments, `count` runs make
    a sample.
    """

    trial: Trial
    run: Callable[[int], Any]
    count: int = 1


def runs_in(sample: float, seconds: float) -> int:
    """How many runs of `seconds` make a sample of the wanted length; several, unless they
    are long.
    """
    least = 3 if seconds < LONG else 1
    return max(least, min(1000, math.ceil(sample / max(seconds, 1e-9))))


def race(
    entrants: list[Entrant], watch: Stopwatch, limits: Limits, end: float, bound: float = 0.0
) -> str:
    """Sample the entrants in turns; their trials hold the samples afterwards.

    Args:
        entrants: in order of preference; all work.
        watch: the clock.
        limits: when a candidate drops out and when the race ends.
        end: the time on the watch at which the budget is spent.
        bound: seconds that the roofline allows at the least, 0 if unknown.

    Returns:
        What ended it: "roofline", "budget", "samples" or "alone".
    """
    alive = list(entrants)
    for round_ in range(limits.most):
        shift = round_ % len(alive)
        for e in alive[shift:] + alive[:shift]:
            if watch.now() >= end and any(x.trial.samples for x in alive):
                for late in alive:
                    if not late.trial.samples:
                        late.trial.status, late.trial.reason = "untried", "no time left"
                return "budget"
            _sample(e, watch)
        alive = [e for e in alive if e.trial.status == "measured"]
        if not alive:
            return "samples"
        best = min(e.trial.seconds for e in alive)
        if (
            round_ >= 1 and limits.share * best <= bound <= best
        ):  # quicker than possible: the bound is no guide
            return "roofline"
        factor = limits.factors[min(round_, len(limits.factors) - 1)]
        for e in alive:
            if min(e.trial.samples) > factor * best:
                e.trial.status = "slow"
        alive = [e for e in alive if e.trial.status == "measured"]
        if len(alive) == 1 and round_ + 1 >= limits.least:
            return "alone"
    return "samples"


def _sample(entrant: Entrant, watch: Stopwatch) -> None:
    trial = entrant.trial
    try:
        seconds = watch.time(entrant.run, entrant.count)
    except (
        Exception
    ) as error:  # whatever a candidate does wrong costs that candidate its place, nothing else
        trial.status, trial.reason = "failed", reason_of(error)
        return
    trial.samples.append(seconds)
    watch.rest(seconds * entrant.count)


def reason_of(error: BaseException) -> str:
    """An error as one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def winner(trials: list[Trial]) -> Trial | None:
    """The first in order of preference whose median is as good as the quickest; None when none
    works.

    For the guess its best sample is enough: where noise is larger than the differences it stays.
    Another candidate does not win by one lucky sample.
    """
    usable = [t for t in trials if t.seconds < math.inf]
    best = min((t.seconds for t in usable), default=math.inf)
    return next(
        (t for t in usable if (min(t.samples) if t is trials[0] else t.seconds) <= best * TIE), None
    )
