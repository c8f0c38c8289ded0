"""From a kernel and the specs of its arguments to a `Program`."""

from __future__ import annotations

from cubepy.compiler import products, tile_calls  # noqa: F401  (they register their rules)
from cubepy.compiler.calls import Calls
from cubepy.compiler.groups import check_groups
from cubepy.compiler.hardware_calls import with_barriers_first
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
from cubepy.compiler.lines.missing import check_reductions
from cubepy.compiler.reads import guard_of
from cubepy.compiler.rules import mathematics  # noqa: F401  (it registers its rules)
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
from cubepy.compiler.state import Facts, Frame, Restart
from cubepy.compiler.uniform import check_barriers
from cubepy.compiler.values import ArrayValue, StructValue, TupleValue, Value
from cubepy.errors import CompileError, DTypeError, NestingError
from cubepy.lang.declare import Kernel
from cubepy.lang.dtypes import DType

MAX_WALKS = 500


class Specialiser(Calls):
    """One walk over a kernel."""

    def __init__(
        self, kernel: Kernel, specs: tuple[Spec, ...], target: Target, facts: Facts
    ) -> None:
        super().__init__(facts, target.index)
        self.kernel, self.specs, self.target = kernel, specs, target
        self.units, self.plane, self.shared_limit = target.units, target.plane, target.shared_limit
        self.properties, self.debug = target.properties, target.debug
        self.arguments: list[Argument] = []
        self.loops, self.left = [], []
        self.callers = []

    def run(self) -> Program:
        """Walk the kernel once; raises `Restart` when a fact was learned."""
        source = source_of(self.kernel.fn)
        self.frame = Frame(source, (self.kernel.__name__,))
        for param, spec in zip(self.kernel.parameters, self.specs, strict=True):
            self.frame.env[param.name] = self.argument(param.name, spec)
        self.run_function(source.tree)
        self.out = with_barriers_first(self, self.out)
        names = {a.mem.name for a in self.arguments if a.mem}
        return Program(
            name=self.kernel.__name__,
            arguments=self.arguments,
            body=self.out,
            variables=self.types,
            shared=self.shared,
            units=self.units,
            index=self.index,
            mode=self.target.mode,
            fast_math=self.kernel.fast_math,
            outputs=frozenset(self.written & names),
            reads=frozenset(self.read & names),
            has_barrier=contains_barrier(self.out),
            debug=self.debug,
            properties=self.target.properties,
            typed=self.typed(),
            cluster=self.cluster,
            resident=self.resident,
            overlap=self.overlap,
            axes=self.axes,
        )

    def typed(self) -> dict[tuple[str, str], DType]:
        """The dtypes of runtime variables by function and name, where all calls agree."""
        found: dict[tuple[str, str], set[DType]] = {}
        for variable, owner in self.owners.items():
            found.setdefault(owner, set()).add(self.types[variable].dtype)
        return {k: next(iter(v)) for k, v in found.items() if len(v) == 1}

    def argument(self, path: str, spec: Spec) -> Value:
        """Declare the runtime leaves of one argument; gives its value."""
        if isinstance(spec, ComptimeSpec):
            return self.wrap(spec.value)
        if isinstance(spec, ArraySpec):
            mem = Mem(
                self.fresh(path), "global", spec.dtype, spec.ndim, None, spec.layout, argument=path
            )
            self.arguments.append(Argument(path, mem=mem))
            return ArrayValue(mem)
        if isinstance(spec, TensorMapSpec):
            mem = Mem(
                self.fresh(path),
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
            name = self.fresh(path)
            self.types[name] = vtype
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
    for _ in range(MAX_WALKS):
        walker = Specialiser(kernel, specs, target, facts)
        try:
            program = walker.run()
        except Restart:
            continue
        except CompileError as error:
            _locate(error, walker)
            raise
        except RecursionError:
            deep = NestingError("the kernel nests too deeply to be compiled")
            _locate(deep, walker)
            raise deep from None
        except (ZeroDivisionError, OverflowError, ValueError, TypeError, AttributeError) as cause:
            failure = CompileError(f"a comptime expression failed: {type(cause).__name__}: {cause}")
            _locate(failure, walker)
            raise failure from cause
        program.guard = guard_of(facts.reads, kernel.fn)
        program.body = _with_allocs_first(program.body)
        if program.mode == "validate":
            check_reductions(program)
        check_barriers(program)
        check_groups(program, target.plane)
        return program
    raise DTypeError(
        f"the dtypes of {kernel.__name__} do not settle", hint="annotate variables: x: cb.f32 = 0"
    )


def _locate(error: CompileError, walker: Specialiser) -> None:
    if error.location is None:
        error.location = walker.failed_at or walker.location


def _with_allocs_first(body: list[Stmt]) -> list[Stmt]:
    """Local memory is declared once, at the top, wherever the kernel asked for it."""
    allocs = [s for s in walk(body) if isinstance(s, Alloc)]
    if not allocs:
        return body

    def strip(items: list[Stmt]) -> list[Stmt]:
        out = []
        for s in items:
            if isinstance(s, Alloc):
                continue
            for name in ("then", "orelse", "body"):
                if hasattr(s, name):
                    setattr(s, name, strip(getattr(s, name)))
            out.append(s)
        return out

    return [*allocs, *strip(body)]
