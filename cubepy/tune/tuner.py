"""The tuner: which candidate does a problem, remembered in memory and on disk, measured where there
is leave.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from cubepy.config import config
from cubepy.errors import TuneError, TuneWarning
from cubepy.runtime import recording
from cubepy.runtime.device import DeviceProperties, as_device, device_properties, gpu_of, use
from cubepy.runtime.streams.stream import sync
from cubepy.runtime.tables import room
from cubepy.tune import check
from cubepy.tune.decision import LEVELS, Decision, Trial
from cubepy.tune.keys import text_of
from cubepy.tune.lock import exclusive
from cubepy.tune.progress import Progress, Silent
from cubepy.tune.race import LIMITS, LONG, Entrant, Limits, race, reason_of, runs_in, winner
from cubepy.tune.roofline import Peaks, peaks_of
from cubepy.tune.routine import FORCED, Op, listening
from cubepy.tune.stopwatch import Stopwatch, stopwatch_for
from cubepy.tune.table import Table
from cubepy.tune.tuned import Candidate, TunedOp

REMEMBERED = 1 << 16  # problems in memory, at most
COLD_BYTES = (
    128 << 20
)  # sets of arguments together are larger than caches, so that runs find them cold
MOST_SETS = 8
PATIENCE = 600.0
"""Seconds that who asked for a measurement waits for another process to end one, compilation
included.
"""

_measuring: ContextVar[bool] = ContextVar("cubepy_measuring", default=False)


class Tuner:
    """Chooses candidates.

    Args:
        stopwatch: gives the clock for a device.
        peaks: gives a device's measured limits.

    Attributes:
        measured: how many races this process ran.
    """

    def __init__(
        self,
        stopwatch: Callable[[str], Stopwatch] = stopwatch_for,
        peaks: Callable[[str, Stopwatch], Peaks] = peaks_of,
    ) -> None:
        self.stopwatch, self.peaks = stopwatch, peaks
        self.measured = 0
        self.progress: Progress = Silent()
        self._memory: dict[str, dict[Any, Candidate]] = {level: {} for level in LEVELS}
        self._keys: dict[Any, Decision | None] = {}
        self._decisions: dict[Any, Decision] = {}  # of this process: where nothing is kept on disk
        self._busy = threading.Lock()

    def choose(self, op: TunedOp, problem: Any) -> Candidate:
        """The candidate for a problem: forced, remembered, measured now, or inferred.

        A problem that was asked for before costs two dictionary look-ups.
        """
        if recording.active and (recorder := recording.current()) is not None and recorder.symbolic:
            return _best(op, problem, self._remembered(op, problem))  # its sizes are no keys
        forced = FORCED.get()
        if forced is None or op.name not in forced:
            found = self._memory[config.tune].get((op, problem))
            if found is not None:
                return found
        return self._decide(op, problem)

    def forget(self) -> None:
        """Empty the memory; results on disk stay."""
        for known in self._memory.values():
            known.clear()
        self._keys.clear()
        recording.forget()

    @contextlib.contextmanager
    def record(self) -> Iterator[dict[Any, None]]:
        """Collect every (op, problem) that is asked for in the block and can be measured, in all
        threads, in order.
        """
        seen: dict[Any, None] = {}

        def hear(op: Op, problem: Any, properties: DeviceProperties) -> None:
            if isinstance(op, TunedOp):
                seen[(op, problem)] = None

        self.forget()
        with listening(hear):
            yield seen

    # Deciding

    def _decide(self, op: TunedOp, problem: Any) -> Candidate:
        op.heard(problem, device_properties(problem.device))
        forced = (FORCED.get() or {}).get(op.name)
        if forced is not None:
            return op.forced_candidate(forced, problem)
        level = config.tune
        decision = self._remembered(op, problem)
        if _short_of(decision, level):
            if not self._may_measure(problem) or not self._busy.acquire(blocking=False):
                return _best(op, problem, decision)  # not now: do not wait, and do not remember
            try:
                limits = LIMITS[level]
                decision = self._tune_alone(
                    op, problem, level, limits, again=False, patience=3 * limits.seconds
                )
            except Exception as error:  # a measurement never stands in the way of the work itself
                warnings.warn(
                    f"{op.name} was not tuned for {problem}: {reason_of(error)}",
                    TuneWarning,
                    stacklevel=3,
                )
            finally:
                self._busy.release()
        chosen = _best(op, problem, decision)
        known = self._memory[level]
        room(known, REMEMBERED)
        known[(op, problem)] = chosen
        return chosen

    def _remembered(self, op: TunedOp, problem: Any) -> Decision | None:
        """The decision for a problem's key, looked for on disk once in a process."""
        where = (
            op,
            problem.device,
            op.key(problem),
            config.cache_dir,
            config.cache,
            config.num_threads,
        )
        if where not in self._keys:
            room(self._keys, REMEMBERED)
            self._keys[where] = self.decision(op, problem)
        return self._keys[where]

    def decision(self, op: TunedOp, problem: Any) -> Decision | None:
        """What was measured for a problem's key between the candidates that there are now,
        or None.
        """
        table, key = Table(problem.device), text_of(op.key(problem))
        found = table.read(op.name, key) or self._decisions.get((op.name, table.device, key))
        return found if found is not None and _current(op, found, problem) else None

    def _may_measure(self, problem: Any) -> bool:
        if _measuring.get():
            return False  # inside a candidate's own run
        device = as_device(problem.device)
        gpu = gpu_of(device)
        return gpu is None or gpu.thread_stream(device.ordinal).capture is None

    # Measuring

    def tune(
        self,
        op: TunedOp,
        problem: Any,
        level: str = "full",
        limits: Limits | None = None,
        again: bool = True,
    ) -> Decision:
        """Measure the candidates for a problem now, and keep the result for its key.

        Args:
            op: the operation.
            problem: the problem; the result holds for all that share its key.
            level: "quick" or "full".
            limits: other limits than those of the level.
            again: measure although it is known; otherwise the result that another process has found
                while this one waited for it is taken.

        Raises:
            TuneError: there is no such level, no candidate works, or another process measures and
                does not end.
        """
        if level not in LIMITS:
            raise TuneError(
                f"there is no level {level!r}", hint=f"it is one of {', '.join(LIMITS)}"
            )
        with self._busy:
            return self._tune_alone(op, problem, level, limits or LIMITS[level], again, PATIENCE)

    def _tune_alone(
        self, op: TunedOp, problem: Any, level: str, limits: Limits, again: bool, patience: float
    ) -> Decision:
        """Measure while no other process does; unless `again`, take what another process has found
        meanwhile.
        """
        with exclusive(Table(problem.device).folder / ".lock", patience) as held:
            if not held:
                raise TuneError("another process is measuring", hint="try again when it has ended")
            found = None if again else self.decision(op, problem)
            if found is None or _short_of(found, level):
                found = self._tune(op, problem, level, limits)
            self.forget()
            return found

    def _tune(self, op: TunedOp, problem: Any, level: str, limits: Limits) -> Decision:
        watch = self.stopwatch(problem.device)
        token = _measuring.set(True)
        try:
            with use(problem.device):
                decision = self._run(op, problem, level, limits, watch)
        finally:
            _measuring.reset(token)
        self.measured += 1
        table = Table(problem.device)
        self._decisions[(op.name, table.device, decision.key)] = decision
        table.write(decision)
        wrong = [t for t in decision.trials if t.status == "wrong"]
        if wrong:
            warnings.warn(
                f"{op.name}: {len(wrong)} candidates give other results than the reference "
                f"and are not used, such as {wrong[0].name}: {wrong[0].reason}",
                TuneWarning,
                stacklevel=2,
            )
        return decision

    def _run(
        self, op: TunedOp, problem: Any, level: str, limits: Limits, watch: Stopwatch
    ) -> Decision:
        work = op.work(problem)
        bound = 0.0 if work is None else self.peaks(problem.device, watch).bound(work)
        candidates = list(op.candidates(problem))
        trials = [Trial(c.routine.name, repr(c.blueprint), c.group) for c in candidates]
        if not candidates:
            op.inferred(problem)  # raises, with the reasons
        self.progress.start(f"{op.name} {text_of(problem)}", len(candidates))
        bench = Bench(op, problem, watch, limits)
        begin = start = watch.now()
        entrants: list[Entrant] = []
        for _, members in itertools.groupby(
            zip(candidates, trials), key=lambda pair: pair[0].group
        ):
            for candidate, trial in members:
                late = watch.now() - start > limits.prepare * limits.seconds
                if late and entrants:
                    trial.reason = "no time left"
                else:
                    self.progress.step(trial.name)
                    first = not entrants
                    entrants += bench.prepared(candidate, trial)
                    if first:  # a call would have compiled it, too
                        start = watch.now()
            if entrants and not limits.all_groups:
                break
        stopped = race(entrants, watch, limits, start + limits.seconds, bound) if entrants else ""
        best = winner(trials)
        if best is None:
            self.progress.finish("nothing works")
            reasons = "; ".join(f"{t.name}: {t.reason}" for t in trials)
            raise TuneError(f"no candidate of {op.name} works for {problem}", hint=reasons)
        spent = watch.now() - begin
        self.progress.finish(f"{best.name}, {best.seconds * 1e6:.1f} us")
        fields = {k: v for k, v in zip(problem._fields, problem) if k != "device"}
        return Decision(
            op.name,
            text_of(op.key(problem)),
            fields,
            level,
            op.checksum(problem),
            best.name,
            trials,
            bound,
            stopped,
            spent,
        )


