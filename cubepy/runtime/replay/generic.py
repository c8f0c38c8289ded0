"""Plans for all lengths that a call may have: what a call does with one length is worked out for
others without doing it again.

When a call comes a second time with other lengths only, the function runs on arrays whose lengths
are symbols (`symbolic`), with nothing launched. What it launches is a plan whose words are
expressions of the lengths, with a guard for each answer that it got about them. For a new length
the guards are asked and the words computed, which takes a tenth of the time of the call itself. A
length that answers differently goes the long way, and gives another plan.

Before such a plan is kept, it is compared with what the same call did on its arrays.
"""

from __future__ import annotations

import ctypes
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import ne
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.generated import written
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.layout import Layout, layout_of
from cubepy.runtime.memory.spans import meet
from cubepy.runtime.replay.arguments import ON_GPU, REFUSED, TENSORS, Token, array_on_gpu
from cubepy.runtime.replay.gpu import GpuOperands
from cubepy.runtime.replay.plan import Plan
from cubepy.runtime.replay.symbolic import SymbolicRecorder
from cubepy.runtime.stats import counters
from cubepy.runtime.symbolic.number import MOST, Needed, Symbol, Trace
from cubepy.runtime.tables import room

LIMIT = 256
"""Kinds of calls of one function whose plans are kept."""
VARIANTS = 64
"""Plans of one kind of call, for lengths that answer differently."""
ASKED = 8
"""Of those, how many are asked whether they fit new lengths."""
TRIALS = 48
"""How often a function runs on symbols until all that it needs to know is known."""
IDLE = 24
"""Plans that are made in a row without that one of them is of use; then there are no more."""
CHANGES = 3
"""Different changes of lengths, from a call to the one that is most like it, that are taken for a
length that varies; more are another layer of a model."""
SEEN = 32
"""Calls of a kind whose lengths are remembered for that."""
LONG = 200
"""Lines of a plan's text above which lengths that do not vary are fixed: the choices of a
convolution are a tenth as long then."""

Again = Callable[[tuple[Any, ...]], Any]


def kind_of(key: Any) -> tuple[tuple[Any, ...], list[int]]:
    """A key without the lengths of its arrays, and the lengths (and strides, of arrays that have
    gaps).
    """
    parts: list[Any] = []
    lengths: list[int] = []
    for part in key:
        kind = type(part)
        if kind is Layout:
            layout = part
        elif kind is Token:
            layout = part.layout
        elif kind is tuple and len(part) == 2 and type(part[1]) is Layout:
            layout, kind = part[1], part[0]
        else:
            parts.append(part)
            continue
        contiguous = layout.contiguous
        parts.append((kind, layout.dtype.num, layout.device, layout.ndim, contiguous))
        lengths += layout.shape
        if not contiguous:
            lengths += layout.strides
    return tuple(parts), lengths


