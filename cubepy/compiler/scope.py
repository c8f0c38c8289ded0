"""What the front end knows while it walks a kernel: variables, and the code being written."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import Any

from cubepy.compiler import convert
from cubepy.compiler.facts import Facts, Key
from cubepy.compiler.ir import (
    Assign,
    Atomic,
    Barrier,
    Expr,
    Hardware,
    Mem,
    Stmt,
    Store,
    VType,
    walk,
)
from cubepy.compiler.signature import Target, exact
from cubepy.compiler.source import Source
from cubepy.compiler.values import (
    Const,
    MethodValue,
    RangeValue,
    StructValue,
    TailCount,
    TupleValue,
    Value,
    as_tuple,
    describe,
)
from cubepy.errors import CompileError, ComptimeError, DTypeError, KernelTypeError, Location
from cubepy.lang import dtypes as dt

UNCERTAIN = "@uncertain"
"""The name under which a frame keeps those of its names to which some path gave no value."""
NOTHING = Const(frozenset())
EXTENT = re.compile(r"_[ns]\d+$")  # how the lengths and steps of arrays are called


@dataclass
class Frame:
    """One activation of a function: its names, and where it was called from."""

    source: Source
    path: Key
    env: dict[str, Value] = field(default_factory=dict)
    calls: dict[tuple[int, int], int] = field(default_factory=dict)
    returns: bool = False
    returned: Value | None = None  # what returns inside runtime loops leave, in variables
    bare: Location | None = None  # a return without a value
    depth: int = 0


def dotted(key: Key) -> str:
    """The end of a key as a user's name: `pair.low`, `at.0`."""
    name, rest = str(key[0]), list(key[1:])
    while rest:
        part = rest.pop(0)
        if isinstance(part, int):
            rest.pop(0)  # the key repeats the name behind a place in a tuple
        name += f".{part}"
    return name


