"""Variables that hold one value after another become several, one for each value that lives by
itself: a name that is used again is no link between what it held before and what it holds now.

A web is all assignments of a variable that reach a common use (Muchnick, Advanced Compiler Design
and Implementation, 16.3.3); which ones reach it is followed through structured control flow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from cubepy.compiler.ir import (
    Assign,
    Atomic,
    Break,
    Continue,
    DebugAssert,
    DebugPrint,
    Expr,
    For,
    Hardware,
    If,
    Prefetch,
    Program,
    Stmt,
    Store,
    While,
    expressions,
)

Source = tuple[int, str]
"""An assignment of a variable: its statement, 0 for what it holds before the kernel begins."""
Reaching = dict[str, set[Source]]


def split_variables(program: Program) -> Program:
    """The program with a variable for each web; the same program if none can be split."""
    webs = _Webs()
    webs.body(program.body, {})
    names = webs.names(program.variables)
    if not names:
        return program
    renamed = _Renaming(webs, names)
    kinds = dict(program.variables)
    for (_, old), new in names.items():
        kinds[new] = kinds[old]
    return replace(program, body=renamed.body(program.body), variables=kinds)


def target_of(stmt: Stmt) -> str | None:
    """The variable that a statement assigns."""
    if isinstance(stmt, Assign):
        return stmt.name
    if isinstance(stmt, (Atomic, Hardware)):
        return stmt.target
    return stmt.var if isinstance(stmt, For) else None


def variables_of(expressions: Iterable[Expr]) -> set[str]:
    """The variables that expressions read."""
    return {str(e.attr) for whole in expressions for e in whole.walk() if e.op == "var"}


class _Webs:
    """Webs as sets of assignments that are joined where they meet in a use.

    Attributes:
        uses: the web of what a statement reads, by statement and variable.
    """

    def __init__(self) -> None:
        self.parents: dict[Source, Source] = {}
        self.uses: dict[tuple[int, str], Source] = {}
        self.leaves: list[list[tuple[Stmt, Reaching]]] = []  # of the loops around

    def root(self, source: Source) -> Source:
        """What stands for the web of an assignment."""
        while (up := self.parents.setdefault(source, source)) != source:
            source = up
        return source

    def join(self, sources: Iterable[Source]) -> Source:
        """One web of several assignments."""
        first, *others = map(self.root, sorted(sources))
        for other in others:
            self.parents[self.root(other)] = self.root(first)
        return first

    def read(self, stmt: Stmt, names: set[str], state: Reaching) -> None:
        """Note what reaches the variables that a statement reads."""
        for name in names:
            key = (id(stmt), name)
            known = {self.uses[key]} if key in self.uses else set()
            self.uses[key] = self.join(known | state.get(name, {(0, name)}))

    def body(self, body: list[Stmt], state: Reaching) -> Reaching | None:
        """Walk over statements; gives what reaches their end, None if nothing does."""
        now: Reaching | None = state
        for s in body:
            if now is None:
                break
            self.read(s, variables_of(expressions(s)), now)
            if isinstance(s, (Break, Continue)):
                self.leaves[-1].append((s, now))
                now = None
            elif isinstance(s, If):
                now = met(self.body(s.then, dict(now)), self.body(s.orelse, dict(now)))
            elif isinstance(s, (For, While)):
                now = self.loop(s, now)
            elif (name := target_of(s)) is not None:
                if isinstance(s, Hardware):  # it may read what it writes
                    self.read(s, {name}, now)
                self.root(source := (id(s), name))
                now[name] = {source}
                if isinstance(s, Hardware):
                    self.join({source, self.uses[id(s), name]})
        return now

    def loop(self, s: For | While, state: Reaching) -> Reaching:
        """Walk over a loop until nothing new reaches its head."""
        head: Reaching = {name: set(sources) for name, sources in state.items()}
        while True:
            self.leaves.append([])
            if isinstance(s, While):
                self.read(s, variables_of(expressions(s)), head)
            inner = {name: set(sources) for name, sources in head.items()}
            if isinstance(s, For):
                self.root(source := (id(s), s.var))
                inner[s.var] = {source}
            end = self.body(s.body, inner)
            leaves = self.leaves.pop()
            back = [there for leave, there in leaves if isinstance(leave, Continue)]
            new = head
            for there in [end, *back]:
                new = met(new, there) or new
            if new == head:
                break
            head = new
        for leave, there in leaves:
            if isinstance(leave, Break):
                head = met(head, there) or head
        return head

    def names(self, variables: Iterable[str]) -> dict[Source, str]:
        """New names of webs: of a variable's webs the first keeps its name."""
        taken, found = set(variables), dict[Source, str]()
        seen: dict[str, Source] = {}
        for source in list(self.parents):
            web = self.root(source)
            name = web[1]
            if (0, name) in self.parents:
                seen.setdefault(name, self.root((0, name)))
            if seen.setdefault(name, web) == web or web in found:
                continue
            count = 2
            while (new := f"{name}_{count}") in taken:
                count += 1
            taken.add(new)
            found[web] = new
        return found