class Generic:
    """A plan whose words are expressions of lengths.

    Args:
        plan: of a record with symbols.
        trace: of the symbols.
        sizes: bytes of memory that a repetition takes.
        inputs: the number of lengths.
    """

    def __init__(self, plan: Plan, trace: Trace, sizes: Sequence[Any], inputs: int) -> None:
        table, operands, results = plan.table, plan.operands, _Results()
        words = table.flat(table.head())
        self.slots = [(at, results.add(w)) for at, w in enumerate(words) if type(w) is Symbol]
        self.words = array("q", [0 if type(w) is Symbol else w for w in words])
        self.pool = operands.gpu.pool(operands.ordinal)  # type: ignore[attr-defined]
        self.sizes = [(f"size_b{k}", results.add(n)) for k, n in enumerate(sizes)]
        first = table.first_word(len(table.head()))
        self.maps = [
            (8 * (first + at), runner.encoded, _Box(box), results.of(box.array.shape, box.strides))
            for at, runner, box in table.tensor_maps
        ]
        self.text, self.scope = plan.text()
        self.code: CodeType = written(self.text, "<repeated call>", {}).__code__
        self.layouts, self.offsets = [], []
        for name, value in self.scope.items():
            if isinstance(value, Layout):
                steps = None if value.contiguous else value.strides
                self.layouts.append(
                    (name, value.dtype, value.device, results.of(value.shape, steps))
                )
            elif type(value) is Symbol:
                self.offsets.append((name, results.add(value)))
        nothing = dict.fromkeys([n for n, *_ in self.layouts] + [n for n, _ in self.offsets])
        self.scope |= nothing  # of symbols
        self.alive = [(r.exe, r.function, r.config) for r in table.runners]
        table.clear()
        source, names = trace.written(results.all, inputs)
        self.lines = source.count("\n")
        self.fit = written(source, "<lengths of a call>", dict(names))

    def again(self, lengths: Sequence[int]) -> Again | None:
        """The function that repeats calls of these lengths; None where a guard does not hold."""
        try:
            found = self.fit(*lengths)
        except (ArithmeticError, ValueError):
            return None
        if found is None:
            return None
        words = self.words[:]
        for at, k in self.slots:
            words[at] = found[k]
        table = (ctypes.c_int64 * len(words)).from_buffer(words)
        start = ctypes.addressof(table)
        for at, encoded, box, where in self.maps:
            made = encoded(box.of(*_taken(found, where)))
            ctypes.memmove(start + at, made, len(made))
        scope = self.scope.copy()
        scope["table"], scope["alive"] = start, (table, self.alive)
        for name, k in self.sizes:
            scope[name] = self.pool.size_of(found[k])
        for name, k in self.offsets:
            scope[name] = found[k]
        for name, dtype, device, where in self.layouts:
            scope[name] = layout_of(*_taken(found, where), dtype, device)
        return FunctionType(self.code.replace(), scope)


def _taken(found: Sequence[Any], where: tuple[int, int, bool]) -> tuple[Any, Any]:
    """Shape and strides (None: C order) among results."""
    begin, axes, given = where
    shape = tuple(found[begin : begin + axes])
    return shape, tuple(found[begin + axes : begin + 2 * axes]) if given else None


class _Results:
    """What `fit` gives, while it is put together.

    Attributes:
        all: numbers and symbols, in order.
    """

    def __init__(self) -> None:
        self.all: list[Any] = []

    def add(self, value: Any) -> int:
        """A number more; gives where it is."""
        self.all.append(value)
        return len(self.all) - 1

    def of(self, shape: Sequence[Any], strides: Sequence[Any] | None) -> tuple[int, int, bool]:
        """Lengths and strides; gives where the first is, the number of axes, and whether there are
        strides.
        """
        begin = len(self.all)
        self.all += shape
        self.all += strides or ()
        return begin, len(shape), strides is not None


