"""Walking expressions: comptime ones are computed now, runtime ones become typed trees."""

from __future__ import annotations

import ast
import types
from typing import Any

from cubepy.compiler import convert, values
from cubepy.compiler.ir import Assign, Expr, If, Mem, Store, VType
from cubepy.compiler.reads import HOLDERS, MISSING
from cubepy.compiler.state import State
from cubepy.compiler.values import (
    ArrayValue,
    Const,
    MethodValue,
    StructValue,
    TupleValue,
    Undecided,
    Value,
    describe,
    plain,
)
from cubepy.errors import ComptimeError, KernelNameError, KernelSyntaxError, KernelTypeError
from cubepy.lang import dtypes as dt
from cubepy.lang.builtins import Topology
from cubepy.lang.struct import Struct

OPERATORS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.MatMult: "matmul",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "inv",
    ast.Not: "not_",
}
ARRAY_METHODS = ("load", "store", "store_stream", "prefetch")
LINE_METHODS = ("sum", "prod", "max", "min", "any", "all")


class Expressions(State):
    """Adds expressions to what can be walked."""

    units: tuple[int, int, int]
    plane: int

    def place(self, node: ast.AST) -> None:
        """Remember where we are in the user's source."""
        self.location = self.frame.source.at(node)

    def eval(self, node: ast.expr) -> Value:
        """The value of an expression."""
        saved = self.location
        self.place(node)
        method = getattr(self, f"expr_{type(node).__name__}", None)
        if method is None:
            raise self.unsupported(node)
        value = method(node)
        self.location = saved
        return value

    def eval_all(self, *nodes: ast.expr) -> list[Value]:
        """The values of expressions, evaluated from left to right."""
        values: list[Value] = []
        marks: list[int] = []
        for node in nodes:
            values.append(self.eval(node))
            marks.append(len(self.out))
        for i in reversed(
            range(len(values) - 1)
        ):  # from the right: what is inserted moves no earlier mark
            if len(self.out) > marks[i]:
                values[i] = self.keep(values[i], marks[i])
        return values

    def operator(self, op: ast.AST) -> str:
        """The IR's name of a Python operator."""
        try:
            return OPERATORS[type(op)]
        except KeyError:
            raise KernelSyntaxError(
                f"the operator {type(op).__name__} cannot be used in a kernel"
            ) from None

    def expr_Constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, (complex, bytes)):
            raise KernelTypeError(
                f"a {type(node.value).__name__} literal cannot be used in a kernel"
            )
        return Const(node.value)

    def expr_Name(self, node: ast.Name) -> Value:
        return self.looked_into(self.name(node.id))

    def looked_into(self, value: Value) -> Value:
        """A value of which all may be read: a list and the like counts with what it holds."""
        if isinstance(value, Const) and isinstance(value.value, HOLDERS):
            self.facts.reads.inside(value.value)
        return value

    def owner(self, node: ast.expr) -> Value:
        """The value of which an attribute or an item is taken: nothing else of it is read."""
        if isinstance(node, ast.Name):
            return self.name(node.id)
        return (
            self.attribute(self.owner(node.value), node.attr)
            if isinstance(node, ast.Attribute)
            else self.eval(node)
        )

    def name(self, name: str) -> Value:
        """What a name means here.

        Raises:
            KernelNameError: nothing of that name is bound yet, or at all.
        """
        if name in self.frame.env:
            value = self.frame.env[name]
            if isinstance(value, Undecided):
                if value.key is not None and value.key not in self.facts.runtime:
                    self.make_runtime(value.key)
                raise ComptimeError(
                    value.message, hint="assign it on every path, with a runtime value"
                )
            return value
        if name in self.frame.source.locals:
            raise KernelNameError(
                f"the variable {name!r} is used before it has a value",
                hint="assign it on every path before this line",
            )
        found = self.facts.reads.name(self.frame.source.fn, name)
        if found is MISSING:
            raise KernelNameError(f"the name {name!r} is not defined", hint=self.near(name))
        return self.wrap(found)

    def near(self, name: str) -> str:
        """A suggestion for a misspelt name."""
        import difflib

        known = [*self.frame.env, *self.frame.source.fn.__globals__]
        close = difflib.get_close_matches(name, known, n=1)
        return (
            f"did you mean {close[0]!r}?"
            if close
            else "a kernel sees its parameters, closure and module"
        )

    def wrap(self, value: Any) -> Value:
        """A host object as a value of the kernel."""
        if isinstance(value, Topology):
            return self.topology(value.name)
        if isinstance(value, Struct):
            return StructValue(
                value.type, tuple((n, self.wrap(v)) for n, v in value.values.items())
            )
        if hasattr(value, "__array_interface__") and getattr(value, "ndim", 0) > 0:
            raise ComptimeError(
                "an array from outside cannot be used in a kernel directly",
                hint="pass it as an argument",
            )
        return Const(value)

    def topology(self, name: str) -> Value:
        """A position or size of the launch."""
        if name == "CLUSTER_POS":
            from cubepy.compiler.hardware_calls import cluster_position

            return cluster_position(self)
        self.axes |= name.endswith(("_Y", "_Z"))
        if name.startswith("CUBE_DIM"):
            x, y, z = self.units
            return Const({"": x * y * z, "_X": x, "_Y": y, "_Z": z}[name[len("CUBE_DIM") :]])
        if name == "PLANE_DIM" or (name == "UNIT_POS_PLANE" and self.plane == 1):
            return Const(self.plane if name == "PLANE_DIM" else 0)
        if name == "PLANE_POS" and self.plane == 1:
            name = "UNIT_POS"
        axis = "_XYZ".find(name[-1]) - 1 if name[-2] == "_" else -1
        if (
            name.startswith("UNIT_POS")
            and (self.units[axis] if axis >= 0 else max(self.units)) == 1
        ):
            return Const(0)
        return Expr("topology", VType(self.index), (), name)

    def expr_Attribute(self, node: ast.Attribute) -> Value:
        return self.looked_into(self.attribute(self.owner(node.value), node.attr))

    def attribute(self, owner: Value, name: str) -> Value:
        """`owner.name`."""
        if isinstance(owner, Const):
            return self.const_attribute(owner, name)
        if isinstance(owner, ArrayValue):
            return self.array_attribute(owner, name)
        if isinstance(owner, StructValue):
            field = owner.get(name)
            if field is not None:
                return field
            if name in owner.type.methods:
                return MethodValue(owner, name)
            raise KernelNameError(
                f"struct {owner.type.__name__} has no field or method {name!r}",
                hint=f"it has {', '.join([n for n, _ in owner.fields] + list(owner.type.methods))}",
            )
        if isinstance(owner, Expr):
            if name == "dtype":
                return Const(owner.type.dtype)
            if name == "lanes" and owner.type.lanes:
                return Const(owner.type.lanes)
            if owner.type.lanes and name in LINE_METHODS:
                return MethodValue(owner, name)
        raise KernelNameError(f"{describe(owner)} has no attribute {name!r}")

    def const_attribute(self, owner: Const, name: str) -> Value:
        obj = owner.value
        try:
            return self.wrap(self.facts.reads.attribute(obj, name))
        except AttributeError:
            what = (
                f"module {obj.__name__!r}" if isinstance(obj, types.ModuleType) else describe(owner)
            )
            raise KernelNameError(f"{what} has no attribute {name!r}") from None

    def array_attribute(self, owner: ArrayValue, name: str) -> Value:
        mem = owner.mem
        if name == "dtype":
            return Const(mem.dtype)
        if name == "ndim":
            return Const(mem.ndim)
        if name == "lanes" and mem.lanes:
            return Const(mem.lanes)
        if mem.kind == "map":
            return self.map_attribute(mem, name)
        if name in ARRAY_METHODS:
            return MethodValue(owner, name)
        if mem.shape is not None:
            if name == "size":
                return Const(_product(mem.shape))
            if name == "shape":
                return Const(mem.shape)
            if name == "stride":
                return Const(tuple(_product(mem.shape[d + 1 :]) for d in range(mem.ndim)))
        index = VType(self.index)
        if name == "size":
            return Expr("size", index, (), mem)
        if name in ("shape", "stride"):
            return TupleValue(tuple(Expr(name, index, (), (mem, d)) for d in range(mem.ndim)))
        raise KernelNameError(
            f"an array has no attribute {name!r}",
            hint="it has size, shape, stride, dtype, ndim, load and store",
        )

    def map_attribute(self, mem: Mem, name: str) -> Value:
        """`map.name`."""
        box = mem.shape or ()
        known = {
            "box": box,
            "swizzle": int(mem.layout),
            "nbytes": _product(box) * mem.dtype.itemsize,
        }
        if name not in known:
            raise KernelNameError(
                f"a tensor map has no attribute {name!r}",
                hint="it has dtype, ndim, box, swizzle and nbytes",
            )
        return Const(known[name])

    def expr_Tuple(self, node: ast.Tuple) -> Value:
        return plain(TupleValue(tuple(self.eval_all(*node.elts))))

    def expr_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.eval_all(node.left, node.right)
        op = self.operator(node.op)
        if op == "add" and (isinstance(left, TupleValue) or isinstance(right, TupleValue)):
            return plain(TupleValue((*self._tuple(left), *self._tuple(right))))
        return convert.binary(op, left, right, self.index)

    def _tuple(self, value: Value) -> tuple[Value, ...]:
        if isinstance(value, TupleValue):
            return value.items
        if isinstance(value, Const) and isinstance(value.value, tuple):
            return tuple(Const(v) for v in value.value)
        raise KernelTypeError(f"{describe(value)} is not a tuple")

    def expr_UnaryOp(self, node: ast.UnaryOp) -> Value:
        return convert.unary(self.operator(node.op), self.eval(node.operand))

    def expr_Compare(self, node: ast.Compare) -> Value:
        result: Value | None = None
        left, *others = self.eval_all(node.left, *node.comparators)
        for i, (op, right) in enumerate(zip(node.ops, others, strict=True)):
            if i + 1 < len(node.ops):
                right = self.pinned(right)
            one = self.compare(op, left, right)
            result = one if result is None else self.both(result, one)
            left = right
        assert result is not None
        return result

    def both(self, a: Value, b: Value) -> Value:
        """`a and b` of two comparisons, lane by lane for masks."""
        if isinstance(a, Const):
            return b if a.value else a
        if isinstance(b, Const):
            return a if b.value else b
        return convert.binary("and_", a, b, self.index)

    def compare(self, op: ast.cmpop, left: Value, right: Value) -> Value:
        """One comparison; `is`, `in` and comparisons of tuples are comptime."""
        if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            if not (isinstance(left, Const) and isinstance(right, Const)):
                if (
                    isinstance(op, (ast.Is, ast.IsNot))
                    and isinstance(right, Const)
                    and right.value is None
                ):
                    return Const(isinstance(op, ast.IsNot))
                raise ComptimeError("is and in compare comptime values only")
            return Const(
                {
                    ast.Is: lambda a, b: a is b,
                    ast.IsNot: lambda a, b: a is not b,
                    ast.In: lambda a, b: a in b,
                    ast.NotIn: lambda a, b: a not in b,
                }[type(op)](left.value, right.value)
            )
        return convert.compare(self.operator(op), left, right, self.index)

    def expr_BoolOp(self, node: ast.BoolOp) -> Value:
        is_and = isinstance(node.op, ast.And)
        result = self.eval(node.values[0])
        for value_node in node.values[1:]:
            if isinstance(result, Const):
                if bool(result.value) is not is_and:
                    return result
                result = self.eval(value_node)
                continue
            left = convert.condition(result)
            result = self.short_circuit(left, value_node, is_and)  # type: ignore[arg-type]
        return result

    def short_circuit(self, left: Expr, node: ast.expr, is_and: bool) -> Value:
        """`left and right`, evaluating what `right` needs only when it counts."""
        saved, self.out = self.out, []
        right = self.eval(node)
        work, self.out = self.out, saved
        right = convert.condition(right)
        if isinstance(right, Const):
            if not work:
                return left if right.value is is_and else right
            right = convert.runtime(right)
        if not work and not right.touches_memory:  # type: ignore[union-attr]
            return Expr("and" if is_and else "or", convert.BOOL, (left, convert.runtime(right)))
        left = self.temporary(left, "both" if is_and else "either")
        right_expr = convert.to(right, dt.bool_)
        work.append(Assign(str(left.attr), right_expr, loc=self.location))
        self.emit(If(left, work, []) if is_and else If(left, [], work))
        return left

    def expr_IfExp(self, node: ast.IfExp) -> Value:
        test = self.eval(node.test)
        if isinstance(test, Expr) and test.type.lanes:
            return self.lane_by_lane(test, node)  # type: ignore[attr-defined, no-any-return]
        cond = convert.condition(test)
        if isinstance(cond, Const):
            return self.eval(node.body if cond.value else node.orelse)
        assert isinstance(cond, Expr)
        saved = self.out
        self.out = []
        a = self.eval(node.body)
        work_a, self.out = self.out, []
        b = self.eval(node.orelse)
        work_b, self.out = self.out, saved
        if not all(isinstance(v, (Expr, Const)) for v in (a, b)):
            raise ComptimeError(
                "a conditional expression with a runtime condition chooses between numbers"
            )
        x, y = convert.unify(a, b, self.index)
        if not work_a and not work_b and not x.touches_memory and not y.touches_memory:
            return Expr("select", x.type, (convert.to(cond, dt.bool_, x.type.lanes), x, y))
        name = self.fresh("chosen")
        self.types[name] = x.type
        work_a.append(Assign(name, x, loc=self.location))
        work_b.append(Assign(name, y, loc=self.location))
        self.emit(If(cond, work_a, work_b))
        return Expr("var", x.type, (), name)

    def expr_Subscript(self, node: ast.Subscript) -> Value:
        return self.looked_into(self.item(node))

    def item(self, node: ast.Subscript) -> Value:
        """`owner[...]`."""
        values.refuse_index_after_index(node, self.frame.env)
        saved, owner = self.location, self.owner(node.value)
        self.location = saved
        if isinstance(owner, Const) and isinstance(node.slice, ast.Slice):
            bounds = [
                self.eval(b) if b is not None else Const(None) for b in _slice_parts(node.slice)
            ]
            if all(isinstance(b, Const) for b in bounds):
                return Const(self.facts.reads.item(owner.value, slice(*(b.value for b in bounds))))  # type: ignore[union-attr]
        if isinstance(owner, TupleValue) and isinstance(node.slice, ast.Slice):
            bounds = [
                self.eval(b) if b is not None else Const(None) for b in _slice_parts(node.slice)
            ]
            return plain(TupleValue(owner.items[slice(*(b.value for b in bounds))]))  # type: ignore[union-attr]
        return self.subscript(owner, self.index_values(node.slice))

    def index_values(self, node: ast.expr) -> tuple[Value, ...]:
        """The indices inside `[...]`."""
        if isinstance(node, ast.Tuple):
            return tuple(self.eval_all(*node.elts))
        value = self.eval(node)
        if isinstance(value, TupleValue):
            return value.items
        if isinstance(value, Const) and isinstance(value.value, tuple):
            return tuple(Const(v) for v in value.value)
        return (value,)

    def subscript(self, owner: Value, indices: tuple[Value, ...]) -> Value:
        """`owner[indices]`."""
        if isinstance(owner, ArrayValue):
            mem = owner.mem
            self.read.add(mem.name)
            return Expr(
                "load", VType(mem.dtype.compute, mem.lanes), self.indices(mem, indices), mem
            )
        if isinstance(owner, Expr) and owner.type.lanes:
            k = self.comptime_int(indices[0], "the lane of a line")
            if not 0 <= k < owner.type.lanes:
                raise KernelTypeError(
                    f"lane {k} is out of range: the line has {owner.type.lanes} lanes"
                )
            return Expr("extract", VType(owner.type.dtype), (owner,), k)
        if isinstance(owner, TupleValue) and len(indices) == 1:
            k = self.comptime_int(indices[0], "the index of a tuple")
            if not -len(owner.items) <= k < len(owner.items):
                raise KernelTypeError(f"axis {k} is out of range for {len(owner.items)} axes")
            return owner.items[k]
        if isinstance(owner, Const):
            if not all(isinstance(i, Const) for i in indices):
                raise ComptimeError(
                    "a comptime value is indexed with a runtime value",
                    hint="pass the values as an array instead",
                )
            key = tuple(i.value for i in indices)  # type: ignore[union-attr]
            try:
                return self.wrap(
                    self.facts.reads.item(owner.value, key if len(key) > 1 else key[0])
                )
            except (IndexError, KeyError, TypeError) as error:
                raise KernelTypeError(
                    f"{describe(owner)} cannot be indexed with {key}: {error}"
                ) from None
        raise KernelTypeError(f"{describe(owner)} cannot be indexed")

    def comptime_int(self, value: Value, what: str) -> int:
        """A value that must be a comptime int."""
        if not isinstance(value, Const):
            raise ComptimeError(f"{what} must be comptime, but it is {describe(value)}")
        if isinstance(value.value, bool) or not hasattr(value.value, "__index__"):
            raise ComptimeError(f"{what} must be an int, not {value.value!r}")
        return value.value.__index__()

    def indices(self, mem: Mem, values: tuple[Value, ...]) -> tuple[Expr, ...]:
        """Indices of an element, checked for rank and kind."""
        if mem.kind == "map":
            raise KernelTypeError(
                f"the tensor map {mem.argument} cannot be indexed",
                hint="copy boxes of it with cb.tma_load",
            )
        if len(values) != mem.ndim:
            raise KernelTypeError(
                f"{mem.argument or mem.name} has rank {mem.ndim} and is indexed with {len(values)} "
                f"{'index' if len(values) == 1 else 'indices'}",
                hint="use load(i, lanes) and store(i, line) for positions in C order",
            )
        return tuple(self.as_index(v) for v in values)

    def as_index(self, value: Value) -> Expr:
        """A value as an integer index."""
        expr = convert.runtime(value, self.index)
        if expr.type.lanes:
            raise KernelTypeError(
                "an index must be a scalar, not a line", hint="use load(i, lanes) for neighbours"
            )
        if not expr.type.dtype.is_int:
            raise KernelTypeError(
                f"an index must be an integer, not {expr.type.dtype.name}",
                hint="write cb.cast(i, cb.i32)",
            )
        return expr

    def store_subscript(self, owner: Value, indices: tuple[Value, ...], value: Value) -> None:
        """`owner[indices] = value`."""
        if not isinstance(owner, ArrayValue):
            raise KernelTypeError(
                f"{describe(owner)} cannot be assigned to by index",
                hint="lines and tuples are immutable; make a new one"
                if not isinstance(owner, Const)
                else "",
            )
        mem = owner.mem
        self.written.add(mem.name)
        if isinstance(value, Expr) and value.type.lanes and not mem.lanes:
            raise KernelTypeError(
                "a line cannot be stored into one element",
                hint=f"use {mem.argument or mem.name}.store(i, line)",
            )
        place = f"the array {mem.argument or mem.name!r}"
        self.emit(
            Store(
                mem,
                self.indices(mem, indices),
                convert.storable(value, mem.dtype, mem.lanes, place),
            )
        )

    def expr_Call(self, node: ast.Call) -> Value:
        return self.call(node)


def _slice_parts(node: ast.Slice) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    return node.lower, node.upper, node.step


def _product(shape: tuple[int, ...]) -> int:
    out = 1
    for n in shape:
        out *= n
    return out
