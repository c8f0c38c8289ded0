"""What a kernel read from outside while it was compiled, and whether all of that still is what it
was.

A kernel takes globals, closure cells, attributes and items of Python's objects as constants, so its
code is right as long as they are the same. `Reads` notes each of them, with the value that counted;
`Guard` asks again before a launch, by identity and in a function written for it: a few nanoseconds
a name. Objects that are equal but not the same (a float that was computed again) are looked at
closer, once.

What cubepy's own modules hold is taken not to change. Of an ordinary Python function that ran while
the code was made, the globals and closure cells that it and the functions it calls name are noted,
not what it asked of files or clocks.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import os
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterator
from opcode import EXTENDED_ARG, opmap
from operator import is_
from typing import Any

import numpy as np

from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func, Kernel
from cubepy.lang.dtypes import DType
from cubepy.lang.struct import Struct, StructType

MISSING = object()
_LOAD_GLOBAL, _LOAD_NAME = opmap["LOAD_GLOBAL"], opmap["LOAD_NAME"]
_GLOBAL_SHIFT = 1 if sys.version_info >= (3, 11) else 0  # its lowest bit says whether a call comes
HOLDERS = (list, dict, set, bytearray, deque)
"""Types whose contents change while they stay the same object."""
_FIXED = (
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    range,
    slice,
    frozenset,
    type(None),
    np.dtype,
    np.generic,
    enum.Enum,
    DType,
    Builtin,
    Func,
    Kernel,
    Struct,
    StructType,
)
_METHODS = (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)
_INSTALLED = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"
_PYTHON = tuple({os.path.join(sysconfig.get_path(p), "") for p in ("stdlib", "platstdlib")})


@dataclasses.dataclass(eq=False)
class Read:
    """One thing that was read.

    Attributes:
        kind: "global" (`of` is a module's dict), "cell", "attribute", "item", or "contents" (of
            what changes in place).
        of, key: where it stands.
        value: what it was.
    """

    kind: str
    of: Any
    key: Any
    value: Any

    def now(self) -> Any:
        """What stands there now.

        Raises:
            Exception: whatever reading it raises.
        """
        if self.kind == "global":
            found = self.of.get(self.key, MISSING)
            return getattr(builtins, self.key) if found is MISSING else found
        if self.kind == "cell":
            return self.of.cell_contents
        if self.kind == "attribute":
            return getattr(self.of, self.key)
        return self.of[self.key] if self.kind == "item" else contents(self.of)


class Reads:
    """What one kernel read. A place that is read twice keeps the value that it had first."""

    def __init__(self) -> None:
        self.all: dict[Any, Read] = {}
        self.functions: list[Any] = []  # of Python's that ran
        self.ours: dict[int, Any] = {}  # containers that cubepy's own modules hold

    def name(self, fn: Callable[..., Any], name: str) -> Any:
        """What a free name of a function means (closure, module, builtins), or MISSING."""
        code = fn.__code__
        if name in code.co_freevars and fn.__closure__ is not None:
            return self.cell(fn.__closure__[code.co_freevars.index(name)])
        scope = fn.__globals__
        value = scope.get(name, MISSING)
        if value is MISSING:
            value = getattr(builtins, name, MISSING)
        if (
            value is MISSING
            or _own(scope.get("__name__"))
            or (isinstance(value, types.ModuleType) and _own(value.__name__))
        ):
            if isinstance(value, HOLDERS):
                self.ours[id(value)] = value
            return value
        return self.note("global", scope, name, value)

    def cell(self, cell: Any) -> Any:
        """What a closure's cell holds, or MISSING."""
        try:
            return self.note("cell", cell, "", cell.cell_contents)
        except ValueError:
            return MISSING

    def attribute(self, owner: Any, name: str) -> Any:
        """`owner.name`.

        Raises:
            AttributeError: there is none.
        """
        value = getattr(owner, name)
        if _fixed(owner):
            return value
        if isinstance(value, _METHODS):
            self.inside(getattr(value, "__self__", None))
        return self.note("attribute", owner, name, value)

    def item(self, owner: Any, key: Any) -> Any:
        """`owner[key]`.

        Raises:
            IndexError, KeyError, TypeError: there is none.
        """
        value = owner[key]
        if _fixed(owner) or id(owner) in self.ours:
            return value
        if isinstance(key, slice):
            self.inside(owner)
            return value
        return self.note("item", owner, key, value)

    def note(self, kind: str, of: Any, key: Any, value: Any) -> Any:
        """Keep what was read; gives the value that counts."""
        return self.all.setdefault((kind, id(of), key), Read(kind, of, key, value)).value

    def inside(self, value: Any) -> None:
        """Somebody looks into an object: note all that it holds, and what that holds."""
        if id(value) in self.ours:
            return
        holder = (
            value
            if isinstance(value, HOLDERS)
            else None
            if _fixed(value)
            else getattr(value, "__dict__", None)
        )
        if (
            isinstance(value, (type, types.ModuleType, *_METHODS, types.FunctionType))
            or holder is None
        ):
            parts = value if isinstance(value, tuple) else ()
        elif ("contents", id(holder), "") in self.all:
            return
        else:
            parts = self.note("contents", holder, "", contents(holder))
        for part in parts:
            self.inside(part)

    def call(self, fn: Any, args: tuple[Any, ...]) -> None:
        """A function of Python's runs with these arguments: note what it may look at."""
        for value in args:
            if callable(value):
                self.function(value)
            else:
                self.inside(value)
        self.function(fn)

    def function(self, fn: Any) -> None:
        """Note the globals and cells that a Python function names, and those of the functions among
        them.
        """
        if isinstance(fn, functools.partial):
            return self.call(fn.func, (*fn.args, *fn.keywords.values()))
        if isinstance(fn, _METHODS):
            self.inside(fn.__self__)
            fn = getattr(fn, "__func__", fn)
        fn = fn.fn if isinstance(fn, Func) else fn
        if not isinstance(fn, types.FunctionType):
            if not isinstance(fn, (type, types.BuiltinFunctionType)) and not _fixed(fn):
                self.inside(fn)
                method = getattr(type(fn), "__call__", None)  # noqa: B004  (what runs, not whether it can)
                fn = method
        if not isinstance(fn, types.FunctionType) or any(fn is f for f in self.functions):
            return None
        file = fn.__code__.co_filename
        if _own(fn.__module__) or file.startswith(_PYTHON) or any(p in file for p in _INSTALLED):
            return None
        self.functions.append(fn)
        self.note("attribute", fn, "__code__", fn.__code__)
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(fn, name) is not None:
                self.note("attribute", fn, name, getattr(fn, name))
        names = set(_names(fn.__code__))
        for value in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()):
            self.named(value, names)
        for name in sorted(set(_globals(fn.__code__)) & fn.__globals__.keys()):
            self.named(self.name(fn, name), names)
        for cell in fn.__closure__ or ():
            self.named(self.cell(cell), names)
        return None

    def named(self, value: Any, names: set[str]) -> None:
        """A function names a value, and the attributes `names` of something."""
        if isinstance(value, (types.ModuleType, type)) and not _fixed(value):
            for name in sorted(names & vars(value).keys()):
                self.attribute(value, name)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial, Func)):
            self.function(value)
        elif value is not MISSING:
            self.inside(value)
            self.class_attributes(type(value), names)

    def class_attributes(self, kind: type, names: set[str]) -> None:
        """Note what of `names` the classes of users say that an object is of."""
        for one in kind.__mro__:
            if _own(one.__module__) or not _of_user(one.__module__):
                continue
            for name in sorted(names & vars(one).keys()):
                found = self.attribute(one, name)
                self.function(found.fget if isinstance(found, property) else found)


