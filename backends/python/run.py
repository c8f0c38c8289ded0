"""Running a launch as plain Python: every unit is a generator that stops at barriers; cubes go one
after the other.
"""

from __future__ import annotations

import linecache
import math
import operator
import pdb
import sys
from collections.abc import Callable, Generator
from functools import reduce
from typing import Any

import numpy as np

from cubepy.backends.python.arguments import argument
from cubepy.backends.python.builtins import MEANING, WeakLine
from cubepy.backends.python.memory import Memory, poisoned
from cubepy.backends.python.names import Frozen
from cubepy.backends.python.structs import Bound, Inside
from cubepy.backends.python.transform import generator_of
from cubepy.backends.python.values import (
    Value,
    WeakNumber,
    convert,
    is_weak,
    still_weak,
    strong,
    yields,
)
from cubepy.backends.python.words import Sides, TypedRange, lines, unassigned
from cubepy.compiler.signature import bind_parameters
from cubepy.compiler.source import source_of
from cubepy.compiler.walk.python_calls import MATH
from cubepy.errors import BarrierError, DTypeError, KernelAssertionError, Location
from cubepy.lang import dtypes as dt
from cubepy.lang.builtins import ATOMIC_OPS, FLOAT_MATH, Builtin, Topology
from cubepy.lang.declare import Func, Kernel
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.lang.grid import Dim3
from cubepy.lang.mathematics import MATHEMATICS
from cubepy.lang.struct import Struct, StructType

YIELDING = (
    frozenset(FLOAT_MATH)
    | frozenset(MATHEMATICS)
    | frozenset("abs round min max nan_min nan_max clamp fma pow select".split())
)
"""Functions whose result yields where all of their numbers do."""
TRANSLATED = {abs: "abs", min: "min", max: "max", round: "round", pow: "pow"} | MATH
"""What the language makes of functions of Python."""


