"""Operations whose routines have blueprints to choose from and can be measured against each other;
and what forces a routine for a block."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextvars import Token
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from cubepy.errors import TuneError
from cubepy.runtime import cache, recording
from cubepy.runtime.device import DeviceProperties, device_properties
from cubepy.tune.keys import key_of
from cubepy.tune.routine import (
    FORCED,
    CpuRoutine,
    Forced,
    GpuRoutine,
    Op,
    Routine,
    Standing,
    op_named,
)


class TunedRoutine(Routine):
    """A routine that adapts blueprints to a problem.

    Attributes:
        version: raised when its kernels change so much that old measurements say nothing any more.
    """

    version: int = 1

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

    routine: TunedRoutine
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


class TunedOp(Op):
    """An operation to derive from: what its problems are and how candidates are measured.

    Its problems are data, because choices are kept under them; arrays are arguments of `launch`.
    Only `problem` and `make` must be given.

    Attributes:
        problem: a NamedTuple class with a field `device` (a text such as "cpu"), sizes as integers,
            the rest as texts and booleans. Integers are rounded up to powers of two for the key.
        exact: fields that are not rounded.
        in_place: outputs are inputs too, so every check starts from fresh arguments.

    Raises:
        TuneError: the problem class has no field `device`.
    """

    problem: ClassVar[Any] = None
    exact: ClassVar[frozenset[str]] = frozenset()
    in_place: ClassVar[bool] = False

    def __init__(self, name: str, routines: Sequence[TunedRoutine], for_gpus: str = "") -> None:
        if "device" not in getattr(self.problem, "_fields", ()):
            raise TuneError(
                f"the problem of operation {name!r} must be a NamedTuple with a field 'device'",
                hint="class Problem(NamedTuple): device: str; rows: int; ...",
            )
        super().__init__(name, routines, for_gpus)

    # To override

    def make(self, problem: Any, seed: int) -> tuple[Any, ...]:
        """The arguments of `launch` for a measurement, outputs included."""
        raise NotImplementedError

    def outputs(self, args: tuple[Any, ...]) -> Sequence[Any]:
        """Which of the arguments are written: the last one."""
        return args[-1:]

    def reference(self, problem: Any, args: tuple[Any, ...]) -> Sequence[Any] | None:
        """What outputs must hold; None: the first candidate that works is the others' reference."""
        return None

    def results(self, problem: Any, args: tuple[Any, ...]) -> Sequence[Any]:
        """The parts of the outputs that the reference speaks of: all."""
        return self.outputs(args)

    def tolerance(self, problem: Any) -> tuple[float, float]:
        """The relative and the absolute tolerance of the comparison."""
        return 1e-4, 1e-5

    def work(self, problem: Any) -> Work | None:
        """The least bytes and operations; without, no race stops at the roofline."""
        return None

    def typical(self, device: str) -> Sequence[Any]:
        """Problems that `python -m cubepy tune NAME` measures when none is named."""
        return ()

    def linear(self, device: str, rows: int, inputs: int, outputs: int) -> Any:
        """The problem of a linear layer, for tuning model files, or None."""
        return None

    def guess(self, problem: Any) -> str:
        """The routine that is tried before all others, where groups say too little."""
        return ""

    # Choosing

    def key(self, problem: Any) -> Any:
        """The bucketed key of a problem, itself a problem."""
        return key_of(problem, self.exact)

    def candidates(self, problem: Any) -> Iterator[Candidate]:
        """What can do the problem, each routine's blueprints in its order.

        Higher groups come first, and in the highest what is guessed; negative ones are only for
        those who force them.
        """
        properties = device_properties(problem.device)
        others = CpuRoutine if properties.plane_size > 1 else GpuRoutine
        here = [r for r in self.asked(problem, properties) if not isinstance(r, others)]
        for group, routine in self.grouped(problem, here):
            if group >= 0 and routine.supports(problem, properties) is None:
                for blueprint in routine.blueprints(problem, properties):
                    yield Candidate(routine, blueprint, group)

    def grouped(
        self, problem: Any, routines: Sequence[TunedRoutine]
    ) -> list[tuple[int, TunedRoutine]]:
        """Routines with their priorities for a problem, in the order in which they are asked."""
        key, first = self.key(problem), self.guess(problem)
        groups = {r.name: r.group(key) for r in routines}
        if first in groups:
            groups[first] = max(groups.values())
        return sorted(
            ((groups[r.name], r) for r in routines),
            key=lambda pair: (-pair[0], pair[1].name != first),
        )

    def standings(self, problem: Any, properties: DeviceProperties) -> list[Standing]:
        """All routines in the order in which they are asked, with what they say."""
        return [
            Standing(r, group, r.supports(problem, properties))
            for group, r in self.grouped(problem, self.routines)
        ]

    def inferred(self, problem: Any) -> Candidate:
        """The best guess: what is used without tuning.

        Raises:
            TuneError: no routine can do the problem; says why for each.
        """
        found = next(self.candidates(problem), None)
        if found is None:
            raise self.nobody(problem, device_properties(problem.device))
        return found

    def forced_candidate(self, forced: Forced, problem: Any) -> Candidate:
        """The candidate that is forced for a problem.

        Raises:
            TuneError: the routine cannot do the problem, or its blueprint has no such field.
        """
        if forced.routine == "inferred":
            return self.inferred(problem)
        properties = device_properties(problem.device)
        routine: Any = self.forced(forced, problem, properties)
        blueprint = forced.blueprint
        if blueprint is None:
            blueprint = next(iter(routine.blueprints(problem, properties)), None)
            if blueprint is None:
                raise TuneError(
                    f"{self.name}: the forced routine {routine.name} has no blueprint for {problem}"
                )
            if forced.changes:
                try:
                    blueprint = dataclasses.replace(blueprint, **dict(forced.changes))
                except TypeError as error:
                    raise TuneError(
                        f"{self.name}: {error}", hint=f"the blueprint is {blueprint!r}"
                    ) from None
        return Candidate(routine, blueprint, routine.group(self.key(problem)))

    def checksum(self, problem: Any) -> str:
        """Identifies the set of candidates for a problem: another set makes old
        measurements void.
        """
        return cache.digest(
            *(f"{c.group} {c.routine.version} {c.name}" for c in self.candidates(problem))
        )


