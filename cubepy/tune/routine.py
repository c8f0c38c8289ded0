"""Routines, and the operations that choose between them.

An `Op` is a list of routines; the first that supports a problem does it. Nothing more happens on a
first call, and later ones are replayed. Where the order alone cannot know what is fastest, a
`cubepy.tune.tuned.TunedOp` has blueprints and measurements besides.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from cubepy.errors import TuneError
from cubepy.runtime.device import Device, DeviceProperties, current, device_properties


class Routine:
    """One way to do an operation: it says what it supports, and launches; it does not decide.

    Attributes:
        name: what `explain` and `force` call it.
    """

    name: str = ""

    def supports(self, problem: Any, properties: DeviceProperties) -> str | None:
        """Why the routine is not for the problem on such a device, or None when it is."""
        return None

    def launch(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work: `launch(problem, properties)`. What it returns is what the operation's
        function gets.
        """
        raise NotImplementedError


class CpuRoutine(Routine):
    """A routine for devices whose units stand alone; `unfit` says what else is in the way."""

    def supports(self, problem: Any, properties: DeviceProperties) -> str | None:
        """What is wrong with the device or the problem."""
        return "for CPUs" if properties.plane_size > 1 else self.unfit(problem, properties)

    def unfit(self, problem: Any, properties: DeviceProperties) -> str | None:
        """Why the routine is not for the problem, or None when it is."""
        return None


class GpuRoutine(Routine):
    """A routine for devices whose units work in planes; `unfit` says what else is in the way."""

    def supports(self, problem: Any, properties: DeviceProperties) -> str | None:
        """What is wrong with the device or the problem."""
        return self.unfit(problem, properties) if properties.plane_size > 1 else "for GPUs"

    def unfit(self, problem: Any, properties: DeviceProperties) -> str | None:
        """Why the routine is not for the problem, or None when it is."""
        return None


@dataclass(frozen=True)
class Forced:
    """The routine to use, with a whole blueprint or some fields of one."""

    routine: str
    blueprint: Any = None
    changes: tuple[tuple[str, Any], ...] = ()


FORCED: ContextVar[dict[str, Forced] | None] = ContextVar("cubepy_forced", default=None)
"""What `force` asks for, by operation."""

Listener = Callable[["Op", Any, DeviceProperties], None]
_listeners: list[Listener] = []


@contextlib.contextmanager
def listening(hear: Listener) -> Iterator[None]:
    """Hear of every problem that an operation is asked for in the block, in all threads,
    in order.
    """
    _listeners.append(hear)
    try:
        yield
    finally:
        _listeners.remove(hear)


class Standing(NamedTuple):
    """How a routine stands to a problem: its priority, and why it is not for it."""

    routine: Routine
    group: int
    reason: str | None


