"""The functions and topology values that a kernel may use, declared once.

A `Builtin` carries no implementation: the compiler lowers it, and the python backend interprets it
through the hook `interpreter`. Calling one outside a kernel raises an error that says so.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Protocol

from cubepy.errors import LaunchError
from cubepy.lang import hardware_examples, mathematics
from cubepy.lang.examples import PLAIN, with_example
from cubepy.lang.hardware import HARDWARE
from cubepy.lang.words import WORD_EXAMPLES, WORDS

EXAMPLES = PLAIN | mathematics.EXAMPLES | WORD_EXAMPLES | hardware_examples.EXAMPLES
"""The lines of an example for each name, which end its docstring."""


class Interpreter(Protocol):
    """What the python backend offers to builtins while it runs a unit."""

    def call(self, name: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Evaluate the builtin `name` for the current unit."""
        ...

    def topology(self, name: str) -> Any:
        """The current unit's value of a topology name."""
        ...


interpreter: ContextVar[Interpreter | None] = ContextVar("cubepy_interpreter", default=None)


class Builtin:
    """A function of the kernel language."""

    def __init__(self, name: str, doc: str) -> None:
        self.name = self.__name__ = name
        self.__doc__ = with_example(doc, EXAMPLES.get(name, ""))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        active = interpreter.get()
        if active is None:
            hint = "call it in a function decorated with @cb.kernel or @cb.func"
            if args and hasattr(args[0], "storage") and hasattr(args[0], self.name):
                hint = f"of a tensor x it is x.{self.name}(...); cb.{self.name} is of kernels"
            raise LaunchError(f"cb.{self.name} was called outside a kernel", hint=hint)
        return active.call(self.name, args, kwargs)

    def __repr__(self) -> str:
        return f"cb.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class Topology:
    """A position or size of the launch, such as `cb.ABSOLUTE_POS`."""

    def __init__(self, name: str, doc: str) -> None:
        self.name = name
        self.__doc__ = with_example(doc, EXAMPLES.get(name, ""))

    def __repr__(self) -> str:
        return f"cb.{self.name}"

    def __reduce__(self) -> str:
        return self.name


def _topology() -> dict[str, Topology]:
    docs = {
        "ABSOLUTE_POS": "Index of this unit in the whole launch",
        "CUBE_POS": "Index of this unit's cube",
        "CUBE_DIM": "Units in a cube (comptime)",
        "CUBE_COUNT": "Cubes in the launch",
        "UNIT_POS": "Index of this unit in its cube",
    }
    out = {
        name + suffix: Topology(
            name + suffix, doc + (f", axis {suffix[1:].lower()}." if suffix else ".")
        )
        for name, doc in docs.items()
        for suffix in ("", "_X", "_Y", "_Z")
    }
    out["PLANE_DIM"] = Topology("PLANE_DIM", "Units in a plane (comptime; 1 on the CPU).")
    out["PLANE_POS"] = Topology("PLANE_POS", "Index of this unit's plane in its cube.")
    out["CLUSTER_POS"] = Topology("CLUSTER_POS", "Index of this cube in its cluster.")
    out["UNIT_POS_PLANE"] = Topology("UNIT_POS_PLANE", "Index of this unit in its plane.")
    return out


FLOAT_MATH = {
    "exp": "e ** x.",
    "exp2": "2 ** x.",
    "log": "Natural logarithm.",
    "log2": "Logarithm to base 2.",
    "log1p": "log(1 + x), exact near zero.",
    "expm1": "exp(x) - 1, exact near zero.",
    "sqrt": "Square root, correctly rounded.",
    "rsqrt": "1 / sqrt(x).",
    "sin": "Sine of an angle in radians.",
    "cos": "Cosine of an angle in radians.",
    "tanh": "Hyperbolic tangent.",
    "erf": "Error function.",
    "floor": "Largest integral value not above x, as a float.",
    "ceil": "Smallest integral value not below x, as a float.",
    "trunc": "x without its fraction, as a float.",
    "isnan": "Whether x is NaN (a bool, or a mask of a line).",
    "isinf": "Whether x is infinite (a bool, or a mask of a line).",
}

PLANE_OPS = {
    "plane_sum": "Sum of `v` over the plane.",
    "plane_prod": "Product of `v` over the plane.",
    "plane_max": "Largest `v` of the plane.",
    "plane_min": "Smallest `v` of the plane.",
    "plane_all": "Whether `v` holds in every unit of the plane.",
    "plane_any": "Whether `v` holds in some unit of the plane.",
    "plane_broadcast": "`plane_broadcast(v, unit)`: the `v` of the given unit (comptime).",
    "plane_shuffle": "`plane_shuffle(v, unit)`: the `v` of the given unit.",
    "plane_shuffle_xor": "`plane_shuffle_xor(v, mask)`: the `v` of unit `UNIT_POS_PLANE ^ mask`.",
    "plane_shuffle_up": "`plane_shuffle_up(v, n)`: the `v` of the unit n below; own value at "
    "the edge.",
    "plane_shuffle_down": "`plane_shuffle_down(v, n)`: the `v` of the unit n above; own value "
    "at the edge.",
    "plane_inclusive_sum": "Sum of `v` over this unit and those below it in the plane.",
    "plane_exclusive_sum": "Sum of `v` over the units below this one in the plane.",
}