class force:
    """Use one routine of an operation in a `with` block, whatever was measured.

    Args:
        op: name of the operation.
        routine: name of the routine, or "inferred" for the choice without tuning.
        blueprint: the blueprint; by default the routine's best guess
        changes: with these fields changed.

    Raises:
        TuneError: there is no such operation or routine, or it has no blueprints.

    Example:
        >>> import numpy as np
        >>> import cubepy as cb
        >>> from cubepy import kernels as K
        >>> a = np.ones((8, 8), np.float32)
        >>> with cb.tune.force("matmul", "tile", block_rows=2):
        ...     print(K.matmul(a, a)[0, 0])
        8.0
    """

    def __init__(self, op: str, routine: str, blueprint: Any = None, **changes: Any) -> None:
        if routine != "inferred":
            op_named(op).routine(routine)
        if (blueprint is not None or changes) and not isinstance(op_named(op), TunedOp):
            raise TuneError(f"routines of {op} have no blueprints", hint="force the routine alone")
        self._op, self._forced = op, Forced(routine, blueprint, tuple(sorted(changes.items())))
        self._tokens: list[Token[Any]] = []

    def __enter__(self) -> force:
        self._tokens.append(FORCED.set({**(FORCED.get() or {}), self._op: self._forced}))
        recording.detour(1)  # what is forced holds for this context only, tables are everybody's
        recording.forget()
        return self

    def __exit__(self, *exc: object) -> None:
        FORCED.reset(self._tokens.pop())
        recording.detour(-1)
        recording.forget()
