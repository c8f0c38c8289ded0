"""`@cb.struct`: aggregates of runtime and comptime fields, with methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from cubepy.errors import KernelTypeError
from cubepy.lang.annotations import Aggregate, Array, TensorMap, View
from cubepy.lang.declare import Func, is_comptime
from cubepy.lang.dtypes import DType

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform() -> Any:
        """Tell type checkers that a decorator makes classes whose fields are arguments."""
        return lambda decorator: decorator


C = TypeVar("C", bound=type)


@dataclass(frozen=True)
class StructField:
    """One field of a struct: `kind` as in `Param`."""

    name: str
    kind: str
    dtype: DType | None = None
    struct: Any = None


OPERATORS = {
    **{op: op for op in "add sub mul truediv floordiv mod pow matmul xor".split()},
    "and_": "and",
    "or_": "or",
    "shl": "lshift",
    "shr": "rshift",
}
"""The compiler's names of operators of two values that are no comparisons, and Python's."""
COMPARISONS = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
"""Comparisons, and those that mean the same with the values the other way round."""
UNARY = {"neg": "neg", "pos": "pos", "inv": "invert"}


def method_of(op: str) -> str:
    """The method that an operator calls of its first value."""
    return f"__{OPERATORS.get(op) or UNARY.get(op) or op}__"


def mirrored(op: str) -> str:
    """The method that an operator calls of its second value, where the first has none."""
    return f"__{COMPARISONS[op]}__" if op in COMPARISONS else f"__r{OPERATORS.get(op, op)}__"


MADE = ("__init__", "__new__", "__post_init__", "__getattr__", "__setattr__")
"""Methods that `@cb.struct` makes, or has no use for."""


class StructType(Aggregate):
    """A class made by `@cb.struct`; calling it makes an instance, on the host and in kernels."""

    def __init__(self, cls: type) -> None:
        if not inspect.isclass(cls):
            raise KernelTypeError(f"@cb.struct takes a class, not {cls!r}")
        for n, v in vars(cls).items():
            if isinstance(v, (property, staticmethod, classmethod)) or n in MADE:
                kind = f"its own {n}" if n in MADE else f"the {type(v).__name__} {n!r}"
                raise KernelTypeError(
                    f"struct {cls.__name__} has {kind}: a struct has fields and methods",
                    hint="write a method, or a @cb.func that makes one",
                )
        self.cls = cls
        self.__name__, self.__qualname__, self.__doc__ = cls.__name__, cls.__qualname__, cls.__doc__
        self.__module__ = cls.__module__
        self.methods = {n: Func(f) for n, f in _functions(cls).items()}
        self._fields: tuple[StructField, ...] | None = None
        annotated = getattr(cls, "__annotations__", {})  # asking may add it to those of the class
        self._defaults = {n: v for n, v in vars(cls).items() if n in annotated}

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise KernelTypeError(
            f"struct {self.__name__} cannot be inherited from",
            hint="give the other struct a field of it, or a method for what it shares",
        )

    @property
    def fields(self) -> tuple[StructField, ...]:
        """The fields in order, read at first use."""
        if self._fields is None:
            import sys

            scope = (
                dict(vars(sys.modules[self.cls.__module__]))
                if self.cls.__module__ in sys.modules
                else {}
            )
            for (
                method
            ) in self.methods.values():  # a class made inside a function sees what its methods see
                scope.update(method.fn.__globals__)
            self._fields = tuple(
                self._field(n, a, scope)
                for n, a in getattr(self.cls, "__annotations__", {}).items()
            )
        return self._fields

    def _field(self, name: str, annotation: Any, scope: dict) -> StructField:
        if isinstance(annotation, str):
            annotation = eval(annotation, dict(scope))  # the author's own annotation
        if is_comptime(annotation):
            return StructField(name, "comptime")
        if annotation is Array:
            return StructField(name, "array")
        if annotation is View:
            return StructField(name, "view")
        if annotation is TensorMap:
            return StructField(name, "map")
        if annotation is Any:
            return StructField(name, "any")
        if isinstance(annotation, DType):
            return StructField(name, "scalar", dtype=annotation)
        if isinstance(annotation, StructType):
            return StructField(name, "struct", struct=annotation)
        raise KernelTypeError(
            f"field {name!r} of struct {self.__name__} is annotated {annotation!r}",
            hint="use a dtype, cb.Array, cb.View, cb.Comptime[...], typing.Any or another "
            "@cb.struct",
        )

    def bind(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Match constructor arguments to fields; raises `KernelTypeError` when they do not fit."""
        names = [f.name for f in self.fields]
        if len(args) > len(names):
            raise KernelTypeError(
                f"{self.__name__} has {len(names)} fields but {len(args)} values were given",
                hint=f"its fields are {names}",
            )
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in given:
                raise KernelTypeError(
                    f"{self.__name__} has no free field {name!r}", hint=f"fields: {names}"
                )
            given[name] = value
        missing = [n for n in names if n not in given and n not in self._defaults]
        if missing:
            raise KernelTypeError(
                f"{self.__name__} lacks values for {missing}", hint=f"its fields are {names}"
            )
        return {n: given.get(n, self._defaults.get(n)) for n in names}

    def __call__(self, *args: Any, **kwargs: Any) -> Struct:
        return Struct(self, self.bind(args, kwargs))

    def __repr__(self) -> str:
        return f"<cb.struct {self.__qualname__}>"


