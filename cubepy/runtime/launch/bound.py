"""Launches with their arguments fixed, and launches under the profiler."""

from __future__ import annotations

import time
from typing import Any

from cubepy.errors import LaunchError
from cubepy.runtime import recording
from cubepy.runtime.interop.arrays import NUMBERS
from cubepy.runtime.launch.prepared import Prepared, check
from cubepy.runtime.profile import active, note_launch
from cubepy.runtime.stats import counters


def timed(name: str, runner: Any, run: Any, queue: Any) -> None:
    """Run under the profiler; on a device with streams, the time that the device takes."""
    clock = getattr(runner, "seconds", None)
    if clock is not None:
        seconds = clock(run, queue)
    else:
        start = time.perf_counter()
        run()
        seconds = time.perf_counter() - start
    note_launch(name, seconds)


class BoundLaunch:
    """A launch with its arguments fixed: call it with nothing, or with new values of scalar
    parameters.
    """

    def __init__(
        self,
        launcher: Any,
        prepared: Prepared | None,
        values: tuple,
        queue: Any = None,
        stream: Any = None,
    ) -> None:
        self.launcher, self.prepared, self.values, self.queue = launcher, prepared, values, queue
        self.stream = stream  # kept: another library's is not known any more when its object goes
        self._run = self._make()

    def _make(self) -> Any:
        if self.prepared is None:
            return lambda: None
        leaves = self.launcher.leaves(self.values)
        check(self.prepared, leaves, self.launcher)
        return self.prepared.runner.bound(leaves, self.values, self.queue)

    def __call__(self, **scalars: Any) -> None:
        """Run; keywords give scalar parameters new values from now on.

        Raises:
            LaunchError: a keyword that is no scalar parameter.
        """
        recording.spoil()
        if scalars:
            self._rebind(scalars)
        counters.launches += 1
        if active and self.prepared is not None:
            timed(self.launcher.kernel.__name__, self.prepared.runner, self._run, self.queue)
        else:
            self._run()

    def _rebind(self, scalars: dict[str, Any]) -> None:
        names = [p.name for p in self.launcher.parameters]
        values = list(self.values)
        for name, value in scalars.items():
            known = name in names and self.launcher.parameters[names.index(name)].kind != "comptime"
            if (
                not known
                or not isinstance(values[names.index(name)], NUMBERS)
                or not isinstance(value, NUMBERS)
            ):
                raise LaunchError(
                    f"{name!r} is no scalar parameter of this launch", hint="bind again"
                )
            values[names.index(name)] = value
        self.values = tuple(values)
        self._run = self._make()