def met(a: Reaching | None, b: Reaching | None) -> Reaching | None:
    """What reaches the place where two ways meet."""
    if a is None or b is None:
        return b if a is None else a
    return {
        name: a.get(name, {(0, name)}) | b.get(name, {(0, name)}) for name in a.keys() | b.keys()
    }


class _Renaming:
    """Writes a program again with the names of webs."""

    def __init__(self, webs: _Webs, names: dict[Source, str]) -> None:
        self.webs, self.names = webs, names

    def written(self, s: Stmt, name: str) -> str:
        """The variable that a statement assigns."""
        return self.names.get(self.webs.root((id(s), name)), name)

    def expression(self, s: Stmt, e: Expr) -> Expr:
        """An expression of a statement."""
        if e.op == "var":
            use = self.webs.uses.get((id(s), str(e.attr)))
            return replace(e, attr=self.names.get(self.webs.root(use), e.attr)) if use else e
        args = tuple(self.expression(s, a) for a in e.args)
        return (
            replace(e, args=args)
            if any(a is not b for a, b in zip(args, e.args, strict=True))
            else e
        )

    def body(self, body: list[Stmt]) -> list[Stmt]:
        """Statements in their order."""
        return [self.statement(s) for s in body]

    def statement(self, s: Stmt) -> Stmt:
        """One statement with all that is in it."""
        of = partial(self.expression, s)
        new: dict[str, Any] = {}
        if isinstance(s, Assign):
            new = {"name": self.written(s, s.name), "value": of(s.value)}
        elif isinstance(s, (Store, Prefetch, Atomic)):
            new = {"indices": tuple(map(of, s.indices))}
            if isinstance(s, Store):
                new |= {"value": of(s.value), "valid": None if s.valid is None else of(s.valid)}
            elif isinstance(s, Atomic):
                new |= {"target": self.written(s, s.target), "operands": tuple(map(of, s.operands))}
        elif isinstance(s, Hardware):
            new = {"args": tuple(map(of, s.args))}
            if s.target is not None:
                new["target"] = self.written(s, s.target)
        elif isinstance(s, (If, While, DebugAssert)):
            new = {"cond": of(s.cond)}
        elif isinstance(s, DebugPrint):
            new = {"parts": tuple(of(p) if isinstance(p, Expr) else p for p in s.parts)}
        if isinstance(s, If):
            new |= {"then": self.body(s.then), "orelse": self.body(s.orelse)}
        elif isinstance(s, (For, While)):
            new["body"] = self.body(s.body)
        if isinstance(s, For):
            new |= {"var": self.written(s, s.var), "start": of(s.start), "stop": of(s.stop)}
            new["step"] = of(s.step)
        return replace(s, **new)
