"""Arithmetic, comparison, logic and selection, as functions of scalars and lines and as operators
of lines.

Integers wrap in their own dtype, which numba's operators on scalars do not do: they widen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from numba.core import errors
from numba.core.extending import lower_builtin
from numba.core.typing.templates import AbstractTemplate, Signature, infer_global

from cubepy.backends.llvm.ops.elementwise import elementwise, same
from cubepy.backends.llvm.ops.host import host_features
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import F32, Line, described, is_float, is_signed, value_type
from cubepy.backends.llvm.ops.values import const, is_nan, lanes_of, math, negated, on_gpu


def _pair(float_name: str, int_name: str) -> Callable[..., Any]:
    """Two operands: one LLVM instruction for floats, another for integers."""

    def emit(b: Any, dtype: str, x: Any, y: Any) -> Any:
        return getattr(b, float_name if is_float(dtype) else int_name)(x, y)

    return emit


def _logic(name: str) -> Callable[..., Any]:
    return lambda b, dtype, x, y: getattr(b, name)(x, y)


def _compare(symbol: str) -> Callable[..., Any]:
    def emit(b: Any, dtype: str, x: Any, y: Any) -> Any:
        if is_float(dtype):  # NaN differs from everything
            return (b.fcmp_unordered if symbol == "!=" else b.fcmp_ordered)(symbol, x, y)
        return (b.icmp_signed if is_signed(dtype) else b.icmp_unsigned)(symbol, x, y)

    return emit


def _negated(b: Any, dtype: str, x: Any) -> Any:
    return negated(b, x) if is_float(dtype) else b.sub(const(x.type, 0), x)


def _inverted(b: Any, dtype: str, x: Any) -> Any:
    return b.xor(x, const(x.type, 1 if dtype == "bool_" else -1))


def less(b: Any, dtype: str, x: Any, y: Any) -> Any:
    """A mask of the lanes where x < y."""
    return _compare("<")(b, dtype, x, y)


def _number_extremum(float_name: str, symbol: str) -> Callable[..., Any]:
    def emit(b: Any, dtype: str, x: Any, y: Any) -> Any:
        if is_float(dtype):
            return math(b, float_name, x, y)
        return b.select(_compare(symbol)(b, dtype, x, y), x, y)

    return emit


def _nan_extremum(symbol: str) -> Callable[..., Any]:
    def emit(b: Any, dtype: str, x: Any, y: Any) -> Any:
        first = _compare(symbol)(b, dtype, x, y)
        if is_float(dtype):  # y is NaN: not first, so y; x is NaN: x
            first = b.or_(first, is_nan(b, x))
        return b.select(first, x, y)

    return emit


def absolute_value(b: Any, dtype: str, x: Any) -> Any:
    """The absolute value; the most negative integer stays itself."""
    if is_float(dtype):
        return math(b, "fabs", x)
    if not is_signed(dtype):
        return x
    return b.select(b.icmp_signed("<", x, const(x.type, 0)), b.sub(const(x.type, 0), x), x)


HALVES = {"avx512fp16", "fullfp16"}
"""Features of CPUs with arithmetic of f16."""


def _integral(name: str) -> Callable[..., Any]:
    """An integral value near x. LLVM would compute it of halves where x was one, which CPUs without
    arithmetic of f16 do lane by lane; the fence hides that from it and is no instruction.
    """

    def emit(b: Any, dtype: str, x: Any) -> Any:
        wide = lanes_of(x.type) and x.type.element == F32 and not on_gpu(b)
        if wide and not HALVES & host_features():
            x = math(b, "arithmetic.fence", x)
        return math(b, name, x)

    return emit


def _is_inf(b: Any, dtype: str, x: Any) -> Any:
    return b.fcmp_ordered("==", math(b, "fabs", x), const(x.type, float("inf")))


add_values, sub_values, mul_values = (
    _pair("fadd", "add"),
    _pair("fsub", "sub"),
    _pair("fmul", "mul"),
)
minnum_values, maxnum_values = _number_extremum("minnum", "<"), _number_extremum("maxnum", ">")

add = elementwise("add", 2, add_values, doc="x + y.")
sub = elementwise("sub", 2, sub_values, doc="x - y.")
mul = elementwise("mul", 2, mul_values, doc="x * y.")
truediv = elementwise("truediv", 2, lambda b, d, x, y: b.fdiv(x, y), "float", doc="x / y.")
and_ = elementwise("and_", 2, _logic("and_"), "integral", doc="Bitwise and, of masks too.")
or_ = elementwise("or_", 2, _logic("or_"), "integral", doc="Bitwise or, of masks too.")
xor = elementwise("xor", 2, _logic("xor"), "integral", doc="Bitwise exclusive or, of masks too.")
inv = elementwise("inv", 1, _inverted, "integral", doc="Bitwise complement, of masks too.")
not_ = elementwise(
    "not_", 1, lambda b, d, x: b.not_(x), "integral", doc="The opposite of a boolean or mask."
)
neg = elementwise("neg", 1, _negated, doc="-x.")
absolute = elementwise("absolute", 1, absolute_value, doc="Absolute value.")

eq = elementwise("eq", 2, _compare("=="), "any", True, "x == y.")
ne = elementwise("ne", 2, _compare("!="), "any", True, "x != y.")
lt = elementwise("lt", 2, _compare("<"), "any", True, "x < y.")
le = elementwise("le", 2, _compare("<="), "any", True, "x <= y.")
gt = elementwise("gt", 2, _compare(">"), "any", True, "x > y.")
ge = elementwise("ge", 2, _compare(">="), "any", True, "x >= y.")

minnum = elementwise("minnum", 2, minnum_values, doc="The smaller; a NaN operand is ignored.")
maxnum = elementwise("maxnum", 2, maxnum_values, doc="The larger; a NaN operand is ignored.")
minimum = elementwise("minimum", 2, _nan_extremum("<"), doc="The smaller; NaN if either is NaN.")
maximum = elementwise("maximum", 2, _nan_extremum(">"), doc="The larger; NaN if either is NaN.")

floor = elementwise("floor", 1, _integral("floor"), "float", doc="Integral value not above x.")
ceil = elementwise("ceil", 1, _integral("ceil"), "float", doc="Integral value not below x.")
trunc = elementwise("trunc", 1, _integral("trunc"), "float", doc="x without its fraction.")
rint = elementwise("rint", 1, _integral("rint"), "float", doc="Nearest integral, ties to even.")
sqrt = elementwise(
    "sqrt", 1, lambda b, d, x: math(b, "sqrt", x), "float", doc="Square root, correctly rounded."
)
isnan = elementwise("isnan", 1, lambda b, d, x: is_nan(b, x), "float", True, "Whether x is NaN.")
isinf = elementwise("isinf", 1, _is_inf, "float", True, "Whether x is infinite.")
fma = elementwise(
    "fma", 3, lambda b, d, x, y, z: math(b, "fma", x, y, z), "float", doc="x * y + z, rounded once."
)


@op
def select(mask: Any, x: Any, y: Any) -> Any:
    """`select(mask, x, y)`: x where mask holds, else y; a scalar mask chooses for all lanes."""
    m, m_lanes = described(mask)
    _, lanes, t = same("select", (x, y))
    if m != "bool_" or m_lanes not in (0, lanes):
        raise errors.TypingError(f"select: the mask {mask} does not go with {t}")
    return t(value_type(m, m_lanes), t, t), lambda b, m, x, y: b.select(m, x, y)


def _operator(python: Any, named: Any) -> None:
    """Let lines use an operator: it is the op of the same meaning."""

    class LineOperator(AbstractTemplate):
        key = python

        def generic(self, args: tuple[Any, ...], kws: dict[str, Any]) -> Signature | None:
            if not all(isinstance(a, Line) for a in args):
                return None
            return named.signature(args)

    infer_global(python)(LineOperator)
    for arity in (1, 2):
        lower_builtin(python, *[Line] * arity)(named.lower)


for _symbol, _named in {
    operator.add: add,
    operator.sub: sub,
    operator.mul: mul,
    operator.truediv: truediv,
    operator.neg: neg,
    operator.and_: and_,
    operator.or_: or_,
    operator.xor: xor,
    operator.invert: inv,
    operator.eq: eq,
    operator.ne: ne,
    operator.lt: lt,
    operator.le: le,
    operator.gt: gt,
    operator.ge: ge,
    operator.iadd: add,
    operator.isub: sub,
    operator.imul: mul,
    operator.itruediv: truediv,
}.items():
    _operator(_symbol, _named)

__all__ = [
    "absolute",
    "add",
    "and_",
    "ceil",
    "eq",
    "floor",
    "fma",
    "ge",
    "gt",
    "inv",
    "isinf",
    "isnan",
    "le",
    "lt",
    "maximum",
    "maxnum",
    "minimum",
    "minnum",
    "mul",
    "ne",
    "neg",
    "not_",
    "or_",
    "rint",
    "select",
    "sqrt",
    "sub",
    "truediv",
    "trunc",
    "xor",
]
