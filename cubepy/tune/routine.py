"""Routines, candidates and the operations that choose between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cubepy.errors import TuneError
from cubepy.runtime import cache
from cubepy.runtime.device import DeviceProperties, device_properties
from cubepy.tune.keys import key_of


class Routine:
    """One way to do an operation: it adapts blueprints to a problem and launches them; it does not
    decide.

    Attributes:
        name: what reports and `force` call it.
        version: raised when its kernels change so much that old measurements say nothing any more.
    """

    name: str = ""
    version: int = 1

    def supports(self, problem: Any, properties: DeviceProperties) -> str | None:
        """Why the routine cannot do the problem on such a device, or None when it can."""
        return None

    def group(self, key: Any) -> int:
        """Priority from the bucketed key: higher groups are tried first, negative ones only when
        forced.
        """
        return 0

    def blueprints(self, problem: Any, properties: DeviceProperties) -> Iterable[Any]:
        """Frozen dataclasses to choose from, best guess first; without tuning the first is used."""
        raise NotImplementedError

    def launch(self, blueprint: Any, problem: Any, args: tuple[Any, ...]) -> Any:
        """Do the work. What it returns is what the operation's function gets."""
        raise NotImplementedError


class Candidate(NamedTuple):
    """A routine with a blueprint: something that can be launched and measured."""

    routine: Routine
    blueprint: Any
    group: int = 0

    @property
    def name(self) -> str:
        """Routine and blueprint as one text, which identifies the candidate on disk."""
        return f"{self.routine.name} {self.blueprint!r}"

    def launch(self, problem: Any, *args: Any) -> Any:
        """Run the routine with this blueprint."""
        return self.routine.launch(self.blueprint, problem, args)


@dataclass(frozen=True)
class Work:
    """What a problem costs at the least: the roofline's input.

    Attributes:
        bytes: bytes that must be read and written.
        flops: floating-point operations.
        dtype: the dtype that the operations are in, such as "f32".
    """

    bytes: int
    flops: int = 0
    dtype: str = "f32"