class _Box:
    """A tensor map without its array: what a driver needs to encode it for one that is
    somewhere.
    """

    def __init__(self, source: Any) -> None:
        self.box, self.swizzle, self.tf32 = source.box, source.swizzle, source.tf32
        self.dtype = source.array.dtype

    def of(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """The map of an array of this shape."""
        key = (self.dtype, shape, strides, self.box, self.swizzle, self.tf32)
        array_ = SimpleNamespace(shape=shape, dtype=self.dtype)
        how = {"box": self.box, "swizzle": self.swizzle, "tf32": self.tf32}
        return SimpleNamespace(address=1 << 20, array=array_, strides=strides, key=key, **how)


class Kinds:
    """Calls of one function by kind: what was found out about other lengths."""

    def __init__(self) -> None:
        self.known: dict[Any, Kind] = {}

    def repeat(self, key: Any, values: tuple[Any, ...]) -> tuple[Again | None, Any]:
        """What repeats a call of other lengths than those before, and its result; None and REFUSED
        where there is no plan for it.
        """
        kind, lengths = kind_of(key)
        known = self.known.get(kind)
        if known is not None and max(lengths, default=0) < MOST:
            plans = known.plans(lengths)
            for n in plans.order(lengths):
                again = plans.generics[n].again(lengths)
                if again is not None:
                    result = again(values)
                    if result is not REFUSED:
                        plans.used(n, lengths)
                        counters.lengths += 1
                        return again, result
        return None, REFUSED

    def learn(
        self,
        key: Any,
        values: tuple[Any, ...],
        plan: Plan,
        call: Callable[[Sequence[Any]], Any],
        out: int | None,
    ) -> None:
        """Make a plan for other lengths of a call, if it came with other ones before.

        Args:
            key: of the call.
            values: the arguments.
            plan: what it did.
            call: the function of arguments like these.
            out: which of them is the array that the call gives back, if it was given one.
        """
        kind, lengths = kind_of(key)
        known = self.known.get(kind)
        if known is None:
            room(self.known, LIMIT)
            self.known[kind] = Kind(lengths)
            return
        if not known.varies(lengths) or not known.plans(lengths).open():
            return
        found = symbolic(values, call, out, plan, known)
        if found is not None and found.lines > LONG and not known.long:
            known.long = True
            found = symbolic(values, call, out, plan, known) or found
        if found is not None and compared(found, lengths, plan):
            known.plans(lengths).add(found, lengths)


class Kind:
    """What is known of calls that differ in lengths alone.

    Attributes:
        seen: lengths of calls that were looked at, the last ones.
        fixed: numbers that had to be known.
        now: lengths that are other ones in the call before that is most like this one.
        varied: lengths that were, ever.
        long: whether lengths that do not vary are fixed; then each of their values has plans of
            its own.
        reason: why the last plan could not be made.
    """

    def __init__(self, lengths: list[int]) -> None:
        self.seen = deque([lengths], SEEN)
        self.long, self.reason = False, ""
        self.fixed: frozenset[Any] = frozenset()
        self.now: set[int] = set()
        self.varied: set[int] = set()
        self.parts: dict[tuple[int, ...], Plans] = {}

    def plans(self, lengths: list[int]) -> Plans:
        """Those for calls of these lengths."""
        steady = (n for k, n in enumerate(lengths) if k not in self.varied) if self.long else ()
        which = tuple(steady)
        found = self.parts.get(which)
        if found is None:
            room(self.parts, LIMIT)
            found = self.parts[which] = Plans(len(lengths))
        return found

    def varies(self, lengths: list[int]) -> bool:
        """Whether a length is another one now, as the lengths of sentences are."""
        like = min(self.seen, key=lambda before: sum(map(ne, before, lengths)))
        pairs = [*zip(like, lengths, strict=True)]
        self.now = {n for n, (a, b) in enumerate(pairs) if a != b}
        if not self.now:
            return False
        self.seen.append(lengths)
        if len({pair for pair in pairs if pair[0] != pair[1]}) > CHANGES:
            return False
        if self.long and not self.now <= self.varied:
            self.parts = {}
        self.varied |= self.now
        return True

    def known_numbers(self) -> frozenset[Any]:
        """Keys of the numbers that a plan starts with as known."""
        steady = set(range(len(self.seen[0]))) - self.varied if self.long else ()
        return self.fixed.union([("in", n) for n in steady]) - {("in", n) for n in self.varied}


class Plans:
    """Plans for lengths that answer differently.

    Attributes:
        generics: the plans.
        where: for each of them, the lengths that it was used for last.
        last: the one that was used last.
        idle: how many were tried since the last time that one was of use.
    """

    def __init__(self, lengths: int) -> None:
        self.generics: list[Generic] = []
        self.where = np.zeros((VARIANTS, lengths), np.int64)
        self.last = self.idle = 0

    def open(self) -> bool:
        """Whether to make one more."""
        self.idle += 1
        return self.idle <= IDLE and len(self.generics) < VARIANTS

    def order(self, lengths: Sequence[int]) -> Iterable[int]:
        """Which plans to ask: the last one that was used, then by how near to these lengths they
        were used.
        """
        count = len(self.generics)
        if count < 3:
            return range(count) if self.last == 0 else (1, 0)
        distance = np.abs(self.where[:count] - lengths).sum(1)
        return distance.argsort()[:ASKED].tolist()

    def used(self, n: int, lengths: Sequence[int]) -> None:
        """A plan was of use."""
        self.idle, self.last = 0, n
        self.where[n] = lengths

    def add(self, generic: Generic, lengths: Sequence[int]) -> None:
        """One more plan, made for a call of these lengths."""
        self.last = len(self.generics)
        self.where[self.last] = lengths
        self.generics.append(generic)


def symbolic(
    values: Sequence[Any],
    call: Callable[[Sequence[Any]], Any],
    out: int | None,
    plan: Plan,
    known: Kind,
) -> Generic | None:
    """The plan of a call whose lengths are symbols; None where there is none, or none that other
    lengths could use.
    """
    positions = [n for n, v in enumerate(values) if type(v) in ON_GPU]
    arrays = [a for n in positions if (a := array_on_gpu(values[n])) is not None]
    if len(arrays) < len(positions) or _overlap(arrays):
        return None
    fixed = known.known_numbers()
    try:
        for _ in range(TRIALS):
            recorded = SymbolicRecorder(Trace(fixed))
            opened = [recorded.array(a) for a in arrays]
            try:
                made = _made(recorded, values, positions, opened, call, out, plan)
            except Needed as number:
                fixed |= {number.key}
                if number.key in {("in", n) for n in known.now}:
                    return None
                continue
            known.fixed |= {key for key in fixed if not known.long or type(key) is int}
            return made
        raise Unsuitable("a call that asks for ever more numbers")
    except Exception as error:  # code that needs plain numbers, or a call that is no plan
        known.reason = f"{type(error).__name__}: {error}"
        return None


def _made(
    recorded: SymbolicRecorder,
    values: Sequence[Any],
    positions: Sequence[int],
    opened: list[DeviceArray],
    call: Callable[[Sequence[Any]], Any],
    out: int | None,
    plan: Plan,
) -> Generic:
    """The plan of a call on arrays with symbols.

    Raises:
        Needed: a number has to be known.
        Exception: whatever the call raises.
    """
    given = list(values)
    for n, one in zip(positions, opened, strict=True):
        given[n] = values[n].__cubepy_wrap__(one) if type(values[n]) in TENSORS else one
    with recorded:
        result = call(given)
    operands = GpuOperands(recorded, values, result, out, opened)
    sizes, operands.sizes = operands.sizes, [0] * len(operands.sizes)
    made = Plan(recorded, result, out, operands, plan.wrap)
    return Generic(made, recorded.trace, sizes, recorded.inputs)


def _overlap(arrays: Sequence[DeviceArray]) -> bool:
    """Whether arrays share memory, but do not begin at the same place."""
    return any(
        one.address != other.address and meet(one, other)
        for k, one in enumerate(arrays)
        for other in arrays[:k]
    )


def compared(generic: Generic, lengths: Sequence[int], plan: Plan) -> bool:
    """Whether a plan of expressions does, for the lengths of a call, what the call did."""
    again: Any = generic.again(lengths)
    if again is None:
        return False
    table = plan.table
    scope = again.__globals__
    mine = list(scope["alive"][0]) if plan.steps else []
    theirs = table.flat(table.head()) if plan.steps else []
    if len(mine) != len(theirs):
        return False
    moving = table.moving()
    if any(a != b for n, (a, b) in enumerate(zip(mine, theirs, strict=True)) if n not in moving):
        return False
    text, wanted = plan.text()
    return text == generic.text and all(
        scope[name] == value
        for name, value in wanted.items()
        if name.startswith(("size_", "offset", "layout"))
    )
