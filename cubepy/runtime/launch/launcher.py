"""From a call to a run: bind arguments, find or make the code for them, check memory, run.

A launch that was seen before (same dtypes, shapes, strides, comptime values, grid) finds its
prepared runner by one dictionary lookup in a table of the thread; only data pointers and scalars
are new.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cubepy.compiler.program import Program
from cubepy.compiler.signature import Spec, Target, bind_parameters
from cubepy.config import config
from cubepy.errors import LaunchError
from cubepy.lang.annotations import TensorMap
from cubepy.lang.declare import Kernel
from cubepy.lang.dtypes import i32, i64
from cubepy.lang.grid import Dim3, Over, dim3
from cubepy.runtime import device as devices
from cubepy.runtime import recording
from cubepy.runtime.ahead import foresight
from cubepy.runtime.ahead.walked import program_of
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.deep_stack import with_room
from cubepy.runtime.interop.arrays import NUMBERS, launched_by
from cubepy.runtime.launch.arguments import conversion, device_of, flatten
from cubepy.runtime.launch.binder import LAUNCH_KEYWORDS, make_binder
from cubepy.runtime.launch.bound import BoundLaunch, timed
from cubepy.runtime.launch.prepared import (
    Conversions,
    Positions,
    Prepared,
    check,
    outputs_of,
    works_in_place,
)
from cubepy.runtime.memory.spans import ARRAYS
from cubepy.runtime.profile import active
from cubepy.runtime.replay.arguments import ON_GPU, REFUSED, key_of, note_type, plain
from cubepy.runtime.replay.calls import Calls
from cubepy.runtime.replay.gpu import GpuOperands
from cubepy.runtime.replay.plan import Plan
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.stats import counters
from cubepy.runtime.streams.stream import attached
from cubepy.runtime.tables import room

MODES = ("checked", "validate", "unchecked")
TABLE_LIMIT = 4096
PROGRAMS = 1024
"""Kinds of arguments of which a kernel keeps programs for a CPU; what runs is kept by who runs it.
Those for GPUs stay, since graphs of a driver keep no code."""
VARIANTS = 64
"""Programs that are kept for arguments like these, made while globals and the like had other
values.
"""
_specialise_lock = threading.RLock()


class Launcher:
    """Runs one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.parameters = kernel.parameters
        self.binder = make_binder(kernel)
        self.local = threading.local()
        self.programs: dict[
            Any, list[tuple[Any, dict[Any, Any]]]
        ] = {}  # with the executables of each
        self.replays: Calls | None = None

    def bound(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, tuple, Any, Any, Any]:
        """Arguments in order, their key, mode, device and stream.

        Raises:
            KernelTypeError, ComptimeError: arguments that do not match the parameters.
        """
        try:
            return self.binder(*args, **kwargs)
        except TypeError:
            plain = {k: v for k, v in kwargs.items() if k not in LAUNCH_KEYWORDS}
            bind_parameters(
                self.parameters, self.kernel.__name__, list(args), plain
            )  # says what is wrong
            raise

    def launch(self, grid: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """Run the kernel with these arguments."""
        if recording.asked or recording.detours:
            if foresight.watching and foresight.looks():
                self.foresee(grid, args, kwargs)
                return
            instead = launched_by((*args, *kwargs.values()) if kwargs else args)
            if instead is not None and instead(self.kernel, grid, args, kwargs):
                return
            recorder = recording.current() if recording.active else None
            if recorder is not None and recorder.symbolic:
                recorder.enqueue(self, grid, args, kwargs)
                return
        short = None
        if (
            self.replays is not None
            and not kwargs
            and args
            and type(args[0]) in ON_GPU
            and not recording.detours
        ):
            try:
                short = key_of(args, grid, type(grid))
                again = self.replays.ready.get(short)
            except TypeError:
                again = short = None
            if again is not None and again(args) is not REFUSED:
                return
        values, key, mode, where, stream = self.bound(args, kwargs)
        queue = None
        if stream is not None:
            where, queue = attached(stream, where)
        here = where or devices.current()
        key = (grid, type(grid), mode or config.mode, here, config.debug, key)
        try:
            prepared = self.local.table.get(key)
        except AttributeError:
            self.local.table = {}
            prepared = None
        except (TypeError, ValueError):  # something unhashable: the slow path says what
            key = prepared = None  # type: ignore[assignment]
        if prepared is not None:
            holds = prepared.holds  # a method of a slot would be looked up slowly
            if holds is not None and not holds() and not prepared.guard.valid():
                prepared = None
        if prepared is None:
            prepared = self.prepare(grid, mode, where, values, key)
            if prepared is None:
                return
        elif prepared.fresh and not recording.active:  # which does without
            prepared.write_quick()
        if prepared.converted:
            values = prepared.exact(values)
        quick = prepared.quick
        if quick is not None and not active and not recording.active and quick(values, queue):
            counters.launches += 1
            only_arrays = not kwargs and not getattr(prepared.runner, "numbers", True)
            mark = short or type(args[0]) if args else None
            if only_arrays and mark not in prepared.tried and not recording.detours:
                prepared.tried.add(mark)
                self.plan_replay(grid, prepared, args, values)
            return
        simple = prepared.simple
        if prepared.leaves is not None:
            leaves, prepared.leaves = prepared.leaves, None
        elif simple is not None:
            leaves = [values[i] if j < 0 else values[i][j] for i, j in simple]
        else:
            leaves = self.leaves(values)
        if prepared.outputs and check(prepared, leaves, self) and not prepared.in_place:
            prepared = self.prepare(grid, mode, where, values, None)
            assert prepared is not None
        counters.launches += 1
        if recording.active:
            recorder = recording.current()
            if recorder is not None:
                recorder.launch(prepared, leaves)
                recorder.spoiled |= queue is not None
        if active:
            timed(
                self.kernel.__name__,
                prepared.runner,
                lambda: prepared.runner.run(leaves, values, queue),
                queue,
            )
        else:
            prepared.runner.run(leaves, values, queue)

    def foresee(self, grid: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """Only let the code be compiled that these arguments need."""
        values, _, mode, where, _ = self.bound(args, kwargs)
        if not (isinstance(grid, Over) and grid.size == 0):
            exe, _, leaves, _, _ = self.find(grid, mode, where, values)
            code = getattr(exe, "code_for", lambda _: exe)(leaves)
            getattr(code, "foresee", lambda: None)()

    def plan_replay(self, grid: Any, prepared: Prepared, args: tuple, values: tuple) -> None:
        """Let a launch that came before be repeated by machine code from now on, if it can be."""
        if not args:
            return
        note_type(args[0])  # of a tensor, which the launch before may not have had
        try:
            key = key_of(args, grid, type(grid))
        except TypeError:  # a packed tensor
            return
        if prepared.simple is None or type(args[0]) not in ON_GPU or not all(map(plain, args)):
            return
        recorded = Recorder()
        leaves = [values[i] if j < 0 else values[i][j] for i, j in prepared.simple]
        recorded.launch(prepared, leaves)
        try:
            plan = Plan(recorded, None, None, GpuOperands(recorded, args, None, None))
        except Unsuitable:
            return
        prepared.tried.add(key)
        if self.replays is None:
            self.replays = Calls()
        self.replays.keep(key, plan)

    def bind(self, grid: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A launch with its arguments fixed."""
        values, _, mode, where, stream = self.bound(args, kwargs)
        queue = None
        if stream is not None:
            where, queue = attached(stream, where)
        return BoundLaunch(
            self, self.prepare(grid, mode, where, values, None), values, queue, stream
        )

    def inspect(self, grid: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The generated code for these arguments."""
        values, _, mode, where, _ = self.bound(args, kwargs)
        exe, _, leaves, _, _ = self.find(grid, mode, where, values)
        return getattr(exe, "code_for", lambda _: exe)(leaves).inspect()

    def leaves(self, values: tuple) -> list[Any]:
        """The arrays and numbers of the arguments, in order."""
        out: list[Any] = []
        for p, v in zip(self.parameters, values, strict=True):
            if p.kind != "comptime":
                out += flatten(p, v, self.kernel)[1]
        return out

    def simple(self, values: tuple, leaves: list[Any]) -> tuple[Positions | None, Conversions]:
        """Where the leaves stand among the values: (argument, -1), or (argument, position in its
        tuple); and the arguments that are converted first, each with how.

        None when one of them is made from its argument otherwise (a struct's field).
        """
        positions: list[tuple[int, int]] = []
        converted: list[tuple[int, Callable[[Any], Any]]] = []
        for i, (p, v) in enumerate(zip(self.parameters, values, strict=True)):
            if p.kind == "comptime" or v is None:
                continue
            parts = v if type(v) is tuple else (v,)
            for j, part in enumerate(parts):
                plain = isinstance(part, TensorMap) or (type(part) in ARRAYS and part.ndim > 0)
                if not plain and not (p.kind == "any" and type(part) in (int, float)):
                    if v is not part or not isinstance(v, NUMBERS):
                        return None, ()
                    converted.append((i, conversion(p, self.kernel)))
                positions.append((i, j if type(v) is tuple else -1))
        return (tuple(positions) if len(positions) == len(leaves) else None), tuple(converted)

    def find(
        self, grid: Any, mode: Any, where: Any, values: tuple
    ) -> tuple[Any, Dim3, list[Any], bool, int]:
        """The executable for these arguments, compiled at first sight, and the ordinal of its
        device.
        """
        mode = mode or config.mode
        if mode not in MODES:
            raise LaunchError(
                f"there is no mode {mode!r}", hint=f"the modes are {', '.join(MODES)}"
            )
        specs: list[Spec] = []
        leaves: list[Any] = []
        for p, value in zip(self.parameters, values, strict=True):
            spec, mine = flatten(p, value, self.kernel)
            specs.append(spec)
            leaves += mine
        dev = device_of(where, leaves, self.kernel.__name__)
        backend = devices.backend_named(dev.backend)
        properties = backend.properties(dev.ordinal)
        kinds = tuple(specs)

        def target(cubes: Dim3, units: Dim3) -> Target:
            wide = wide_of(cubes, units, dev, properties.max_units, leaves)
            debug = config.debug > 0 or mode == "validate"
            return target_of(dev.backend, units, mode, wide, Same(properties), debug)

        cubes, units = self.grid(grid, backend)
        aim = target(cubes, units)
        if isinstance(grid, Over) and grid.shape:
            flat = aim
            if with_room(lambda: self.program(kinds, flat))[0].axes:
                cubes, units = backend.units(grid.axes)
                aim = target(cubes, units)
        exe, in_place = with_room(lambda: self.code(backend, kinds, aim, leaves))
        return exe, cubes, leaves, in_place, dev.ordinal

    def program(self, specs: tuple[Spec, ...], target: Target) -> tuple[Program, dict[Any, Any]]:
        """The program for arguments like these, made unless it exists, and its executables."""
        with _specialise_lock:
            key = specs, target
            known = self.programs.get(key)
            if known is None:
                if len(self.programs) >= PROGRAMS:
                    self.let_go()
                known = self.programs[key] = []
            found: tuple[Any, dict[Any, Any]] | None
            found = next(
                (v for v in reversed(known) if v[0].guard is None or v[0].guard.valid()), None
            )
            if found is None:
                found = program_of(self.kernel, specs, target), {}
                del known[: len(known) + 1 - VARIANTS]
                known.append(found)
            return found

    def let_go(self) -> None:
        """Forget the programs that came first, if those for a CPU are many, and all launches of all
        threads: among them are theirs.
        """
        found = [key for key in self.programs if key[1].backend == "cpu"]
        if len(found) >= PROGRAMS:
            for key in found[: len(found) - PROGRAMS + max(1, PROGRAMS // 8)]:
                del self.programs[key]
            self.local = threading.local()

    def code(
        self, backend: Any, specs: tuple[Spec, ...], target: Target, leaves: list[Any]
    ) -> tuple[Any, Any]:
        """The code for arguments like these, made unless it exists, and which share memory."""
        with _specialise_lock:
            program, executables = self.program(specs, target)
            in_place = works_in_place(program, leaves)
            exe = executables.get(in_place)
            if exe is None:
                counters.specialised += not executables
                exe = executables[in_place] = backend.executable(
                    self.kernel, program, specs, in_place
                )
        return exe, in_place

    def grid(self, grid: Any, backend: Any) -> tuple[Dim3, Dim3]:
        """Cube count and cube dim of a grid."""
        if isinstance(grid, Over):
            return backend.units((grid.units,))  # type: ignore[no-any-return]
        if not isinstance(grid, tuple) or len(grid) != 2:
            name = self.kernel.__name__
            one = isinstance(grid, int) and not isinstance(grid, bool)
            raise LaunchError(
                f"a grid is cb.over(...) or two values (cubes, units), not {grid!r}",
                hint=f"write {name}[cb.over({grid})](...) for {grid} units of work, or "
                f"{name}[{grid}, units](...) for {grid} cubes"
                if one
                else f"write {name}[cubes, units](...), or {name}[cb.over(out)](...)",
            )
        return dim3(grid[0], "the cube count", 1), dim3(grid[1], "the cube dim", 1)

    def prepare(self, grid: Any, mode: Any, where: Any, values: tuple, key: Any) -> Prepared | None:
        """Find the code and lay the launch out; None when there is nothing to do."""
        if isinstance(grid, Over) and grid.size == 0:
            return None
        exe, cubes, leaves, in_place, ordinal = self.find(grid, mode, where, values)
        outputs, ranges = outputs_of(exe.program, leaves)
        if foresight.watching:
            foresight.meet(getattr(exe, "code_for", lambda _: exe)(leaves))
        runner = exe.prepare(leaves, values, cubes, ordinal)
        simple, converted = self.simple(values, leaves)
        prepared = Prepared(exe, runner, outputs, ranges, in_place, simple, converted)
        if key is not None and not in_place:
            table = vars(self.local).setdefault("table", {})
            room(table, TABLE_LIMIT)
            table[key] = prepared
            prepared.leaves = leaves
        return prepared


class Same:
    """A device's properties in a key: by identity, which is quicker than to compare all that a
    device has.
    """

    __slots__ = ("properties",)

    def __init__(self, properties: Any) -> None:
        self.properties = properties

    def __hash__(self) -> int:
        return id(self.properties)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.properties is self.properties


@lru_cache(4096)
def target_of(
    backend: str, units: Dim3, mode: str, wide: bool, device: Same, debug: bool
) -> Target:
    """What code is generated for; one object for equal ones."""
    p = device.properties
    return Target(
        backend, units, mode, i64 if wide else i32, p.plane_size, p.max_shared_memory, p, debug
    )


def wide_of(cubes: Dim3, units: Dim3, dev: Any, most: int, leaves: list[Any]) -> bool:
    """Whether a launch needs indices of 64 bits.

    Raises:
        LaunchError: more units than the device, or a number of 64 bits, can take.
    """
    in_cube = math.prod(units)
    in_launch = math.prod(cubes) * in_cube
    if in_cube > most:
        raise LaunchError(
            f"a cube of {units} has {in_cube} units; {dev} allows {most}",
            hint="use fewer units and more cubes, or let the device pick: [cb.over(out)]",
        )
    if in_launch >= 2**63:
        raise LaunchError(
            f"a launch of {cubes} cubes of {units} units has more units than 64 bits can count"
        )
    arrays = [a for a in leaves if isinstance(a, ARRAYS)]
    return in_launch >= 2**31 or any(a.size >= 2**31 for a in arrays)