class Op:
    """An operation with several routines.

    Args: name: such as "matmul". routines: in order of preference within a group. problem: a
        NamedTuple class with a field `device` (a text such as "cpu"), sizes as integers, the rest
        as texts and booleans. Integers are rounded up to powers of two for the key. make:
        `make(problem, seed)` gives the arguments of `Routine.launch` for a measurement, outputs
        included. outputs: which of the arguments are written; the last one when not given.
        reference: `reference(problem, args)` gives what outputs must hold, as a list of arrays;
        without one, the first candidate that works is the reference of the others. results:
        `results(problem, args)` picks the parts of the outputs that the reference speaks of; else
        all. tolerance: `tolerance(problem)` gives the relative and the absolute tolerance of the
        comparison. work: `work(problem)` gives the least bytes and operations; without one no race
        stops at the roofline. typical: problems that `python -m cubepy tune NAME` measures when
        none is named: `typical(device)`. linear: `linear(device, rows, inputs, outputs)` gives the
        problem of a linear layer, for tuning model files. exact: fields that are not rounded.
        in_place: outputs are inputs too, so every check starts from fresh arguments. guess:
        `guess(problem)` names the routine that is tried before all others, where groups say too
        little.

    Raises:
        TuneError: the problem class has no field `device`.
    """

    def __init__(
        self,
        name: str,
        routines: Sequence[Routine],
        problem: Any,
        *,
        make: Callable[[Any, int], tuple[Any, ...]],
        outputs: Callable[[tuple[Any, ...]], Sequence[Any]] | None = None,
        reference: Callable[[Any, tuple[Any, ...]], Sequence[Any]] | None = None,
        results: Callable[[Any, tuple[Any, ...]], Sequence[Any]] | None = None,
        tolerance: Callable[[Any], tuple[float, float]] | None = None,
        work: Callable[[Any], Work] | None = None,
        typical: Callable[[str], Sequence[Any]] | None = None,
        linear: Callable[[str, int, int, int], Any] | None = None,
        exact: Iterable[str] = (),
        in_place: bool = False,
        guess: Callable[[Any], str] | None = None,
    ) -> None:
        if "device" not in getattr(problem, "_fields", ()):
            raise TuneError(
                f"the problem of operation {name!r} must be a NamedTuple with a field 'device'",
                hint="class Problem(NamedTuple): device: str; rows: int; ...",
            )
        self.name, self.routines, self.problem = name, tuple(routines), problem
        self.make, self.reference, self.work, self.in_place = make, reference, work, in_place
        self.guess = guess or (lambda problem: "")
        self.outputs = outputs or (lambda args: args[-1:])
        self.results = results or (lambda problem, args: self.outputs(args))
        self.tolerance = tolerance or (lambda problem: (1e-4, 1e-5))
        self.typical = typical or (lambda device: ())
        self.linear = linear
        self.exact = frozenset(exact)
        OPS[name] = self

    def __repr__(self) -> str:
        return f"Op({self.name!r}, {', '.join(r.name for r in self.routines)})"

    def key(self, problem: Any) -> Any:
        """The bucketed key of a problem, itself a problem."""
        return key_of(problem, self.exact)

    def candidates(self, problem: Any) -> Iterator[Candidate]:
        """What can do the problem, each routine's blueprints in its order.

        Higher groups come first, and in the highest what is guessed; negative ones are only for
        those who force them.
        """
        properties = device_properties(problem.device)
        for group, routine in self.grouped(problem):
            if group >= 0 and routine.supports(problem, properties) is None:
                for blueprint in routine.blueprints(problem, properties):
                    yield Candidate(routine, blueprint, group)

    def grouped(self, problem: Any) -> list[tuple[int, Routine]]:
        """All routines with their priorities for a problem, in the order in which they are asked."""
        key, first = self.key(problem), self.guess(problem)
        groups = {r.name: r.group(key) for r in self.routines}
        if first in groups:
            groups[first] = max(groups.values())
        return sorted(
            ((groups[r.name], r) for r in self.routines),
            key=lambda pair: (-pair[0], pair[1].name != first),
        )

    def inferred(self, problem: Any) -> Candidate:
        """The best guess: what is used without tuning.

        Raises:
            TuneError: no routine can do the problem; says why for each.
        """
        found = next(self.candidates(problem), None)
        if found is None:
            raise TuneError(
                f"no routine of {self.name} can do {problem}", hint=self._reasons(problem)
            )
        return found

    def _reasons(self, problem: Any) -> str:
        properties = device_properties(problem.device)
        reasons = [
            f"{r.name}: {r.supports(problem, properties) or ('only when forced' if group < 0 else 'no blueprint')}"
            for group, r in self.grouped(problem)
        ]
        return "; ".join(reasons)

    def routine(self, name: str) -> Routine:
        """The routine of this name.

        Raises:
            TuneError: there is none.
        """
        for r in self.routines:
            if r.name == name:
                return r
        names = ", ".join(r.name for r in self.routines)
        raise TuneError(f"{self.name} has no routine {name!r}", hint=f"its routines are {names}")

    def checksum(self, problem: Any) -> str:
        """Identifies the set of candidates for a problem: another set makes old measurements void."""
        return cache.digest(
            *(f"{c.group} {c.routine.version} {c.name}" for c in self.candidates(problem))
        )


OPS: dict[str, Op] = {}
"""Every operation by name, as declared."""


def op_named(name: str) -> Op:
    """The operation of this name.

    Raises:
        TuneError: there is none.
    """
    if name not in OPS:
        known = (
            f"the operations are {', '.join(sorted(OPS))}"
            if OPS
            else "cubepy.kernels declares its own"
        )
        raise TuneError(f"there is no operation {name!r}", hint=known)
    return OPS[name]
