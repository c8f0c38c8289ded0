"""Printing a program as one Python function that numba compiles: statements and expressions of
every target.

The text is complete: every comptime value stands in it. Integer arithmetic goes through functions
that wrap in their own dtype; index arithmetic inside brackets is done in 64 bits, where it cannot
wrap. A backend adds what surrounds the body (loops over units, or a position read from the
hardware), memory and barriers.
"""

from __future__ import annotations

import keyword
import math

from cubepy.backends.llvm.emitted import Parameter, Site
from cubepy.backends.llvm.printing_memory import MemoryText
from cubepy.compiler.ir import (
    Alloc,
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
    Mem,
    Prefetch,
    Program,
    Stmt,
    Store,
    VType,
    While,
    expressions,
    walk,
)
from cubepy.errors import Location
from cubepy.lang.dtypes import DType

OPERATOR = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
FUNCTION = {
    "abs": "absolute",
    "round": "rint",
    "min": "minnum",
    "max": "maxnum",
    "nan_min": "minimum",
    "nan_max": "maximum",
    "pow": "pow_",
}
WRAPPING = ("add", "sub", "mul")
NARROW = ("f16", "bf16")


def carrier(dtype: DType) -> str:
    """The dtype in which generated code holds values: f16 and bf16 are held in f32, rounded after
    each step.
    """
    name = dtype.compute.name
    return "f32" if name in NARROW else name