class Run(Sides):
    """One launch."""

    def __init__(
        self,
        kernel: Kernel,
        cubes: Dim3,
        units: Dim3,
        mode: str,
        properties: Any,
        index: DType,
        typed: dict[tuple[str, str], DType],
        frozen: Frozen | None = None,
    ) -> None:
        self.kernel, self.name = kernel, kernel.__name__
        self.cubes, self.units, self.mode, self.properties, self.index = (
            cubes,
            units,
            mode,
            properties,
            index,
        )
        self.typed = typed
        self.with_parts = {
            (function, name[:dot])
            for function, name in typed
            for dot, letter in enumerate(name)
            if letter == "."
        }
        self.generator_of = generator_of if frozen is None else frozen.generator_of
        self.getattr = getattr if frozen is None else frozen.attribute
        self.cube = self.unit = self.phase = 0
        self.files = {source_of(kernel.fn).file}
        self.functions: dict[Func, tuple[Callable[..., Any], bool]] = {}
        self.shared: dict[Any, Memory] = {}
        self.allocated: dict[int, int] = {}

    def location(self) -> Location | None:
        """The innermost place in the user's kernel that is running."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in self.files and "__run__" in frame.f_locals:
                text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
                column = len(text) - len(text.lstrip())
                return Location(
                    frame.f_code.co_filename, frame.f_lineno, column, frame.f_code.co_name
                )
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def topology(self, name: str) -> Any:
        """A topology value of the current unit."""
        x, y, z = self.units
        if name.startswith("CUBE_DIM"):
            return {"": x * y * z, "_X": x, "_Y": y, "_Z": z}[name[8:]]
        if name in ("PLANE_DIM", "UNIT_POS_PLANE"):
            return 1 if name == "PLANE_DIM" else 0
        if name == "PLANE_POS":
            name = "UNIT_POS"
        cx, cy, cz = self.cubes
        unit = {
            "": self.unit,
            "_X": self.unit % x,
            "_Y": self.unit // x % y,
            "_Z": self.unit // (x * y),
        }
        cube = {
            "": self.cube,
            "_X": self.cube % cx,
            "_Y": self.cube // cx % cy,
            "_Z": self.cube // (cx * cy),
        }
        count = {"": cx * cy * cz, "_X": cx, "_Y": cy, "_Z": cz}
        dim = {"": x * y * z, "_X": x, "_Y": y, "_Z": z}
        axis = name[-2:] if name[-2] == "_" else ""
        value = {
            "UNIT_POS": unit[axis],
            "CUBE_POS": cube[axis],
            "CUBE_COUNT": count[axis],
            "ABSOLUTE_POS": cube[axis] * dim[axis] + unit[axis],
        }[name[: len(name) - len(axis)]]
        return Value(value, self.index)

    def wrap(self, obj: Any) -> Any:
        """A global or closure object as the kernel sees it."""
        if isinstance(obj, Struct):
            return self.made(obj.__cubepy_type__, obj.__cubepy_values__)
        return self.topology(obj.name) if isinstance(obj, Topology) else obj

    def made(self, cls: StructType, values: dict[str, Any]) -> Struct:
        """A struct in the kernel."""
        return Inside(cls, values, self)

    def attribute(self, owner: Any, name: str) -> Any:
        """`owner.name`."""
        if isinstance(owner, Struct):
            if name in owner.__cubepy_values__:
                return self.wrap(owner.__cubepy_values__[name])
            if name in owner.__cubepy_type__.methods:
                return Bound(owner, owner.__cubepy_type__.methods[name])
        return self.wrap(self.getattr(owner, name))

    def bind(self, types: dict[str, Any], name: str, value: Any) -> Any:
        """A value that is assigned to a variable, in the variable's one dtype."""
        if isinstance(value, (tuple, Struct)):
            return self.bind_parts(types[""], name, value)
        known = types.get(name)
        if isinstance(value, Value) and not isinstance(value, (WeakLine, WeakNumber)):
            if known is None:
                # `n and flag` is n or the flag here, and n's dtype in compiled code
                wide = self.typed.get((types[""], name), value.dtype)
                types[name] = known = wide if dt.promote(wide, value.dtype) is wide else value.dtype
                return value if known is value.dtype else convert(value, known)
            elif known is not value.dtype:
                if dt.promote(known, value.dtype) is not known:
                    raise DTypeError(
                        f"the variable {name!r} is {known.name} and is given {value.dtype.name}: "
                        "a variable has one dtype for its whole life",
                        location=self.location(),
                    )
                return convert(value, known)
        elif yields(value):
            known = known or self.typed.get((types[""], name))
            return self.settled(types[""], name, value, known)
        return value

    def settled(self, function: str, name: str, value: Any, known: DType | None) -> Any:
        """A number that yields, in a variable: in its dtype, and yielding if the variable does."""
        if known is None or (strong(value).dtype.is_float and known.is_int):
            return value
        made = convert(value, known)
        weak = (function, f"{name}~") in self.typed
        return WeakNumber(made.data, known) if weak else Value(made.data, known)

    def bind_parts(self, function: str, name: str, value: Any) -> Any:
        """A part of an aggregate that is assigned to a variable, in the dtype that it has in
        compiled code, if any.
        """
        if isinstance(value, (tuple, Struct)) and (function, name) not in self.with_parts:
            return value
        if isinstance(value, tuple):
            return tuple(self.bind_parts(function, f"{name}.{i}", v) for i, v in enumerate(value))
        if isinstance(value, Struct):
            comptime = {f.name for f in value.__cubepy_type__.fields if f.kind == "comptime"}
            fields = value.__cubepy_values__.items()
            return self.made(
                value.__cubepy_type__,
                {
                    n: v if n in comptime else self.bind_parts(function, f"{name}.{n}", v)
                    for n, v in fields
                },
            )
        known = self.typed.get((function, name))
        if (
            known is None
            or isinstance(value, WeakLine)
            or not (is_weak(value) or isinstance(value, Value))
        ):
            return value
        if yields(value):
            return self.settled(function, name, value, known)
        return convert(value, known) if dt.promote(known, value.dtype) is known else value

    def entered(self, types: dict[str, Any], name: str, value: Any) -> Any:
        """A parameter: a number without a dtype takes that of its variable."""
        if isinstance(value, tuple):
            return self.bind_parts(types[""], name, value)
        return self.bind(types, name, value) if yields(value) else value

    def annotated(self, value: Any, dtype: Any) -> Any:
        """`x: dtype = value`."""
        return self.placed(value, dtype, "a variable") if isinstance(dtype, DType) else value

    def placed(self, value: Any, dtype: DType, what: str) -> Value:
        """A value converted for a place; a float never becomes an integer by itself."""
        is_float = isinstance(value, float) if is_weak(value) else strong(value).dtype.is_float
        if is_float and not dtype.is_float:
            raise DTypeError(
                f"a float cannot be put into {what} of dtype {dtype.name}", location=self.location()
            )
        return convert(value, dtype.compute)

    def call(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Generator[Any, None, Any]:
        """Call something from a kernel; suspends at barriers."""
        if isinstance(fn, Bound):
            return (yield from self.invoke(fn.method, [fn.owner, *args], kwargs))
        if isinstance(fn, Struct):
            return (
                yield from self.invoke(fn.__cubepy_type__.methods["__call__"], [fn, *args], kwargs)
            )
        if isinstance(fn, Func):
            return (yield from self.invoke(fn, args, kwargs))
        if isinstance(fn, StructType):
            return self.construct(fn, args, kwargs)
        if isinstance(fn, DType):
            return MEANING["cast"](*args, fn)
        if isinstance(fn, Builtin):
            if fn.name in ("sync_cube", "sync_plane"):
                if fn.name == "sync_cube":
                    yield self.location()
                return None
            return self.builtin(fn.name, args, kwargs)
        return self.python(fn, args, kwargs)

    def invoke(
        self, fn: Func, args: list[Any], kwargs: dict[str, Any]
    ) -> Generator[Any, None, Any]:
        """Run a func as part of the current unit."""
        known = self.functions.get(fn)
        if known is None:
            self.files.add(source_of(fn.fn).file)
            plain = not any(p.keyword_only or p.dtype is not None for p in fn.parameters)
            known = self.functions[fn] = self.generator_of(fn.fn), plain
        function, plain = known
        if plain and not kwargs and len(args) == len(fn.parameters):
            return (yield from function(self, *args))
        bound = bind_parameters(fn.parameters, fn.__qualname__, args, kwargs)
        values = [
            v if p.dtype is None else self.placed(v, p.dtype, f"the parameter {p.name!r}")
            for p, v in bound
        ]
        return (yield from function(self, *values))

    def construct(self, cls: StructType, args: list[Any], kwargs: dict[str, Any]) -> Struct:
        """Make a struct; scalar fields take their dtype."""
        given = cls.bind(tuple(args), kwargs)
        for f in cls.fields:
            if f.kind == "scalar" and f.dtype is not None:
                given[f.name] = self.placed(
                    given[f.name], f.dtype, f"the field {cls.__name__}.{f.name}"
                )
        return self.made(cls, given)

    def builtin(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Evaluate a builtin."""
        if name in MEANING:
            result = MEANING[name](*args, **kwargs)
            return still_weak(result, *args[name == "select" :]) if name in YIELDING else result
        if name in ATOMIC_OPS:
            array, index, *values = [*args, *kwargs.values()]
            return array.atomic(name[len("atomic_") :], index, tuple(values))
        return getattr(self, f"do_{name}")(*args, **kwargs)

    def do_comptime(self, expr: Any) -> Any:
        return expr

    def do_unroll(self, over: Any) -> Any:
        if isinstance(over, int):
            return range(over)
        return over.plain if isinstance(over, TypedRange) else over

    def do_lines(self, start: Any, stop: Any, lanes: Any) -> Any:
        return lines(start, stop, lanes, self.index)

    def do_device_properties(self) -> Any:
        return self.properties

    def do_debug_print(self, *values: Any) -> None:
        print(*values)

    def do_debug_assert(self, condition: Any, message: str = "assertion failed") -> None:
        if not condition:
            raise KernelAssertionError(f"in {self.name}: {message}", location=self.location())

    def do_shared(self, shape: Any, dtype: Any) -> Memory:
        """Memory of the cube: the n-th request of every unit is the same memory."""
        number = self.allocated.get(self.unit, 0)
        self.allocated[self.unit] = number + 1
        if number not in self.shared:
            d = as_dtype(dtype)
            self.shared[number] = Memory(self, "shared", poisoned(_shape(shape), d), "shared", d)
        return self.shared[number]

    def do_local(self, shape: Any, dtype: Any, lanes: Any = 0) -> Memory:
        """Memory of the unit."""
        d = as_dtype(dtype)
        full = _shape(shape) + ((int(lanes),) if int(lanes) else ())
        memory = Memory(self, "local", poisoned(full, d), "local", d)
        memory.lines = int(lanes)
        return memory

    def python(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of Python's; those that the language translates get their typed
        meaning.
        """
        if fn is breakpoint or fn is pdb.set_trace:
            frame = sys._getframe(1)
            while frame is not None and "__run__" not in frame.f_locals:
                frame = frame.f_back  # type: ignore[assignment]
            pdb.Pdb(nosigint=True).set_trace(frame)
            return None
        if fn is range:
            return self.do_range(*args)
        try:
            known = TRANSLATED.get(fn)
        except TypeError:
            known = None
        if fn in (zip, enumerate):
            args = [a.plain if isinstance(a, TypedRange) else a for a in args]
        if fn in (min, max, sum) and len(args) == 1 and isinstance(args[0], tuple):
            args = [*args[0]]  # of a tuple
            if fn is sum:
                return reduce(operator.add, args) if args else 0
            if len(args) == 1:
                return args[0]
        if known is not None and any(isinstance(a, Value) for a in args):
            return still_weak(MEANING[known](*args), *args)
        if fn in (int, float, bool) and isinstance(args[0], Value):
            v = args[0]
            if fn is bool:
                return v != 0  # type: ignore[comparison-overlap]
            if fn is float:
                return v if v.dtype.is_float else convert(v, dt.float_for(v.dtype))
            return v if v.dtype.is_int else convert(v, dt.i64 if v.dtype is dt.f64 else dt.i32)
        if fn is tuple and isinstance(args[0], TypedRange):
            return tuple(args[0].plain)
        return fn(*args, **kwargs)


def _shape(shape: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in shape) if isinstance(shape, tuple) else (int(shape),)


def run(
    kernel: Kernel,
    arguments: dict[str, Any],
    cubes: Dim3,
    units: Dim3,
    mode: str = "checked",
    properties: Any = None,
    typed: dict[tuple[str, str], DType] | None = None,
    frozen: Frozen | None = None,
) -> None:
    """Run a kernel for every unit of every cube.

    Raises:
        OutOfBoundsError: in validate mode, an access outside an array.
        RaceError: two units touch one place without a barrier between them, and one writes.
        BarrierError: some units of a cube wait at a barrier that others never reach.
    """
    wide = any(isinstance(a, np.ndarray) and a.size >= 2**31 for a in arguments.values())
    this = Run(
        kernel, cubes, units, mode, properties, dt.i64 if wide else dt.i32, typed or {}, frozen
    )
    values = [argument(this, p, arguments[p.name]) for p in kernel.parameters]
    function = this.generator_of(kernel.fn)
    with np.errstate(all="ignore"):
        for cube in range(math.prod(cubes)):
            this.cube, this.phase = cube, 0
            this.shared, this.allocated = {}, {}
            _run_cube(this, function, values, math.prod(units))


def _run_cube(this: Run, function: Callable[..., Any], values: list[Any], units: int) -> None:
    waiting: dict[int, Any] = {u: function(this, *values) for u in range(units)}
    while waiting:
        locations: dict[int, Any] = {}
        finished = []
        for unit, generator in waiting.items():
            this.unit = unit
            try:
                locations[unit] = next(generator)
            except StopIteration:
                finished.append(unit)
            except UnboundLocalError as error:
                raise unassigned(this.name, error) from error
        if locations and (finished or len({p.line if p else 0 for p in locations.values()}) > 1):
            unit, location = next(iter(locations.items()))
            other = (
                finished[0] if finished else next(u for u, p in locations.items() if p != location)
            )
            raise BarrierError(
                f"unit {unit} of cube {this.cube} waits at a barrier that unit {other} does "
                "not reach",
                location=location,
                hint="move cb.sync_cube() out of the branch or loop",
            )
        for unit in finished:
            del waiting[unit]
        this.phase += 1
