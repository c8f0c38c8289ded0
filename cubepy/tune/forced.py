"""A strategy that the user forces, for a block."""

from __future__ import annotations

import dataclasses
from contextvars import ContextVar, Token
from typing import Any

from cubepy.errors import TuneError
from cubepy.runtime import recording
from cubepy.runtime.device import device_properties
from cubepy.tune.routine import Candidate, Op, op_named

FORCED: ContextVar[dict[str, Forced] | None] = ContextVar("cubepy_forced", default=None)


@dataclasses.dataclass(frozen=True)
class Forced:
    """The routine to use, with a whole blueprint or some fields of one."""

    routine: str
    blueprint: Any = None
    changes: tuple[tuple[str, Any], ...] = ()

    def candidate(self, op: Op, problem: Any) -> Candidate:
        """The candidate that is forced for a problem.

        Raises:
            TuneError: the routine cannot do the problem, or its blueprint has no such field.
        """
        if self.routine == "inferred":
            return op.inferred(problem)
        routine = op.routine(self.routine)
        properties = device_properties(problem.device)
        reason = routine.supports(problem, properties)
        if reason is not None:
            raise TuneError(
                f"{op.name}: the forced routine {routine.name} cannot do {problem}", hint=reason
            )
        blueprint = self.blueprint
        if blueprint is None:
            blueprint = next(iter(routine.blueprints(problem, properties)), None)
            if blueprint is None:
                raise TuneError(
                    f"{op.name}: the forced routine {routine.name} has no blueprint for {problem}"
                )
            if self.changes:
                try:
                    blueprint = dataclasses.replace(blueprint, **dict(self.changes))
                except TypeError as error:
                    raise TuneError(
                        f"{op.name}: {error}", hint=f"the blueprint is {blueprint!r}"
                    ) from None
        return Candidate(routine, blueprint, routine.group(op.key(problem)))


class force:
    """Use one routine of an operation in a `with` block, whatever was measured.

    Args:
        op: name of the operation.
        routine: name of the routine, or "inferred" for the choice without tuning.
        blueprint: the blueprint; by default the routine's best guess
        changes: with these fields changed.

    Raises:
        TuneError: there is no such operation or routine.

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