ATOMIC_OPS = {
    "atomic_add": "`atomic_add(array, index, value)`: add, return the old value.",
    "atomic_sub": "`atomic_sub(array, index, value)`: subtract, return the old value.",
    "atomic_max": "`atomic_max(array, index, value)`: keep the larger, return the old value.",
    "atomic_min": "`atomic_min(array, index, value)`: keep the smaller, return the old value.",
    "atomic_and": "`atomic_and(array, index, value)`: bitwise and, return the old value.",
    "atomic_or": "`atomic_or(array, index, value)`: bitwise or, return the old value.",
    "atomic_xor": "`atomic_xor(array, index, value)`: bitwise exclusive or, return the old value.",
    "atomic_exchange": "`atomic_exchange(array, index, value)`: store, return the old value.",
    "atomic_compare_exchange": "`atomic_compare_exchange(array, index, expected, desired)`: store "
    "`desired` if the place holds `expected`; return the old value.",
}

OTHER = {
    "splat": "`splat(v, lanes)`: a line with `v` in every lane; a line of so many lanes as it is.",
    "select": "`select(mask, a, b)`: a where mask holds, else b; both are evaluated.",
    "fma": "`fma(a, b, c)`: a * b + c, rounded once.",
    "pow": "`pow(x, y)`: x to the power y.",
    "abs": "Absolute value (the most negative integer stays itself).",
    "round": "Nearest integral value, ties to even, as a float.",
    "min": "Smaller of two values; a NaN operand is ignored, as fmin does.",
    "max": "Larger of two values; a NaN operand is ignored, as fmax does.",
    "nan_min": "Smaller of two values; NaN if either is NaN, as numpy.minimum does.",
    "nan_max": "Larger of two values; NaN if either is NaN, as numpy.maximum does.",
    "clamp": "`clamp(x, low, high)`: min(max(x, low), high).",
    "cast": "`cast(v, dtype)`: convert; float to int truncates and saturates, NaN gives 0.",
    "bitcast": "`bitcast(v, dtype)`: the same bits as another dtype of the same width.",
    "popcount": "Number of set bits of an integer.",
    "clz": "Number of leading zero bits of an integer (its width for 0).",
    "ctz": "Number of trailing zero bits of an integer (its width for 0).",
    "dot_i8": "`dot_i8(acc, a, b, most=255)`: acc (i32, L lanes) plus the products of four "
    "neighbours of a (u8, 4L lanes) with those of b (i8, 4L lanes); exact where no a is larger "
    "than the comptime `most`. Up to 128, x86 without VNNI takes half the steps.",
    "dot_bf16": "`dot_bf16(acc, a, b)`: acc (f32, L lanes) plus the two products of each lane's "
    "pair of bf16 in a with that in b (u32, L lanes); the upper halves first, each sum "
    "rounded; subnormal numbers may count as zero.",
    "shared": "`shared(shape, dtype)`: memory of the cube, uninitialised; shape is comptime.",
    "local": "`local(shape, dtype, lanes=0)`: registers of the unit, uninitialised; shape is "
    "comptime. With lanes > 0 each element is a line.",
    "sync_cube": "Barrier: every unit of the cube arrives before any goes on; memory is visible "
    "after it.",
    "sync_plane": "Barrier of the plane.",
    "comptime": "`comptime(expr)`: insists that the expression is comptime.",
    "unroll": "`unroll(range(...))`, or of a comptime tuple: the loop is written out; its "
    "variable is comptime.",
    "device_properties": "The `DeviceProperties` of the device that the kernel is compiled for "
    "(comptime).",
    "debug_print": "`debug_print(*values)`: print from a unit; removed unless debugging.",
    "debug_assert": "`debug_assert(condition, message)`: fail the launch; removed unless "
    "debugging.",
    "concat": "`concat(a, b)`: a line with the lanes of a and then those of b.",
    "slice_line": "`slice_line(v, start, lanes)`: `lanes` lanes of v from comptime lane `start` "
    "on.",
    "interleave": "`interleave(a, b)`: a line of lanes a[0], b[0], a[1], b[1], ...",
    "partition": "`partition(v, mask)`: a line of the lanes of v where the mask holds, then of "
    "the others, both in order; `mask.sum()` says how many they are.",
    "shuffle": "`shuffle(a, b, lanes)`: a line of lanes picked by a comptime tuple from a, then b.",
}

_TABLES = FLOAT_MATH | mathematics.MATHEMATICS | PLANE_OPS | ATOMIC_OPS | OTHER | WORDS | HARDWARE
BUILTINS = {n: Builtin(n, d) for n, d in _TABLES.items()}
TOPOLOGY = _topology()
