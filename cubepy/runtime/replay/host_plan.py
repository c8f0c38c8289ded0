"""Calls on the host that are replayed: their launches run again with new addresses, without
Python's deliberations.

Checking shapes, choosing a routine and laying out views costs tens of microseconds, and none of it
depends on anything but the layouts of the arrays, the options and the settings. The second call of
a kind is therefore recorded: which launches it made, and where the memory of each stands in its
arguments. From the third call on, one look into a table finds them, and one call of machine code
(`HostReplay`) runs them.

Only functions that ask for it are repeated (`kernels.entry.dispatch.repeated`), because a step of
NumPy between launches is not seen here. What is seen is refused: a result or scratch that no launch
wrote, memory that nobody knows, launches that work in place, results that are no new array in C
order. What a launch says by a flag is looked at in every repetition (`judged`): one that is raised
ends it, and the call goes the long way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func
from cubepy.lang.dtypes import DType
from cubepy.runtime import recording
from cubepy.runtime.device import backend_named, current
from cubepy.runtime.memory import pool
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.spans import extent
from cubepy.runtime.memory.spans import same as alike
from cubepy.runtime.replay.record import Launch, Recorder
from cubepy.runtime.stats import counters
from cubepy.runtime.tables import room

LIMIT = 4096
PEELED = 8 << 20
"""Bytes of what may be written up to a line of the cache first, and then past the caches."""
REFUSED = object()
"""What a repetition gives when it does not fit the arrays, or one of its launches raised a flag:
the call must be done again then."""
_OPTIONS = frozenset({int, float, bool, str, type(None), type, Func, Builtin, DType, np.ndarray})


class HostPlan:
    """The launches of a call, laid out for other arrays of the same layouts.

    Args:
        recorded: what the call launched.
        values: its arguments, in the order in which a repetition gets them.
        result: what it gave.
        out: which argument is the array that it wrote, if it was given one.
        same: arguments that are this array, too: the call works in place.

    Attributes:
        possible: whether the call can be repeated at all.
        general: whether it can be for any arrays of the same layouts.
    """

    def __init__(
        self,
        recorded: Recorder,
        values: tuple[Any, ...],
        result: Any,
        out: int | None,
        same: tuple[int, ...] = (),
    ) -> None:
        self.same = same
        launches = [step for step in recorded.steps if isinstance(step, Launch)]
        seen_all = not recorded.spoiled and not recorded.allocations and not recorded.constants
        self.possible = seen_all and 0 < len(launches) == len(recorded.steps)
        self.out, self.scalar = out, isinstance(result, np.generic)
        self.results = [] if out is not None else _arrays(result, recorded)
        self.pack = type(result) if type(result) in (tuple, list) else None
        # which, address, first byte and one past the last
        self.known: list[tuple[int, int, int, int]] = []
        self.sizes: list[int] = []  # of scratch
        self.table = _host().table()
        self.runners: list[Any] = []
        self.kept, self.written = recorded.numbers, set[int]()
        self.guards = guards_of(prepared for prepared, _ in launches)
        self.next = len(values) + len(self.results)
        given = [(n, v) for n, v in enumerate(values) if type(v) is np.ndarray and n not in same]
        for n in same:
            self.table.relate(out or 0, n, 0)
        fresh = list(enumerate(self.results, len(values)))
        self.general = self.relate(given)
        wanted = {out} if out is not None else {n for n, _ in fresh}
        for n, v in (*given, *fresh):
            self.know(n, v)
        for n, v in fresh if out is None else [(out, values[out])]:
            self.align(n, v)
        for n, (prepared, leaves) in enumerate(launches):
            self.add(prepared, leaves, recorded.flags.get(n))
        if out is not None:
            self.overlap(out, values[out], given)
        self.possible &= bool(wanted) and wanted <= self.written
        self.possible &= not any(n in self.written - wanted for n, _ in given)

    def know(self, which: int, array: np.ndarray) -> None:
        """Addresses inside an array are found in it."""
        low, high = extent(array)
        self.known.append((which, address(array), low, high))

    def relate(self, given: list[tuple[int, np.ndarray]]) -> bool:
        """Arrays that share memory must do so in the same way again: addresses do not tell which of
        them is read.
        """
        alone = True
        for k, (n, v) in enumerate(given):
            for m, w in given[:k]:
                if n != self.out and m != self.out and np.may_share_memory(v, w):
                    self.table.relate(m, n, address(v) - address(w))
                    alone = False
        return alone

    def align(self, which: int, array: np.ndarray) -> None:
        """What began at a line of the cache may have been written by stores that need it; what is
        large and was given, by launches that depend on where its first line begins.
        """
        past = address(array) % pool.ALIGNMENT
        if array.nbytes < pool.POOLED or which == self.out:
            if past == 0 or (which == self.out and array.nbytes >= PEELED):
                self.table.align(which, pool.ALIGNMENT - 1, past)

    def overlap(self, out: int, array: np.ndarray, given: list[tuple[int, np.ndarray]]) -> None:
        """What is written shares no memory with what is read."""
        for n, v in given:
            if n != out:
                self.table.apart(out, extent(array), n, extent(v))

    def add(self, prepared: Any, leaves: list[Any], flag: np.ndarray | None) -> None:
        """Lay out one launch; its flag is a word of the table, so that every repetition has its
        own.
        """
        runner = prepared.runner
        if (prepared.in_place and not self.same) or not hasattr(runner, "step") or runner.trials:
            self.possible = False
            return
        twin, begin = self.table.launch(runner, leaves, flag is not None)
        self.runners.append(twin)
        for n, (value, (slot, is_array, _)) in enumerate(zip(leaves, runner.slots, strict=True)):
            if value is flag and is_array:
                self.table.flag(begin + slot, begin - 1)
            elif is_array:
                which, offset = self.place(value, n in prepared.outputs)
                if which >= 0:
                    self.table.put(begin + slot, which, offset)
                elif which < -1:
                    self.table.put_scratch(begin + slot, -2 - which + offset)
                else:
                    self.kept = [*self.kept, value]

    def place(self, array: np.ndarray, writes: bool) -> tuple[int, int]:
        """Which array a launch's argument is in: one of the call's, or scratch that a launch wrote;
        -1: a number.

        Scratch on the stack is -2 less the byte at which it begins.
        """
        at = address(array)
        low, high = extent(array)
        first, last = at + low, at + high
        for which, start, begin, end in self.known:
            if start + begin <= first and last <= start + end and last > first:
                if writes:
                    self.written.add(which)
                return which, at - start
            self.possible &= last <= start + begin or start + end <= first
        if any(np.may_share_memory(array, v) for v in self.kept):
            self.possible &= not writes
            return -1, 0
        self.possible &= writes and array.flags.c_contiguous  # else NumPy filled it
        byte = self.table.scratch(array.nbytes)
        if byte is not None:
            self.know(-2 - byte, array)
            return -2 - byte, 0
        self.sizes.append(array.nbytes)
        which, self.next = self.next, self.next + 1
        self.know(which, array)
        self.align(which, array)
        return which, 0

    def ready(self, go: Any) -> Callable[[tuple[Any, ...]], Any]:
        """A function of arguments with the same layouts that does what the call did, or gives
        REFUSED.
        """
        again, guards = self.unguarded(go), self.guards
        if not guards:
            return again

        def guarded(values: tuple[Any, ...]) -> Any:
            return again(values) if all(g.valid() for g in guards) else REFUSED

        return guarded

    def unguarded(self, go: Any) -> Callable[[tuple[Any, ...]], Any]:
        """The same, while what the kernels read from outside (globals and the like) is what it was."""
        driver = _host().driver() if any(r.parallel for r in self.runners) else None
        table = self.table.finished(driver.address if driver else 0)
        at, runners, count = ctypes.addressof(table), self.runners, counters
        steps, kept, sizes = len(runners), self.kept, self.sizes
        out, written, pack, scalar = self.out, self.out or 0, self.pack, self.scalar
        layouts = [(v.shape, v.dtype) for v in self.results]
        if driver is not None and driver.lock is not None:
            go = _locked(go, driver.lock)

        def wrong(code: int) -> Any:
            if code > 0:
                count.launches += code
                runners[code - 1].report()
            return REFUSED

        def again(values: tuple[Any, ...], _alive: Any = (table, kept)) -> Any:
            fresh = [empty(shape, dtype) for shape, dtype in layouts]
            code = go(at, (*values, *fresh, *[empty((size,), np.uint8) for size in sizes]))
            if code:
                return wrong(code)
            count.launches += steps
            if pack is not None:
                return pack(fresh)
            return fresh[0][()] if scalar else fresh[0]

        def into(values: tuple[Any, ...], _alive: Any = (table, kept)) -> Any:
            target = values[written]
            if not target.flags.writeable:
                return REFUSED
            code = go(
                at, (*values, *[empty((size,), np.uint8) for size in sizes]) if sizes else values
            )
            if code:
                return wrong(code)
            count.launches += steps
            return target

        def one(values: tuple[Any, ...], _alive: Any = (table, kept)) -> Any:
            result = empty(shape, dtype)
            code = go(at, values + (result,))
            if code:
                return wrong(code)
            count.launches += steps
            return result

        empty = pool.host_pool.empty
        if out is not None:
            return into
        if len(layouts) != 1 or sizes or pack is not None or scalar:
            return again
        shape, dtype = layouts[0]
        if self.results[0].nbytes < pool.POOLED:
            empty = np.empty  # type: ignore[assignment]
        return one


def guards_of(launches: Iterable[Any]) -> tuple[Any, ...]:
    """What watches over the globals and the like that prepared launches were made with, each once."""
    return tuple(
        {id(p.guard): p.guard for p in launches if p is not None and p.guard is not None}.values()
    )


def _arrays(result: Any, recorded: Recorder) -> list[np.ndarray]:
    """The new arrays that a call gave; none, when they cannot be made again."""
    if isinstance(result, np.generic):
        return _number(result, recorded)
    arrays = list(result) if type(result) in (tuple, list) else [result]
    if any(type(v) is not np.ndarray or not v.flags.c_contiguous or not v.size for v in arrays):
        return []
    shared = any(np.may_share_memory(v, w) for n, v in enumerate(arrays) for w in arrays[:n])
    return [] if shared else arrays


def _number(result: np.generic, recorded: Recorder) -> list[np.ndarray]:
    """The array of rank 0 that a call took its result from; none, where the host may have gone on
    computing.
    """
    for step in reversed(recorded.steps):
        prepared, leaves = step
        for n in prepared.outputs if isinstance(step, Launch) else ():
            base = leaves[n].base
            if type(base) is np.ndarray and base.ndim == 0 and base.dtype == result.dtype:
                plain = result.tobytes() not in [np.array(v, base.dtype).tobytes() for v in (0, 1)]
                return [base] if plain and base.tobytes() == result.tobytes() else []
    return []


def _locked(go: Any, lock: Any) -> Any:
    def run(table: int, objects: tuple[Any, ...]) -> Any:
        with lock:
            return go(table, objects)

    return run


def _nothing(values: tuple[Any, ...]) -> bytes | None:
    return None


class HostCalls:
    """Calls of one kind of function: those that were seen once, and those that can be repeated.

    Attributes:
        ready: by key, functions of a tuple of arguments.
        quick: the same (or what the caller keeps beside it) by what machine code writes of the
            arguments.
        short_of: [what writes it], layouts of arrays and addresses of options; nothing until a call
            can be replayed. In a list, because generated code reads that faster than an attribute.
        on_gpu: the front for arrays on a GPU, which is made when the first one comes.
    """

    def __init__(self) -> None:
        self.ready: dict[Any, Callable[[tuple[Any, ...]], Any]] = {}
        self.quick: dict[bytes | None, Any] = {}
        self.kept: dict[
            bytes | None, list[Any]
        ] = {}  # options, so that no others get their addresses
        self.seen: dict[Any, bool] = {}  # whether to try again
        self.on_gpu: Callable[..., Any] | None = None
        self.short_of: list[Callable[[tuple[Any, ...]], bytes | None]] = [_nothing]
        recording.tables += [self.ready, self.seen, self.quick, self.kept]

    def learn(self, short: bytes | None, values: tuple[Any, ...], again: Any) -> None:
        """Know a call that could be repeated by its short key from now on."""
        if short is not None and all(
            v.dtype is np.dtype(v.dtype.type) for v in values if type(v) is np.ndarray
        ):
            room(self.quick, LIMIT, self.kept)
            self.kept[short] = [v for v in values if type(v) is not np.ndarray]
            self.quick[short] = again

    def long_way(
        self,
        key: Any,
        values: tuple[Any, ...],
        out: int | None,
        call: Callable[[], Any],
        short: bytes | None = None,
    ) -> Any:
        """`call()`, recorded when it comes for the second time.

        Args:
            key: what decides the launches, but for settings: layouts of arrays, other values.
            values: the arguments.
            out: which of them is the array to write, if it is not None; None where no function has
                one.
            call: the call.
            short: the short key, by which a call in place is known from now on (it looks for itself
                whether it is).
        """
        if recording.detours or current().backend != "cpu" or not all(map(plain, values)):
            return call()
        state = self.seen.get(key)
        if state is None:  # may be the only one, and may be measured
            room(self.seen, LIMIT, self.ready)
            self.seen[key] = True
            return call()
        written, place = (None, 0) if out is None else (values[out], out % len(values))
        same: tuple[int, ...] = ()
        if written is not None:
            shared = [
                n
                for n, v in enumerate(values)
                if type(v) is np.ndarray and np.may_share_memory(v, written)
            ]
            same = tuple(n for n in shared if n != place)
            if not all(alike(values[n], written) for n in same):
                return call()  # an error, or work for a copy
            if same:  # in place: other machine code, and a kind of its own
                key = (key, same)
                found = self.ready.get(key)
                if found is not None and (result := found(values)) is not REFUSED:
                    self.learn(short, values, found)
                    return result
                state = self.seen.setdefault(key, True)
        if not state or _host().entry() is None:
            return call()
        settings = recording.settings
        with Recorder() as recorder:
            result = call()
        if settings != recording.settings or any(
            step.prepared.runner.trials for step in recorder.steps if isinstance(step, Launch)
        ):
            return result
        made = HostPlan(recorder, values, result, None if written is None else place, same)
        if made.possible:
            if made.general or key not in self.ready:
                self.ready[key] = made.ready(_host().entry())
                self.short_of[0] = _host().key() or _nothing
        elif made.general and not made.scalar:
            self.seen[key] = False
        return result


def _host() -> Any:
    """What replays launches on arrays of the host."""
    return backend_named("cpu").replay


def plain(value: Any) -> bool:
    """Whether an argument can be kept in a key."""
    return (
        type(value) in _OPTIONS
        or isinstance(value, np.dtype)
        or (type(value) is tuple and all(map(plain, value)))
    )
