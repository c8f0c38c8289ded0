"""From a kernel and the specs of its arguments to a `Program`."""

from __future__ import annotations

from cubepy.compiler import lower  # noqa: F401  (its files register their rules)
from cubepy.compiler.checks.groups import check_groups
from cubepy.compiler.checks.missing import check_reductions
from cubepy.compiler.checks.unassigned import set_unassigned
from cubepy.compiler.checks.uniform import check_barriers
from cubepy.compiler.facts import Facts, Restart
from cubepy.compiler.ir import (
    Alloc,
    Argument,
    Expr,
    Mem,
    Program,
    Stmt,
    VType,
    contains_barrier,
    walk,
)
from cubepy.compiler.lower.hardware.barriers import with_barriers_first
from cubepy.compiler.reads import guard_of
from cubepy.compiler.scope import Frame, Scope
from cubepy.compiler.signature import (
    ArraySpec,
    ComptimeSpec,
    ScalarSpec,
    Spec,
    StructSpec,
    Target,
    TensorMapSpec,
    TupleSpec,
)
from cubepy.compiler.source import source_of
from cubepy.compiler.values import ArrayValue, StructValue, TupleValue, Value
from cubepy.compiler.walk.attributes import wrap
from cubepy.compiler.walk.walker import Walker
from cubepy.compiler.webs import split_variables
from cubepy.errors import BarrierError, CompileError, NestingError
from cubepy.lang.declare import Kernel
from cubepy.lang.dtypes import DType


class Walk:
    """One walk over a kernel, from the specs of its arguments to a program."""

    def __init__(
        self, kernel: Kernel, specs: tuple[Spec, ...], target: Target, facts: Facts
    ) -> None:
        self.kernel, self.specs, self.source = kernel, specs, source_of(kernel.fn)
        self.scope = Scope(facts, target, Frame(self.source, (kernel.__name__,)))
        self.arguments: list[Argument] = []

    def program(self) -> Program:
        """Walk the kernel; raises `Restart` when a fact was learned that its parameters need."""
        s = self.scope
        for param, spec in zip(self.kernel.parameters, self.specs, strict=True):
            s.frame.env[param.name] = self.argument(param.name, spec)
        Walker(s).walk(self.source.tree)
        body = with_barriers_first(s, s.out)
        memories = [a.mem for a in self.arguments]
        names = {m.name for m in memories if m}
        return Program(
            name=self.kernel.__name__,
            arguments=self.arguments,
            body=body,
            variables=s.types,
            shared=s.shared,
            units=s.units,
            index=s.index,
            mode=s.target.mode,
            fast_math=self.kernel.fast_math,
            outputs=frozenset(s.written & names),
            written=tuple(
                n for n, m in enumerate(memories) if m and m.kind != "map" and m.name in s.written
            ),
            reads=frozenset(s.read & names),
            has_barrier=contains_barrier(body),
            debug=s.debug,
            properties=s.properties,
            typed=self.typed(),
            cluster=s.cluster,
            resident=s.resident,
            overlap=s.overlap,
            axes=s.axes,
        )

    def typed(self) -> dict[tuple[str, str], DType]:
        """The dtypes of runtime variables by function and name, where all calls agree; those of
        expressions of which one side is evaluated, by site. What is weak is there with a ~, too.
        """
        found: dict[tuple[str, str], set[VType]] = {}
        for variable, owner in self.scope.owners.items():
            found.setdefault(owner, set()).add(self.scope.types[variable])
        for function, site, vtype in self.scope.joined.values():
            found.setdefault((function, site), set()).add(vtype)
        agreed = {k: v for k, v in found.items() if len({t.dtype for t in v}) == 1}
        weak = {k for k, v in agreed.items() if all(t.weak for t in v)}
        return {k: next(iter(v)).dtype for k, v in agreed.items()} | {
            (function, f"{name}~"): next(iter(agreed[function, name])).dtype
            for function, name in weak
        }

    def argument(self, path: str, spec: Spec) -> Value:
        """Declare the runtime leaves of one argument; gives its value."""
        if isinstance(spec, ComptimeSpec):
            return wrap(self.scope, spec.value)
        if isinstance(spec, ArraySpec):
            mem = Mem(
                self.scope.fresh(path),
                "global",
                spec.dtype,
                spec.ndim,
                None,
                spec.layout,
                argument=path,
            )
            self.arguments.append(Argument(path, mem=mem))
            return ArrayValue(mem)
        if isinstance(spec, TensorMapSpec):
            mem = Mem(
                self.scope.fresh(path),
                "map",
                spec.dtype,
                len(spec.box),
                spec.box,
                str(spec.swizzle),
                argument=path,
            )
            self.arguments.append(Argument(path, mem=mem))
            return ArrayValue(mem)
        if isinstance(spec, ScalarSpec):
            vtype = VType(spec.dtype, 0, spec.weak)
            name = self.scope.fresh(path)
            self.scope.types[name] = vtype
            self.arguments.append(Argument(name, scalar=vtype))
            return Expr("var", vtype, (), name)
        if isinstance(spec, TupleSpec):
            return TupleValue(
                tuple(self.argument(f"{path}.{i}", s) for i, s in enumerate(spec.items))
            )
        assert isinstance(spec, StructSpec)
        return StructValue(
            spec.type, tuple((n, self.argument(f"{path}.{n}", s)) for n, s in spec.fields)
        )


def specialise(kernel: Kernel, specs: tuple[Spec, ...], target: Target) -> Program:
    """The program of a kernel for these arguments and this target.

    Raises:
        CompileError: the kernel breaks a rule of the language; the error says where.
    """
    facts = Facts()
    while True:
        attempt = Walk(kernel, specs, target, facts)
        try:
            program = attempt.program()
        except Restart:
            facts.forget_since(0)
            continue
        except CompileError as error:
            _locate(error, attempt.scope)
            raise
        except RecursionError:
            deep = NestingError("the kernel nests too deeply to be compiled")
            _locate(deep, attempt.scope)
            raise deep from None
        except (ZeroDivisionError, OverflowError, ValueError, TypeError, AttributeError) as cause:
            failure = CompileError(
                f"a comptime expression failed: {type(cause).__name__}: {cause}",
                hint="what is known when the code is made is computed then, as Python does",
            )
            _locate(failure, attempt.scope)
            raise failure from cause
        program.guard = guard_of(facts.reads, kernel.fn)
        allocs = [s for s in walk(program.body) if isinstance(s, Alloc)]
        if allocs:  # local memory is declared once, at the top, wherever the kernel asked for it
            program.body = [*allocs, *_without_allocs(program.body)]
        if attempt.scope.read_early:
            set_unassigned(program, attempt.scope.user_names())
        if program.mode == "validate":
            check_reductions(program)
        program = with_uniform_barriers(program)
        check_groups(program, target.plane)
        return program


def with_uniform_barriers(program: Program) -> Program:
    """The program, if all its barriers are uniform; with names that are used again for other values
    as variables of their own, if only those make one seem unsafe.

    Raises:
        BarrierError: a barrier stands under a condition or loop that may differ between units.
    """
    try:
        check_barriers(program)
    except BarrierError:
        program = split_variables(program)
        check_barriers(program)
    return program


def _locate(error: CompileError, scope: Scope) -> None:
    if error.location is None:
        error.location = scope.failed_at or scope.location


def _without_allocs(items: list[Stmt]) -> list[Stmt]:
    out = []
    for s in items:
        if isinstance(s, Alloc):
            continue
        for name in ("then", "orelse", "body"):
            if hasattr(s, name):
                setattr(s, name, _without_allocs(getattr(s, name)))
        out.append(s)
    return out
