"""The text by which a call looks at its tensors: whether they are of the program's kind, and where
their arrays are. What stays from call to call is looked at once (see `plans.steady`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.compiler.reads import same
from cubepy.compiler.signature import exact
from cubepy.runtime.device import current
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tensor.program.form import Paths
from cubepy.tensor.program.plans.anew import parts_of
from cubepy.tensor.program.plans.steady import Steady, changed, now
from cubepy.tensor.program.trace import Given, Source, Trace
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Handle, Value

Layouts = Callable[[tuple[Any, ...]], Any]
_programs = itertools.count(1)


def layouts_of(arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Dtypes, shapes and strides of arrays."""
    return tuple([(type(a), a.dtype, a.shape, a.strides) for a in arrays])


class Looks:
    """The lines that look.

    Args:
        trace: what the function did.
        short: what writes a key of arrays.

    Attributes:
        lines: of the function.
        scope: the values of its other names.
        names: of handles, by where they are found.
        paths: expressions for the leaves of the arguments.
        known: names of arrays whose layouts are asked, and the arrays.
        kept: names that lines give which are skipped when nothing was exchanged.
        noted: where such lines are, and what `unless_noted` gets.
    """

    def __init__(self, trace: Trace, short: Layouts | None) -> None:
        self.trace, self.short, self.device = trace, short, current()
        self.scope: dict[str, Any] = {
            "device": self.device,
            "same": same,
            "Dense": Dense,
            "Steady": Steady,
            "now": now,
            "changed": changed,
            "number": next(_programs),
        }
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        self.known: list[tuple[str, Any]] = []
        self.kept: list[str] = []
        self.noted: list[tuple[int, int, tuple[str, list[str], list[str], bool]]] = []

    def add(self, line: str) -> None:
        """A line of the function."""
        self.lines.append(line)

    def miss(self, condition: str) -> None:
        """The call is not of this kind where a condition holds."""
        self.lines += [f"if {condition}:", "    return MISS"]

    def once(self, memo: str, look: Callable[[], Any], weights: bool = False) -> None:
        """Lines that are skipped until a handle is exchanged.

        Args:
            memo: what was seen of the handles.
            look: writes the lines.
            weights: whether they give what is made of weights.
        """
        lines, known, self.lines, self.known, self.kept = self.lines, self.known, [], [], []
        look()
        if self.known:
            self.layouts()
        parts = memo, self.lines, [*self.kept], weights
        self.lines = lines + unless_noted(*parts)
        self.noted.append((len(lines), len(self.lines), parts))
        self.known = known

    def name(self, letter: str, value: Any) -> str:
        """A new name for a value."""
        found = f"{letter}{len(self.scope)}"
        self.scope[found] = value
        return found

    def arguments(self, structure: Any, leaves: Sequence[Any], fixed: set[int]) -> None:
        """The leaves of the arguments, and whether they are of the kind."""
        paths = Paths()
        if structure[2] == (dict, ()):
            structure = (structure[0], structure[1])
            self.miss("kwargs")
        _, *parts = structure
        for part, at in zip(parts, ("args", "kwargs"), strict=False):
            paths.add(part, at)
        self.scope |= {f"key{n}": key for n, key in enumerate(paths.keys)}
        self.scope["exact"] = exact
        self.paths = paths.found
        for check in paths.checks:
            self.miss(f"not ({check})")
        first: dict[int, int] = {}
        plain = set(range(len(leaves)))
        for k, (at, checks, numbers) in enumerate(paths.steady):

            def look(checks: list[str] = checks, numbers: range = numbers) -> None:
                for check in checks:
                    self.miss(f"not ({check})")
                for n in numbers:
                    self.leaf(n, leaves, fixed, first)

            if only_read(self.trace, leaves):
                self.add(f"memo{k} = {at}.memos.get(number) or {at}.memo(number)")
                self.once(f"memo{k}", look)
            else:
                look()
            plain -= set(numbers)
        for n in sorted(plain):
            self.leaf(n, leaves, fixed, first)

    def leaf(self, n: int, leaves: Sequence[Any], fixed: set[int], first: dict[int, int]) -> None:
        """A leaf of the arguments; `first` are the numbers of handles that came before."""
        leaf = leaves[n]
        self.add(f"a{n} = {self.paths[n]}")
        if isinstance(leaf, Handle):
            exchanged = any(e.handle.kind == "argument" for e in self.trace.effects)
            for other, number in first.items():
                if other == id(leaf):
                    self.miss(f"a{n} is not a{number}")
                elif exchanged:
                    self.miss(f"a{n} is a{number}")
            first.setdefault(id(leaf), n)
            self.names[Source("argument", n)] = f"a{n}"
            self.miss(f"type(a{n}) is not {self.name('type', type(leaf))}")
            self.tensor(n, f"a{n}", leaf.value)
        elif type(leaf) is float and n not in fixed:
            self.miss(f"type(a{n}) is not float")
        else:
            self.scope[f"k{n}"] = leaf
            self.miss(f"a{n} is not k{n} and not same(a{n}, k{n})")

    def tensor(self, n: int | str, handle: str, value: Value, reads: bool = True) -> str | None:
        """The array of a handle, which has a storage as a value had; if it is read."""
        self.add(f"v{n} = {handle}.value")
        if self.trace.differentiable:
            self.kept.append(f"v{n}")
        store = value.storage
        if reads:
            self.add(f"s{n} = v{n}.storage")
        self.miss(f"v{n}.needs_grad is not {value.needs_grad}")
        if value.needs_grad:
            self.miss(f"v{n}.call is not None")
        if not reads:
            return None
        if type(store) is not Dense:
            self.miss(f"s{n} is not {self.name('store', store)}")
            return None
        self.miss(f"type(s{n}) is not Dense")
        if store.device is not self.device:
            name = self.name("device", store.device)
            self.miss(f"s{n}.device is not {name} and s{n}.device != {name}")
        else:
            self.miss(f"s{n}.device is not device and s{n}.device != device")
        self.add(f"x{n} = s{n}.array")
        self.known.append((f"x{n}", store.array))
        self.kept.append(f"x{n}")
        return f"x{n}"

    def handle(self, source: Source) -> str:
        """The name of a handle."""
        found = self.names.get(source)
        if found is None:
            found = self.names[source] = self.name("h", source.of)
        return found

    def layouts(self) -> None:
        """Whether arrays have the layouts that they had."""
        short = self.short
        names = ", ".join([f"{name}, " for name, _ in self.known]).replace(", , ", ", ")
        arrays = tuple([array for _, array in self.known])
        found = None
        if short is not None and all(type(a) is np.ndarray for a in arrays):
            found = short(arrays)
        if found is None:
            short, found = layouts_of, layouts_of(arrays)
        differ = f"{self.name('short', short)}(({names})) != {self.name('known', found)}"
        if all(type(a) is DeviceArray for a in arrays):  # whose layouts are interned
            interned = self.name("interned", tuple([a.layout for a in arrays]))
            here = "".join(f"{name}.layout, " for name, _ in self.known)
            differ = f"({here}) != {interned} and {differ}"
        self.miss(differ)

    # The end