class Scope:
    """Variables, statements under construction, memory, and the current frame.

    Attributes:
        facts: what was learned so far.
        target, units, plane, index, shared_limit, properties, debug: what code is made for.
        frame: the function that is being walked.
        location: where in the user's source; `failed_at`: the innermost place of an error.
        out: the statements of the current place.
        types, keys, owners: variables, by their names: their types; the keys that they belong to;
            the function and the name that the user gave.
        shared: shared memory of the cube.
        written, read: names of memory.
        barriers: memory of barriers, and how many arrive.
        joined: the types of expressions of which one side is evaluated, by function and place.
        read_early: whether a name was read to which some path gave no value.
        cluster, resident, overlap, axes: as in `Program`.
    """

    def __init__(self, facts: Facts, target: Target, frame: Frame) -> None:
        self.facts, self.target, self.frame = facts, target, frame
        self.units, self.plane, self.index = target.units, target.plane, target.index
        self.shared_limit, self.properties = target.shared_limit, target.properties
        self.debug = target.debug
        self.location: Location | None = None
        self.failed_at: Location | None = None
        self.out: list[Stmt] = []
        self.types: dict[str, VType] = {}
        self.keys: dict[Key, str] = {}
        self.owners: dict[str, tuple[str, str]] = {}
        self.taken: dict[str, None] = {}
        self.copies: dict[str, int] = {}
        self.shared: list[Mem] = []
        self.written: set[str] = set()
        self.read: set[str] = set()
        self.barriers: dict[str, tuple[Mem, int]] = {}
        self.cluster = (1, 1, 1)
        self.resident = 1
        self.overlap = False
        self.axes = False
        self.read_early = False
        self.joined: dict[int, tuple[str, str, VType]] = {}
        self._growing: tuple[dict[Any, Any], ...] = (
            self.types,
            self.keys,
            self.owners,
            self.taken,
            self.joined,
        )

    def state(self) -> tuple[Any, ...]:
        """All of it that changes, but for the statements, to go back to."""
        frame = self.frame
        return (
            (self.out, frame, dict(frame.env), dict(frame.calls), frame.returned, frame.bare),
            tuple(map(len, self._growing)),
            (set(self.written), set(self.read), dict(self.barriers)),
            (len(self.shared), self.cluster, self.resident, self.overlap, self.axes),
        )

    def go_back(self, state: tuple[Any, ...]) -> None:
        """Be what it was when a state was taken."""
        (self.out, frame, frame.env, frame.calls, frame.returned, frame.bare), sizes = state[:2]
        self.frame, self.failed_at = frame, None
        for names, size in zip(self._growing, sizes, strict=True):
            while len(names) > size:
                names.popitem()
        self.copies.clear()
        self.written, self.read, self.barriers = state[2]
        size, self.cluster, self.resident, self.overlap, self.axes = state[3]
        del self.shared[size:]

    def locate(self, node: ast.AST) -> None:
        """Remember where we are in the user's source."""
        self.location = self.frame.source.at(node)

    def emit(self, stmt: Stmt) -> None:
        """Append a statement at the current place."""
        stmt.loc = self.location
        self.out.append(stmt)

    def fresh(self, hint: str) -> str:
        """A variable name not yet used, close to the user's."""
        hint = "".join(c if c.isalnum() or c == "_" else "_" for c in hint).strip("_") or "t"
        if hint[0].isdigit() or EXTENT.search(hint):  # no name, or one of an array's length or step
            hint = f"t{hint}_"
        n = self.copies.get(hint, 0) + 1
        while (name := hint if n == 1 else f"{hint}_{n}") in self.taken:
            n += 1
        self.copies[hint] = n  # the next one need not ask for those before it
        self.taken[name] = None
        return name

    def join(self, node: ast.expr, number: int, vtype: VType) -> None:
        """Note what both sides of `and`, `or` or a conditional expression become."""
        here = str(self.frame.path[-1]), f"@{node.lineno}:{node.col_offset}.{number}"
        self.joined[len(self.joined)] = (*here, vtype)

    def temporary(self, value: Expr, hint: str = "t") -> Expr:
        """Evaluate now, into a new variable."""
        name = self.fresh(hint)
        self.types[name] = value.type
        self.emit(Assign(name, value))
        return Expr("var", value.type, (), name)

    def pinned(self, value: Value, hint: str = "t") -> Value:
        """The value, in a variable unless it is one, is comptime, or counts the lanes of a tail."""
        if isinstance(value, TailCount):
            return value
        if isinstance(value, Expr) and value.op not in ("var", "const", "size", "topology"):
            return self.temporary(value, hint)
        if isinstance(value, TupleValue):
            return TupleValue(tuple(self.pinned(v, hint) for v in value.items))
        return value

    def copied(self, value: Value, variables: set[str] | None = None) -> Value:
        """The value in variables of its own, which no assignment changes; if given, only what reads
        some variables.
        """
        if isinstance(value, Expr):
            names = {e.attr for e in value.walk() if e.op == "var"}
            fixed = value.op == "const" if variables is None else names.isdisjoint(variables)
            return value if fixed else self.temporary(value)
        return self.mapped(value, lambda part: self.copied(part, variables))

    def variables_of(self, names: Set[str]) -> set[str]:
        """The variables that hold local names, and the parts of aggregates."""
        path, size = self.frame.path, len(self.frame.path)
        return {
            variable
            for key, variable in self.keys.items()
            if len(key) > size and key[size] in names and key[:size] == path
        }

    def mapped(self, value: Value, change: Callable[[Value], Value]) -> Value:
        """An aggregate with its parts changed; anything else as it is."""
        if isinstance(value, TupleValue):
            return replace(value, items=tuple(map(change, value.items)))
        if isinstance(value, StructValue):
            return StructValue(value.type, tuple((n, change(v)) for n, v in value.fields))
        if isinstance(value, RangeValue):
            start, stop, step = map(change, (value.start, value.stop, value.step))
            return replace(value, start=start, stop=stop, step=step)
        if isinstance(value, MethodValue):
            return MethodValue(change(value.owner), value.name)
        return value

    def keep(self, value: Value, position: int) -> Value:
        """A value that was evaluated when `position` statements stood, made safe from the writes
        emitted since.

        Python evaluates from left to right: a load that waits in an expression must not move past a
        store of an operand to its right.
        """
        if isinstance(value, TupleValue):
            return TupleValue(tuple(self.keep(v, position) for v in value.items))
        if not (isinstance(value, Expr) and value.touches_memory):
            return value
        if not any(
            isinstance(s, (Store, Atomic, Barrier, Hardware)) for s in walk(self.out[position:])
        ):
            return value
        name = self.fresh("t")
        self.types[name] = value.type
        self.out.insert(position, Assign(name, value, loc=self.location))
        return Expr("var", value.type, (), name)

    def variable(self, key: Key, vtype: VType) -> Expr:
        """The variable of a key, declared with a type at first sight."""
        name = self.keys.get(key)
        if name is None:
            name = self.keys[key] = self.fresh(str(key[-1]))
            self.types[name] = self.facts.type_of(key) or vtype
            path = self.frame.path
            if key[: len(path)] == path:
                self.owners[name] = str(path[-1]), dotted(key[len(path) :])
        return Expr("var", self.types[name], (), name)

    def _expected(self, a: Value, b: Value) -> VType | None:
        """The type of a variable that begins with a number and goes on with a runtime value, if it
        is not the number's.

        The walk would find it out at the first such assignment, and go back once more.
        """
        number, other = (a, b) if isinstance(a, Const) else (b, a)
        if not isinstance(number, Const) or not isinstance(other, Expr):
            return None
        begin = convert.runtime(number, self.index)
        try:
            return self._stronger(begin, other)
        except CompileError:  # the assignment says where
            return None

    def _stronger(self, var: Expr, value: Expr) -> VType | None:
        """The type that a weak variable gets which is given a value, if it is another one."""
        have, vt = var.type, value.type
        if not have.weak or (vt.weak and (have.dtype.is_float or not vt.dtype.is_float)):
            return None
        met = convert.common_dtype(var, value, self.index)[0]
        return VType(met, max(have.lanes, vt.lanes), vt.weak)

    def user_names(self) -> dict[str, str]:
        """The user's names of variables; those of loops have a place before the name, and what a
        function gives back is none.
        """
        known = self.owners.items()
        return {v: n.rpartition(").")[2] for v, (_, n) in known if not n.startswith("@")}

    def assign(self, name: str, value: Value, key: Key | None = None) -> Value:
        """Give a local name a value; runtime values go into the name's one variable.

        Raises:
            DTypeError: the variable already has another dtype.
        """
        key = key or (*self.frame.path, name)
        if (
            isinstance(value, Const)
            and isinstance(value.value, tuple)
            and self.facts.parts_change(key)
        ):
            value = as_tuple(value)
        if isinstance(value, StructValue):
            struct = self._read_first(name, value, key)
            fields = tuple((n, self.assign(f"{name}.{n}", v, (*key, n))) for n, v in struct.fields)
            return StructValue(value.type, fields)
        if isinstance(value, TupleValue):
            items = self._read_first(name, value, key).items
            return TupleValue(
                tuple(self.assign(f"{name}.{i}", v, (*key, i, name)) for i, v in enumerate(items))
            )
        if isinstance(value, RangeValue):
            parts = {"start": value.start, "stop": value.stop, "step": value.step}
            start, stop, step = (self.assign(f"{name}.{n}", v, (*key, n)) for n, v in parts.items())
            return replace(value, start=start, stop=stop, step=step)
        if isinstance(value, MethodValue):
            return MethodValue(
                self.assign(f"{name}.owner", value.owner, (*key, "owner")), value.name
            )
        if isinstance(value, Const):
            if not value.is_number or not self.facts.is_runtime(key):
                return value
        elif not isinstance(value, Expr):
            return value
        return self.assign_runtime(key, name, convert.runtime(value, self.index))

    def _read_first(self, name: str, value: Any, key: Key) -> Any:
        """An aggregate whose parts read none of the variables that assigning it to `key`
        overwrites.
        """
        last, size = key[-1], len(key)
        targets = {
            n
            for k, n in self.keys.items()
            if len(k) >= size and k[size - 1] == last and k[:size] == key
        }
        if targets:
            targets -= self._staying(name, value, key)
        return self.copied(value, targets) if targets else value

    def _staying(self, name: str, value: Value, key: Key) -> set[str]:
        """The variables of `key` that are given their own values: a tuple that grows has some."""
        if isinstance(value, TupleValue):
            parts = [
                self._staying(f"{name}.{i}", v, (*key, i, name)) for i, v in enumerate(value.items)
            ]
        elif isinstance(value, StructValue):
            parts = [self._staying(f"{name}.{n}", v, (*key, n)) for n, v in value.fields]
        else:
            own = self.keys.get(key)
            mine = isinstance(value, Expr) and value.op == "var" and value.attr == own
            return {str(own)} if mine else set()
        return set().union(*parts)

    def assign_runtime(self, key: Key, name: str, value: Expr) -> Expr:
        """Give the one variable of a name a value."""
        vt = value.type
        var = self.variable(key, vt)
        have = var.type
        if value == var:
            return var
        if have != vt:
            stronger = self._stronger(var, value)
            if stronger is not None:
                raise self.facts.make_type(key, stronger)
            if not have.lanes and vt.lanes:
                known = self.facts.type_of(key)
                if known is None or known.lanes == 0:
                    if have.weak:
                        raise self.facts.make_type(key, VType(vt.dtype, vt.lanes))
                    raise KernelTypeError(
                        f"{name!r} is a scalar ({have}) and cannot become {vt}",
                        hint=f"start it with cb.splat(..., {vt.lanes})",
                    )
            if have.lanes and not vt.lanes and not vt.weak:
                raise KernelTypeError(
                    f"the variable {name!r} is a {have} and is given a scalar {vt}",
                    hint=f"use another name, or cb.splat(..., {have.lanes})",
                )
            if (
                not vt.weak
                and have.dtype is not vt.dtype
                and dt.promote(have.dtype, vt.dtype) is not have.dtype
            ):
                raise DTypeError(
                    f"the variable {name!r} is {have} and is given {vt}: a variable has one "
                    "dtype for its whole life",
                    hint=f"write cb.cast(..., cb.{have.dtype.name}), or use another name",
                )
            value = convert.storable(value, have.dtype, have.lanes, f"the variable {name!r}")
            if have.weak:
                value = (
                    Expr(value.op, have, value.args, value.attr) if value.op == "const" else value
                )
        self.emit(Assign(str(var.attr), value))
        return var

    def same(self, a: Value, b: Value) -> bool:
        """Whether two bindings of a name are one and the same."""
        if a is b:
            return True
        if isinstance(a, Const) and isinstance(b, Const):
            return a.value is b.value or bool(exact(a.value) == exact(b.value))
        if isinstance(a, StructValue) and isinstance(b, StructValue):
            return a.type is b.type and all(
                self.same(x, y) for (_, x), (_, y) in zip(a.fields, b.fields, strict=True)
            )
        if isinstance(a, TupleValue) and isinstance(b, TupleValue):
            return len(a.items) == len(b.items) and all(map(self.same, a.items, b.items))
        if isinstance(a, MethodValue) and isinstance(b, MethodValue):
            return a.name == b.name and self.same(a.owner, b.owner)
        if isinstance(a, Expr) and isinstance(b, Expr) and a is not b:
            one, other = ([exact(e.attr) for e in v.walk() if e.op == "const"] for v in (a, b))
            return a == b and one == other
        return a == b

    def differ(self, name: str, a: Value, b: Value, key: Key | None = None) -> None:
        """Two paths leave a name with different bindings: make it one runtime variable, or refuse.

        Raises:
            ComptimeError: the bindings have no common runtime form.
        """
        if self.same(a, b):
            return
        key = key or (*self.frame.path, name)
        if isinstance(a, StructValue) and isinstance(b, StructValue) and a.type is b.type:
            for (n, x), (_, y) in zip(a.fields, b.fields, strict=True):
                self.differ(f"{name}.{n}", x, y, (*key, n))
            return
        if (isinstance(a, Const) and isinstance(b, TupleValue)) or (
            isinstance(b, Const) and isinstance(a, TupleValue)
        ):
            a, b = as_tuple(a), as_tuple(b)
        if (
            isinstance(a, Const)
            and isinstance(b, Const)
            and isinstance(a.value, tuple)
            and isinstance(b.value, tuple)
        ):
            a, b = as_tuple(a), as_tuple(b)
        if isinstance(a, TupleValue) and isinstance(b, TupleValue) and len(a.items) == len(b.items):
            for i, (x, y) in enumerate(zip(a.items, b.items, strict=True)):
                self.differ(f"{name}.{i}", x, y, (*key, i, name))
            return
        if all(
            isinstance(v, Expr) or (isinstance(v, Const) and v.is_number) for v in (a, b)
        ) and not self.facts.is_runtime(key):
            raise self.facts.make_runtime(key, self._expected(a, b))
        if isinstance(a, Const) or isinstance(b, Const):
            raise ComptimeError(
                f"{name!r} is comptime here and changes in a runtime loop or branch"
            )
        if isinstance(a, Expr) and isinstance(b, Expr):
            raise CompileError(
                f"two paths leave {name!r} in different variables: this is a fault of the compiler"
            )
        raise ComptimeError(
            f"{name!r} would be {describe(a)} or {describe(b)}, depending on a runtime condition",
            hint="a name may only differ between branches in its runtime value",
        )