class Op:
    """An operation: the routines that can do it, in order.

    A problem is a NamedTuple of whatever the routines need to know and to launch: arrays, options,
    functions. `run` asks one routine after another with the properties of the current device, which
    routines pass on instead of asking again.

    Args:
        name: such as "sort".
        routines: the first that supports a problem does it.
        for_gpus: the module with more of them, which come first on devices whose units work in
            planes: `ROUTINES`, by names of operations. It is loaded when such a device, or all
            routines, are asked for.

    Example:
        >>> from typing import NamedTuple
        >>> from cubepy.tune import Op, Routine
        >>> class Sum(NamedTuple):
        ...     numbers: list[int]
        >>> class Pair(Routine):
        ...     name = "pair"
        ...     def supports(self, p, properties):
        ...         return None if len(p.numbers) == 2 else "for two numbers"
        ...     def launch(self, p, properties):
        ...         return p.numbers[0] + p.numbers[1]
        >>> class Any(Routine):
        ...     name = "any"
        ...     def launch(self, p, properties):
        ...         return sum(p.numbers)
        >>> Op("example_sum", [Pair(), Any()]).run(Sum([1, 2, 3]))
        6
    """

    def __init__(self, name: str, routines: Sequence[Routine], for_gpus: str = "") -> None:
        self.name, self.on_any, self.for_gpus = name, tuple(routines), for_gpus
        OPS[name] = self

    @cached_property
    def routines(self) -> tuple[Any, ...]:
        """All routines, in order."""
        if not self.for_gpus:
            return self.on_any
        return (*importlib.import_module(self.for_gpus).ROUTINES[self.name], *self.on_any)

    def asked(self, problem: Any, properties: DeviceProperties) -> tuple[Any, ...]:
        """The routines that may do a problem on a device, in order."""
        return self.routines if properties.plane_size > 1 else self.on_any

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {', '.join(r.name for r in self.routines)})"

    def run(self, problem: Any, device: Device | None = None) -> Any:
        """Let the first routine that supports a problem do it, on a device or the current one.

        Raises:
            TuneError: no routine supports it, or the forced one does not.
        """
        properties = device_properties(device or current())
        return self.chosen(problem, properties).launch(problem, properties)

    def chosen(self, problem: Any, properties: DeviceProperties) -> Routine:
        """The routine that does a problem: the one that is forced, or the first that supports it.

        Raises:
            TuneError: no routine supports it, or the forced one does not.
        """
        if _listeners:
            self.heard(problem, properties)
        forced = (FORCED.get() or {}).get(self.name)
        if forced is not None and forced.routine != "inferred":
            return self.forced(forced, problem, properties)
        for routine in self.asked(problem, properties):
            if routine.supports(problem, properties) is None:
                return routine  # type: ignore[no-any-return]
        raise self.nobody(problem, properties)

    def heard(self, problem: Any, properties: DeviceProperties) -> None:
        """Tell who listens of a problem."""
        for hear in tuple(_listeners):
            hear(self, problem, properties)

    def forced(self, forced: Forced, problem: Any, properties: DeviceProperties) -> Routine:
        """The routine that is forced.

        Raises:
            TuneError: it does not support the problem.
        """
        routine = self.routine(forced.routine)
        reason = routine.supports(problem, properties)
        if reason is not None:
            raise TuneError(
                f"{self.name}: the forced routine {routine.name} cannot do {text(problem)}",
                hint=reason,
            )
        return routine

    def standings(self, problem: Any, properties: DeviceProperties) -> list[Standing]:
        """All routines in the order in which they are asked, with what they say."""
        return [Standing(r, 0, r.supports(problem, properties)) for r in self.routines]

    def nobody(self, problem: Any, properties: DeviceProperties) -> TuneError:
        """What is raised where no routine does a problem: the reasons of all."""
        reasons = [
            f"{s.routine.name}: "
            f"{s.reason or ('only when forced' if s.group < 0 else 'no blueprint')}"
            for s in self.standings(problem, properties)
        ]
        return TuneError(
            f"no routine of {self.name} can do {text(problem)}", hint="; ".join(reasons)
        )

    def routine(self, name: str) -> Any:
        """The routine of this name.

        Raises:
            TuneError: there is none.
        """
        for r in self.routines:
            if r.name == name:
                return r
        names = ", ".join(r.name for r in self.routines)
        raise TuneError(f"{self.name} has no routine {name!r}", hint=f"its routines are {names}")


OPS: dict[str, Op] = {}
"""Every operation by name, as declared: by the families of the library that were used, and by
others.
"""


def library() -> None:
    """Load the whole kernel library, which declares its operations."""
    importlib.import_module("cubepy.kernels").load()


def op_named(name: str) -> Op:
    """The operation of this name; those of the library are declared when they are asked for first.

    Raises:
        TuneError: there is none.
    """
    if name not in OPS:
        library()
    if name not in OPS:
        known = f"the operations are {', '.join(sorted(OPS))}"
        raise TuneError(f"there is no operation {name!r}", hint=known)
    return OPS[name]


def text(problem: Any) -> str:
    """A problem's fields on one line, without the device and what is as usual; arrays by dtype and
    shape.

    Example:
        >>> import numpy as np
        >>> from typing import NamedTuple
        >>> class Sum(NamedTuple):
        ...     x: np.ndarray
        ...     scale: float = 1.0
        ...     last: bool = True
        >>> text(Sum(np.zeros((2, 3), np.float32), 2.0))
        'x=float32[2, 3], scale=2.0'
    """
    usual = getattr(problem, "_field_defaults", {})
    parts = zip(problem._fields, problem, strict=True)
    return ", ".join(
        f"{name}={_value(value)}"
        for name, value in parts
        if name != "device" and value is not None and not _is(value, usual.get(name, ...))
    )


def _is(value: Any, usual: Any) -> bool:
    """Whether a field is as usual; arrays are not compared."""
    return value is usual or (isinstance(value, (int, float, str)) and value == usual)


def _value(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_value, value))})"
    name = getattr(value, "__name__", getattr(value, "name", None))
    return name if isinstance(name, str) else repr(value)