def _functions(cls: type) -> dict[str, Callable]:
    return {n: f for n, f in vars(cls).items() if inspect.isfunction(f)}


@dataclass(frozen=True, eq=False)
class Struct:
    """An instance of a struct: immutable; fields are attributes, methods are bound."""

    __cubepy_type__: StructType
    __cubepy_values__: dict[str, Any] = field(repr=False)

    def __getattr__(self, name: str) -> Any:
        values = object.__getattribute__(self, "__cubepy_values__")
        if name in values:
            return values[name]
        method = object.__getattribute__(self, "__cubepy_type__").methods.get(name)
        if method is None:
            raise AttributeError(
                f"struct {self.__cubepy_type__.__name__} has no field or method {name!r}"
            )
        return lambda *a, **k: method(self, *a, **k)

    __array_ufunc__ = None  # numbers of NumPy leave operators to the struct
    __hash__ = object.__hash__

    def __cubepy_called__(self, method: Func, *args: Any) -> Any:
        """What a method gives that an operator calls."""
        return method(self, *args)

    def __getitem__(self, index: Any) -> Any:
        method = self.__cubepy_type__.methods.get("__getitem__")
        if method is None:
            raise TypeError(f"struct {self.__cubepy_type__.__name__} has no method __getitem__")
        return self.__cubepy_called__(method, index)

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={v!r}" for n, v in self.__cubepy_values__.items())
        return f"{self.__cubepy_type__.__name__}({inside})"


def _operators() -> None:
    """Give instances the operators; those that a struct has no method for are nobody's."""

    def of_two(name: str, other_way: str) -> Any:
        def operator(a: Struct, b: Any) -> Any:
            if name in a.__cubepy_type__.methods:
                return a.__cubepy_called__(a.__cubepy_type__.methods[name], b)
            if isinstance(b, Struct) and other_way in b.__cubepy_type__.methods:
                return b.__cubepy_called__(b.__cubepy_type__.methods[other_way], a)
            if name == "__ne__" and "__eq__" in a.__cubepy_type__.methods:
                return not a.__cubepy_called__(a.__cubepy_type__.methods["__eq__"], b)
            return NotImplemented

        return operator

    def of_one(name: str) -> Any:
        def operator(a: Struct) -> Any:
            if name in a.__cubepy_type__.methods:
                return a.__cubepy_called__(a.__cubepy_type__.methods[name])
            raise TypeError(f"struct {a.__cubepy_type__.__name__} has no method {name}")

        return operator

    for op in (*OPERATORS, *COMPARISONS):
        setattr(Struct, method_of(op), of_two(method_of(op), mirrored(op)))
        if op in OPERATORS:
            setattr(Struct, mirrored(op), of_two(mirrored(op), method_of(op)))
    for op in UNARY:
        setattr(Struct, method_of(op), of_one(method_of(op)))


_operators()


@dataclass_transform()
def struct(cls: C) -> C:
    """Declare an aggregate of runtime and comptime fields, written like a dataclass, with methods.

    Operators are methods, too, as in Python: `__add__`, `__rmul__`, `__lt__`, `__getitem__`.

    Example:
        >>> import cubepy as cb
        >>> @cb.struct
        ... class Complex:
        ...     re: cb.f32
        ...     im: cb.f32
        ...     def norm2(self):
        ...         return self.re * self.re + self.im * self.im
        >>> Complex(3.0, 4.0).norm2()
        25.0
    """
    return StructType(cls)  # type: ignore[return-value]
