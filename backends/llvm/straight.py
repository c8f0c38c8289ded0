"""Generated code to LLVM in one walk over its syntax tree: a quarter of the time that numba's own
front end takes.

numba turns bytecode into its IR, infers types by going round until nothing changes, and lowers the
result. Generated code needs none of that: it has assignments, calls of ops, arithmetic, loops over
ranges, branches; and each variable keeps the type of its first value. So a value is typed and
lowered where it stands, with numba's signatures and the same emitters, in the shape of numba's
blocks: LLVM makes the same instructions of both. What is not in this subset raises `Unusual`, and
numba does it.

A variable that is set once, and read in the rest of its block only, is a value; others lie on the
stack until LLVM takes them from there, and are zero at first, as numba's are.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from llvmlite import ir
from numba.core import types, typing

from cubepy.backends.llvm import generated_source as source
from cubepy.backends.llvm.ops.registry import Op
from cubepy.backends.llvm.ops.values import const

INTEGERS = {
    getattr(types, f"{kind}nt{bits}"): f"{kind[0]}{bits}"
    for kind in ("i", "ui")
    for bits in (8, 16, 32, 64)
}
NUMBERS = {"INF": float("inf"), "NAN": float("nan")}
Typed = tuple[Any, Any]
"""A numba type and a value of LLVM."""


class Unusual(Exception):
    """Generated code that this walk does not know; numba does."""


class Walk:
    """One function of generated code on its way to LLVM; `ops` are what it calls."""

    as_numba = False
    """Whether loops over ranges are numba's own, and what was computed is computed again."""

    def __init__(
        self, context: Any, function: ir.Function, tree: ast.FunctionDef, ops: Mapping[str, Op]
    ) -> None:
        self.context, self.typing = context, context.typing_context
        self.function, self.tree, self.ops = function, tree, ops
        self.main_blocks = 0
        self.builder = ir.IRBuilder()
        self.go_on_in(ir.Block(function, "entry"))
        self.values: dict[str, Typed] = {}
        self.slots: dict[str, Typed] = {}
        self.single = source.once_set(tree)
        self.loops: list[tuple[Any, Any]] = []
        self.jumps_back: list[tuple[Any, Any]] = []
        kept = vars(self.typing)  # what is worked out once for all functions
        self.calls: dict[Any, Any] = kept.setdefault("signatures_of_calls", {})
        self.functions: dict[Any, Any] = kept.setdefault("functions_of_operators", {})
        self.constants: dict[Any, Typed] = {}
        self.operators: dict[Any, Any] = {}
        self.here: tuple[Any, dict[Any, Any]] = (None, {})

    def run(self, arguments: Sequence[Any]) -> None:
        """Lower the body; `arguments` are the types of the parameters."""
        call_conv = self.context.call_conv
        call_conv.init_call_helper(self.builder)
        given = call_conv.decode_arguments(self.builder, arguments, self.function)
        entry, first = self.builder.block, ir.Block(self.function, "body")
        self.go_on_in(first)
        for a, t, v in zip(self.tree.args.args, arguments, given, strict=True):
            self.assign(a.arg, (t, v))
        self.block(self.tree.body)
        if self.builder.block.is_terminated:
            raise Unusual("a function without an end")
        call_conv.return_value(self.builder, self.context.get_dummy_value())
        for block, head in self.jumps_back:
            self.go_on_in(block)
            self.builder.branch(head)
        self.builder.position_at_end(entry)
        self.builder.branch(first)

    def assign(self, name: str, value: Typed) -> None:
        """Give a variable a value."""
        t, v = value
        if isinstance(t, types.StringLiteral):
            raise Unusual("a text in a variable")
        if name in self.single:
            self.values[name] = types.unliteral(t), v
            return
        t = types.unliteral(t)
        slot = self.slots.get(name)
        if slot is None:
            kind = self.context.get_value_type(t)
            with self.builder.goto_entry_block():
                where = self.builder.alloca(kind, name=name)
                self.builder.store(const(kind, None), where)
            slot = self.slots[name] = t, where
        if slot[0] != t:
            raise Unusual(f"{name} is {slot[0]} and {t}")
        self.builder.store(v, slot[1])
        self.known()[name] = v

    def known(self) -> dict[Any, Any]:
        """What was computed in the block that is being written: the value of a variable, or of a
        pure operation on values (which stand beside it, so that no others get their identity).
        """
        block = self.builder.block
        if self.here[0] is not block:
            self.here = block, {}
        return self.here[1]

    def once(self, key: Any, values: Sequence[Any], make: Callable[[], Any]) -> Any:
        """A pure operation on values, which is not written twice in a block."""
        if self.as_numba:
            return make()
        known = self.known()
        key = *key, *map(id, values)
        if key not in known:
            known[key] = make(), values
        return known[key][0]

    def block(self, body: list[ast.stmt], end: Any = None) -> None:
        """Statements one after the other; a branch that is the last of them goes on at `end`, if
        that is given.
        """
        for s in body:
            if self.builder.block.is_terminated:
                raise Unusual("statements after a jump")
            if s is body[-1] and isinstance(s, ast.If) and end is not None:
                self.branch(s, end)
                return
            method = getattr(self, f"stmt_{type(s).__name__}", None)
            if method is None:
                raise Unusual(type(s).__name__)
            method(s)

    def stmt_Assign(self, s: ast.Assign) -> None:
        (target,) = s.targets
        if not isinstance(target, ast.Name):
            raise Unusual("a target that is no name")
        self.assign(target.id, self.value(s.value))

    def stmt_Expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.value(s.value)

    def stmt_Pass(self, s: ast.Pass) -> None:
        """Nothing."""

    def stmt_Break(self, s: ast.Break) -> None:
        self.builder.branch(self.loops[-1][1])

    def stmt_Continue(self, s: ast.Continue) -> None:
        self.builder.branch(self.loops[-1][0])

    def jump_if(self, test: ast.expr, then: Any, orelse: Any) -> None:
        """Go on at `then` where a test holds, else at `orelse`."""
        while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            test, then, orelse = test.operand, orelse, then
        t, v = self.value(test)
        if types.unliteral(t) != types.boolean:
            raise Unusual(f"a condition of {t}")
        self.builder.cbranch(v, then, orelse)

    def go_on_in(self, block: Any) -> None:
        """Go on in a block, which stands behind those before it and in front of those that ops
        made.
        """
        self.function.blocks.insert(self.main_blocks, block)
        self.main_blocks += 1
        self.builder.position_at_end(block)

    def go_to(self, block: Any) -> None:
        """Jump, unless the code before has jumped."""
        if not self.builder.block.is_terminated:
            self.builder.branch(block)

    def stmt_If(self, s: ast.If) -> None:
        after = ir.Block(self.function)
        self.branch(s, after)
        self.go_on_in(after)

    def branch(self, s: ast.If, after: Any) -> None:
        """A branch, whose ways meet in a block."""
        then, orelse = ir.Block(self.function), ir.Block(self.function)
        self.jump_if(s.test, then, orelse if s.orelse else after)
        for start, body in ((then, s.body), (orelse, s.orelse)):
            if body:
                self.go_on_in(start)
                self.block(body, after)
                self.go_to(after)

    def loop_body(self, body: list[ast.stmt], head: Any, after: Any, again: bool = True) -> None:
        """The body of a loop, whose end goes to its head `again`; branches at the end meet before
        the jump back. All that goes back in a loop of numba's meets behind everything.
        """
        merged = self.as_numba and again and source.continues(body)
        meeting = ir.Block(self.function) if merged or isinstance(body[-1], ast.If) else None
        self.loops.append((meeting if merged else head, after))
        self.block(body, meeting)
        self.loops.pop()
        if merged:
            self.go_to(meeting)
            self.jumps_back.append((meeting, head))
        elif meeting is not None:
            self.go_on_in(meeting)

    def stmt_While(self, s: ast.While) -> None:
        always = isinstance(s.test, ast.Constant)
        if always and not s.test.value:  # type: ignore[attr-defined]
            raise Unusual("a loop that never runs")
        head, body, after = (ir.Block(self.function) for _ in range(3))
        self.builder.branch(head)
        self.go_on_in(head)
        if not always:
            self.jump_if(s.test, body, after)
            self.go_on_in(body)
        self.loop_body(s.body, head, after, always)
        if always:
            self.go_to(head)
        elif not self.builder.block.is_terminated:
            self.jump_if(s.test, body, after)  # as Python does: a round has one jump
        self.go_on_in(after)

    def stmt_For(self, s: ast.For) -> None:
        if not isinstance(s.target, ast.Name):
            raise Unusual("a target that is no name")
        if not isinstance(s.iter, ast.Call) or getattr(s.iter.func, "id", "") != "range":
            raise Unusual("a loop over no range")
        arguments = [self.value(a) for a in s.iter.args]
        step = getattr(arguments[2][0], "literal_value", 0) if len(arguments) == 3 else 1
        signature, values = self.prepared(range, self.operator(range), arguments)
        kind = signature.return_type.iterator_type
        number = kind.yield_type
        if step > 0 and not self.as_numba:
            zero = ir.Constant(values[0].type, 0)
            start, stop = values[:2] if len(values) > 1 else (zero, values[0])
            self.count(s, number, start, stop, step)
        else:
            self.iterate(s, kind, self.lowered(range, signature, values), signature.return_type)

    def count(self, s: ast.For, number: Any, start: Any, stop: Any, step: int) -> None:
        """A loop that counts up: from `start` by ones, else its rounds. (LLVM keeps a register for
        each address that steps with a loop's variable, and runs out of them where the steps are
        its own: a quarter slower transposes.)
        """
        b = self.builder
        less = b.icmp_signed if number.signed else b.icmp_unsigned
        zero, one, by = (ir.Constant(start.type, n) for n in (0, 1, step))
        first, end, flags = start, stop, ["nsw" if number.signed else "nuw"]
        if step > 1:
            rounds = b.add(b.udiv(b.sub(b.sub(stop, start), one), by), one)
            first, end, flags = zero, b.select(less("<", start, stop), rounds, zero), ["nuw"]
            less = b.icmp_unsigned
        before = b.block
        head, body, latch, after = (ir.Block(self.function) for _ in range(4))
        b.branch(head)
        self.go_on_in(head)
        i = b.phi(start.type)
        i.add_incoming(first, before)
        b.cbranch(less("<", i, end), body, after)
        self.go_on_in(body)
        value = b.add(start, b.mul(i, by)) if step > 1 else i
        self.assign(s.target.id, (number, value))  # type: ignore[attr-defined]
        self.loops.append((latch, after))
        self.block(s.body, latch)
        self.loops.pop()
        self.go_to(latch)
        self.go_on_in(latch)
        i.add_incoming(b.add(i, one, flags=flags), latch)
        b.branch(head)
        self.go_on_in(after)

    def iterate(self, s: ast.For, kind: Any, bounds: Any, over: Any) -> None:
        """A loop over a range as numba has it."""
        b, c = self.builder, self.context
        pair = types.Pair(kind.yield_type, types.boolean)
        start = c.get_function("getiter", typing.signature(kind, over))(b, (bounds,))
        head, body, after = (ir.Block(self.function) for _ in range(3))
        b.branch(head)
        self.go_on_in(head)
        item = c.get_function("iternext", typing.signature(pair, kind))(b, (start,))
        value, more = c.pair_first(b, item, pair), c.pair_second(b, item, pair)
        b.cbranch(more, body, after)
        self.go_on_in(body)
        self.assign(s.target.id, (kind.yield_type, value))  # type: ignore[attr-defined]
        self.loop_body(s.body, head, after)
        self.go_to(head)
        self.go_on_in(after)

    def value(self, e: ast.expr) -> Typed:
        """An expression's type and value."""
        method = getattr(self, f"expr_{type(e).__name__}", None)
        if method is None:
            raise Unusual(type(e).__name__)
        found: Typed = method(e)
        return found

    def expr_Constant(self, e: ast.Constant) -> Typed:
        return self.constant(e.value)

    def constant(self, value: object) -> Typed:
        """A literal, which is made once."""
        known = self.constants.get((type(value), value)) if value else None
        if known is not None:
            return known
        if isinstance(value, str):
            return types.literal(value), None  # ops read it from its type
        if not isinstance(value, (int, float)):
            raise Unusual(f"the literal {value!r}")
        t = types.float64 if isinstance(value, float) else types.literal(value)
        kind = self.context.get_value_type(types.unliteral(t))
        made = t, ir.Constant(kind, +value)  # a bool is a number
        self.constants[type(value), value] = made
        return made

    def expr_Name(self, e: ast.Name) -> Typed:
        known = self.values.get(e.id)
        if known is not None:
            return known
        slot = self.slots.get(e.id)
        if slot is not None:
            here = self.known()
            if e.id not in here:
                here[e.id] = self.builder.load(slot[1])
            return slot[0], here[e.id]
        if e.id in NUMBERS:
            return self.constant(NUMBERS[e.id])
        raise Unusual(f"the name {e.id}")

    def expr_UnaryOp(self, e: ast.UnaryOp) -> Typed:
        if isinstance(e.op, ast.USub) and isinstance(e.operand, ast.Constant):
            return self.constant(-e.operand.value)  # type: ignore[operator]
        kind = {ast.USub: operator.neg, ast.Not: operator.not_}.get(type(e.op))
        if kind is None:
            raise Unusual(type(e.op).__name__)
        return self.operation(kind, self.value(e.operand))

    def expr_BinOp(self, e: ast.BinOp) -> Typed:
        number = source.folded(e)
        if number is not None:
            return self.constant(number)
        kind = source.BINARY.get(type(e.op))
        if kind is None:
            raise Unusual(ast.dump(e.op))
        return self.operation(kind, self.value(e.left), self.value(e.right))

    def expr_Compare(self, e: ast.Compare) -> Typed:
        kind = source.BINARY.get(type(e.ops[0]))
        if kind is None or len(e.ops) != 1:
            raise Unusual(ast.dump(e.ops[0]))
        return self.operation(kind, self.value(e.left), self.value(e.comparators[0]))

    def expr_Call(self, e: ast.Call) -> Typed:
        if e.keywords or not isinstance(e.func, ast.Name):
            raise Unusual("a call with keywords")
        arguments = [self.value(a) for a in e.args]
        op = self.ops.get(e.func.id)
        if op is None or e.func.id in self.values or e.func.id in self.slots:
            raise Unusual(f"a call of {e.func.id}")
        signature, values = self.prepared(op, op, arguments)
        t = signature.return_type
        if isinstance(t, types.Integer) and e.func.id == INTEGERS.get(t):
            number = getattr(values[0], "constant", None)
            if isinstance(number, int):  # LLVM need not be told to convert literals
                return t, ir.Constant(self.context.get_value_type(t), source.wrapped(number, t))
        make = partial(op.lower, self.context, self.builder, signature, tuple(values))
        return t, self.once((op, id(signature)), values, make) if op.pure else make()

    def operator(self, kind: Any) -> Any:
        """What numba knows of an operator or of range."""
        known = self.functions.get(kind)
        if known is None:
            known = self.functions[kind] = self.typing.resolve_value_type(kind)
        return known

    def operation(self, kind: Any, *arguments: Typed) -> Typed:
        """What numba makes of an operator."""
        signature, values = self.prepared(kind, self.operator(kind), arguments)
        make = partial(self.lowered, kind, signature, values)
        return signature.return_type, self.once((kind, id(signature)), values, make)

    def lowered(self, kind: Any, signature: Any, values: list[Any]) -> Any:
        """The code of an operator or of range."""
        made = self.operators.get((kind, id(signature)))
        if made is None:
            made = self.context.get_function(self.operator(kind), signature)
            self.operators[kind, id(signature)] = made
        return made(self.builder, values)

    def prepared(
        self, key: Any, function: Any, arguments: Sequence[Typed]
    ) -> tuple[Any, list[Any]]:
        """The signature of a call, which is worked out once for arguments of these types, and its
        values.
        """
        name = (key, *[id(t) for t, _ in arguments])
        found = self.calls.get(name)
        if found is None:
            kinds = tuple(t for t, _ in arguments)
            if isinstance(function, Op):
                signature = function.for_call(kinds)
            else:
                signature = function.get_call_type(self.typing, kinds, {})
            if signature is None or len(signature.args) != len(kinds):
                raise Unusual(f"{key} of {kinds}")
            casts = [None if t == to else to for t, to in zip(kinds, signature.args, strict=True)]
            found = self.calls[name] = signature, casts, kinds
        return found[0], [
            v if wanted is None else self.cast(v, t, wanted)
            for (t, v), wanted in zip(arguments, found[1], strict=True)
        ]

    def cast(self, value: Any, t: Any, wanted: Any) -> Any:
        """A value of one type as one of another."""
        make = partial(self.context.cast, self.builder, value, t, wanted)
        return self.once(("cast",), (value, t, wanted), make)


def straight(
    context: Any,
    module: Any,
    name: str,
    text: str,
    arguments: Any,
    noalias: bool,
    walk: type[Walk] = Walk,
) -> ir.Function:
    """Add the function `kernel` of a generated module to an LLVM module, in numba's calling
    convention.

    Raises:
        Unusual: the code holds what only numba knows.
    """
    *head, tree = ast.parse(text).body
    if not isinstance(tree, ast.FunctionDef):
        raise Unusual("a module that does not end with its function")
    convention = context.call_conv
    function = ir.Function(module, convention.get_function_type(types.void, arguments), name)
    names = [a.arg for a in tree.args.args]
    convention.decorate_function(function, names, arguments, noalias=noalias)
    walk(context, function, tree, source.ops_of(head)).run(arguments)
    return function
