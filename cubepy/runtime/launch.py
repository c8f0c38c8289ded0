"""From a call to a run: bind arguments, find or make the code for them, check memory, run.

A launch that was seen before (same dtypes, shapes, strides, comptime values, grid) finds its prepared runner by
one dictionary lookup in a table of the thread; only data pointers and scalars are new.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from cubepy.compiler.calls import bind_parameters
from cubepy.compiler.signature import ComptimeSpec, Spec, Target
from cubepy.compiler.specialise import specialise
from cubepy.config import config
from cubepy.errors import LaunchError
from cubepy.lang.declare import Kernel, Struct
from cubepy.lang.dtypes import i32, i64
from cubepy.lang.grid import Dim3, Over, dim3
from cubepy.runtime import device as devices
from cubepy.runtime import overlap
from cubepy.runtime.leaves import NUMBERS, array_like, take_apart
from cubepy.runtime.stats import active, counters

MODES = ("checked", "validate", "unchecked")
TABLE_LIMIT = 4096
_specialise_lock = threading.RLock()


class Prepared:
    """A launch seen before: its runner, and how to check the memory of its arguments."""

    __slots__ = ("executable", "in_place", "outputs", "ranges", "runner")

    def __init__(
        self, executable: Any, runner: Any, outputs: tuple[int, ...], ranges: list[Any], in_place: bool
    ) -> None:
        self.executable, self.runner, self.in_place = executable, runner, in_place
        self.outputs, self.ranges = outputs, ranges


class Launcher:
    """Runs one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.parameters = kernel.parameters
        self.local = threading.local()
        self.executables: dict[Any, Any] = {}
        self.programs: dict[Any, Any] = {}

    def launch(self, grid: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """Run the kernel with these arguments."""
        mode, where = kwargs.pop("mode", None), kwargs.pop("device", None)
        stream = kwargs.pop("stream", None)
        if stream is not None:
            stream.attach(where)
        values = self.bind_values(args, kwargs)
        key = self.key(grid, mode, where, values)
        try:
            prepared = self.local.table.get(key)
        except AttributeError:
            self.local.table = {}
            prepared = None
        except TypeError:
            key = prepared = None
        if prepared is None:
            prepared = self.prepare(grid, mode, where, values, key)
            if prepared is None:
                return
        leaves = self.leaves(values)
        if overlap.check(prepared, leaves, self) and not prepared.in_place:
            prepared = self.prepare(grid, mode, where, values, None)
            assert prepared is not None
        counters.launches += 1
        if active:
            self.timed(prepared, leaves, values)
        else:
            prepared.runner.run(leaves, values)

    def timed(self, prepared: Prepared, leaves: list[Any], values: dict[str, Any]) -> None:
        """Run under the profiler."""
        import time

        start = time.perf_counter()
        prepared.runner.run(leaves, values)
        seconds = time.perf_counter() - start
        for p in list(active):
            p.add(self.kernel.__name__, seconds)

    def bind(self, grid: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A launch with its arguments fixed."""
        mode, where = kwargs.pop("mode", None), kwargs.pop("device", None)
        kwargs.pop("stream", None)
        values = self.bind_values(args, kwargs)
        prepared = self.prepare(grid, mode, where, values, None)
        return BoundLaunch(self, prepared, values)

    def inspect(self, grid: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The generated code for these arguments."""
        mode, where = kwargs.pop("mode", None), kwargs.pop("device", None)
        kwargs.pop("stream", None)
        values = self.bind_values(args, kwargs)
        return self.find(grid, mode, where, values)[0].inspect()

    def bind_values(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Arguments by parameter name, with defaults."""
        params = self.parameters
        if not kwargs and len(args) == len(params) and not params[-1].keyword_only:
            return {p.name: a for p, a in zip(params, args, strict=True)}
        return {p.name: v for p, v in bind_parameters(params, self.kernel.__name__, list(args), kwargs)}

    def key(self, grid: Any, mode: Any, where: Any, values: dict[str, Any]) -> Any:
        """What a prepared launch depends on. Exact shapes are in it; the code's own key has none."""
        parts: list[Any] = [grid, type(grid), mode or config.mode, where or devices.current()]
        for v in values.values():
            t = type(v)
            if t is np.ndarray:
                parts.append(v.dtype)
                parts.append(v.shape)
                parts.append(v.strides)
            elif t is int:
                parts.append((int, -2147483648 <= v < 2147483648, v < 9223372036854775808))
            elif t is float:
                parts.append(float)
            else:
                parts.append(_key_of(v))
        comptime = [values[p.name] for p in self.parameters if p.kind == "comptime"]
        for c in comptime:
            parts.append(type(c))
            parts.append(c)
        return tuple(parts)

    def leaves(self, values: dict[str, Any]) -> list[Any]:
        """The arrays and numbers of the arguments, in order."""
        out: list[Any] = []
        for p in self.parameters:
            v = values[p.name]
            if p.kind == "comptime":
                continue
            if type(v) is np.ndarray:
                out.append(v if v.ndim else v.reshape(1))
            elif p.kind == "any" and type(v) in (int, float):
                out.append(v)
            else:
                out += take_apart(p, v, self.kernel)[1]
        return out

    def find(self, grid: Any, mode: Any, where: Any, values: dict[str, Any]) -> tuple[Any, Dim3, list[Any], bool]:
        """The executable for these arguments; compiles it at first sight."""
        mode = mode or config.mode
        if mode not in MODES:
            raise LaunchError(f"there is no mode {mode!r}", hint=f"the modes are {', '.join(MODES)}")
        dev = devices.as_device(where) if where is not None else devices.current()
        backend = devices.backend_named(dev.backend)
        specs: list[Spec] = []
        leaves: list[Any] = []
        for p in self.parameters:
            spec, mine = take_apart(p, values[p.name], self.kernel)
            specs.append(spec)
            leaves += mine
        properties = backend.properties(dev.ordinal)
        cubes, units = self.grid(grid, backend)
        if units[0] * units[1] * units[2] > properties.max_units:
            raise LaunchError(
                f"a cube of {units} has {units[0] * units[1] * units[2]} units; {dev} allows {properties.max_units}"
            )
        arrays = [a for a in leaves if isinstance(a, np.ndarray)]
        wide = any(a.size >= 2**31 for a in arrays) or cubes[0] * cubes[1] * cubes[2] * units[0] >= 2**31
        target = Target(
            dev.backend, units, mode, i64 if wide else i32, properties.plane_size, properties.max_shared_memory,
            properties, config.debug > 0 or mode == "validate",
        )  # fmt: skip
        key = (tuple(specs), target)
        with _specialise_lock:
            program = self.programs.get(key)
            if program is None:
                program = specialise(self.kernel, tuple(specs), target)
                counters.specialised += 1
                self.programs[key] = program
            in_place = overlap.in_place(program, leaves)
            exe = self.executables.get((key, in_place))
            if exe is None:
                exe = backend.executable(self.kernel, program, tuple(specs), in_place)
                self.executables[key, in_place] = exe
        return exe, cubes, leaves, in_place

    def grid(self, grid: Any, backend: Any) -> tuple[Dim3, Dim3]:
        """Cube count and cube dim of a grid."""
        if isinstance(grid, Over):
            cubes, units = backend.units(grid.units)
            return (cubes, 1, 1), (units, 1, 1)
        if not isinstance(grid, tuple) or len(grid) != 2:
            raise LaunchError(
                f"a grid is cb.over(...) or two values (cubes, units), not {grid!r}",
                hint=f"write {self.kernel.__name__}[cubes, units](...)",
            )
        return dim3(grid[0], "the cube count", 1), dim3(grid[1], "the cube dim", 1)

    def prepare(self, grid: Any, mode: Any, where: Any, values: dict[str, Any], key: Any) -> Prepared | None:
        """Find the code and lay the launch out; None when there is nothing to do."""
        if isinstance(grid, Over) and grid.size == 0:
            return None
        exe, cubes, leaves, in_place = self.find(grid, mode, where, values)
        outputs, ranges = overlap.plan(exe.program, leaves)
        prepared = Prepared(exe, exe.prepare(leaves, values, cubes), outputs, ranges, in_place)
        if key is not None and not in_place:
            table = self.local.table
            if len(table) >= TABLE_LIMIT:
                table.clear()
            table[key] = prepared
        return prepared


class BoundLaunch:
    """A launch with its arguments fixed: call it with nothing, or with new values of scalar parameters."""

    def __init__(self, launcher: Launcher, prepared: Prepared | None, values: dict[str, Any]) -> None:
        self.launcher, self.prepared, self.values = launcher, prepared, values
        self._run = self._make()

    def _make(self) -> Any:
        if self.prepared is None:
            return lambda: None
        leaves = self.launcher.leaves(self.values)
        overlap.check(self.prepared, leaves, self.launcher)
        return self.prepared.runner.bound(leaves, self.values)

    def __call__(self, **scalars: Any) -> None:
        """Run; keywords give scalar parameters new values from now on.

        Raises:
            LaunchError: a keyword that is no scalar parameter.
        """
        if scalars:
            for name, value in scalars.items():
                if not isinstance(self.values.get(name), NUMBERS) or not isinstance(value, NUMBERS):
                    raise LaunchError(f"{name!r} is no scalar parameter of this launch", hint="bind again")
                self.values[name] = value
            self._run = self._make()
        counters.launches += 1
        if active:
            import time

            start = time.perf_counter()
            self._run()
            for p in list(active):
                p.add(self.launcher.kernel.__name__, time.perf_counter() - start)
        else:
            self._run()


def _key_of(v: Any) -> Any:
    """The part of a key that an unusual argument contributes."""
    if isinstance(v, Struct):
        parts: list[Any] = [v.type]
        for f in v.type.fields:
            x = v.values[f.name]
            parts.append(ComptimeSpec(x) if f.kind == "comptime" else _key_of(x))
        return tuple(parts)
    if isinstance(v, tuple):
        return tuple(_key_of(x) for x in v)
    if isinstance(v, NUMBERS):
        if isinstance(v, int) and not isinstance(v, bool):
            return (int, -(2**31) <= v < 2**31, v < 2**63)
        return type(v)
    array = array_like(v)
    if array is not None:
        return (array.dtype, array.shape, array.strides)
    return ComptimeSpec(v)