def contents(value: Any) -> tuple[Any, ...]:
    """What a container holds, in its order."""
    return (*value, *value.values()) if isinstance(value, dict) else tuple(value)


def _alike(value: Any, kept: tuple[Any, ...]) -> bool:
    """Whether a container holds the same objects as it did."""
    return len(value) * (2 if isinstance(value, dict) else 1) == len(kept) and all(
        map(is_, contents(value), kept)
    )


def _of_user(module: str) -> bool:
    """Whether a module is neither Python's nor installed."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module == "__main__"
    return not (file.startswith(_PYTHON) or any(p in file for p in _INSTALLED))


def _own(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "cubepy"


def _fixed(value: Any) -> bool:
    """Whether an object's attributes and items stay what they are."""
    if isinstance(value, _FIXED):
        return True
    if isinstance(value, types.ModuleType):
        return _own(value.__name__)
    parameters = getattr(type(value), "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _globals(code: types.CodeType) -> Iterator[str]:
    """The names that code looks up among globals; `co_names` has those of attributes, too."""
    extended, words = 0, code.co_code
    for op, argument in zip(words[::2], words[1::2], strict=True):
        at = argument | extended
        extended = at << 8 if op == EXTENDED_ARG else 0
        if op == _LOAD_GLOBAL:
            yield code.co_names[at >> _GLOBAL_SHIFT]
        elif op == _LOAD_NAME:
            yield code.co_names[at]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals(constant)


def same(one: Any, other: Any) -> bool:
    """Whether two objects mean the same to a kernel: 1, 1.0 and True do not."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one.hex() == other.hex()
    if isinstance(one, (int, str, bytes, range, slice, np.dtype)):
        return bool(one == other)
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, types.MethodType):
        return one.__func__ is other.__func__ and one.__self__ is other.__self__
    if isinstance(one, _METHODS):
        return one.__self__ is other.__self__ and one.__name__ == other.__name__
    if dataclasses.is_dataclass(one) and _fixed(one) and not isinstance(one, _FIXED):
        names = [f.name for f in dataclasses.fields(one)]
        return all(same(getattr(one, n), getattr(other, n)) for n in names)
    return False


class Guard:
    """Whether what a kernel read still is what it was.

    Attributes:
        holds: whether it all is the same objects; quick.
    """

    def __init__(self, reads: Reads, fn: Callable[..., Any]) -> None:
        self.reads = list(reads.all.values())
        self.cells = [types.CellType(r.value) for r in self.reads]
        self.holds = _written(self.reads, self.cells, fn.__globals__)

    def valid(self) -> bool:
        """Whether it all means the same; what is equal, but another object, is known by identity
        from now on.
        """
        if self.holds():
            return True
        try:
            now = [r.now() for r in self.reads]
        except (
            Exception
        ):  # a name that is gone, or a property that fails: compiling again says what
            return False
        if not all(map(same, now, (r.value for r in self.reads))):
            return False
        for cell, value in zip(self.cells, now, strict=True):
            cell.cell_contents = value
        return True


def guard_of(reads: Reads, fn: Callable[..., Any]) -> Guard | None:
    """What watches over the reads of a kernel; None where there were none."""
    return Guard(reads, fn) if reads.all else None


def _written(reads: list[Read], cells: list[Any], scope: dict[str, Any]) -> Callable[[], bool]:
    """A function that compares by identity. Its globals are the kernel's own, which Python looks up
    the quickest.
    """
    mark = "_read"
    while any(str(r.key).startswith(mark) for r in reads):
        mark += "_"
    free: dict[str, Any] = {
        f"{mark}_alike": types.CellType(_alike),
        f"{mark}_same": types.CellType(same),
    }
    terms = []
    for n, (r, cell) in enumerate(zip(reads, cells, strict=True)):
        value, of, key = (f"{mark}_{letter}{n}" for letter in "vok")
        free[value], free[of], free[key] = cell, types.CellType(r.of), types.CellType(r.key)
        if r.kind == "global" and r.of is scope and r.key.isidentifier():
            terms.append(f"{r.key} is {value}")
        elif r.kind == "global":
            there = r.key in r.of
            terms.append(f"{of}[{r.key!r}] is {value}" if there else f"{r.key!r} not in {of}")
        elif r.kind == "cell":
            free[of] = r.of
            terms.append(f"{of} is {value}")
        elif r.kind == "contents":
            terms.append(f"{mark}_alike({of}, {value})")
        else:
            expression = f"{of}.{r.key}" if r.kind == "attribute" else f"{of}[{key}]"
            anew = r.now() is not r.value  # whenever it is asked for
            terms.append(
                f"{mark}_same({expression}, {value})" if anew else f"{expression} is {value}"
            )
    text = (
        f"def outer({', '.join(free)}):\n"
        "    def holds():\n        try:\n"
        f"            return ({' and '.join(terms)})\n"
        "        except Exception:\n            return False\n"
    )
    module: dict[str, Any] = {}
    exec(compile(text, "<what a kernel read>", "exec"), module)  # text made above
    inner = next(c for c in module["outer"].__code__.co_consts if isinstance(c, types.CodeType))
    return types.FunctionType(
        inner, scope, "holds", None, tuple(free[n] for n in inner.co_freevars)
    )  # type: ignore[return-value]
