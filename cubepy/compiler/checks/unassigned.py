"""Variables that a path may read before it has given them a value: they hold zero, the same on
every backend, and validate mode says who reads them. (Only programs are looked at in whose walk a
name was read that some path, or a loop, may not have assigned.)

A name that only one side of an `if` assigns, or a loop that may not turn, is known behind it. What
it holds where nothing was assigned would be what the unit before left there. So such a variable is
set to zero in front of the first statement that mentions it, outside of loops, in whose later
turns it keeps its value. Whether a variable may be read too early is a question of definite
assignment (Gosling et al., The Java Language Specification, chapter 16): conditions are not looked
into, so that `if c: x = 1` and a later `if c: use(x)` are allowed and set to zero too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cubepy.compiler import convert
from cubepy.compiler.ir import (
    Assign,
    Break,
    Continue,
    DebugAssert,
    Expr,
    For,
    Hardware,
    If,
    Program,
    Stmt,
    VType,
    While,
    children,
    expressions,
)
from cubepy.compiler.webs import target_of, variables_of
from cubepy.lang import dtypes as dt
from cubepy.lang.words import read_too_early

BOOL = VType(dt.bool_)


def set_unassigned(program: Program, names: dict[str, str]) -> None:
    """Let variables of the user that may be read before they have a value begin with zero; in
    validate mode, let the program fail where one is.

    Args:
        names: the user's names of variables. What the walk adds (flags, what a return leaves) is
            read only where it has been given a value.
    """
    early = early_reads(program) & names.keys()
    if not early:
        return
    if program.mode == "validate":
        watched = _Watched(program, {name: names[name] for name in sorted(early)})
        program.body = watched.block(program.body)
        early |= set(watched.beside.values())
    _begin(program, early)


def early_reads(program: Program) -> set[str]:
    """The variables that some path reads before they have a value."""
    search = _Search(program.variables)
    first = 0
    for a in program.arguments:
        if a.scalar is not None:
            first |= search.bits[a.path]
    search.block(program.body, first)
    return search.early


class _Search:
    """A walk that knows which variables have a value for sure: a bit of a number for each."""

    def __init__(self, variables: dict[str, VType]) -> None:
        self.bits = {name: 1 << n for n, name in enumerate(variables)}
        self.early: set[str] = set()
        self.leaves: list[list[int]] = []  # what has a value at the breaks of loops around

    def read(self, e: Expr, known: int) -> None:
        """Note what an expression reads too early."""
        if e.op == "var" and not known & self.bits.get(e.attr, -1):
            self.early.add(e.attr)
        for a in e.args:
            self.read(a, known)

    def block(self, body: list[Stmt], known: int) -> int | None:
        """Walk over statements; gives what has a value at their end, None if control never gets
        there.
        """
        for s in body:
            for e in expressions(s):
                self.read(e, known)
            if isinstance(s, If):
                ends = [self.block(s.then, known), self.block(s.orelse, known)]
                ends = [end for end in ends if end is not None]
                if not ends:
                    return None
                known = ends[0] & ends[-1]  # type: ignore[operator]
            elif isinstance(s, (For, While)):
                after = self.loop(s, known)
                if after is None:
                    return None
                known = after
            elif isinstance(s, Break):
                self.leaves[-1].append(known)
                return None
            elif isinstance(s, Continue):
                return None
            elif (name := target_of(s)) is not None:
                if isinstance(s, Hardware) and not known & self.bits[name]:
                    self.early.add(name)  # it may read what it writes
                known |= self.bits[name]
        return known

    def loop(self, s: For | While, known: int) -> int | None:
        """Walk over a loop: what has a value before it has one in every turn."""
        self.leaves.append([])
        inner = known | self.bits[s.var] if isinstance(s, For) else known
        end = self.block(s.body, inner)
        ends = self.leaves.pop()
        if isinstance(s, For) and _surely_runs(s):
            if end is not None:
                ends.append(end)
        elif not (isinstance(s, While) and s.cond.op == "const" and s.cond.attr):
            ends.append(known)
        if not ends:
            return None
        for other in ends[1:]:
            ends[0] &= other
        return ends[0]


def _surely_runs(s: For) -> bool:
    """Whether a loop runs at least once, and always to the end of its body or out of it."""
    bounds = (s.start, s.stop, s.step)
    if any(b.op != "const" for b in bounds) or _continues(s.body):
        return False
    return len(range(*(int(b.attr) for b in bounds))) > 0


def _continues(body: list[Stmt]) -> bool:
    """Whether a turn may end before the end of its body."""
    return any(
        isinstance(s, Continue) or (isinstance(s, If) and any(map(_continues, children(s))))
        for s in body
    )


Around = tuple[list[Stmt], Stmt]
"""A block, and the statement of it that holds another one."""


def _begin(program: Program, early: set[str]) -> None:
    """Write the first values of variables in front of what mentions them, outside of loops."""
    found: dict[str, list[Around]] = {}
    for name, around in _mentions(program.body, early, []):
        known = found.setdefault(name, around)
        common = 0
        while common < min(len(known), len(around)) and known[common][0] is around[common][0]:
            common += 1
        found[name] = known[:common]
    for name, around in sorted(found.items()):  # mentions come from sets, in no order of their own
        block, statement = around[-1]
        vtype = program.variables[name]
        zero = convert.constant(0, vtype.dtype, vtype.lanes)
        at = next(n for n, s in enumerate(block) if s is statement)
        block.insert(at, Assign(name, zero, loc=statement.loc))


def _mentions(
    body: list[Stmt], early: set[str], outer: list[Around]
) -> Iterator[tuple[str, list[Around]]]:
    """Variables and the blocks around their mentions up to the outermost loop, in order."""
    for s in body:
        here = [*outer, (body, s)]
        for name in early & {*variables_of(expressions(s)), target_of(s)}:
            yield name, here
        if isinstance(s, If):
            for block in children(s):
                yield from _mentions(block, early, here)
        elif isinstance(s, (For, While)):
            for name in {n for n, _ in _mentions(s.body, early, [])}:
                yield name, here


class _Watched:
    """Statements that note which variables have a value, and fail where one without is read.

    Attributes:
        names: the user's names of the variables that are watched.
        beside: the variables that say whether they have a value.
    """

    def __init__(self, program: Program, names: dict[str, str]) -> None:
        self.names, self.beside = names, dict[str, str]()
        for name in names:
            self.beside[name] = f"{name}_has_value"
            while self.beside[name] in program.variables:
                self.beside[name] += "_"
            program.variables[self.beside[name]] = BOOL

    def block(self, body: list[Stmt]) -> list[Stmt]:
        """Statements with what they need beside them."""
        out: list[Stmt] = []
        for s in body:
            asked: list[Expr] = []
            for e in expressions(s):
                for cond, name in self.reads(e, None):
                    if cond not in asked:
                        asked.append(cond)
                        out.append(DebugAssert(cond, read_too_early(self.names[name]), loc=s.loc))
            out.append(self.inner(s))
            target = target_of(s)
            if target in self.beside and not isinstance(s, For):
                out.append(self.given(target, s))
        return out

    def inner(self, s: Stmt) -> Stmt:
        """A statement with what it holds treated alike."""
        if isinstance(s, If):
            return replace(s, then=self.block(s.then), orelse=self.block(s.orelse))
        if isinstance(s, (For, While)):
            first = [self.given(s.var, s)] if isinstance(s, For) and s.var in self.beside else []
            return replace(s, body=[*first, *self.block(s.body)])
        return s

    def given(self, name: str, s: Stmt) -> Stmt:
        """That a variable has a value from here on."""
        return Assign(self.beside[name], convert.constant(True, dt.bool_), loc=s.loc)

    def reads(self, e: Expr, skipped: Expr | None) -> Iterator[tuple[Expr, str]]:
        """What must hold for an expression to be evaluated, and which variable it asks for;
        `skipped` is when Python would not get to it.
        """
        if e.op == "var" and e.attr in self.beside:
            has = Expr("var", BOOL, (), self.beside[e.attr])
            yield has if skipped is None else _either(skipped, has), e.attr
        if not e.args:
            return
        first, *others = e.args
        yield from self.reads(first, skipped)
        for n, other in enumerate(others):
            yield from self.reads(other, _later(skipped, _leaves_out(e, n)))


def _leaves_out(e: Expr, operand: int) -> Expr | None:
    """When Python would not evaluate an operand behind the first; None: it always does."""
    first = e.args[0]
    if first.type.lanes or first.type.dtype is not dt.bool_:
        return None
    if e.op == "or" or (e.op == "select" and operand == 1):
        return first
    if e.op in ("and", "select"):
        return Expr("not_", BOOL, (first,))
    return None


def _later(skipped: Expr | None, also: Expr | None) -> Expr | None:
    return skipped if also is None else also if skipped is None else _either(skipped, also)


def _either(a: Expr, b: Expr) -> Expr:
    return Expr("or", BOOL, (a, b))
