"""Why a call takes the way that it takes: routines in their order, the choice, launches, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.runtime.device import GPUS, DeviceProperties, as_device, current, gpu_of
from cubepy.runtime.profile import profile
from cubepy.tune.decision import Decision
from cubepy.tune.routine import FORCED, Op, listening, text
from cubepy.tune.tuned import TunedOp, Work
from cubepy.tune.tuner import TUNER

COMPILED = ("cpu", *GPUS)
"""Backends whose limits are worth measuring."""


@dataclass(frozen=True)
class Alternative:
    """A routine that was not chosen.

    Attributes:
        routine: its name.
        reason: why not.
    """

    routine: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """What was chosen for one problem, and between what.

    Attributes:
        op: the operation's name.
        problem: what was to be done.
        routine, blueprint: what does it; the blueprint as text, empty where routines have none.
        how: "forced", "measured" or "inferred" (the first of its order that can).
        others: the other routines, in their order.
        work: the least bytes and operations, None where the operation does not say.
    """

    op: str
    problem: Any
    routine: str
    blueprint: str
    how: str
    others: tuple[Alternative, ...]
    work: Work | None

    def lines(self) -> Iterator[str]:
        """The choice as text."""
        yield f"{self.op}: {text(self.problem)}"
        yield f"  {self.routine} ({self.how})  {self.blueprint}".rstrip()
        for other in self.others:
            yield f"  not {other.routine}: {other.reason}"


@dataclass(frozen=True)
class Launches:
    """The launches of one kernel in the call.

    Attributes:
        kernel: its name.
        calls: how many.
        seconds: what they took together.
    """

    kernel: str
    calls: int
    seconds: float


@dataclass(frozen=True)
class Explanation:
    """What a call did; printing it shows a table.

    Attributes:
        function: the function's name.
        device: where it ran.
        choices: of operations with several routines, in the order of the call.
        launches: by kernel.
        seconds: of the whole call, warm.
        bytes: what must be read and written at the least: of the operations that say so, else of
            arguments and result.
        flops: operations at the least, 0 where nothing says so.
        bound: seconds that the device's measured limits allow at the least, 0 where they are not
            known.
    """

    function: str
    device: str
    choices: tuple[Choice, ...]
    launches: tuple[Launches, ...]
    seconds: float
    bytes: int
    flops: int = 0
    bound: float = 0.0

    @property
    def share(self) -> float:
        """The part of the limit that the kernels reach, 0 where it is not known."""
        spent = sum(launch.seconds for launch in self.launches)
        return self.bound / spent if spent else 0.0

    def __str__(self) -> str:
        lines = [f"{self.function} on {self.device}"]
        for choice in self.choices:
            lines += choice.lines()
        width = max((len(launch.kernel) for launch in self.launches), default=0)
        for launch in self.launches:
            each = launch.seconds / launch.calls * 1e6
            lines.append(f"  {launch.kernel:<{width}}  {launch.calls:>4} x {each:>9.2f} us")
        if not self.launches:
            lines.append("  no launch")
        lines.append(f"{self.bytes / 1e6:.3f} MB, {self.flops / 1e6:.3f} MFLOP at the least")
        lines.append(f"{self.seconds * 1e6:.1f} us for the call, measured as a whole")
        if self.bound:
            lines[-1] += f"; the device's limit is {self.bound * 1e6:.1f} us"
            lines[-1] += f", of which the kernels reach {self.share:.0%}"
        return "\n".join(lines)


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call a library function twice, and say what the second call did and why.

    Every function of `cubepy.kernels` has it as a method, too: `K.matmul.explain(a, b)`. Limits are
    measured at the first use on a device, which takes a second or two, and kept on disk.

    Args:
        function: of the library, or any function that calls it.
        args, kwargs: its arguments; what it writes (`out=`) is written.

    Example:
        >>> import numpy as np
        >>> from cubepy import kernels as K, tune
        >>> x = np.ones((64, 64), np.float32)
        >>> found = tune.explain(K.matmul, x, x)
        >>> found.choices[0].op, found.choices[0].how
        ('matmul', 'inferred')
    """
    function(*args, **kwargs)  # compiles what is needed
    asked: list[tuple[Op, Any, DeviceProperties]] = []
    TUNER.forget()
    with listening(lambda *asked_for: asked.append(asked_for)), profile() as timed:
        result = function(*args, **kwargs)
    choices = _once(choice(*one) for one in asked)
    launches = tuple(Launches(k, t.calls, t.seconds) for k, t in timed.kernels.items())
    works = [c.work for c in choices if c.work is not None]
    named = [c.problem.device for c in choices if hasattr(c.problem, "device")]
    device = named[0] if named else _device_of(result)
    least = sum(w.bytes for w in works) or _bytes_of((*args, *kwargs.values(), result))
    name = getattr(function, "__name__", repr(function))
    bound = _bound(device, works or [Work(least)])
    flops = sum(w.flops for w in works)
    return Explanation(name, device, choices, launches, timed.seconds, least, flops, bound)


def _once(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """Choices in their order, of those that read the same the first."""
    return tuple({tuple(choice.lines()): choice for choice in choices}.values())


def choice(op: Op, problem: Any, properties: DeviceProperties) -> Choice:
    """What is chosen for a problem, and what would have been otherwise."""
    decision, work, blueprint = None, None, ""
    if isinstance(op, TunedOp):
        candidate = TUNER.choose(op, problem)
        routine, blueprint = candidate.routine, repr(candidate.blueprint)
        decision, work = TUNER.decision(op, problem), op.work(problem)
    else:
        routine = op.chosen(problem, properties)  # type: ignore[assignment]
    forced = op.name in (FORCED.get() or {})
    how = "forced" if forced else "measured" if decision is not None else "inferred"
    others = tuple(
        Alternative(
            s.routine.name, s.reason or _why_later(s.routine.name, s.group, forced, decision)
        )
        for s in op.standings(problem, properties)
        if s.routine is not routine
    )
    return Choice(op.name, problem, routine.name, blueprint, how, others, work)


def _why_later(name: str, group: int, forced: bool, decision: Decision | None) -> str:
    """Why a routine that can do a problem is not the one."""
    if forced:
        return "another one is forced"
    if group < 0:
        return "only when forced"
    if decision is not None:
        trials = [t for t in decision.trials if t.routine == name]
        best = min(trials, key=lambda t: t.seconds, default=None)
        if best is None:
            return "it was not measured"
        if best.seconds < float("inf"):
            return f"it took {best.seconds * 1e6:.2f} us where it was measured"
        return f"{best.status}: {best.reason}"
    return "it can, and comes later in the order"


def _bytes_of(values: tuple[Any, ...]) -> int:
    """Bytes of the arrays among some values, each counted once."""
    parts = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    return sum({id(v): int(getattr(v, "nbytes", 0)) for v in parts}.values())


def _device_of(result: Any) -> str:
    """Where a result is."""
    first = result[0] if isinstance(result, tuple) and result else result
    return str(
        current()
        if isinstance(first, (np.ndarray, np.generic))
        else getattr(first, "device", current())
    )


def _bound(device: str, works: list[Work]) -> float:
    """The least seconds for some work on a device, 0 where its limits are not measured."""
    try:
        where = as_device(device)
    except ValueError:
        return 0.0
    if where.backend not in COMPILED or (where.backend in GPUS and gpu_of(where) is None):
        return 0.0
    peaks = TUNER.peaks(str(where), TUNER.stopwatch(str(where)))
    return sum(peaks.bound(work) for work in works)
