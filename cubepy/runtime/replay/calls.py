"""The calls of one function that came before: plans by key, and when a call is recorded for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import OutOfMemoryError
from cubepy.runtime import recording
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import current
from cubepy.runtime.replay.arguments import REFUSED, key_of, plain
from cubepy.runtime.replay.generic import Kinds
from cubepy.runtime.replay.gpu import GpuOperands
from cubepy.runtime.replay.host import HostOperands, host_replay
from cubepy.runtime.replay.plan import Plan
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.tables import room

LIMIT = 4096
VARIANTS = 8
"""Ways of sharing memory and of alignment that are repeated for the same layouts."""
CHANCES = 8
"""Recordings of a kind of call that made no plan, after which there are no more."""
Again = Callable[[tuple[Any, ...]], Any]


def _nothing(values: tuple[Any, ...]) -> bytes | None:
    return None


class Calls:
    """Calls of one function, on the host and on GPUs.

    Attributes:
        ready: by key, functions of a tuple of arguments.
        quick: the same by what machine code writes of arguments on the host.
        short_of: [what writes it], layouts of arrays and addresses of options; nothing until a call
            can be replayed. In a list, because generated code reads that faster than an attribute.
    """

    def __init__(self) -> None:
        self.ready: dict[Any, Again] = {}
        self.quick: dict[bytes | None, Again] = {}
        self.kept: dict[bytes | None, list[Any]] = {}  # options, so that none gets their addresses
        self.plans: dict[Any, list[Plan]] = {}
        self.chances: dict[Any, int] = {}
        self.kinds = Kinds()
        self.short_of: list[Callable[[tuple[Any, ...]], bytes | None]] = [_nothing]
        recording.tables.add(self)

    def clear(self) -> None:
        """Forget all calls: they may be done in another way now."""
        for table in (self.ready, self.quick, self.kept, self.plans, self.chances, self.kinds):
            table.clear()

    def on_host(
        self, values: tuple[Any, ...], short: bytes | None, out: int | None, call: Callable[[], Any]
    ) -> Any:
        """A call whose short key is not known.

        Args:
            values: the arguments.
            short: the key, if there is one.
            out: which of them is the array to write, if it is not None; None where no function has
                one.
            call: the long way.
        """
        if current().backend != "cpu":
            return call()
        try:
            key = key_of(values)
            found = self.repeat(key, values, short)
        except (TypeError, ValueError):  # something unhashable
            return call()
        if found is not REFUSED:
            return found
        if out is not None:
            out = out % len(values) if values[out] is not None else None
        return self.long_way(key, values, call, HostOperands, out)

    def repeat(self, key: Any, values: tuple[Any, ...], short: bytes | None = None) -> Any:
        """The result of a call that came before, or REFUSED; its short key is learned."""
        again = self.ready.get(key)
        if again is None:
            return REFUSED
        result = again(values)
        if result is not REFUSED and short is not None:
            arrays = [v for v in values if type(v) is np.ndarray]
            if all(v.dtype is np.dtype(v.dtype.type) for v in arrays):
                room(self.quick, LIMIT, self.kept)
                self.kept[short] = [v for v in values if type(v) is not np.ndarray]
                self.quick[short] = self.ready.get(key, again)
        return result

    def other_length(self, key: Any, values: tuple[Any, ...]) -> Any:
        """The result of a call on a GPU that did not come before, by a plan for all lengths; or
        REFUSED.
        """
        if recording.detours or not self.kinds.known:
            return REFUSED
        again, result = self.kinds.repeat(key, values)
        if again is not None:
            before = self.ready.get(key)  # one that refuses these arrays
            known = () if before is None else getattr(before, "functions", (before,))
            room(self.ready, LIMIT)
            self.ready[key] = _any_of((again, *known)[:VARIANTS]) if known else again
        return result

    def long_way(
        self,
        key: Any,
        values: tuple[Any, ...],
        call: Callable[[], Any],
        operands: type[HostOperands] | type[GpuOperands],
        out: int | None = None,
        wrap: Callable[[Any], Any] | None = None,
        of: Callable[[Sequence[Any]], Any] | None = None,
    ) -> Any:
        """`call()`, recorded: on the host from the second time on, since the first may be the only
        one, and may be measured.

        Args:
            key: what decides the launches, but for settings, alignment and shared memory.
            values: the arguments.
            call: the call.
            operands: what its arrays are.
            out: which argument is the array that it gives back, if it was given one.
            wrap: what a repetition makes of the array that the call gives.
            of: the function of arguments like these, for plans for all lengths.
        """
        if recording.detours or not all(map(plain, values)):
            return call()
        left = self.chances.get(key)
        if left is None:
            room(self.chances, LIMIT)
            left = self.chances[key] = CHANCES
            if operands is HostOperands:
                return call()
        if not left:
            return call()
        settings = recording.settings
        with Recorder() as recorded:
            result = call()
        if settings == recording.settings:
            try:
                found = operands(recorded, values, result, out)
                plan = Plan(recorded, result, out, found, wrap)
                self.keep(key, plan)
                if operands is HostOperands:
                    self.short_of[0] = host_replay().key() or _nothing
                elif of is not None:
                    self.kinds.learn(key, values, plan, of, out)
            except (Unsuitable, OutOfMemoryError):
                self.chances[key] = left - 1
        return result

    def keep(self, key: Any, plan: Plan) -> None:
        """Repeat calls by a plan from now on; its function is written when it is wanted."""
        room(self.plans, LIMIT, self.ready)
        plans = self.plans.setdefault(key, [])
        if plan.general or len(plans) >= VARIANTS:
            plans.clear()
        plans.insert(0, plan)

        def first(values: tuple[Any, ...]) -> Any:
            functions = [p.again for p in tuple(plans)]
            again = self.ready[key] = functions[0] if len(functions) == 1 else _any_of(functions)
            return again(values)

        self.ready[key] = first


def _any_of(functions: Sequence[Again]) -> Again:
    def again(values: tuple[Any, ...]) -> Any:
        for f in functions:
            result = f(values)
            if result is not REFUSED:
                return result
        return REFUSED

    again.functions = tuple(functions)  # type: ignore[attr-defined]
    return again