def _short_of(decision: Decision | None, level: str) -> bool:
    """Whether more is to be measured at a level than was."""
    return LEVELS.index(level) > (0 if decision is None else LEVELS.index(decision.level))


def _best(op: TunedOp, problem: Any, decision: Decision | None) -> Candidate:
    """The first in a decision's ranking that fits a problem; without one, the guess."""
    if decision is not None:
        offered = {c.name: c for c in op.candidates(problem)}
        for name in decision.ranking:
            if name in offered:
                return offered[name]
    return op.inferred(problem)


def _current(op: TunedOp, decision: Decision, problem: Any) -> bool:
    """Whether a decision was made between the candidates that there are now."""
    try:
        measured = op.problem(**decision.problem, device=problem.device)
    except TypeError:
        return False  # the problem had other fields then
    return op.checksum(measured) == decision.checksum


class Bench:
    """The arguments that candidates are checked and timed with."""

    def __init__(self, op: TunedOp, problem: Any, watch: Stopwatch, limits: Limits) -> None:
        self.op, self.problem, self.watch, self.limits = op, problem, watch, limits
        try:
            first = op.make(problem, 0)
        except (MemoryError, ValueError) as error:  # more than there is, more than can be counted
            raise TuneError(
                f"the arrays of {op.name} cannot be made for {problem}: {error}"
            ) from error
        size = sum(getattr(a, "nbytes", 0) for a in first)
        count = max(1, min(MOST_SETS, -(-COLD_BYTES // max(size, 1))))
        self.sets = [first, *(op.make(problem, seed) for seed in range(1, count))]
        self.expected = op.reference(problem, first)

    def prepared(self, candidate: Candidate, trial: Trial) -> list[Entrant]:
        """Run a candidate for the first time and compare its results: an entrant, or none if it
        fails or is wrong.
        """
        op, problem = self.op, self.problem
        args = op.make(problem, 0) if op.in_place else self.sets[0]
        try:
            if not op.in_place:
                check.poison(op.outputs(args))
            start = self.watch.now()
            candidate.routine.launch(candidate.blueprint, problem, args)
            sync(problem.device)
            trial.first = self.watch.now() - start
            found = [check.on_host(a) for a in op.results(problem, args)]
        except (
            Exception
        ) as error:  # whatever a candidate does wrong costs that candidate its place, nothing else
            trial.status, trial.reason = "failed", reason_of(error)
            return []
        if self.expected is None:
            self.expected = found
        reason = check.difference(found, self.expected, *op.tolerance(problem))
        if reason is not None:
            trial.status, trial.reason = "wrong", reason
            return []
        trial.status = "measured"
        sets, launch, blueprint = self.sets, candidate.routine.launch, candidate.blueprint

        def run(i: int) -> None:
            launch(blueprint, problem, sets[i % len(sets)])

        try:
            once = self.watch.time(run, 1 if trial.first > LONG else 3)
        except Exception as error:
            trial.status, trial.reason = "failed", reason_of(error)
            return []
        return [Entrant(trial, run, runs_in(self.limits.sample, once))]


TUNER = Tuner()
"""The tuner of the process."""
choose = TUNER.choose