class Printer(MemoryText):
    """Prints the body of one program; `text` of a subclass makes the module of it."""

    pragma = ""  # what stands at the top of a loop that must not be unrolled
    divides_as_f64 = False  # whether integers are, of up to 32 bits, by what run time gives

    def __init__(self, program: Program, reserved: frozenset[str]) -> None:
        self.program = program
        self.reserved = reserved
        self.lines: list[str] = []
        self.depth = 1
        self.sites: list[Site] = []
        self.per_unit: frozenset[str] = frozenset()
        self.units_count = math.prod(program.units)
        self.serial = 0
        self.steps: list[str] = []
        self.waits = 0  # `while` loops around
        self.positions: set[str] | None = None
        self.given = ""  # the variable that a statement gives a value

    def array_parameters(self) -> list[Parameter]:
        """Parameters for the program's arguments; arrays bring their shape and strides."""
        out = []
        for a in self.program.arguments:
            if a.mem is not None and a.mem.kind == "map":
                out.append(Parameter(self.var(a.mem.name), "map"))
            elif a.mem is not None:
                name = self.var(a.mem.name)
                out.append(Parameter(name, "ptr", a.mem.dtype.name))
                out += [Parameter(f"{name}_n{d}", "i64") for d in range(a.mem.ndim)]
                out += [Parameter(f"{name}_s{d}", "i64") for d in range(a.mem.ndim)]
            else:
                assert a.scalar is not None
                out.append(Parameter(self.var(a.path), carrier(a.scalar.dtype)))
        return out

    def position(self, name: str) -> str:
        """A topology value as a 64-bit text."""
        raise NotImplementedError

    def var(self, name: str) -> str:
        """A name of the program as a Python name that hides nothing."""
        while name in self.reserved or keyword.iskeyword(name):
            name += "_"
        return name

    def line(self, text: str) -> None:
        """Append a line at the current depth."""
        self.lines.append("    " * self.depth + text)

    def temporary(self, text: str) -> str:
        """Evaluate a text now; gives the name that holds it."""
        if text.isidentifier() or text.isdigit():
            return text
        self.serial += 1
        name = f"_{self.serial}"
        self.line(f"{name} = {text}")
        return name

    def used(self, names: tuple[str, ...]) -> bool:
        """Whether the program uses one of these topology names."""
        if self.positions is None:
            found = (e for s in walk(self.program.body) for x in expressions(s) for e in x.walk())
            self.positions = {e.attr for e in found if e.op == "topology"}
        return not self.positions.isdisjoint(names)

    def block(self, body: list[Stmt]) -> None:
        """Statements at the current depth."""
        before = len(self.lines)
        for s in body:
            self.statement(s)
        if len(self.lines) == before:
            self.line("pass")

    def nested(self, body: list[Stmt]) -> None:
        """Statements one level deeper."""
        self.depth += 1
        self.block(body)
        self.depth -= 1

    def statement(self, s: Stmt) -> None:
        """One statement."""
        self.location = s.loc
        getattr(self, f"stmt_{type(s).__name__}")(s)

    def stmt_Alloc(self, s: Alloc) -> None:
        """Declared at the top of the function."""

    def stmt_Break(self, s: Break) -> None:
        self.line("break")

    def stmt_Continue(self, s: Continue) -> None:
        if self.steps[-1]:
            self.line(self.steps[-1])
        self.line("continue")

    def stmt_Assign(self, s: Assign) -> None:
        self.given = s.name
        self.assign(s.name, self.value(s.value))
        self.given = ""

    def assign(self, name: str, text: str) -> None:
        """Give a variable a value, for this unit if it is kept per unit."""
        if name in self.per_unit:
            self.line(f"store({self.var(name)}, unit, {text})")
        else:
            self.line(f"{self.var(name)} = {text}")

    def stmt_Hardware(self, s: Hardware) -> None:
        """An instruction of matrix units or copy engines: the op of its name."""
        values = [
            self.value(a) if a.type.lanes or not a.type.dtype.is_int else self.index(a)
            for a in s.args
        ]
        parts = [*(self.var(m.name) for m in s.mems), *values, *map(repr, s.attrs)]
        call = f"{s.op}({', '.join(parts)})"
        if s.target is None:
            self.line(call)
        else:
            self.assign(s.target, call)

    def stmt_If(self, s: If) -> None:
        then, orelse, cond = s.then, s.orelse, s.cond
        if not then and not orelse:
            return
        if not then:
            then, orelse, cond = orelse, [], Expr("not_", cond.type, (cond,))
        self.line(f"if {self.value(cond)}:")
        self.nested(then)
        if orelse:
            self.line("else:")
            self.nested(orelse)

    def stmt_For(self, s: For) -> None:
        self.steps.append("")
        (self.rolled if s.rolled else self.ranged)(s)
        self.steps.pop()

    def rolled(self, s: For) -> None:
        """A loop that nobody unrolls: the code generator does not know its step."""
        start, stop = (self.temporary(f"i64({self.index(e)})") for e in (s.start, s.stop))
        self.serial += 2
        at, step = f"_{self.serial - 1}", f"_{self.serial}"
        self.line(f"{at} = {start}")
        self.line(f"{step} = opaque(i64({s.step.attr}))")
        self.line(f"while {at} {'<' if s.step.attr > 0 else '>'} {stop}:")
        self.depth += 1
        if self.pragma:
            self.line(self.pragma)
        self.assign(s.var, f"{self.program.variables[s.var].dtype.name}({at})")
        self.steps[-1] = f"{at} = {at} + {step}"
        self.block(s.body)
        self.line(self.steps[-1])
        self.depth -= 1

    def ranged(self, s: For) -> None:
        """A loop over a range."""
        start, stop, step = (self.index(e) for e in (s.start, s.stop, s.step))
        dtype = self.program.variables[s.var].dtype
        if s.step.op != "const":
            by, start = self.temporary(f"i64({step})"), self.temporary(f"i64({start})")
            stop = f"select({by} != 0, i64({stop}), {start})"  # a step of zero would end all units
            step = f"select({by} != 0, {by}, i64(1))"
        name = self.var(s.var)
        bounds = f"{start}, {stop}" + (f", {step}" if step != "1" else "")
        if start == "0" and step == "1":
            bounds = f"i64({stop})"
        if dtype.name == "i64" and s.var not in self.per_unit:
            self.line(f"for {name} in range({bounds}):")
            self.nested(s.body)
            return
        self.serial += 1
        self.line(f"for _{self.serial} in range({bounds}):")
        self.depth += 1
        self.assign(s.var, f"{dtype.name}(_{self.serial})")
        self.block(s.body)
        self.depth -= 1

    def stmt_While(self, s: While) -> None:
        self.waits += 1
        self.line(f"while {self.value(s.cond)}:")
        self.steps.append("")
        self.nested(s.body)
        self.steps.pop()
        self.waits -= 1

    def stmt_Store(self, s: Store) -> None:
        self.store(s)

    def stmt_Prefetch(self, s: Prefetch) -> None:
        self.prefetch(s)

    def stmt_Atomic(self, s: Atomic) -> None:
        self.atomic(s)

    def stmt_DebugPrint(self, s: DebugPrint) -> None:
        form, values = self.printed(s)
        self.line(f"print_values({', '.join([repr(form), *values])})")

    def printed(self, s: DebugPrint) -> tuple[str, list[str]]:
        """The format of C's printf, and its values."""
        form, values = [], []
        for part in s.parts:
            if not isinstance(part, Expr):
                form.append(str(part).replace("%", "%%"))
            elif part.type.lanes:
                lanes = [f"extract({self.value(part)}, {k})" for k in range(part.type.lanes)]
                form.append("[" + " ".join([_printf(part.type)] * part.type.lanes) + "]")
                values += [_printed(part.type, v) for v in lanes]
            else:
                form.append(_printf(part.type))
                values.append(_printed(part.type, self.value(part)))
        return " ".join(form) + "\n", values

    def stmt_DebugAssert(self, s: DebugAssert) -> None:
        site = self.site("assert", "", s.message, s.loc)
        self.line(f"if not {self.value(s.cond)}:")
        self.line(f"    report(err, {site}, 0, 0)")

    def site(self, kind: str, array: str, message: str, location: Location | None) -> int:
        """Number a place that may report; numbers start at 1."""
        self.sites.append(Site(kind, array, message, location))
        return len(self.sites)

    def value(self, e: Expr) -> str:
        """An expression in its own dtype."""
        method = getattr(self, f"expr_{e.op}", None)
        if method is not None:
            return str(method(e))
        a = [self.value(x) for x in e.args]
        if e.op in ("lt", "le", "gt", "ge", "eq", "ne"):
            return f"({a[0]} {OPERATOR[e.op]} {a[1]})"
        if e.op in ("and", "or"):
            return f"{e.op}_({a[0]}, {a[1]})"
        if e.op in OPERATOR and (e.type.lanes or e.type.dtype.is_float):
            return self.rounded(e.type, f"({a[0]} {OPERATOR[e.op]} {a[1]})")
        if e.op == "call":
            return self.rounded(e.type, f"{FUNCTION.get(e.attr, e.attr)}({', '.join(a)})")
        return self.rounded(e.type, f"{FUNCTION.get(e.op, e.op)}({', '.join(a)})")

    def rounded(self, t: VType, text: str) -> str:
        """f16 and bf16 are rounded after each operation."""
        return f"{t.dtype.name}({text})" if t.dtype.name in NARROW else text

    def expr_floordiv(self, e: Expr) -> str:
        """Integers are divided as f64 where units, or turns of a loop, can be divided side by side.

        Where a turn waits for the one before it, that would take longer (1.7 times in Euclid's
        algorithm).
        """
        a, b = (self.value(x) for x in e.args)
        waits = self.waits or any(x.op == "var" and x.attr == self.given for x in e.walk())
        by = self.divides_as_f64 and e.type.dtype.is_int and not _is_constant(e.args[1])
        return self.rounded(e.type, f"{e.op}{'_by' if by and not waits else ''}({a}, {b})")

    expr_mod = expr_floordiv

    def expr_var(self, e: Expr) -> str:
        if e.attr in self.per_unit:
            return f"load({self.var(e.attr)}, unit)"
        return self.var(e.attr)

    def expr_const(self, e: Expr) -> str:
        return literal(e.attr, e.type)

    def expr_not_(self, e: Expr) -> str:
        inner = self.value(e.args[0])
        return f"not_({inner})" if e.type.lanes else f"(not {inner})"

    def expr_cast(self, e: Expr) -> str:
        inner = e.args[0]
        if e.type.dtype.name == carrier(inner.type.dtype) and not inner.type.dtype.storage_only:
            return self.value(inner)  # f16 is held in f32 already
        return f"{e.type.dtype.name}({self.value(inner)})"

    def expr_splat(self, e: Expr) -> str:
        return f"splat({self.value(e.args[0])}, {e.type.lanes})"

    def expr_iota(self, e: Expr) -> str:
        return f'iota("{e.type.dtype.name}", {e.type.lanes})'

    def expr_line(self, e: Expr) -> str:
        first, *others = map(self.value, e.args)
        text = f"splat({first}, {e.type.lanes})"
        for k, value in enumerate(others, 1):
            text = f"insert({text}, {k}, {value})"
        return text

    def expr_extract(self, e: Expr) -> str:
        return f"extract({self.value(e.args[0])}, {e.attr})"

    def expr_shuffle(self, e: Expr) -> str:
        a, b = (self.value(x) for x in e.args)
        return f'shuffle({a}, {b}, "{" ".join(map(str, e.attr))}")'

    def expr_bitcast(self, e: Expr) -> str:
        return f'bitcast({self.value(e.args[0])}, "{e.attr}")'

    def expr_topology(self, e: Expr) -> str:
        text = self.position(e.attr)
        return f"{e.type.dtype.name}({text})"

    def index(self, e: Expr) -> str:
        """An integer expression in 64 bits, where sums and products do not wrap."""
        if e.op == "const":
            return str(e.attr)
        if e.op == "topology":
            return self.position(e.attr)
        if e.op in ("size", "shape", "stride"):
            return str(getattr(self, f"extent_{e.op}")(e))
        if e.op in WRAPPING and e.type.dtype.name in ("i32", "i64"):
            a, b = (self.index(x) for x in e.args)
            return f"({a} {OPERATOR[e.op]} {b})"
        text = self.value(e)
        return text if e.type.dtype.name in ("i64", "i32", "i16", "i8") else f"i64({text})"

    def expr_size(self, e: Expr) -> str:
        return f"{e.type.dtype.name}({self.extent_size(e)})"

    def expr_shape(self, e: Expr) -> str:
        return f"{e.type.dtype.name}({self.extent_shape(e)})"

    def expr_stride(self, e: Expr) -> str:
        return f"{e.type.dtype.name}({self.extent_stride(e)})"

    def extent_size(self, e: Expr) -> str:
        return self.size_text(e.attr)

    def extent_shape(self, e: Expr) -> str:
        mem, d = e.attr
        return f"{self.var(mem.name)}_n{d}"

    def extent_stride(self, e: Expr) -> str:
        mem, d = e.attr
        return f"{self.var(mem.name)}_s{d}"

    def size_text(self, mem: Mem) -> str:
        """The number of elements of an array."""
        if mem.shape is not None:
            return str(math.prod(mem.shape))
        if mem.ndim == 0:
            return "1"
        return "(" + " * ".join(f"{self.var(mem.name)}_n{d}" for d in range(mem.ndim)) + ")"


def literal(value: object, t: VType) -> str:
    """A constant of a dtype."""
    if t.dtype.kind == "b":
        return str(bool(value))
    if t.dtype.is_int:
        return f"{t.dtype.name}({value})"
    number = float(value)  # type: ignore[arg-type]
    text = (
        "NAN"
        if math.isnan(number)
        else (("-INF" if number < 0 else "INF") if math.isinf(number) else repr(number))
    )
    return f"{t.dtype.name}({text})"


def _is_constant(e: Expr) -> bool:
    """Whether a number, or the number in all lanes of a line, is known."""
    return e.op == "const" or (e.op == "splat" and e.args[0].op == "const")


def _printf(t: VType) -> str:
    return "%g" if t.dtype.is_float else ("%llu" if t.dtype.kind == "u" else "%lld")


def _printed(t: VType, text: str) -> str:
    return (
        f"f64({text})"
        if t.dtype.is_float
        else (f"u64({text})" if t.dtype.kind == "u" else f"i64({text})")
    )