def unless_noted(
    memo: str,
    lines: Sequence[str],
    names: Sequence[str],
    weights: bool,
    bundle: tuple[str, str] | None = None,
) -> list[str]:
    """Lines that look at some handles unless these are noted (see `plans.steady`).

    Args:
        memo: what was seen of them.
        lines: that look, and give names values.
        names: those that are needed afterwards.
        weights: whether some of them are made of weights, which have to hold.
        bundle: names of the addresses of all, and of the tuple of them, which the call needs
            instead.
    """
    all_names = "".join(f"{name}, " for name in names)
    holds = " and seen[2] is prepared.state and seen[2][1] == touched[0]" if weights else ""
    note = f"{memo}.note(noted, ({all_names}){', state' if weights else ''})"
    seen = [f"{all_names}= seen[1]" if names else "pass"]
    if bundle is not None:
        words, arrays = bundle
        holds += " and seen[3] is not None"
        seen = [f"{arrays} = seen[1]", f"{words} = seen[3]"]
        lines = [*lines, f"{arrays} = ({all_names})", f"{words} = words_of({arrays})"]
        note = f"{memo}.note(noted, {arrays}, {'state' if weights else 'None'}, {words})"
    return [
        f"seen = {memo}.seen",
        f"if seen[0] is now[0]{holds}:",
        *[f"    {line}" for line in seen],
        "else:",
        f"    noted = {memo}.noted",
        *[f"    {line}" for line in lines],
        *(["    if state[1] == touched[0]:", f"        {note}"] if weights else [f"    {note}"]),
    ]


def held_steadily(trace: Trace) -> list[int]:
    """The inputs that are handles from outside which the call gives no other values."""
    given = {id(e.handle.of) for e in trace.effects if isinstance(e, Given)}
    return [n for n, s in enumerate(trace.sources) if s.kind == "held" and id(s.of) not in given]


def only_read(trace: Trace, leaves: Sequence[Any]) -> bool:
    """Whether arguments are different tensors of which nothing but their elements is needed."""
    handles = [id(leaf) for leaf in leaves if isinstance(leaf, Handle)]
    back = any(type(part) is Source for part in parts_of(trace.result))
    needed = trace.effects or trace.gradients or trace.differentiable
    return len(set(handles)) == len(handles) and not back and not needed


def guarded(exchanged: str, others: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Lines that give handles from outside other values, and say so.

    Args:
        exchanged: what knows the handles that were there when the call was traced.
        others: names of those that are arguments.
        lines: that give.
    """
    say = [f"if now[0] is not {exchanged}.notes or len(now[0]) != {exchanged}.count:"]
    say += [f"    {exchanged}.look()"]
    if others:
        say += [f"changed(({', '.join(others)}, ))"]
    inner = [f"    {line}" for line in lines]
    return [*say, "try:", *inner, "finally:", *[f"    {line}" for line in say]]
