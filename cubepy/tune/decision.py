"""What was measured and chosen, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from cubepy.errors import TuneError

LEVELS = ("none", "quick", "full")
"""How much may be measured, in rising order."""


@dataclass
class Trial:
    """One candidate's part in a race.

    Attributes:
        routine, blueprint: the candidate; the blueprint as text.
        group: its priority group.
        status: "measured", "slow" (dropped early), "failed", "wrong" (another result than the
            reference) or "untried".
        reason: why it failed, is wrong or was not tried.
        samples: seconds of one run, each a mean over some runs.
        first: seconds of its first run, compilation included.
    """

    routine: str
    blueprint: str
    group: int = 0
    status: str = "untried"
    reason: str = ""
    samples: list[float] = field(default_factory=list)
    first: float = 0.0

    @property
    def name(self) -> str:
        """Routine and blueprint."""
        return f"{self.routine} {self.blueprint}"

    @property
    def seconds(self) -> float:
        """The median of the samples; infinite without any or when the candidate is excluded."""
        if not self.samples or self.status in ("failed", "wrong"):
            return float("inf")
        return float(np.median(self.samples))


@dataclass
class Decision:
    """The choice for one key, with everything that led to it.

    Attributes:
        op: the operation.
        key: text of the bucketed key.
        problem: fields of the problem that was measured, without the device.
        level: "quick" or "full".
        checksum: of the candidates.
        winner: name of the chosen candidate.
        trials: all candidates.
        bound: seconds that the roofline allows at the least, 0 when unknown.
        stopped: what ended the race: "roofline", "budget", "samples" or "alone".
        spent: seconds that the race took.
    """

    op: str
    key: str
    problem: dict[str, Any]
    level: str
    checksum: str
    winner: str
    trials: list[Trial]
    bound: float = 0.0
    stopped: str = ""
    spent: float = 0.0

    @property
    def ranking(self) -> list[str]:
        """Names of the usable candidates, the winner first, then by time."""
        usable = sorted(
            (t for t in self.trials if t.seconds < float("inf")), key=lambda t: t.seconds
        )
        return [self.winner, *(t.name for t in usable if t.name != self.winner)]

    @property
    def excluded(self) -> list[Trial]:
        """Candidates that failed or gave another result than the reference."""
        return [t for t in self.trials if t.status in ("failed", "wrong")]

    def seconds(self, name: str | None = None) -> float:
        """Median seconds of a candidate (the winner by default)."""
        wanted = self.winner if name is None else name
        return next((t.seconds for t in self.trials if t.name == wanted), float("inf"))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Decision:
        """Back from plain data.

        Raises:
            TuneError: the data is not a decision.
        """
        try:
            trials = [Trial(**t) for t in data["trials"]]
            found = cls(**{**{k: data[k] for k in (f.name for f in fields(cls))}, "trials": trials})
            whole = found.level in LEVELS and any(t.name == found.winner for t in trials)
            texts = all(
                isinstance(t, str) for t in (found.op, found.key, found.checksum, found.stopped)
            )
            times = [found.bound, found.spent, *(s for t in trials for s in (t.first, *t.samples))]
            numbers = all(isinstance(s, (int, float)) and s >= 0 for s in times)
            named = all(
                isinstance(s, str)
                for t in trials
                for s in (t.routine, t.blueprint, t.status, t.reason)
            )
            if whole and texts and numbers and named and isinstance(found.problem, dict):
                return found
        except (TypeError, KeyError, AttributeError):
            pass
        raise TuneError(
            "an entry of a tuned table is damaged",
            hint="delete it; the operation is measured again",
        )

    def __str__(self) -> str:
        rest = [t for t in self.trials if t.status == "untried"]
        lines = [
            f"{self.op} {self.key} ({self.level}, {self.spent:.1f} s, stopped by {self.stopped})"
        ]
        best = self.seconds()
        shown = [t for t in self.trials if t.status != "untried"]
        for t in sorted(shown, key=lambda t: (t.name != self.winner, t.seconds)):
            mark = "*" if t.name == self.winner else " "
            if t.seconds < float("inf"):
                share = f", {self.bound / t.seconds:.0%} of the roofline" if self.bound else ""
                lines.append(
                    f" {mark} {t.seconds * 1e6:12.1f} us  {t.seconds / best:5.2f}x  {t.name}{share}"
                )
            else:
                lines.append(
                    f" {mark} {t.status:>12}            "
                    f"{t.name}{': ' + t.reason if t.reason else ''}"
                )
        if rest:
            lines.append(f"   {len(rest)} more candidates: {rest[0].reason or 'not tried'}")
        return "\n".join(lines)
